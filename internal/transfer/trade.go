// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/exchange"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

const (
	// tradeEvery is the time between two looks at which processes load the file and which of them share memory.
	tradeEvery = 10 * time.Millisecond
	// unmetEvery is this time while some of them have not joined.
	unmetEvery = 1 * time.Millisecond
	// mostTraded is the most memory that the loads of a file share. A load that is further behind the others than this
	// cannot find their blocks any more. With 512 MiB, eight loads to an H200 were slower by 5 %: they pin the memory,
	// and their copies go through it again and again.
	mostTraded = 256 * units.MiB
)

// trade is the part of a load in the memory that it shares with loads of the same file in other processes. Reads past
// the page cache into this memory are faster than reads that fill the page cache.
//
// The memory is used only while all other loads of the file have joined it. Loads of other users and containers cannot
// join: the page cache then serves all.
type trade struct {
	mu      sync.Mutex
	all     []*exchange.Exchange // all that the load has joined; the last one is in use
	known   []vfs.Offer          // offers that were looked at
	refused error                // why the load cannot join
	asked   time.Time
	agreed  bool                    // all other loads have joined
	met     bool                    // all other loads had joined at some time
	fills   map[int64]time.Duration // blocks that this load read, and the time that each took

	filling quota // of the blocks that this load is reading

	joined atomic.Pointer[exchange.Exchange] // the last one of all
	lender atomic.Pointer[lender]            // nil until the load uses a slot of the memory for the second time
	memory atomic.Int64                      // bytes that others had read
	low    int64                             // first window with chunks to read; guarded by sharing.mu
}

// partners returns the memory that this load shares with other loads of the file, or nil, and whether all of them share
// it.
func (x *sharing) partners() (ex *exchange.Exchange, all bool) {
	d := &x.trade
	d.mu.Lock()
	defer d.mu.Unlock()
	every := tradeEvery
	if !d.agreed {
		every = unmetEvery
	}
	if d.refused == nil && time.Since(d.asked) >= every {
		d.agreed = x.meetPartners()
		d.met = d.met || d.agreed
		d.asked = time.Now()
	}
	return d.joined.Load(), d.agreed
}

// meetPartners joins the other loads, and reports whether all of them have joined. The caller holds trade.mu.
func (x *sharing) meetPartners() bool {
	d := &x.trade
	ex := d.joined.Load()
	if ex == nil {
		if x.in.Company() != vfs.Now {
			return false
		}
		if ex, d.refused = exchange.Join(x.in, vfs.VersionOf(x.f), min(mostTraded, memAvailable()/16)); d.refused != nil {
			return false
		}
		x.join(ex)
	}
	if older := ex.Older(d.known); older != nil {
		ex = older
		x.join(ex)
	}
	d.known = x.in.Offers()
	return ex.Covers(x.in.Processes())
}

// join uses an exchange from now on. The caller holds trade.mu.
func (x *sharing) join(ex *exchange.Exchange) {
	if x.patience > 0 {
		ex.SetPatience(x.patience)
	}
	x.trade.all = append(x.trade.all, ex)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trade.joined.Store(ex)
	ex.Done(x.trade.low * (shareWindow / exchange.Block))
}

// advance tells the others with which blocks this load is done. The caller holds sharing.mu.
func (x *sharing) advance() {
	d, windows := &x.trade, (x.f.Size()+shareWindow-1)/shareWindow
	from := d.low
	for d.low < windows && x.open[d.low] == 0 {
		d.low++
	}
	if ex := d.joined.Load(); ex != nil && d.low > from {
		ex.Done(d.low * (shareWindow / exchange.Block))
	}
}

// advanced reports whether the load has planned and read all chunks of the file. The caller holds sharing.mu.
func (x *sharing) advanced() bool {
	return x.planned && x.trade.low >= (x.f.Size()+shareWindow-1)/shareWindow
}

// exchanged brings the block of a chunk into the memory that all loads of the file share. It returns false if the
// caller has to read the chunk in another way.
func exchanged(t *Load, c plan.Chunk) bool {
	x, block := t.shared[c.File], c.Off/exchange.Block
	if x == nil || x.in == nil || c.Extra || c.Weave != nil || (c.Off+c.Len-1)/exchange.Block != block {
		return false
	}
	ex, all := x.partners()
	switch {
	case ex == nil:
		return false
	case ex.Has(block):
		return true
	case !all:
		return false
	}
	x.meet()
	var fill func(p []byte) error
	if x.worthFilling(block) && !t.truths[c.File].storage().Falls {
		fill = func(p []byte) error { return fillBlock(t, x, block, p) }
	}
	failed := func() bool { return t.e.sched.hasFailed(&t.task) }
	found, err := ex.Get(block, fill, failed)
	if err != nil && !failed() {
		x.refuseTrade(err)
	}
	return found != exchange.Elsewhere
}

// refuseTrade ends the use of shared memory after a failed read into it. The next read of the chunk finds out whether
// the file or the memory is to blame.
func (x *sharing) refuseTrade(err error) {
	x.trade.mu.Lock()
	defer x.trade.mu.Unlock()
	x.trade.refused, x.trade.agreed = err, false
}

// blockRange returns the range of a block in the file.
func (x *sharing) blockRange(block int64) (off, n int64) {
	off = block * exchange.Block
	return off, min(exchange.Block, x.f.Size()-off)
}

// worthFilling reports whether this load reads a block for all: another load has yet to read a part of it, this load
// needs most of it, and it is not in the page cache.
func (x *sharing) worthFilling(block int64) bool {
	off, n := x.blockRange(block)
	if direct, _ := x.f.Direct(); !direct || 2*x.wantedOf(off, n) < n {
		return false
	}
	if _, ok := x.in.Wanted(off, n); !ok {
		return false
	}
	hit, known := x.f.CachedBytes(off, n)
	return known && hit*16 < n*nearlyAll
}

// wantedOf returns how many of n bytes at off this load needs.
func (x *sharing) wantedOf(off, n int64) (sum int64) {
	for _, w := range x.wants {
		sum += max(0, min(w.Off+w.Len, off+n)-max(w.Off, off))
	}
	return sum
}

// takeOver copies a chunk from the shared memory to buf, and counts it under the route that its bytes took. It returns
// false if the chunk is not there any more.
func takeOver(t *Load, c plan.Chunk, buf []byte) bool {
	d := &t.shared[c.File].trade
	d.mu.Lock()
	all := d.all
	d.mu.Unlock()
	start := t.tally.Begin(tally.StageReadCache)
	if !slices.ContainsFunc(all, func(ex *exchange.Exchange) bool { return ex.Copy(buf, c.Off) }) {
		start.Drop()
		return false
	}
	countTaken(t, c, start)
	return true
}

// countTaken counts a chunk that was taken from the shared memory since start, under the route that its bytes took.
func countTaken(t *Load, c plan.Chunk, start tally.Start) {
	x := t.shared[c.File]
	d := &x.trade
	d.mu.Lock()
	took, own := d.fills[c.Off/exchange.Block]
	if own {
		d.fills[c.Off/exchange.Block] = 0 // counted with the first chunk of the block
	}
	d.mu.Unlock()
	if !own {
		t.tally.Read(false, report.RouteTakenShared, c.Len, start)
		d.memory.Add(c.Len)
		return
	}
	took += start.Drop()
	t.tally.Padded(-c.Len)
	t.tally.Read(false, t.truths[c.File].below(report.RouteTakenDirect), c.Len, tally.Ago(took))
	x.disk.Add(c.Len)
}

// bringExchanged brings neighbouring chunks of one block into the shared memory. Threads with large staging slots then
// copy them to the device. It returns false if the caller has to read the chunks.
func bringExchanged(t *Load, cs []plan.Chunk, c plan.Chunk) bool {
	if !exchanged(t, c) {
		return false
	}
	if err := t.e.need(plan.ViaCache, t); err != nil {
		t.e.sched.failed(&t.task, err)
		t.e.sched.dropAll(&t.task, len(cs)-1)
		return true
	}
	for i := range cs[1:] {
		t.arrived(&cs[1+i]) // the first one arrives with all
	}
	c.Exchanged, c.Verdict = true, plan.Verdict{Way: plan.ViaCache}
	t.e.sched.requeue(&t.task, c)
	t.e.sched.dropAll(&t.task, len(cs)-1)
	return true
}

// apart returns the reason why this load did not share memory with others. If it did, apart returns "".
func (x *sharing) apart() string {
	x.trade.mu.Lock()
	defer x.trade.mu.Unlock()
	switch d := &x.trade; {
	case d.refused != nil:
		return d.refused.Error()
	case d.all != nil && !d.met:
		return "a load of another user, container or version of NebulaIO did not join"
	}
	return ""
}

// leaveTrade ends the part of the load in the shared memory. No chunk may be left. The memory is unpinned and freed in
// the background, because the caller of the load need not wait for that.
func (x *sharing) leaveTrade(ending *releases) {
	x.trade.mu.Lock()
	defer x.trade.mu.Unlock()
	if len(x.trade.all) == 0 {
		return
	}
	var frees []func()
	for _, ex := range x.trade.all {
		frees = append(frees, ex.Retire())
	}
	x.trade.joined.Store(nil)
	ending.Go(func() {
		if err := x.trade.lender.Load().end(); err != nil {
			ending.fail(err)
			return // the driver would take other memory at this address for pinned
		}
		for _, free := range frees {
			free()
		}
	})
}
