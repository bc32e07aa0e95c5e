// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Sink is a destination that somebody else has opened and will make durable:
// the engine writes every byte of it and no more. Direct writes of the last
// block are filled up with zeros to a whole page, which the owner cuts off.
type Sink interface {
	// Name is what messages and reports call it.
	Name() string
	// FS names the file system below it.
	FS() vfs.FSType
	// Direct reports whether it can be written past the page cache, else why not.
	Direct() (bool, *vfs.Refusal)
	// Align is what direct writes must observe.
	Align() vfs.Alignment
	// WriteDirect writes all of p past the page cache; vfs.ErrDirectRefused where
	// the file system declines that kind of write. Many writes run at once.
	WriteDirect(p []byte, off int64) error
	// WriteBuffered writes all of p through the page cache.
	WriteBuffered(p []byte, off int64) error
}

// described is a Sink whose descriptors a library can be given.
type described interface {
	FD() int
	DirectFD() int // -1: none
}

// Sums are the checksums of a save that made some, complete when it has
// ended well; it blocks until Done, and is nil otherwise. They are not changed any more.
func (t *Transfer) Sums() *checksum.Sums {
	<-t.done
	if t.save == nil || t.result != nil {
		return nil
	}
	return t.save.sums
}

// cuFileSink is libcufile's part of a save to a sink.
type cuFileSink struct {
	lib    *library
	port   *port
	file   device.DirectFile
	opened bool
	before device.DirectCounters
	counts device.DirectCounters
}

// checkSink refuses what a save to a sink cannot do.
func (sv *save) checkSink() error {
	if sv.req.Path != "" {
		return errs.New(errs.Invalid, "save", sv.req.Path, "a path and a sink are given; expected one of them")
	}
	sv.req.Path, sv.sink = sv.req.Sink.Name(), sv.req.Sink
	return nil
}

// openSink makes ready what the route needs. cuFile is used where it was asked
// for: sums are made by the CPU, so the bytes come by it anyway, and writing
// them from there is as near.
func (t *Transfer) openSink(ctx context.Context) error {
	sv := t.save
	if sv.req.Route == report.RouteDirect {
		return sv.mustBeDirect()
	}
	if sv.req.Route != report.RouteCuFile {
		if len(sv.ports) > 0 && sv.sums != nil && sv.ports[0].dev.Info().Kind != device.Host && t.e.opts.Peers != nil && sv.req.Route == report.RouteAuto {
			sv.refusals = append(sv.refusals, report.Refusal{What: "cufile", On: sv.req.Path, Reason: "checksums need every byte in the CPU's reach",
				Fix: "ask for route cufile: it writes from the GPU, and a copy is summed beside it"})
		}
		return nil
	}
	const op = "write through cuFile"
	if len(sv.ports) != 1 || sv.ports[0].dev.Info().Kind == device.Host {
		return errs.New(errs.Unsupported, op, sv.req.Path, "its bytes come from "+sv.devices()+"; expected one GPU").WithFix("use route auto")
	}
	s, ok := sv.sink.(described)
	if !ok {
		return errs.New(errs.Unsupported, op, sv.req.Path, "it has no descriptor that cuFile could be given").WithFix("use route auto")
	}
	p := sv.ports[0]
	c := &cuFileSink{lib: t.e.libraryOf(p), port: p}
	var err error
	if c.opened, err = c.lib.open(ctx, t.e, p.dev, true); err != nil {
		return err
	}
	fd := s.DirectFD()
	if fd < 0 {
		fd = s.FD()
	}
	c.lib.mu.Lock()
	direct := c.lib.direct
	c.lib.mu.Unlock()
	if c.file, err = direct.OpenFile(fd); err != nil {
		return errs.Wrap("give to cuFile", sv.req.Path, err)
	}
	c.before = c.lib.count()
	sv.cu = c
	if _, ok := sv.req.Streams[p.dev]; ok {
		return p.passed() // the library is in no order with the caller's stream
	}
	return nil
}

// closeSink reads what the library has counted and makes it forget the file.
func (sv *save) closeSink() error {
	c := sv.cu
	if c == nil {
		return nil
	}
	if c.counts = c.lib.count().Minus(c.before); c.counts.Known {
		c.lib.learn(sv.sink.(described).FD(), c.counts.Writes.Route())
	}
	return errs.Wrap("take from cuFile", sv.req.Path, c.file.Close())
}

// storeCuFile lets the library write the whole pages of a block from the device.
// false means that it does not take this block: its bytes lie in several places.
func (t *Transfer) storeCuFile(c plan.Chunk) (done int64, err error) {
	sv := t.save
	n := c.Len / putAlign * putAlign
	var src device.Ptr
	_ = sv.pieces(c.Off, n, func(s *source, at, _, k int64) error {
		if k == n && s.port == sv.cu.port {
			src = s.Ptr + device.Ptr(at)
		}
		return nil
	})
	if src == 0 || n == 0 {
		return 0, nil
	}
	start := time.Now()
	if _, err := sv.cu.file.Write(src, 0, n, c.Off); err != nil {
		return 0, errs.Wrap(fmt.Sprintf("write %d bytes at offset %d through cuFile to", n, c.Off), sv.req.Path, err)
	}
	t.stored(routeCuFile, n, start)
	return n, nil
}

// routeCuFile stands for what the library wrote until its counters say how.
const routeCuFile report.RouteTaken = "cufile"

// describeSink adds what only a save to a sink has to tell.
func (t *Transfer) describeSink(r *report.Report) {
	sv := t.save
	ok, why := sv.sink.Direct()
	r.Files = append(r.Files, report.File{Path: sv.sink.Name(), FS: sv.storage.FS.Name, Size: sv.size, Direct: ok, Unproven: unprovenWrites(sv.storage)})
	if why != nil && sv.req.Route != report.RouteBuffered {
		r.Refusals = append(r.Refusals, report.Refusal{What: "direct", On: sv.sink.Name(), Reason: why.Reason, Fix: why.Fix})
	}
	r.Refusals = append(r.Refusals, sv.refusals...)
	r.Notes = append(r.Notes, "the bytes are durable when their owner has said so: this save gives them to an open file")
	if sv.sums != nil {
		r.Save.ChecksumBlocks = len(sv.sums.Blocks)
	}
	c := sv.cu
	if c == nil {
		return
	}
	r.CuFile = c.lib.part(report.CuFileSync, c.opened)
	if c.counts.Known {
		r.CuFile.Counters, r.CuFile.Unaligned = describeCounters(c.counts), c.counts.Writes.Unaligned
	}
	if c.opened {
		r.Notes = append(r.Notes, c.lib.cost())
	}
	t.tally.mu.Lock()
	defer t.tally.mu.Unlock()
	if a := t.tally.route(routeCuFile); a.bytes > 0 {
		r.Routes = append(r.Routes, a.report(taken(c.counts.Known, c.counts.Writes)))
	}
}
