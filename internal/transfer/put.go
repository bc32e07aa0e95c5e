// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// putDirect is the smallest write that uses O_DIRECT. A smaller write goes through the page cache: it is soon copied,
// and the writer does not wait for the disk.
const putDirect = 1 * units.MiB

// PutRequest is a request to write device memory to a range of an open file.
type PutRequest struct {
	Device device.Device
	Target *Target
	Range  Range
	Route  report.Route
	// Stream is a CUDA stream of the caller and is used if HasStream is set. The write begins after the work that is
	// already queued on the stream.
	Stream    uint64
	HasStream bool
}

// Put is a write to a range of an open file, running or ended.
type Put struct {
	e    *lane
	req  PutRequest
	port *port

	began   time.Time
	wall    time.Duration
	written atomic.Int64
	done    chan struct{}
	err     error
	writers int // goroutines that write

	tally   tally.Tally
	refused []report.Refusal
	known   *knownBy // the file in libcufile; nil if libcufile took no part
	counts  device.DirectCounters
}

// startPut begins to write and returns at once; see Engine.StartPut.
func startPut(ctx context.Context, e *lane, req PutRequest) (*Put, error) {
	if req.Route == "" {
		req.Route = report.RouteAuto
	}
	if err := req.Target.check("write", req.Range); err != nil {
		return nil, err
	}
	if !req.Target.Writable() {
		return nil, errs.New(errs.Permission, "write", req.Target.Path(), "it was not opened for writing").
			WithFix("open it with write access: w or r+")
	}
	if why := req.Target.Refused(); why != nil && req.Route == report.RouteDirect {
		return nil, errs.New(errs.Unsupported, "write past the page cache", req.Target.Path(), why.Reason).
			WithFix("use route auto, or: " + why.Fix)
	}
	port, err := e.enter(req.Device)
	if err != nil {
		return nil, err
	}
	p := &Put{e: e, req: req, port: port, began: time.Now(), done: make(chan struct{})}
	p.tally.Trace(e.opts.Trace)
	go p.run(ctx)
	return p, nil
}

// Done returns a channel that is closed when the write has ended and no longer reads the source.
func (p *Put) Done() <-chan struct{} { return p.done }

// Wait blocks until the write has ended and returns its error.
func (p *Put) Wait() error {
	<-p.done
	return p.err
}

// Progress returns the number of bytes written so far, and the total number of bytes to write.
func (p *Put) Progress() (done, total int64) { return p.written.Load(), p.req.Range.Len }

func (p *Put) run(ctx context.Context) {
	defer close(p.done)
	defer p.e.leave()
	p.err = cancelledAfter(p.write(ctx), "write", p.req.Target.Path(), p.written.Load())
	p.wall = time.Since(p.began)
}

// write chooses the route and splits the range into pieces.
func (p *Put) write(ctx context.Context) error {
	r := p.req.Range
	if r.Len == 0 {
		return nil
	}
	if p.req.HasStream && p.req.Device.Info().Kind != device.Host {
		if err := p.port.queue.After(p.req.Stream); err != nil {
			return errs.Wrap("order after the caller's stream on", p.req.Device.Info().ID, err)
		}
	}
	if p.req.Route == report.RouteCuFile || p.req.Route == report.RouteAuto && r.Len >= putDirect {
		k, err := p.req.Target.known(ctx, p.port, p.req.Route == report.RouteCuFile)
		switch {
		case err != nil:
			return err
		case k.refused != nil:
			p.refused = append(p.refused, *k.refused)
		case k.file != nil:
			return p.byCuFile(ctx, k)
		}
	}
	direct := p.req.Target.Refused() == nil && (p.req.Route == report.RouteDirect ||
		p.req.Route == report.RouteAuto && r.Len >= putDirect)
	if p.port.mapper != nil && (int64(r.Mem)-r.Off)%putAlign != 0 {
		direct = false // the source is written in place, and O_DIRECT needs it aligned
	}
	return p.each(ctx, putSize, func(piece Range) error {
		return p.put(piece, direct && piece.Off%putAlign == 0 && piece.Len%putAlign == 0)
	})
}

// each splits the range into pieces at aligned offsets and calls do for each piece, in several goroutines. It stops
// at the first error.
func (p *Put) each(ctx context.Context, size int64, do func(Range) error) error {
	r := p.req.Range
	var mu sync.Mutex
	var first error
	at, end := r.Off, r.Off+r.Len
	next := func() (Range, bool) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil && ctx.Err() != nil {
			first = &errs.Error{Kind: errs.Cancelled, Op: "write", Name: p.req.Target.Path() +
				" after " + units.Bytes(p.written.Load()), Err: context.Cause(ctx)}
		}
		if first != nil || at >= end {
			return Range{}, false
		}
		stop := min(end, (at/size+1)*size)
		if at%putAlign != 0 {
			stop = min(end, (at/putAlign+1)*putAlign)
		} else if aligned := stop / putAlign * putAlign; aligned > at {
			stop = aligned
		}
		piece := Range{Mem: r.Mem + device.Ptr(at-r.Off), Off: at, Len: stop - at}
		at = stop
		return piece, true
	}
	var wg sync.WaitGroup
	p.writers = int(min(int64(putSlots), r.Len/size+1))
	for range p.writers {
		wg.Go(func() {
			for piece, ok := next(); ok; piece, ok = next() {
				if err := do(piece); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
					return
				}
				p.written.Add(piece.Len)
			}
		})
	}
	wg.Wait()
	return first
}

// put writes one piece, through a staging slot if the CPU cannot address the device's memory.
func (p *Put) put(piece Range, direct bool) error {
	if p.port.mapper != nil {
		return p.store(p.port.mapper.Map(piece.Mem, piece.Len), piece, direct)
	}
	slots, err := p.e.slotsForPut()
	if err != nil {
		return err
	}
	s := <-slots
	defer func() { slots <- s }()
	start, waited := p.tally.Begin(tally.StageCopy), tally.Ago(0)
	s.Ensure(p.port.dev)
	m, err := s.MarkFor(p.port.queue)
	if err == nil {
		err = p.port.queue.CopyOut(s.Mem[:piece.Len], piece.Mem)
	}
	if err == nil {
		if err = m.Record(); err == nil {
			err = m.Wait()
		}
		if err != nil {
			err = errors.Join(err, p.port.queue.Drain()) // only then is the slot free
		}
	}
	if err != nil {
		start.Drop()
		return errs.Wrap(fmt.Sprintf("copy %d bytes for offset %d of", piece.Len, piece.Off),
			p.req.Target.Path()+" from "+p.port.dev.Info().ID, err)
	}
	p.tally.Copied(piece.Len, start, waited)
	return p.store(s.Mem[:piece.Len], piece, direct)
}

func (p *Put) store(data []byte, piece Range, direct bool) error {
	start, route := p.tally.Begin(tally.StageWrite), report.RouteTakenBuffered
	if direct {
		route = writtenDirect(p.req.Target.Storage())
	}
	if err := p.req.Target.WriteAt(data, piece.Off, direct); err != nil {
		start.Drop()
		return err
	}
	p.tally.Wrote(route, piece.Len, start)
	return nil
}

// byCuFile lets libcufile write, and finds the route by its counters.
func (p *Put) byCuFile(ctx context.Context, k knownBy) error {
	if p.req.HasStream {
		// libcufile does not wait for the caller's stream.
		if err := p.port.passed(); err != nil {
			return err
		}
	}
	before := k.lib.count()
	err := p.each(ctx, p.e.opts.piece, func(piece Range) error {
		if piece.Off%putAlign != 0 || piece.Len%putAlign != 0 {
			// For the unaligned ends, libcufile would read the block, change it and write it back.
			return p.put(piece, false)
		}
		start := p.tally.Begin(tally.StageWrite)
		if _, err := k.file.Write(piece.Mem, 0, piece.Len, piece.Off); err != nil {
			start.Drop()
			return errs.Wrap("write through cuFile", p.req.Target.Path(), err)
		}
		p.tally.WroteByCuFile(piece.Len, start)
		return nil
	})
	if p.known, p.counts = &k, k.lib.count().Minus(before); p.counts.Known {
		k.lib.learn(p.req.Target.FD(), p.counts.Writes.Route())
	}
	return err
}

// Report blocks until the write has ended and returns its report.
func (p *Put) Report() report.Report {
	<-p.done
	to := p.req.Target
	f := facts{direction: "save", device: describeDevice(p.req.Device.Info()), asked: report.Asked{Route: p.req.Route,
		Cache: report.CacheAuto},
		bytes: p.written.Load(), wall: p.wall, err: p.err, sums: p.tally.Sums(), cufileRoute: taken(p.counts.Known,
			p.counts.Writes),
		routes: []report.RouteTaken{report.RouteTakenBuffered, report.RouteTakenDirect,
			report.RouteTakenDirectUnproven},
		engine: report.Engine{Workers: p.writers, QueueDepth: p.writers, ChunkSize: putSize, BlockSize: putSize,
			IO: "unused", StagingState: "unused"},
		files: []report.File{{Path: to.Path(), FS: to.Storage().FS.Name, Unproven: unprovenWrites(to.Storage()),
			Cache: report.CacheAuto, Probe: "none", Direct: to.Refused() == nil}},
		refusals: p.refused}
	if size, err := to.Size(); err == nil {
		f.files[0].Size = size
	}
	f.stages, f.limiting = f.sums.PutStages(), f.sums.PutLimit()
	if len(f.sums.Routes) > 0 {
		f.engine.IO = "pwrite"
	}
	if p.known != nil {
		f.useLibrary(p.known.lib, report.CuFileSync, p.known.opened, p.counts, p.counts.Writes)
	}
	if f.sums.Copying.Chunks > 0 {
		f.useStaging(&p.e.pool, putSlots*putSize, false)
	}
	return f.report()
}
