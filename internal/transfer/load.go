// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Transfer is one running or ended request.
type Transfer struct {
	e     *Engine
	req   Request
	port  *port
	total int64
	began time.Time
	tally tally
	proof *proof // nil: nothing is verified
	ready *readiness
	save  *save // nil: this is a load
	cu    cuFileUse
	peers []*peer // other devices that get the same bytes
	sums  bool    // the device may sum what is verified

	prepared [plan.Ways]bool // staging was asked for; guarded by Engine.mu
	packs    bool            // some chunks are woven, and packed in staging; guarded by Engine.mu

	// Guarded by sched.mu.
	queue       [plan.Ways][]plan.Chunk
	outstanding int
	planned     bool
	ended       bool
	err         error

	drained   chan struct{} // closed when no chunk is left anywhere
	done      chan struct{} // closed when the result is settled
	result    error
	wall      time.Duration
	delivered atomic.Int64
	net       netUse
	truths    []*truth // one for each file; nil before the load is planned
	memory    func()   // lets go of what promiseMemory has recorded
}

// Start checks the request and begins to move bytes; it returns at once. The
// context cancels the transfer. The files and destinations belong to the
// transfer until Done is closed.
func (e *Engine) Start(ctx context.Context, req Request) (*Transfer, error) {
	e, err := e.lane(req.Device)
	if err != nil {
		return nil, err
	}
	if req.Route == "" {
		req.Route = report.RouteAuto
	}
	if req.Cache == "" {
		req.Cache = report.CacheAuto
	}
	if req.Route == report.RouteCuFile {
		req.Gap = 0 // what comes through it is not packed: every row is a read
	}
	t := &Transfer{e: e, req: req, began: time.Now(), drained: make(chan struct{}), done: make(chan struct{})}
	t.cu.files, t.cu.bases = make([]*known, len(req.Files)), make([][]extentOf, len(req.Files))
	if err := t.validate(); err != nil {
		return nil, err
	}
	if t.proof, err = newProof(&t.req, e.join); err != nil {
		return nil, err
	}
	if t.ready, err = newReadiness(&t.req); err != nil {
		return nil, err
	}
	p, err := e.enter(req.Device)
	if err != nil {
		return nil, err
	}
	t.port = p
	if err := t.promiseMemory(); err != nil {
		e.leave()
		return nil, err
	}
	if err := e.enterPeers(t); err != nil {
		t.memory()
		err = errors.Join(err, t.awaitPeers())
		e.leave()
		return nil, err
	}
	if req.HasStream && req.Device.Info().Kind != device.Host {
		if err := p.queue.After(req.Stream); err != nil {
			err = errors.Join(err, t.awaitPeers())
			t.memory()
			e.leave()
			return nil, errs.Wrap("order after the caller's stream on", req.Device.Info().ID, err)
		}
	}
	if p.mapper != nil {
		for _, s := range req.Segments {
			hostmem.AdviseHuge(p.mapper.Map(s.Dst, s.Wanted()))
		}
	}
	t.askForSums()
	ctx = t.openNetwork(ctx)
	go t.plan(ctx)
	go t.finish(ctx)
	return t, nil
}

// validate refuses what cannot work before anything is touched.
func (t *Transfer) validate() error {
	rows := int64(0)
	for i, s := range t.req.Segments {
		if s.File < 0 || s.File >= len(t.req.Files) {
			return errs.New(errs.Invalid, "start transfer", fmt.Sprintf("segment %d", i), fmt.Sprintf("names file %d of %d", s.File, len(t.req.Files)))
		}
		f := t.req.Files[s.File]
		if s.Off < 0 || s.Len < 0 || s.Len > f.Size()-s.Off {
			return errs.New(errs.Invalid, "start transfer", f.Path(), fmt.Sprintf("segment %d is [%d, %d+%d), the file has %d bytes", i, s.Off, s.Off, s.Len, f.Size()))
		}
		if err := s.Check(f.Path()); err != nil {
			return err
		}
		t.total += s.Wanted()
		if rows++; s.Strided() {
			rows += (s.Len - 1) / s.Stride
		}
	}
	if t.req.Route == report.RouteCuFile && rows > mostRows {
		return errs.New(errs.Invalid, "start transfer", "route cufile", fmt.Sprintf("would read %d rows one by one, expected at most %d: what comes through cuFile is not packed", rows, mostRows)).
			WithFix("use route auto, which reads rows together, or take more of the inner dimensions")
	}
	if t.req.Route == report.RouteCuFile && t.req.Verify != nil {
		return errs.New(errs.Invalid, "start transfer", "route cufile", "cannot be verified: what completes a block and is not wanted itself has no place that cuFile could put it").
			WithFix("use route auto, which uses cuFile where it is of use and verifies on the device")
	}
	if err := t.validateNetwork(); err != nil {
		return err
	}
	if err := t.checkPeers(); err != nil || t.req.Route != report.RouteDirect {
		return err
	}
	for _, f := range t.req.Files {
		if ok, why := f.Direct(); !ok {
			return errDirect(f, why)
		}
	}
	return nil
}

// plan cuts the segments into chunks and feeds them to the workers as it goes.
func (t *Transfer) plan(ctx context.Context) {
	defer t.e.sched.planned(t)
	defer t.flushNetwork()
	start := time.Now()
	if err := errors.Join(t.awaitPeers(), t.needSums()); err != nil {
		t.e.sched.stop(t, err)
		return
	}
	kept := make([]report.CachePolicy, len(t.req.Files))
	available := sync.OnceValue(memAvailable)
	for i, f := range t.req.Files {
		kept[i] = plan.SettlePolicy(f, t.req.Cache, i < len(t.req.Seen) && t.req.Seen[i], available)
	}
	t.tally.policies = kept
	truths := make([]*truth, len(t.req.Files))
	for i, f := range t.req.Files {
		truths[i] = t.newTruth(f, kept[i])
	}
	t.truths = truths
	ramp := 0
	if t.port.mapper == nil {
		ramp = t.e.opts.Workers
	}
	for s := range t.pieces() {
		if s.Len == 0 {
			continue
		}
		if t.req.Route == report.RouteCuFile {
			if _, err := t.useCuFile(ctx, s.File); err != nil {
				t.e.sched.stop(t, err)
				return
			}
		}
		p := plan.Planner{Params: t.paramsFor(s.File, kept[s.File]), Ask: &inquirer{t: t, ctx: ctx, file: s.File, asked: s.Weave != nil || s.Extra}, Ramp: ramp, Ramps: t.e.opts.Workers}
		if s.Weave != nil {
			t.e.mu.Lock()
			t.packs = true
			t.e.mu.Unlock()
		}
		alive := true
		for c := range p.Chunks(s) {
			if alive = t.enqueue(c); !alive {
				break
			}
		}
		ramp = p.Ramp
		t.tally.dirty.Add(p.Dirty)
		if !alive {
			return
		}
	}
	t.tally.planned(time.Since(start))
}

// pieces is all that is read: the segments in order, and what completes their
// blocks beside them, since a part is ready only when its blocks are whole.
func (t *Transfer) pieces() iter.Seq[plan.Run] {
	return func(yield func(plan.Run) bool) {
		gaps := t.proof.gapsByFile()
		// upTo gives the gaps of a file that begin before off.
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

// enqueue hands a chunk to the workers of its way. It reports false when the transfer has failed.
func (t *Transfer) enqueue(c plan.Chunk) bool {
	if c.Way == plan.ViaNetwork {
		return t.addNetwork(c)
	}
	if err := t.e.ensure(c.Way, t); err != nil {
		t.e.sched.stop(t, err)
		return false
	}
	return t.e.sched.add(t, c)
}

// inquirer answers the planner for one file of a load.
type inquirer struct {
	t    *Transfer
	ctx  context.Context
	file int
	// asked: whether cuFile reads these bytes is decided, and cufile says so. It does not
	// read bytes that are packed, or only summed: these need host memory.
	asked, cufile bool
}

// Residency implements Inquiry.
func (q *inquirer) Residency(off, n int64) plan.Residency {
	f := q.t.req.Files[q.file]
	if f.FS().Memory {
		return plan.Residency{Residency: vfs.Residency{Cached: n}, Known: true}
	}
	r, err := f.Residency(off, n)
	return plan.Residency{Residency: r, Known: err == nil}
}

// CuFile implements Inquiry. An error fails the load, which ends the plan.
func (q *inquirer) CuFile() bool {
	if !q.asked {
		var err error
		q.asked = true
		if q.cufile, err = q.t.useCuFile(q.ctx, q.file); err != nil {
			q.t.e.sched.stop(q.t, err)
		}
	}
	return q.cufile
}

// paramsFor is what the plan of a file follows from.
func (t *Transfer) paramsFor(file int, cache report.CachePolicy) plan.Params {
	f, o := t.req.Files[file], &t.e.opts
	if f.Remote() != nil {
		p := plan.RemoteParams(min(netBlock, o.MaxTransfer))
		p.Keep = t.verifies(file)
		return p
	}
	direct, _ := f.Direct()
	memAlign := int64(0)
	if t.port.mapper != nil {
		memAlign = max(f.Align().Memory, 1)
	}
	p := plan.LocalParams(plan.Sizes{Chunk: o.MaxTransfer, Block: o.block, Piece: o.piece}, f.Align().Offset, memAlign, direct, t.req.Route, cache)
	if p.Keep = t.verifies(file); p.Keep {
		p.Whole = t.req.Verify[file].Block
	}
	return p
}

// runs is what is read for the segments of the request.
func (r *Request) runs() iter.Seq[plan.Run] {
	_, addressable := r.Device.(device.Mapper)
	return plan.Runs(r.Segments, r.Gap, addressable)
}

// memAvailable is the memory that can be used without swapping out or being
// killed, 0 when the kernel does not say.
func memAvailable() int64 {
	if a := hostmem.FindAvailable("/"); a.Known {
		return a.Bytes
	}
	return 0
}

// finish waits for the end, from inside or by the context, and settles the result.
func (t *Transfer) finish(ctx context.Context) {
	defer close(t.done)
	defer t.e.leave()
	defer t.memory()
	defer t.count()
	defer t.closeNetwork()
	select {
	case <-t.drained:
	case <-ctx.Done():
		t.e.sched.stop(t, t.cancelled(ctx))
		<-t.drained
	}
	t.e.sched.mu.Lock()
	t.result = cancelledAfter(t.err, "transfer", t.destination(), t.delivered.Load())
	t.e.sched.mu.Unlock()
	t.wall = time.Since(t.began)
	t.restore()
	if err := t.leaveCuFile(); t.result == nil {
		t.result = err
	}
	if t.result == nil {
		for i, f := range t.req.Files {
			if t.req.Live {
				break
			}
			if err := f.CheckUnchanged(t.verifies(i)); err != nil {
				t.result = err
				return
			}
		}
		if t.proof != nil {
			if err := t.proof.settled(); err != nil {
				t.result = err
				return
			}
		}
		if got := t.delivered.Load(); got != t.total {
			t.result = errs.New(errs.Other, "transfer", "", fmt.Sprintf("delivered %d of %d bytes without an error; this is a defect", got, t.total))
			return
		}
	}
}

// cancelled is the error of a transfer whose context has ended.
func (t *Transfer) cancelled(ctx context.Context) error {
	return &errs.Error{Kind: errs.Cancelled, Op: "transfer", Err: context.Cause(ctx),
		Name: t.destination() + " after " + units.Bytes(t.delivered.Load())}
}

// destination names where the bytes go in errors.
func (t *Transfer) destination() string { return "to " + t.req.Device.Info().ID }

// cancelledAfter gives the error of a cancelled move its final number of bytes.
// What was in flight at the cancellation still arrives, and the report counts it.
// Other errors stay as they are.
func cancelledAfter(err error, op, what string, moved int64) error {
	if e, ok := err.(*errs.Error); ok && e.Kind == errs.Cancelled && e.Op == op {
		out := *e // others may hold e already
		out.Name = what + " after " + units.Bytes(moved)
		return &out
	}
	return err
}

// Done is closed when the transfer has ended and no copy of it is queued.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Err is the result; it blocks until Done.
func (t *Transfer) Err() error {
	<-t.done
	return t.result
}

// Progress is how many bytes have been delivered, of how many.
func (t *Transfer) Progress() (done, total int64) { return t.delivered.Load(), t.total }
