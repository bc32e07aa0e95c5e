// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

const (
	// shareWindow is the size of the ranges that a load takes back from its announcement as soon as they are read. In a
	// range of this size, loads of several processes begin at different blocks.
	shareWindow = 64 * units.MiB
	// mostWants is the largest number of ranges of a file that a load announces. Every announcement makes the kernel's
	// tests of others slower.
	mostWants = 128
	// nearlyAll is the share of a chunk, in sixteenths, that must be cached for a read through the page cache.
	nearlyAll = 15
	// leastReach is the reach if the available memory is unknown.
	leastReach = 1 * units.GiB
)

// sharing lets a load read the cold bytes of one file together with other loads on this host, so that storage delivers
// them once. Bytes that another load has yet to read go through memory that the loads share, see trade. If the loads
// cannot share memory, these bytes go through the page cache. All other bytes are read past the page cache.
type sharing struct {
	f       *vfs.File
	in      *vfs.Interest
	refused *vfs.Refusal // why processes cannot agree; nil if they can
	block   int64
	// reach is the distance in bytes to a slower load from which on its bytes are not kept for it: they would leave the
	// page cache before it comes.
	reach    func() int64
	patience time.Duration // longest wait for a load that falls behind; 0 means the default of package exchange

	met    atomic.Bool  // another load was seen
	shift  atomic.Int64 // first block of each window for this load; 0 if it is alone
	asked  atomic.Int64 // reads since the load met others
	disk   atomic.Int64 // bytes that this load read from storage into the page cache for all
	cached atomic.Int64 // bytes that others had read
	direct atomic.Int64 // bytes that were read past the page cache

	mu      sync.Mutex
	open    map[int64]int // chunks that are not read yet, by window
	planned bool          // open is complete
	others  []int         // process ids

	wants []Extent // the ranges that the load reads, in order
	trade trade
}

// shares reports whether reads of file i may be shared with other loads.
func (t *Load) shares(i int) bool {
	return t.req.Route == report.RouteAuto && t.policies[i] != report.CacheBypass
}

// fromStorage reports whether the bytes of a chunk may come from storage, by a read that can be shared.
func fromStorage(c *plan.Chunk) bool {
	return c.NoWait || c.Exchanged || c.Way == plan.ViaDirect || c.Way == plan.ViaDirectInPlace || c.Way == plan.ViaFill
}

// announce prepares the sharing of file i. Only the planner calls it.
func (t *Load) announce(i int) *sharing {
	if x := t.shared[i]; x != nil {
		return x
	}
	f := t.req.Files[i]
	x := &sharing{f: f, block: t.e.opts.block, patience: t.e.opts.patience, open: map[int64]int{},
		reach: sync.OnceValue(func() int64 { return cmp.Or(memAvailable()/4, leastReach) })}
	if t.shareable--; t.shareable >= 0 {
		x.in, x.refused = vfs.NewInterest(f)
	} else {
		x.refused = &vfs.Refusal{Reason: "the load has too many files", Fix: "raise the limit of open files (ulimit -n)"}
	}
	t.shared[i] = x
	x.wants = t.wants(i)
	for _, w := range x.wants {
		if x.in == nil {
			break
		}
		if err := x.in.Want(w.Off, w.Len); err != nil {
			x.in.Close()
			x.in, x.refused = nil, &vfs.Refusal{Reason: err.Error(), Fix: "load it with cache policy keep"}
		}
	}
	if x.in != nil {
		x.partners() // others use the page cache as long as this load has not joined them
	}
	return x
}

// wants returns the ranges of file i that the load reads, in order. Ranges with small gaps between them are joined.
func (t *Load) wants(i int) []Extent {
	var all []Extent
	for _, s := range t.req.Segments {
		if s.File == i && s.Len > 0 {
			all = append(all, Extent{File: i, Off: s.Off, Len: s.Len})
		}
	}
	slices.SortFunc(all, func(a, b Extent) int { return cmp.Compare(a.Off, b.Off) })
	for gap := int64(plan.LeafSize); ; gap *= 2 {
		out := all[:0:0]
		for _, x := range all {
			if k := len(out) - 1; k >= 0 && x.Off-out[k].Off-out[k].Len < gap {
				out[k].Len = max(out[k].Len, x.Off+x.Len-out[k].Off)
				continue
			}
			out = append(out, x)
		}
		if len(out) <= mostWants {
			return out
		}
	}
}

// expects counts a chunk that the load has yet to read. The planner calls it, and readers that queue a part again.
func (t *Load) expects(c *plan.Chunk) {
	if !fromStorage(c) || !t.shares(c.File) {
		return
	}
	x := t.shared[c.File]
	if x == nil {
		x = t.announce(c.File)
	}
	if x.in != nil {
		x.mu.Lock()
		x.open[c.Off/shareWindow]++
		x.mu.Unlock()
	}
}

// arrived counts a chunk of a file that was read, or that will not be read.
func (t *Load) arrived(c *plan.Chunk) {
	if len(t.shared) == 0 || !fromStorage(c) {
		return
	}
	x := t.shared[c.File]
	if x == nil || x.in == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	w := c.Off / shareWindow
	if x.open[w]--; x.open[w] == 0 && x.planned {
		x.in.Done(w*shareWindow, shareWindow)
		x.advance()
	}
	if l := x.trade.lender.Load(); l != nil && x.advanced() {
		t.e.ending.Go(l.retire) // a load of many files would pin memory for each of them until its end
	}
}

// endPlan takes the announcements of all windows back that need no read from storage.
func (x *sharing) endPlan() {
	if x == nil || x.in == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.planned = true
	for w := range (x.f.Size() + shareWindow - 1) / shareWindow {
		if x.open[w] == 0 {
			x.in.Done(w*shareWindow, shareWindow)
		}
	}
	x.advance()
}

// accompanied reports whether another load on this host uses the file.
func (x *sharing) accompanied() bool { return x != nil && x.in != nil && x.in.Company() != vfs.Alone }

// together reports whether n bytes at off are read through the page cache, because another load needs them or has
// brought them in.
func (x *sharing) together(off, n int64) bool {
	if x == nil || x.in == nil {
		return false
	}
	switch x.in.Company() {
	case vfs.Alone:
		if !x.met.Load() {
			return false
		}
	case vfs.Soon:
		x.meet()
		return true
	case vfs.Now:
		x.meet()
		if from, ok := x.in.Wanted(off, n); ok && off-from <= x.reach() {
			return true
		}
	}
	hit, known := x.f.CachedBytes(off, n)
	return known && hit*16 >= n*nearlyAll
}

// meet notes the other processes, from time to time, and chooses where in a window this load begins.
func (x *sharing) meet() {
	x.met.Store(true)
	const every = 64
	if x.asked.Add(1)%every != 1 {
		return
	}
	now := x.in.Processes()
	before, _ := slices.BinarySearch(now, os.Getpid())
	blocks := shareWindow / x.block
	x.shift.Store(blocks * int64(before) / int64(len(now)+1))
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range now {
		if !slices.Contains(x.others, p) {
			x.others = append(x.others, p)
		}
	}
}

// bringTogether brings neighbouring chunks that other loads need, too, into the page cache. Threads with large staging
// slots then copy them to the device: copies of single blocks would be slower. It returns false if the caller has to
// read the chunks.
func bringTogether(t *Load, cs []plan.Chunk) bool {
	c, x := cs[0], t.shared[cs[0].File]
	last := cs[len(cs)-1]
	c.Len = last.Off + last.Len - c.Off
	if t.port.mapper != nil || c.Extra || c.Weave != nil {
		return false
	}
	if bringExchanged(t, cs, c) {
		return true
	}
	if !x.together(c.Off, c.Len) {
		return false
	}
	fail := func(err error) bool {
		t.e.sched.failed(&t.task, err)
		t.e.sched.dropAll(&t.task, len(cs)-1)
		return true
	}
	f := t.req.Files[c.File]
	if err := f.Pin(); err != nil {
		return fail(err)
	}
	defer f.Unpin()
	if err := t.e.need(plan.ViaCache, t); err != nil {
		return fail(err)
	}
	b, err := x.in.Bring(c.Off, c.Len, !t.truths[c.File].storage().Falls)
	if err != nil {
		return fail(err)
	}
	x.disk.Add(b.Missed)
	x.cached.Add(b.Cached)
	for i := range cs {
		t.arrived(&cs[i])
	}
	c.Fetched, c.Verdict = b.Missed, plan.Verdict{Way: plan.ViaCache}
	t.e.sched.requeue(&t.task, c)
	t.e.sched.dropAll(&t.task, len(cs)-1)
	return true
}

// readTogether reads n bytes at off, a superset of c, through the page cache into buf. It reports whether buf holds
// them; if not, the transfer has failed.
func readTogether(t *Load, x *sharing, c plan.Chunk, buf []byte, off int64, n int) bool {
	start := t.tally.Begin(tally.StageReadCache)
	u := t.truths[c.File]
	b, err := x.in.Read(buf, off, n, !u.storage().Falls)
	if err != nil {
		start.Drop()
		t.e.sched.failed(&t.task, err)
		return false
	}
	b.Missed = min(b.Missed, c.Len)
	b.Cached = c.Len - b.Missed
	t.tally.ReadBuffered(c.Extra, b, u.below(report.RouteTakenBuffered), start)
	x.disk.Add(b.Missed)
	x.cached.Add(b.Cached)
	return true
}

// passed counts n bytes that were read past the page cache.
func (x *sharing) passed(n int64) {
	if x != nil {
		x.direct.Add(n)
	}
}

// close ends the announcements of the load. The parameter `ending` frees the shared memory in the background.
func (x *sharing) close(ending *releases) {
	if x != nil {
		x.in.Close()
		x.leaveTrade(ending)
	}
}

// describe adds the shared reads to the report of a file. note says who read what.
func (x *sharing) describe(fr *report.File) (note string) {
	if x == nil || !x.met.Load() {
		return ""
	}
	apart := x.apart()
	copied, _ := x.trade.lender.Load().describe()
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &report.Sharing{Processes: append([]int{}, x.others...), DiskBytes: x.disk.Load(),
		MemoryBytes: x.trade.memory.Load(), CacheBytes: x.cached.Load(), DirectBytes: x.direct.Load(), Apart: apart}
	slices.Sort(s.Processes)
	fr.Shared = s
	who := "another process has opened this file"
	if n := len(s.Processes); n > 0 {
		who = fmt.Sprintf("%d other processes loaded this file at the same time", n)
		if n == 1 {
			who = fmt.Sprintf("process %d loaded this file at the same time", s.Processes[0])
		}
	}
	note = fmt.Sprintf("%s: %s; this load read %s from storage for all, took %s that others had read from memory shared "+
		"with them and %s from the page cache, and read %s past the page cache for itself", x.f.Path(), who,
		units.Bytes(s.DiskBytes), units.Bytes(s.MemoryBytes), units.Bytes(s.CacheBytes), units.Bytes(s.DirectBytes))
	if copied > 0 {
		note += fmt.Sprintf("; the device copied %s directly from the shared memory", units.Bytes(copied))
	}
	if apart != "" {
		note += "; no shared memory: " + apart
	}
	return note
}

// refusals adds to a report why reads were not shared, and why the shared memory could not be pinned.
func (x *sharing) refusals(f *facts) {
	if x == nil {
		return
	}
	if x.refused != nil && x.direct.Load() > 0 {
		f.refuse("sharing", x.f.Path(), x.refused.Reason, x.refused.Fix)
	}
	if _, err := x.trade.lender.Load().describe(); err != nil {
		f.refuse("pinned shared memory", f.device.ID, err.Error(), errs.FixOf(err))
	}
}
