// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// StartReadMany starts one Move that reads many objects, and returns at once. If the read of one object fails, the
// whole Move fails with that error, which names the object.
func (c *Client) StartReadMany(ctx context.Context, rs []Read) (*Move, error) {
	const op = "read"
	if len(rs) == 0 {
		return nil, errs.New(errs.Invalid, op, "", "no object is named")
	}
	rs = append([]Read(nil), rs...)
	for i := range rs {
		if err := rs[i].check(); err != nil {
			return nil, err
		}
	}
	leave, err := c.enter(op, fmt.Sprintf("%d objects", len(rs)))
	if err != nil {
		return nil, err
	}
	windows, err := windowsOf(ctx, c, rs)
	if err != nil {
		leave()
		return nil, err
	}
	m := newMove(op)
	m.report.Bucket, m.report.Key = rs[0].Bucket, fmt.Sprintf("%d objects", len(rs))
	m.report.Device, m.report.Asked = deviceReport(windows[0].dev), report.Asked{Route: rs[0].Route, Cache: rs[0].Cache}
	m.report.Objects = make([]report.BatchObject, len(rs))
	for i := range rs {
		m.report.Objects[i] = report.BatchObject{Bucket: rs[i].Bucket, Key: rs[i].Key}
	}
	go func() {
		defer leave()
		b := &batch{c: c, m: m, windows: windows}
		err := b.run(ctx)
		took := time.Since(m.began)
		m.report.Seconds, m.report.GBps = took.Seconds(), units.GBps(m.report.Bytes, took)
		m.end(err)
	}()
	return c.begun(m), nil
}

// batch is a StartReadMany in progress.
type batch struct {
	c       *Client
	m       *Move
	windows []*window

	mu      sync.Mutex // guards the report
	first   error
	turned  bool // the door was lost, and HTTP is used since then
	fetched bool // the door refused an object that is not cached
}

// run opens windows, several at a time, while earlier windows are read.
func (b *batch) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fail := func(err error) {
		b.mu.Lock()
		if b.first == nil {
			b.first = err
		}
		b.mu.Unlock()
		cancel(err)
	}
	ready := make(chan *window)
	var next atomic.Int64
	var openers sync.WaitGroup
	for range windowsOpening {
		openers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(b.windows) {
					return
				}
				w := b.windows[i]
				if err := b.admit(ctx, w); err != nil {
					fail(err)
					return
				}
				ready <- w
			}
		})
	}
	go func() {
		openers.Wait()
		close(ready)
	}()
	network := make(chan struct{}, windowsOnNetwork)
	var readers sync.WaitGroup
	for w := range ready { // at most windowsAtOnce, because each has a token
		readers.Go(func() {
			defer func() { <-b.c.windows }()
			if w.door == nil || len(w.late) > 0 {
				network <- struct{}{}
				defer func() { <-network }()
			}
			if err := b.read(ctx, w); err != nil {
				fail(err)
			}
		})
	}
	readers.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == nil && ctx.Err() != nil {
		return errs.Wrap("read", b.m.report.Key, context.Cause(ctx))
	}
	return b.first
}

// open opens the objects of a window, and delivers the inline ones at once.
func (b *batch) open(ctx context.Context, w *window) error {
	var err error
	for range 2 {
		var to *way
		if to, err = b.c.find(ctx); err != nil {
			return err
		}
		b.mu.Lock()
		if b.m.report.Via == "" {
			b.m.opened()
			if b.m.report.Via = ViaDoor; to.door == nil {
				b.m.report.Via = ViaHTTP
				b.m.refuse(to.refused)
			}
		} else if to.door == nil && b.m.report.Via == ViaDoor && !b.turned {
			b.turned = true
			b.m.refuse(to.refused)
			b.m.report.Notes = append(b.m.report.Notes, "the door went away in the middle of the batch: what was left came "+
				"over HTTP")
		}
		b.mu.Unlock()
		if to.door == nil {
			return b.openHTTP(ctx, w)
		}
		// After some objects of the window are taken, a second try would deliver them twice.
		if err = b.openDoor(ctx, to.door, w); err == nil || w.taken > 0 || !to.door.broken.Load() && !wasLost(err) {
			return err
		}
		w.door = nil
	}
	return err
}

func (b *batch) openDoor(ctx context.Context, d *door, w *window) error {
	r0 := &w.reads[0]
	verify := b.c.verifies(r0)
	ask := want{op: "read", bits: wire.WantBuffered | wire.WantDirect | wire.WantInline, device: deviceOf(w.dev)}
	if verify {
		ask.bits |= wire.WantSums
	}
	items := make([]wire.OpenItem, len(w.reads))
	for i := range w.reads {
		r := &w.reads[i]
		items[i] = wire.OpenItem{Bucket: r.Bucket, Key: r.Key, Version: r.Version, Off: r.Off, N: b.c.ask(d, r)}
	}
	all, fails, err := d.open(ctx, ask, items)
	if err != nil {
		return err
	}
	w.door = d
	// Nothing is taken from an answer without room for the whole window, so that admit can open the window again.
	if i := slices.IndexFunc(fails, crowded); i >= 0 {
		b.tell(w.first+i, func(x *report.BatchObject) { x.Error = fails[i].Error() })
		dropAll(all)
		return fails[i]
	}
	for i, o := range all {
		if uncached(b.c, fails[i]) {
			b.putOff(w, i, fails[i])
			w.taken++
			continue
		}
		if fails[i] != nil {
			b.tell(w.first+i, func(x *report.BatchObject) { x.Error = fails[i].Error() })
			dropAll(all[i:])
			return fails[i]
		}
		if err := b.take(ctx, d, w, i, o, verify); err != nil {
			if w.taken > 0 || !wasLost(err) {
				b.tell(w.first+i, func(x *report.BatchObject) { x.Error = err.Error() })
			}
			dropAll(all[i:])
			return err
		}
		w.taken++
	}
	return nil
}

// tell changes the report of one object.
func (b *batch) tell(i int, f func(x *report.BatchObject)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.m.report.Objects[i])
}

// take checks one opened object. It delivers an inline object at once, and adds any other to the window's transfer.
func (b *batch) take(ctx context.Context, d *door, w *window, i int, o *opened, verify bool) error {
	r := &w.reads[i]
	n, err := r.extent(o.item.Size)
	if err == nil {
		err = r.same(o.item.ETag)
	}
	if err == nil {
		err = examine(w.dev, "read", o.name, r.Dst, n)
	}
	if err != nil {
		return err
	}
	if o.item.HasInline {
		b.found(w.first+i, o.item.ETag, o.item.Size, n)
		return b.deliver(ctx, d, w, i, o, n)
	}
	if err := o.prepare(ctx, "read", deviceOf(w.dev), r.Off, n, verify); err != nil {
		return err
	}
	b.found(w.first+i, o.item.ETag, o.item.Size, n)
	f, err := o.file(w.beside())
	if err != nil {
		return err
	}
	w.add(f, i, r, n, o.sums)
	return nil
}

// found records an object's ETag and size, and adds its n wanted bytes to the total.
func (b *batch) found(i int, etag string, size, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := &b.m.report.Objects[i]
	x.ETag, x.Size, x.Error = etag, size, "" // an earlier try may have had an error
	b.m.report.Size += size
	b.m.total.Add(n)
}

// deliver copies an object that was sent inside the reply to its destination.
func (b *batch) deliver(ctx context.Context, d *door, w *window, i int, o *opened, n int64) error {
	r := &w.reads[i]
	verify := !b.c.opt.NoVerify && !r.NoVerify
	data, err := o.inline(verify)
	o.drop()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.c.place(ctx, r, w.dev, data[r.Off:r.Off+n]); err != nil {
		return err
	}
	took := time.Since(began)
	t := inlineReport(w.dev, r, n, took)
	if verify {
		t.Verify = &report.Verification{Algorithm: "crc64nvme", Where: "host", Files: 1, Blocks: 1, Bytes: int64(len(data))}
	}
	b.c.counts.inlineReads.Add(1)
	b.c.counts.bytesRead.Add(n)
	d.count(movedBy{false, t.Device.ID, string(routeSocket), "total"}, n, took)
	b.mu.Lock()
	defer b.mu.Unlock()
	x := &b.m.report.Objects[w.first+i]
	x.Bytes, x.Inline = n, true
	b.m.moved.Add(n)
	b.m.merge(&t)
	return nil
}

// read runs the transfer of a window.
func (b *batch) read(ctx context.Context, w *window) error {
	defer w.close()
	if len(w.files) == 0 {
		return b.readLate(ctx, w)
	}
	r := &w.reads[0]
	req := transfer.Request{Device: w.dev, Files: w.files, Segments: w.segs, Route: r.Route, Cache: r.Cache,
		Stream: r.Stream, HasStream: r.HasStream, Fresh: true}
	for _, s := range w.sums {
		if s != nil {
			req.Verify = w.sums
		}
	}
	if len(req.Segments) == 0 {
		req.Route = report.RouteAuto // there is nothing to route
	}
	for _, f := range w.files {
		req.Seen = append(req.Seen, seen(f))
	}
	// A read with peers has its own window.
	for _, s := range w.segs {
		if err := b.c.addPeers(ctx, &req, r, s.Len); err != nil {
			return err
		}
	}
	req.NoP2P = w.door != nil && !w.door.settings().P2P
	t, err := b.c.opt.Engine.Start(ctx, req)
	if err != nil {
		return err
	}
	err = t.Err()
	rep := t.Report()
	for _, f := range w.files {
		remember(f, r.Cache, &rep)
	}
	n, _ := t.Progress()
	b.c.counts.bytesRead.Add(n)
	if w.door != nil {
		b.c.counts.doorReads.Add(int64(len(w.files)))
		w.door.countReport(&rep, false)
	} else {
		b.c.counts.httpReads.Add(int64(len(w.files)))
	}
	b.mu.Lock()
	b.m.moved.Add(n)
	b.c.noteVerify(b.m, r)
	b.m.merge(&rep)
	if w.door == nil {
		b.m.report.Network = sumHTTP(b.m.report.Network, networkReport(w.files...))
	}
	for _, s := range w.segs {
		x := &b.m.report.Objects[w.first+w.of[s.File]]
		if err == nil {
			x.Bytes = s.Len
		}
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return b.readLate(ctx, w)
}
