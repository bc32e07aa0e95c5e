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
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// Writes in place have staging of their own, beside the pool of reads: few and
// fixed slots, taken when the first such write runs.
const (
	putSlots = 8
	putSize  = 2 * units.MiB
	putAlign = 4096
	// putDirect is below which a write goes through the page cache: so little
	// is soon copied, and the writer need not wait for the disk.
	putDirect = 1 * units.MiB
)

// PutRequest is one write of a range of a file in place.
type PutRequest struct {
	Device device.Device
	Target *Target
	Range  Range
	Route  report.Route
	// Stream, with HasStream, is the caller's stream whose queued work makes
	// the bytes; it is waited for.
	Stream    uint64
	HasStream bool
}

// Put is a write under way or ended.
type Put struct {
	e    *Engine
	req  PutRequest
	port *port

	began   time.Time
	wall    time.Duration
	written atomic.Int64
	done    chan struct{}
	err     error
	writers int // goroutines that write

	mu      sync.Mutex
	routes  map[report.RouteTaken]*account
	copying account
	refused []report.Refusal
	cufile  *report.CuFile
	notes   []string
}

// StartPut begins to write and returns at once. The context cancels it; what
// was written by then stays. The bytes are on disk only after Target.Sync.
func (e *Engine) StartPut(ctx context.Context, req PutRequest) (*Put, error) {
	e, err := e.lane(req.Device)
	if err != nil {
		return nil, err
	}
	if req.Route == "" {
		req.Route = report.RouteAuto
	}
	if err := req.Target.check("write", req.Range); err != nil {
		return nil, err
	}
	if !req.Target.Writable() {
		return nil, errs.New(errs.Permission, "write", req.Target.Path(), "it was not opened for writing").WithFix("open it with write access: w or r+")
	}
	if why := req.Target.Refused(); why != nil && req.Route == report.RouteDirect {
		return nil, errs.New(errs.Unsupported, "write past the page cache", req.Target.Path(), why.Reason).WithFix("use route auto, or: " + why.Fix)
	}
	port, err := e.enter(req.Device)
	if err != nil {
		return nil, err
	}
	p := &Put{e: e, req: req, port: port, began: time.Now(), done: make(chan struct{}), routes: map[report.RouteTaken]*account{}}
	go p.run(ctx)
	return p, nil
}

// Done is closed when the write has ended and nothing of the source is read any more.
func (p *Put) Done() <-chan struct{} { return p.done }

// Wait is the result; it blocks until Done.
func (p *Put) Wait() error {
	<-p.done
	return p.err
}

// Progress is how many bytes have been written, of how many.
func (p *Put) Progress() (done, total int64) { return p.written.Load(), p.req.Range.Len }

func (p *Put) run(ctx context.Context) {
	defer close(p.done)
	defer p.e.leave()
	p.err = cancelledAfter(p.write(ctx), "write", p.req.Target.Path(), p.written.Load())
	p.wall = time.Since(p.began)
	p.count()
}

// write chooses how, and cuts the range.
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
	direct := p.req.Target.Refused() == nil && (p.req.Route == report.RouteDirect || p.req.Route == report.RouteAuto && r.Len >= putDirect)
	if p.port.mapper != nil && (int64(r.Mem)-r.Off)%putAlign != 0 {
		direct = false // written from where it lies, and O_DIRECT wants that aligned
	}
	return p.each(ctx, putSize, func(piece Range) error {
		return p.put(piece, direct && piece.Off%putAlign == 0 && piece.Len%putAlign == 0)
	})
}

// each hands the range out in pieces that end at aligned offsets, ragged ends
// apart, to several goroutines, and stops at the first error.
func (p *Put) each(ctx context.Context, size int64, do func(Range) error) error {
	r := p.req.Range
	var mu sync.Mutex
	var first error
	at, end := r.Off, r.Off+r.Len
	next := func() (Range, bool) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil && ctx.Err() != nil {
			first = &errs.Error{Kind: errs.Cancelled, Op: "write", Name: p.req.Target.Path() + " after " + units.Bytes(p.written.Load()), Err: context.Cause(ctx)}
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

// put writes one piece, from a slot where the device's memory is not addressable.
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
	start := time.Now()
	s.part.ensure(p.port.dev)
	m, err := s.markFor(p.port)
	if err == nil {
		err = p.port.queue.CopyOut(s.mem[:piece.Len], piece.Mem)
	}
	if err == nil {
		if err = m.Record(); err == nil {
			err = m.Wait()
		}
		if err != nil {
			err = errors.Join(err, p.port.queue.Drain()) // the slot is free only then
		}
	}
	if err != nil {
		return errs.Wrap(fmt.Sprintf("copy %d bytes for offset %d of", piece.Len, piece.Off), p.req.Target.Path()+" from "+p.port.dev.Info().ID, err)
	}
	p.mu.Lock()
	p.copying.note(piece.Len, start, time.Now())
	p.mu.Unlock()
	return p.store(s.mem[:piece.Len], piece, direct)
}

func (p *Put) store(data []byte, piece Range, direct bool) error {
	start, route := time.Now(), report.RouteTakenBuffered
	if direct {
		route = writtenDirect(p.req.Target.Storage())
	}
	if err := p.req.Target.WriteAt(data, piece.Off, direct); err != nil {
		return err
	}
	p.noted(route, piece.Len, start)
	return nil
}

func (p *Put) noted(route report.RouteTaken, n int64, start time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes[route] == nil {
		p.routes[route] = &account{}
	}
	p.routes[route].note(n, start, time.Now())
}

// byCuFile lets the library write, and names the way by its counters.
func (p *Put) byCuFile(ctx context.Context, k knownBy) error {
	if p.req.HasStream {
		// The library is in no order with the caller's stream.
		if err := p.port.passed(); err != nil {
			return err
		}
	}
	before := k.lib.count()
	moved := report.RouteTaken("cufile")
	err := p.each(ctx, p.e.opts.piece, func(piece Range) error {
		if piece.Off%putAlign != 0 || piece.Len%putAlign != 0 {
			// The ragged ends, less than a block each: the library would read
			// the block, change it and write it back.
			return p.put(piece, false)
		}
		start := time.Now()
		if _, err := k.file.Write(piece.Mem, 0, piece.Len, piece.Off); err != nil {
			return errs.Wrap("write through cuFile", p.req.Target.Path(), err)
		}
		p.noted(moved, piece.Len, start)
		return nil
	})
	counts := k.lib.count().Minus(before)
	c := k.lib.part(report.CuFileSync, k.opened)
	if counts.Known {
		c.Counters, c.Unaligned = describeCounters(counts), counts.Writes.Unaligned
		k.lib.learn(p.req.Target.FD(), counts.Writes.Route())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cufile = c
	if k.opened {
		p.notes = append(p.notes, k.lib.cost())
	}
	if a := p.routes[moved]; a != nil {
		delete(p.routes, moved)
		p.routes[taken(counts.Known, counts.Writes)] = a
	}
	return err
}

// slotsForPut are the staging slots of writes, made on first use.
func (e *Engine) slotsForPut() (chan *slot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.puts != nil {
		return e.puts, nil
	}
	r, err := hostmem.MapFor("map staging memory for writes to open files", "", putSlots*putSize)
	if err != nil {
		return nil, err
	}
	e.puts = make(chan *slot, putSlots)
	for _, s := range e.pool.adopt(r, putSlots, putSize) {
		e.puts <- s
	}
	return e.puts, nil
}

// Report tells how the write went; it blocks until Done.
func (p *Put) Report() report.Report {
	<-p.done
	info := p.req.Device.Info()
	n := p.written.Load()
	r := report.Report{
		Direction: "save", Device: describeDevice(info), Asked: report.Asked{Route: p.req.Route, Cache: report.CacheAuto},
		Bytes: n, Seconds: p.wall.Seconds(), GBps: units.GBps(n, p.wall), Routes: []report.RouteShare{}, Stages: []report.Stage{}, Limiting: "none",
		Engine:   report.Engine{Workers: p.writers, QueueDepth: p.writers, ChunkSize: putSize, BlockSize: putSize, IO: "unused", StagingState: "unused"},
		Files:    []report.File{{Path: p.req.Target.Path(), FS: p.req.Target.Storage().FS.Name, Unproven: unprovenWrites(p.req.Target.Storage()), Cache: report.CacheAuto, Probe: "none", Direct: p.req.Target.Refused() == nil}},
		Refusals: append([]report.Refusal{}, p.refused...), Notes: append([]string{}, p.notes...), CuFile: p.cufile,
	}
	if size, err := p.req.Target.Size(); err == nil {
		r.Files[0].Size = size
	}
	if p.err != nil {
		r.Error = p.err.Error()
	}
	if info.Kind == device.Host {
		r.Notes = append(r.Notes, "the device is host memory: no GPU took part")
	}
	var all account
	for _, name := range []report.RouteTaken{report.RouteTakenBuffered, report.RouteTakenDirect, report.RouteTakenDirectUnproven,
		report.RouteTakenCuFileP2P, report.RouteTakenCuFileNVFS, report.RouteTakenCuFileCompat, report.RouteTakenCuFileUnknown} {
		if a := p.routes[name]; a != nil {
			if name == report.RouteTakenBuffered || name == report.RouteTakenDirect || name == report.RouteTakenDirectUnproven {
				r.Engine.IO = "pwrite"
			}
			r.Routes = append(r.Routes, a.report(name))
			all.bytes, all.busy = all.bytes+a.bytes, all.busy+a.busy
			all.span.add(a.span.lo, a.span.hi)
		}
	}
	if p.copying.chunks > 0 {
		r.Engine.StagingUsed, r.Engine.StagingSize, r.Engine.StagingState = true, putSlots*putSize, "pinned"
		if info.Kind == device.Host {
			r.Engine.StagingState = "host memory"
		} else if p.e.pool.pinError() != nil {
			r.Engine.StagingState = "not pinned"
		}
		r.Stages = append(r.Stages, report.Stage{Stage: "copy", Busy: p.copying.busy.Seconds(), Span: p.copying.span.length().Seconds(), Bytes: p.copying.bytes, GBps: units.GBps(p.copying.bytes, p.copying.span.length())})
	}
	if all.bytes > 0 {
		if r.Limiting = "storage write"; p.copying.busy > all.busy {
			r.Limiting = "copy from device"
		}
		r.Stages = append(r.Stages, report.Stage{Stage: "write", Busy: all.busy.Seconds(), Span: all.span.length().Seconds(), Bytes: all.bytes, GBps: units.GBps(all.bytes, all.span.length())})
	}
	r.NoteUnproven()
	return r
}
