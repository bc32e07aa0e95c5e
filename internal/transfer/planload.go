// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// planLoad cuts the segments of a load into chunks and gives each chunk to the workers.
func planLoad(ctx context.Context, t *Load) {
	defer t.e.sched.planned(&t.task)
	defer flushNetwork(t)
	defer t.cu.planned()
	start, shown := time.Now(), t.tally.Begin(tally.StagePlan)
	defer shown.Drop()
	if err := errors.Join(t.fan.await(), t.verify.need()); err != nil {
		t.e.sched.stop(&t.task, err)
		return
	}
	kept := make([]report.CachePolicy, len(t.req.Files))
	available := sync.OnceValue(memAvailable)
	t.policies, t.shared, t.shareable = kept, make([]*sharing, len(t.req.Files)), vfs.PoolSize()
	for i, f := range t.req.Files {
		kept[i] = plan.SettlePolicy(asked{f, t.req.Fresh}, t.req.Cache, i < len(t.req.Seen) && t.req.Seen[i], available)
		// A load of another process that runs at this moment has left the same traces as an earlier load.
		if kept[i] != t.req.Cache && t.shares(i) && t.announce(i).accompanied() {
			kept[i] = t.req.Cache
		}
	}
	truths := make([]*truth, len(t.req.Files))
	for i, f := range t.req.Files {
		truths[i] = newTruth(f, t.req.Route, kept[i], &t.e.storages)
	}
	t.truths = truths
	t.borders = bordersOf(t.req.Device, t.req.Segments)
	ramp := 0
	if t.port.mapper == nil {
		ramp = t.e.opts.Workers
	}
	for s := range pieces(t) {
		if s.Len == 0 {
			continue
		}
		if t.req.Route == report.RouteCuFile {
			if _, err := t.cu.decide(ctx, s.File); err != nil {
				t.e.sched.stop(&t.task, err)
				return
			}
		}
		p := plan.Planner{Params: paramsFor(t, s.File, kept[s.File]), Ask: &inquirer{t: t, ctx: ctx, file: s.File,
			packed: s.Weave != nil && !s.Weave.Apart, asked: s.Extra}, Ramp: ramp, Ramps: t.e.opts.Workers}
		if s.Weave != nil && !s.Weave.Apart {
			t.e.mu.Lock()
			t.packs = true
			t.e.mu.Unlock()
		}
		alive := true
		for c := range p.Chunks(s) {
			if alive = enqueue(t, c); !alive {
				break
			}
		}
		ramp = p.Ramp
		t.tally.FoundDirty(p.Dirty)
		if !alive {
			return
		}
	}
	if !t.e.sched.addAll(&t.task, t.small) {
		return
	}
	t.small = nil
	for _, x := range t.shared {
		x.endPlan()
	}
	t.tally.Planned(time.Since(start))
}

// pieces yields all runs to read: the segments in order, and the gaps that complete their blocks. Each gap comes near
// its segment, because a part is ready only when its blocks are complete.
func pieces(t *Load) iter.Seq[plan.Run] {
	return func(yield func(plan.Run) bool) {
		gaps := t.verify.proof.Gaps()
		// upTo yields the gaps of a file that begin before off.
		upTo := func(file int, off int64) bool {
			for file < len(gaps) && len(gaps[file]) > 0 && gaps[file][0].Off < off {
				g := gaps[file][0]
				gaps[file] = gaps[file][1:]
				if !yield(plan.Run{Segment: Segment{File: g.File, Off: g.Off, Len: g.Len}, Extra: true}) {
					return false
				}
			}
			return true
		}
		last := -1
		for s := range t.req.runs() {
			if last >= 0 && last != s.File && !upTo(last, math.MaxInt64) {
				return
			}
			last = s.File
			if !upTo(s.File, s.Off) || !yield(s) {
				return
			}
		}
		for file := range gaps {
			if !upTo(file, math.MaxInt64) {
				return
			}
		}
	}
}

// enqueue gives a chunk to the workers of its way. It returns false if the transfer has failed.
func enqueue(t *Load, c plan.Chunk) bool {
	if c.Way == plan.ViaNetwork {
		return addNetwork(t, c)
	}
	t.expects(&c)
	if err := t.e.need(c.Way, t); err != nil {
		t.e.sched.stop(&t.task, err)
		return false
	}
	if c.Way != plan.ViaCache || len(t.req.Segments) < smallGroup || c.Len > t.e.opts.MaxTransfer/4 {
		return t.e.sched.add(&t.task, c)
	}
	if t.small = append(t.small, c); len(t.small) < smallGroup {
		return true
	}
	cs := t.small
	t.small = nil
	return t.e.sched.addAll(&t.task, cs)
}

// smallGroup is the number of small chunks that are queued together, so that workers find neighbours to join.
const smallGroup = 32

// inquirer answers the planner for one file of a load.
type inquirer struct {
	t    *Load
	ctx  context.Context
	file int
	// asked is set when it is decided whether cuFile reads these bytes; cufile is the decision. cuFile does not read
	// bytes that are packed or only summed, because these need host memory.
	asked, cufile bool
	packed        bool
	window        int64 // number of bytes of the last question about the page cache
}

// Residency implements plan.Inquiry: it counts the cached bytes of a range.
func (q *inquirer) Residency(off, n int64) plan.Residency {
	q.window = n
	f := q.t.req.Files[q.file]
	if f.FS().Memory {
		return plan.Residency{Residency: vfs.Residency{Cached: n}, Known: true}
	}
	r, err := asked{f, q.t.req.Fresh}.Residency(off, n)
	return plan.Residency{Residency: r, Known: err == nil}
}

// asked is a file whose cached pages the plan asks for.
type asked struct {
	*vfs.File
	fresh bool // the answer from the opening is new enough
}

// Residency implements plan.File. The kernel is asked only if the opening of a fresh file left the answer open.
func (a asked) Residency(off, n int64) (vfs.Residency, error) {
	if a.fresh {
		if r, known := vfs.ResidencyAtOpen(a.File, off, n); known {
			return r, nil
		}
	}
	return a.File.Residency(off, n)
}

// CuFile implements plan.Inquiry: it reports whether libcufile reads the bytes that are not in the page cache. If
// CuFile cannot decide because of an error, the load fails and the plan ends.
func (q *inquirer) CuFile() bool {
	if !q.asked {
		var err error
		if t := q.t; t.shares(q.file) && t.announce(q.file).accompanied() {
			q.asked = true
			return false // bytes that several loads need go through the page cache
		}
		if !q.packed && q.t.cu.goesAhead(q.file, q.window) {
			return false
		}
		q.asked = true
		if q.packed {
			q.t.cu.passOver(q.file)
			return false
		}
		if q.cufile, err = q.t.cu.decide(q.ctx, q.file); err != nil {
			q.t.e.sched.stop(&q.t.task, err)
		}
	}
	return q.cufile
}

// paramsFor returns the parameters for the plan of a file.
func paramsFor(t *Load, file int, cache report.CachePolicy) plan.Params {
	f, o := t.req.Files[file], &t.e.opts
	if f.Remote() != nil {
		p := plan.RemoteParams(min(netBlock, o.MaxTransfer))
		p.Keep = t.verify.covers(file)
		return p
	}
	direct, _ := f.Direct()
	memAlign := int64(0)
	if t.port.mapper != nil {
		memAlign = max(f.Align().Memory, 1)
	}
	p := plan.LocalParams(plan.Sizes{Chunk: o.MaxTransfer, Block: o.block, Piece: o.piece}, f.Align().Offset,
		memAlign, direct, t.req.Route, cache)
	if p.Keep = t.verify.covers(file); p.Keep {
		p.Whole = t.req.Verify[file].Block
	}
	return p
}

// memAvailable returns the memory in bytes that the process can still allocate, or 0 if it is unknown.
func memAvailable() int64 {
	if a := hostmem.FindAvailable("/"); a.Known {
		return a.Bytes
	}
	return 0
}

// netFlush is the number of chunks that are planned before the first is requested. A request for a single chunk would
// be wasteful.
const netFlush = 256

// addNetwork queues a chunk for the fetchers. It returns false if the transfer has failed.
func addNetwork(t *Load, c plan.Chunk) bool {
	t.net.queued = append(t.net.queued, c)
	return len(t.net.queued) < netFlush || flushNetwork(t)
}

// flushNetwork gives the queued chunks to the fetchers.
func flushNetwork(t *Load) bool {
	cs := t.net.queued
	t.net.queued = nil
	if len(cs) == 0 {
		return true
	}
	if err := t.e.need(plan.ViaNetwork, t); err != nil {
		t.e.sched.stop(&t.task, err)
		return false
	}
	return t.e.sched.addAll(&t.task, cs)
}
