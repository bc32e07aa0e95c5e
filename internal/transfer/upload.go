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

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// UploadRequest is a request to upload an object over a network. All sources of a request together must supply every
// byte of the object exactly once.
type UploadRequest struct {
	Sources []Source
	// To is the upload that receives the bytes; nothing may have been sent to it before. The engine completes the
	// upload To, or aborts it.
	To vfs.Upload
	// Streams holds CUDA streams of the caller by device. The sources of a device are read after the work that is
	// already queued on the device's stream.
	Streams map[device.Device]uint64
	// Sums makes the upload compute the checksums of blocks of 1 MiB; see Upload.Sums.
	Sums bool
}

// Upload is an upload of an object that is running or has ended.
//
// The object is split into parts, and each connection sends one part at a time. A part is sent in blocks. Each block
// is copied from its devices into a staging slot. While a block is copied, the checksum of the previous block is
// computed and the previous block is written to the socket. If a part cannot be sent, its blocks are copied from the
// sources again.
type Upload struct {
	gathering
	req   UploadRequest
	part  int64
	parts int

	began time.Time
	wall  time.Duration
	sent  atomic.Int64
	done  chan struct{}
	err   error

	finish time.Duration // time in which the server completed the object
}

// Limits of parts: the smallest useful size, the largest size, and the most parts that a server accepts.
const (
	leastPart = vfs.MostWhole
	mostPart  = 64 * units.MiB
	mostParts = 10_000
)

// partOf returns the size of an object's parts, in whole blocks: two parts for each connection if the limits allow
// it.
func partOf(size int64, connections int) int64 {
	part := min(max(size/int64(2*max(1, connections)), leastPart), mostPart)
	part = max(part, (size+mostParts-1)/mostParts)
	return (part + netBlock - 1) / netBlock * netBlock
}

// startUpload checks the request and begins to send; see Engine.StartUpload.
func startUpload(ctx context.Context, e *lane, req UploadRequest) (*Upload, error) {
	u := &Upload{req: req, began: time.Now(), done: make(chan struct{})}
	u.tally.Trace(e.opts.Trace)
	u.e, u.what = e, &sources{name: req.To.Name()}
	if slices.ContainsFunc(req.Sources, func(s Source) bool { return s.Len != 0 }) {
		var err error
		if u.what, err = tile(req.To.Name(), req.Sources); err != nil {
			return nil, err
		}
	}
	if req.Sums {
		u.sums = newSums(u.what.size)
	}
	u.part = partOf(u.what.size, req.To.Parallel())
	u.parts = int((u.what.size + u.part - 1) / u.part)
	if err := u.enter(); err != nil {
		return nil, err
	}
	if err := u.what.order(req.Streams); err != nil {
		e.leave()
		return nil, err
	}
	go u.run(ctx)
	return u, nil
}

// enter registers the upload with the lane, and makes a port for each of its devices and staging slots for its
// connections.
func (u *Upload) enter() error {
	e := u.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errs.New(errs.Closed, "upload", u.req.To.Name(), "the engine is closed")
	}
	if err := u.what.enter(&e.ports); err != nil {
		return err
	}
	if err := e.pairUp(u.connections()); err != nil {
		return err
	}
	e.running++
	return nil
}

// connections returns the number of parts that are sent at once.
func (u *Upload) connections() int {
	return max(1, min(u.req.To.Parallel(), mostFetchers, u.parts))
}

// Done returns a channel that is closed when the upload has ended and no longer reads the sources.
func (u *Upload) Done() <-chan struct{} { return u.done }

// Wait blocks until the upload has ended and returns its error.
func (u *Upload) Wait() error {
	<-u.done
	return u.err
}

// Progress returns the number of bytes that the server has acknowledged, and the total number of bytes to send.
func (u *Upload) Progress() (done, total int64) { return u.sent.Load(), u.what.size }

// Sums blocks until the upload has ended and returns its checksums. Sums returns nil if the upload failed or computed
// no checksums. The returned checksums do not change any more.
func (u *Upload) Sums() *checksum.Sums {
	<-u.done
	if u.err != nil {
		return nil
	}
	return u.sums
}

func (u *Upload) run(ctx context.Context) {
	defer close(u.done)
	defer u.e.leave()
	err := u.send(ctx)
	u.open.Wait()
	// The error counts bytes that were in flight, as the report does.
	if err != nil && ctx.Err() != nil {
		err = &errs.Error{Kind: errs.Cancelled, Op: "upload", Err: context.Cause(ctx),
			Name: fmt.Sprintf("%s after %s", u.req.To.Name(), units.Bytes(u.sent.Load()))}
	}
	if err != nil {
		if aerr := u.req.To.Abort(ctx); aerr != nil {
			err = &errs.Error{Kind: errs.KindOf(err), Op: "upload", Name: u.req.To.Name(), Err: errors.Join(err, aerr),
				Msg: "and what was sent could not be taken back: it takes space on the server",
				Fix: "let the server abort the unfinished upload, by hand or by a rule of the bucket"}
		}
	}
	u.err, u.wall = err, time.Since(u.began)
}

func (u *Upload) send(ctx context.Context) error {
	to := u.req.To
	if u.what.size <= vfs.MostWhole {
		start := u.tally.Begin(tally.StageSend)
		if err := to.Whole(ctx, u.what.size, func() (vfs.Blocks, error) {
			return u.gather(ctx, 0, u.what.size),
				nil
		}); err != nil {
			start.Drop()
			return err
		}
		u.acknowledged(u.what.size, start)
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
				start, off := u.tally.Begin(tally.StageSend), i*u.part
				n := min(u.part, u.what.size-off)
				err := u.req.To.Part(ctx, int(i)+1, n, netBlock, func() (vfs.Blocks, error) {
					return u.gather(ctx,
						off, n), nil
				})
				if err != nil {
					start.Drop()
					cancel(err) // only the first error counts
					return
				}
				u.acknowledged(n, start)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (u *Upload) acknowledged(n int64, start tally.Start) {
	u.sent.Add(n)
	u.tally.Sent(n, start)
}

// Report blocks until the upload has ended and returns its report, with the direction "save".
func (u *Upload) Report() report.Report {
	<-u.done
	to, n := u.req.To, u.connections()
	f := facts{direction: "save", device: firstGPU(u.what.ports), asked: report.Asked{Route: report.RouteAuto},
		bytes: u.sent.Load(), wall: u.wall, err: u.err,
		sums: u.tally.Sums(), routes: []report.RouteTaken{report.RouteTakenNetwork},
		files: []report.File{{Path: to.Name(), FS: "network", Size: u.what.size}},
		engine: report.Engine{Workers: n, QueueDepth: n, ChunkSize: u.part, BlockSize: netBlock, IO: "unused",
			StagingState: "unused"},
		save: &report.Save{Sources: u.what.shares()}, network: &report.Network{Fetchers: n}, closing: to.Notes()}
	f.stages, f.limiting = f.sums.UploadStages(u.finish), f.sums.UploadLimit()
	if c, ok := to.(vfs.Counted); ok {
		f.network.Traffic = report.Traffic(c.Traffic())
	}
	if u.staged.Load() {
		u.e.mu.Lock()
		paired := u.e.network.paired
		u.e.mu.Unlock()
		f.useStaging(&u.e.pool, int64(paired)*2*netBlock, true)
	}
	if u.err == nil {
		f.note("the server has acknowledged the object; whether it is on its disks is the server's word alone")
	}
	return f.report()
}
