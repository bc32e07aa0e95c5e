// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// Source is where a run of a file's bytes comes from: memory of a device, or,
// where Device is nil, Data itself.
type Source struct {
	Off    int64 // in the file
	Len    int64
	Device device.Device
	Ptr    device.Ptr
	Data   []byte
}

// WriteRequest is one save: a file made of sources, which tile it.
type WriteRequest struct {
	// Path is the file to be made or replaced; a link is followed.
	Path string
	// Sink, in place of Path, is written instead: open until Done, and then
	// its owner's to make durable. Only here there may be nothing to save.
	Sink    Sink
	Sources []Source
	// Route is auto (direct where the file system allows it), direct (an error
	// where it does not), buffered or, to a sink, cufile.
	Route report.Route
	// Checksums writes FILE.crc64nvme too. Without it, one that is there does
	// not stay beside a file that it is not of. To a sink nothing is written
	// beside: Transfer.Sums has them, of blocks of 1 MiB.
	Checksums bool
	// Streams are, by device, the caller's streams whose queued work may still
	// write the sources.
	Streams map[device.Device]uint64
}

// save is what a Transfer has more when it writes.
//
// The flow of a byte: the file is cut at multiples of the block; a writer takes
// a block, queues the copies of its pieces from their devices into a staging
// slot, waits for the marks behind them, sums the block while it is hot, and
// writes it past the page cache. A writer with two slots queues the copies of
// the next block before it writes the one at hand. When every block is written,
// the file is made durable and takes its name.
type save struct {
	req     WriteRequest
	size    int64
	sources []source    // in order, neighbours in memory joined
	ports   []*port     // of the devices, in order of appearance
	draft   *vfs.Draft  // nil: the sink is somebody else's
	sink    Sink        // what is written: the draft, or the request's own
	storage vfs.Storage // below the sink
	cu      *cuFileSink // nil: cuFile takes no part

	join *checksum.Joiner
	sums *checksum.Sums // nil: none are made
	mu   sync.Mutex     // guards sums.Blocks and steps

	steps   []report.Stage
	write   account
	retired checksum.ID // whose sums were set aside
	commit  bool        // the file has its name
	durable bool
	notes   []string

	refusals []report.Refusal
}

// source is a Source with the port of its device, nil for literal bytes.
type source struct {
	Source
	port *port
}

// Writes is the size of one write of a save and how many are in flight, as they
// were dealt out of the staging memory.
func (e *Engine) Writes() (block int64, depth int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opts.WriteBlock, e.opts.WriteDepth
}

// StartWrite checks the request and begins to write; it returns at once. The
// context cancels the save: the file is then as it was before. The sources
// belong to the save, and do not change, until Done is closed.
func (e *Engine) StartWrite(ctx context.Context, req WriteRequest) (*Transfer, error) {
	e, err := e.laneOf(req.Sources)
	if err != nil {
		return nil, err
	}
	if req.Route == "" {
		req.Route = report.RouteAuto
	}
	sv := &save{req: req, join: e.join}
	if req.Sink != nil {
		if err := sv.checkSink(); err != nil {
			return nil, err
		}
	}
	t := &Transfer{e: e, save: sv, began: time.Now(), drained: make(chan struct{}), done: make(chan struct{})}
	if err := sv.check(); err != nil {
		return nil, err
	}
	t.total = sv.size
	if err := e.enterSave(sv); err != nil {
		return nil, err
	}
	for _, p := range sv.ports {
		stream, ok := req.Streams[p.dev]
		if !ok || p.dev.Info().Kind == device.Host {
			continue
		}
		if err := p.queue.After(stream); err != nil {
			e.leave()
			return nil, errs.Wrap("order after the caller's stream on", p.dev.Info().ID, err)
		}
	}
	go t.planSave(ctx)
	go t.finishSave(ctx)
	return t, nil
}

// check refuses sources that do not tile a file, and joins neighbours.
func (sv *save) check() error {
	bad := func(i int, msg string) error {
		return errs.New(errs.Invalid, "save", sv.req.Path, fmt.Sprintf("source %d %s", i, msg))
	}
	all := slices.Clone(sv.req.Sources)
	slices.SortStableFunc(all, func(a, b Source) int { return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.Len, b.Len)) })
	for i, s := range all {
		switch {
		case s.Len < 0 || s.Off != sv.size:
			return bad(i, fmt.Sprintf("has %d bytes at offset %d, expected offset %d", s.Len, s.Off, sv.size))
		case s.Device == nil && int64(len(s.Data)) != s.Len:
			return bad(i, fmt.Sprintf("has %d bytes of data, expected %d", len(s.Data), s.Len))
		case s.Device != nil && !s.Ptr.Holds(s.Len):
			return bad(i, fmt.Sprintf("has the address 0x%x, expected one that %d bytes can begin at", uint64(s.Ptr), s.Len))
		}
		sv.size += s.Len
		if s.Len == 0 {
			continue
		}
		if n := len(sv.sources); n > 0 && s.Device != nil {
			if last := &sv.sources[n-1]; last.Device == s.Device && last.Ptr+device.Ptr(last.Len) == s.Ptr {
				last.Len += s.Len
				continue
			}
		}
		sv.sources = append(sv.sources, source{Source: s})
	}
	if sv.size == 0 && sv.sink == nil {
		return errs.New(errs.Invalid, "save", sv.req.Path, "there is nothing to save; expected at least one byte")
	}
	if sv.req.Route != report.RouteAuto && sv.req.Route != report.RouteDirect && sv.req.Route != report.RouteBuffered && (sv.req.Route != report.RouteCuFile || sv.sink == nil) {
		return errs.New(errs.Invalid, "save", sv.req.Path, fmt.Sprintf("route %q is not one of a save; expected auto, buffered or direct", sv.req.Route))
	}
	if sv.req.Checksums {
		block := int64(checksum.DefaultBlock)
		for sv.sink == nil && (sv.size+block-1)/block > checksum.MaxBlocks && block < checksum.MaxBlock {
			block *= 2
		}
		sv.sums = &checksum.Sums{Size: sv.size, Block: block, Blocks: make([]uint64, (sv.size+block-1)/block)}
	}
	return nil
}

// enterSave counts a save in, with a port for each of its devices and threads
// to write.
func (e *Engine) enterSave(sv *save) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errs.New(errs.Closed, "save", sv.req.Path, "the engine is closed")
	}
	for i := range sv.sources {
		s := &sv.sources[i]
		if s.Device == nil {
			continue
		}
		p, err := e.portOf(s.Device)
		if err != nil {
			return err
		}
		if s.port = p; !slices.Contains(sv.ports, p) {
			sv.ports = append(sv.ports, p)
		}
	}
	if !e.started[plan.ViaWrite] {
		if err := e.start(plan.ViaWrite); err != nil {
			return err
		}
		e.started[plan.ViaWrite] = true
	}
	for _, p := range sv.ports {
		if p.mapper == nil {
			e.pool.prepare(p.dev, writeSlot)
		}
	}
	e.running++
	return nil
}

// planSave begins the file and hands its blocks to the writers.
func (t *Transfer) planSave(ctx context.Context) {
	defer t.e.sched.planned(t)
	sv := t.save
	begin := t.openDraft
	if sv.sink != nil {
		begin = func() error { return t.openSink(ctx) }
	}
	if err := begin(); err != nil {
		t.e.sched.stop(t, err)
		return
	}
	sv.storage = t.e.storageBelow(sv.sink)
	block := t.e.opts.WriteBlock
	for off := int64(0); off < sv.size; off += block {
		if !t.e.sched.add(t, plan.Chunk{Off: off, Len: min(block, sv.size-off), Verdict: plan.Verdict{Way: plan.ViaWrite}}) {
			return
		}
	}
}

// openDraft begins the file that the save makes.
func (t *Transfer) openDraft() error {
	sv := t.save
	err := sv.step(t.e, "reserve", func() (err error) {
		sv.draft, err = vfs.Create(sv.req.Path, sv.size)
		if errors.Is(err, syscall.ENOSPC) {
			// Space of files that were just replaced may be on its way back.
			t.e.releasing.Wait()
			sv.draft, err = vfs.Create(sv.req.Path, sv.size)
		}
		return err
	})
	if err != nil {
		return err
	}
	sv.sink = sv.draft
	if sv.req.Route == report.RouteDirect {
		err = sv.mustBeDirect()
	}
	if err == nil && sv.sums != nil {
		err = checksum.CheckName(sv.draft.Target()) // before gigabytes are written
	}
	return err
}

// mustBeDirect fails where what is written cannot be written past the page cache.
func (sv *save) mustBeDirect() error {
	if ok, why := sv.sink.Direct(); !ok {
		return errs.New(errs.Unsupported, "write past the page cache", sv.req.Path, why.Reason).WithFix("use route auto, or: " + why.Fix)
	}
	return nil
}

// finishSave waits for the end, from inside or by the context, puts the file in
// place or takes it away, and settles the result.
func (t *Transfer) finishSave(ctx context.Context) {
	defer close(t.done)
	defer t.e.leave()
	defer t.count()
	sv := t.save
	select {
	case <-t.drained:
	case <-ctx.Done():
		t.e.sched.stop(t, &errs.Error{Kind: errs.Cancelled, Op: "save", Err: context.Cause(ctx),
			Name: fmt.Sprintf("%s after %s", sv.req.Path, units.Bytes(t.delivered.Load()))})
		<-t.drained
	}
	t.e.sched.mu.Lock()
	t.result = cancelledAfter(t.err, "save", sv.req.Path, t.delivered.Load())
	t.e.sched.mu.Unlock()
	if got := t.delivered.Load(); t.result == nil && got != t.total {
		t.result = errs.New(errs.Other, "save", sv.req.Path, fmt.Sprintf("wrote %d of %d bytes without an error; this is a defect", got, t.total))
	}
	if err := sv.closeSink(); t.result == nil {
		t.result = err
	}
	if t.result == nil && sv.req.Sink == nil {
		t.result = sv.publish(ctx, t.e)
	}
	if sv.draft != nil {
		sv.draft.Abandon()
	}
	t.wall = time.Since(t.began)
}

// pieces calls f for each source's share of [off, off+n) of the file: dst is
// the place of its bytes in the range, at where they lie in the source.
func (sv *save) pieces(off, n int64, f func(s *source, at, dst, n int64) error) error {
	i := sort.Search(len(sv.sources), func(i int) bool { return sv.sources[i].Off+sv.sources[i].Len > off })
	for end := off + n; i < len(sv.sources) && sv.sources[i].Off < end; i++ {
		s := &sv.sources[i]
		lo, hi := max(off, s.Off), min(end, s.Off+s.Len)
		if err := f(s, lo-s.Off, lo-off, hi-lo); err != nil {
			return err
		}
	}
	return nil
}

// collect brings the bytes from off on together in data, which is a slot's: what
// devices have is queued behind each other, with a mark of the slot behind it, and their ports
// are returned. After an error copies may be queued that no mark covers.
func (sv *save) collect(off int64, to *slot, data []byte) (ports []*port, err error) {
	err = sv.pieces(off, int64(len(data)), func(s *source, at, dst, n int64) error {
		part := data[dst : dst+n]
		switch {
		case s.port == nil:
			copy(part, s.Data[at:])
			return nil
		case s.port.mapper != nil:
			copy(part, s.port.mapper.Map(s.Ptr+device.Ptr(at), n))
			return nil
		}
		to.part.ensure(s.port.dev)
		if !slices.Contains(ports, s.port) {
			ports = append(ports, s.port)
		}
		return s.port.queue.CopyOut(part, s.Ptr+device.Ptr(at))
	})
	for i := 0; err == nil && i < len(ports); i++ {
		var m device.Mark
		if m, err = to.markFor(ports[i]); err == nil {
			err = m.Record()
		}
	}
	return ports, err
}

// sum adds the bytes of c, which are in data, to the sums of their blocks.
// Where a block is larger than what is written at once, its pieces are joined.
func (t *Transfer) sum(c plan.Chunk, data []byte) {
	sv := t.save
	if sv.sums == nil {
		return
	}
	defer t.tally.verified(int64(len(data)), time.Now())
	for off := c.Off; len(data) > 0; {
		i := off / sv.sums.Block
		lo, n := sv.sums.Extent(i)
		part := data[:min(int64(len(data)), lo+n-off)]
		data = data[len(part):]
		off += int64(len(part))
		sum := sv.join.After(checksum.Of(part), lo+n-off)
		sv.mu.Lock()
		sv.sums.Blocks[i] ^= sum
		sv.mu.Unlock()
	}
}
