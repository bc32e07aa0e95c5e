// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// UploadRequest is one object that is made of sources, which tile it, and
// written over a network.
type UploadRequest struct {
	Sources []Source
	// To is fresh; the engine ends it.
	To vfs.Upload
	// Streams are, by device, the caller's streams whose queued work may still
	// write the sources.
	Streams map[device.Device]uint64
}

// Upload is an object on its way over a network, or one that has arrived.
//
// The flow of a byte: the object is cut into parts, one for each connection at
// a time; a part is sent as blocks, each of which is copied from its devices into a slot while
// the one before it is being summed and written to the socket. A part that fails is gathered anew from its sources.
type Upload struct {
	e     *Engine
	req   UploadRequest
	what  *save // its sources
	size  int64
	part  int64
	parts int

	began time.Time
	wall  time.Duration
	sent  atomic.Int64
	done  chan struct{}
	err   error
	open  sync.WaitGroup // gatherers

	mu       sync.Mutex
	copying  account
	copyWait time.Duration
	sending  account
	finish   time.Duration // of what makes the object of its parts
	staged   bool
}

// Bounds of a part: the least that pays, what is enough, and how many a server takes.
const (
	leastPart = vfs.MostWhole
	mostPart  = 64 * units.MiB
	mostParts = 10_000
)

// partOf is how large the parts of an object are, in whole blocks: two for each
// connection where the bounds allow it.
func partOf(size int64, connections int) int64 {
	part := min(max(size/int64(2*max(1, connections)), leastPart), mostPart)
	part = max(part, (size+mostParts-1)/mostParts)
	return (part + netBlock - 1) / netBlock * netBlock
}

// StartUpload checks the request and begins to send; it returns at once. The
// context cancels it: nothing of the object is then on the server, unless it
// was being completed at that moment. The sources belong to the upload, and do not change, until Done is closed.
func (e *Engine) StartUpload(ctx context.Context, req UploadRequest) (*Upload, error) {
	e, err := e.laneOf(req.Sources)
	if err != nil {
		return nil, err
	}
	u := &Upload{e: e, req: req, began: time.Now(), done: make(chan struct{}), what: &save{
		req: WriteRequest{Path: req.To.Name(), Sources: req.Sources, Route: report.RouteAuto}, join: e.join}}
	empty := !slices.ContainsFunc(req.Sources, func(s Source) bool { return s.Len != 0 })
	if !empty {
		if err := u.what.check(); err != nil {
			return nil, err
		}
	}
	u.size = u.what.size
	u.part = partOf(u.size, req.To.Parallel())
	u.parts = int((u.size + u.part - 1) / u.part)
	if err := e.enterUpload(u); err != nil {
		return nil, err
	}
	for _, p := range u.what.ports {
		stream, ok := req.Streams[p.dev]
		if !ok || p.dev.Info().Kind == device.Host {
			continue
		}
		if err := p.queue.After(stream); err != nil {
			e.leave()
			return nil, errs.Wrap("order after the caller's stream on", p.dev.Info().ID, err)
		}
	}
	go u.run(ctx)
	return u, nil
}

// enterUpload counts an upload in, with a port for each of its devices and
// staging where one is not addressable.
func (e *Engine) enterUpload(u *Upload) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errs.New(errs.Closed, "upload", u.req.To.Name(), "the engine is closed")
	}
	for i := range u.what.sources {
		s := &u.what.sources[i]
		if s.Device == nil {
			continue
		}
		p, err := e.portOf(s.Device)
		if err != nil {
			return err
		}
		if s.port = p; !slices.Contains(u.what.ports, p) {
			u.what.ports = append(u.what.ports, p)
		}
	}
	if err := e.network.grow(&e.pool, u.connections()); err != nil {
		return err
	}
	e.running++
	return nil
}

// connections is how many parts are sent at once.
func (u *Upload) connections() int {
	return max(1, min(u.req.To.Parallel(), mostFetchers, u.parts))
}

// grow makes staging for so many parts at once; the caller holds Engine.mu.
func (n *network) grow(p *pool, want int) error {
	if n.pairs == nil {
		n.pairs = make(chan [2]*slot, mostFetchers)
	}
	k := want - n.paired
	if k <= 0 {
		return nil
	}
	r, err := hostmem.MapFor("map staging memory for uploads", "use fewer connections", int64(2*k)*netBlock)
	if err != nil {
		return err
	}
	slots := p.adopt(r, 2*k, netBlock)
	for i := range k {
		n.pairs <- [2]*slot{slots[i], slots[k+i]}
	}
	n.paired = want
	return nil
}

// Done is closed when the upload has ended and nothing of the sources is read any more.
func (u *Upload) Done() <-chan struct{} { return u.done }

// Wait is the result; it blocks until Done.
func (u *Upload) Wait() error {
	<-u.done
	return u.err
}

// Progress is how many bytes the server has acknowledged, of how many.
func (u *Upload) Progress() (done, total int64) { return u.sent.Load(), u.size }

func (u *Upload) run(ctx context.Context) {
	defer close(u.done)
	defer u.e.leave()
	err := u.send(ctx)
	u.open.Wait()
	// The report counts what was in flight, and so does the error.
	if err != nil && ctx.Err() != nil {
		err = &errs.Error{Kind: errs.Cancelled, Op: "upload", Err: context.Cause(ctx),
			Name: fmt.Sprintf("%s after %s", u.req.To.Name(), units.Bytes(u.sent.Load()))}
	}
	if err != nil {
		if aerr := u.req.To.Abort(ctx); aerr != nil {
			err = &errs.Error{Kind: errs.KindOf(err), Op: "upload", Name: u.req.To.Name(), Err: errors.Join(err, aerr),
				Msg: "and what was sent could not be taken back: it takes space on the server", Fix: "let the server abort the unfinished upload, by hand or by a rule of the bucket"}
		}
	}
	u.err, u.wall = err, time.Since(u.began)
	u.count()
}

func (u *Upload) send(ctx context.Context) error {
	to := u.req.To
	if u.size <= vfs.MostWhole {
		start := time.Now()
		if err := to.Whole(ctx, u.size, func() (vfs.Blocks, error) { return u.gather(ctx, 0, u.size), nil }); err != nil {
			return err
		}
		u.acknowledged(u.size, start)
		return nil
	}
	if err := to.Begin(ctx); err != nil {
		return err
	}
	if err := u.sendParts(ctx); err != nil {
		return err
	}
	start := time.Now()
	err := to.Complete(ctx)
	u.finish = time.Since(start)
	return err
}

// sendParts sends all parts, several at once, and stops at the first error.
func (u *Upload) sendParts(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range u.connections() {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(u.parts) {
					return
				}
				start, off := time.Now(), i*u.part
				n := min(u.part, u.size-off)
				err := u.req.To.Part(ctx, int(i)+1, n, netBlock, func() (vfs.Blocks, error) { return u.gather(ctx, off, n), nil })
				if err != nil {
					cancel(err) // the first one counts
					return
				}
				u.acknowledged(n, start)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (u *Upload) acknowledged(n int64, start time.Time) {
	u.sent.Add(n)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sending.note(n, start, time.Now())
}
