// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/report"
)

// StreamRequest is a request to read or write a file in the order of the caller's CUDA stream.
type StreamRequest struct {
	Device device.Device
	Target *Target
	Range  Range
	Write  bool
	Stream uint64
	Route  report.Route // "cufile", or "auto", which uses libcufile if the disk can probably reach the GPU directly
}

// StreamMove is a read or write that is queued on the caller's CUDA stream, or has ended.
type StreamMove struct {
	req   StreamRequest
	began time.Time
	wall  time.Duration
	moved int64
	err   error
	done  chan struct{}

	k      knownBy
	before device.DirectCounters
	counts device.DirectCounters
}

// startInStream queues a move on the caller's stream; see Engine.StartInStream.
func startInStream(ctx context.Context, e *lane, req StreamRequest) (m *StreamMove, refused *report.Refusal,
	err error) {
	if err := req.Target.check("queue a move of", req.Range); err != nil {
		return nil, nil, err
	}
	p, err := e.enter(req.Device)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if m == nil {
			e.leave()
		}
	}()
	must := req.Route == report.RouteCuFile
	k, err := req.Target.known(ctx, p, must)
	if err != nil {
		return nil, nil, err
	}
	if k.file == nil {
		if refused = k.refused; refused == nil {
			refused = &report.Refusal{What: "cufile", On: req.Target.Path(),
				Reason: "moves in the order of a stream need a GPU", Fix: "none needed: the move was made at once"}
		}
		return nil, refused, nil
	}
	s, ok := k.file.(device.StreamFile)
	if !ok {
		return nil, nil, errs.New(errs.Unsupported, "queue a move of", req.Target.Path(),
			"this library has none in the order of streams")
	}
	m, err = queueInStream(e, p, s, k, req)
	if err != nil {
		m = nil
		if !must && errs.Is(err, errs.Unsupported) {
			return nil, &report.Refusal{What: "cufile", On: req.Target.Path(), Reason: plainly(err),
				Fix: errs.FixOf(err)}, nil
		}
		return nil, nil, err
	}
	return m, nil, nil
}

func queueInStream(e *lane, p *port, f device.StreamFile, k knownBy, req StreamRequest) (*StreamMove, error) {
	mem, err := hostmem.Map(int64(device.StreamOpSize))
	if err != nil {
		return nil, err
	}
	q, err := p.dev.NewQueue()
	if err != nil {
		return nil, errors.Join(err, mem.Unmap())
	}
	m := &StreamMove{req: req, began: time.Now(), done: make(chan struct{}), k: k}
	m.before = k.lib.count()
	hostmem.AdviseSmall(mem.Bytes()) // only one page is used
	op, err := device.NewStreamOp(mem.Bytes(), req.Range.Len, req.Range.Off, 0)
	if err == nil {
		if req.Write {
			err = f.WriteAsync(req.Range.Mem, op, req.Stream)
		} else {
			err = f.ReadAsync(req.Range.Mem, op, req.Stream)
		}
	}
	if err != nil {
		return nil, errors.Join(err, q.Close(), mem.Unmap())
	}
	// A queue that waits for the stream shows when the stream has passed the move.
	after := q.After(req.Stream)
	go func() {
		defer close(m.done)
		defer e.leave()
		err := errors.Join(after, q.Close())
		if err == nil {
			m.moved, err = f.Moved(op)
		}
		if err == nil && req.Write && m.moved < req.Range.Len {
			err = errs.New(errs.IO, "write through cuFile", req.Target.Path(),
				"fewer bytes were written than asked for").WithFix("check the free space of the file system")
		}
		if after == nil {
			_ = mem.Unmap() // otherwise the library may still write to the memory
		}
		m.counts = k.lib.count().Minus(m.before)
		if m.counts.Known {
			k.lib.learn(req.Target.FD(), m.ops().Route())
		}
		m.err, m.wall = err, time.Since(m.began)
	}()
	return m, nil
}

// ops returns the counted operations in the direction of the move.
func (m *StreamMove) ops() device.RouteOps {
	if m.req.Write {
		return m.counts.Writes
	}
	return m.counts.Reads
}

// Done returns a channel that is closed when the stream has executed the read or write.
func (m *StreamMove) Done() <-chan struct{} { return m.done }

// Wait blocks until the read or write has ended and returns its error.
func (m *StreamMove) Wait() error {
	<-m.done
	return m.err
}

// Progress returns the number of bytes moved, which is 0 until the end, and the total number of bytes to move.
func (m *StreamMove) Progress() (done, total int64) {
	select {
	case <-m.done:
		return m.moved, m.req.Range.Len
	default:
		return 0, m.req.Range.Len
	}
}

// Report blocks until the read or write has ended and returns its report. The reported time begins when the read or
// write is queued, so it includes the time of earlier work on the stream.
func (m *StreamMove) Report() report.Report {
	<-m.done
	to := m.req.Target
	f := facts{direction: "load", device: describeDevice(m.req.Device.Info()), asked: report.Asked{Route: m.req.Route,
		Cache: report.CacheAuto},
		bytes: m.moved, wall: m.wall, err: m.err, stages: []report.Stage{}, limiting: "none",
		cufileRoute: taken(m.counts.Known, m.ops()),
		engine:      report.Engine{IO: "unused", StagingState: "unused"},
		notes:       []string{"moved in the order of the caller's stream"},
		files: []report.File{{Path: to.Path(), FS: to.Storage().FS.Name, Cache: report.CacheAuto, Probe: "none",
			Direct: to.Refused() == nil}}}
	if m.req.Write {
		f.direction = "save"
	}
	f.useLibrary(m.k.lib, report.CuFileAsync, m.k.opened, m.counts, m.ops())
	if m.moved > 0 {
		f.sums.CuFile.Note(m.moved, m.began, m.began.Add(m.wall))
	}
	return f.report()
}
