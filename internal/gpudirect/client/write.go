// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// check validates the write, fills in Sources and Streams, and returns the device to name to the door.
func (w *Write) check(ctx context.Context, c *Client) (device.Device, error) {
	const op = "write"
	if err := checkName(op, w.Bucket, w.Key); err != nil {
		return nil, err
	}
	name := urlOf(w.Bucket, w.Key)
	if w.Size < 0 {
		return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("%d bytes; expected 0 or more", w.Size))
	}
	var err error
	if w.Route, err = report.ParseRoute(string(w.Route)); err != nil {
		return nil, err
	}
	if w.Sources == nil {
		if !w.Src.Holds(w.Size) {
			return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("the source is at 0x%x, expected an address that %d "+
				"bytes can begin at", uint64(w.Src), w.Size))
		}
		dev, err := c.device(ctx, w.Device)
		if err != nil {
			return nil, err
		}
		w.Sources = []transfer.Source{{Len: w.Size, Device: dev, Ptr: w.Src}}
		if w.HasStream {
			w.Streams = map[device.Device]uint64{dev: w.Stream}
		}
	}
	var first device.Device
	w.Size = 0
	for i := range w.Sources {
		s := &w.Sources[i]
		w.Size += s.Len
		if s.Device == nil {
			continue
		}
		if err := examine(s.Device, op, name, s.Ptr, s.Len); err != nil {
			return nil, err
		}
		if first == nil || first.Info().Kind == device.Host {
			first = s.Device
		}
	}
	if first != nil {
		return first, nil
	}
	return c.opt.Devices.Open(ctx, string(device.Host))
}

// StartWrite starts to write an object from device memory and returns at once. StartWrite itself fails only for
// invalid arguments and devices, or if the client is closed. Move.Wait returns all other errors of the write.
func (c *Client) StartWrite(ctx context.Context, w Write) (*Move, error) {
	leave, err := c.enter("write", urlOf(w.Bucket, w.Key))
	if err != nil {
		return nil, err
	}
	dev, err := w.check(ctx, c)
	if err != nil {
		leave()
		return nil, err
	}
	m := newMove("write")
	m.report.Bucket, m.report.Key, m.report.Size = w.Bucket, w.Key, w.Size
	m.report.Device, m.report.Asked = deviceReport(dev), report.Asked{Route: w.Route}
	m.total.Store(w.Size)
	go func() {
		defer leave()
		m.end(orExists(w.IfNoneMatch, c.write(ctx, m, &w, dev)))
	}()
	return c.begun(m), nil
}

// write writes through the door if the door allows writes, and over HTTP otherwise.
func (c *Client) write(ctx context.Context, m *Move, w *Write, dev device.Device) error {
	var err error
	for range 2 {
		var to *way
		if to, err = c.find(ctx); err != nil {
			return err
		}
		if to.door == nil {
			m.refuse(to.refused)
			return c.writeHTTP(ctx, m, w, dev)
		}
		var no error // the reason why the door refuses the write
		if g := to.door.settings(); !g.Writes {
			no = errs.New(errs.Unsupported, "write", urlOf(w.Bucket, w.Key), g.WritesWhy)
		} else {
			var begun bool
			begun, err = c.writeDoor(ctx, to.door, m, w, dev)
			switch {
			case !begun && errs.Is(err, errs.Unsupported):
				no = err
			case !begun && err != nil && to.door.broken.Load():
				continue
			default:
				return err
			}
		}
		if c.opt.Door != doorAuto {
			return no
		}
		m.refuse(&report.Refusal{What: "door", On: to.door.path, Reason: reason(no), Fix: errs.FixOf(no)})
		return c.writeHTTP(ctx, m, w, dev)
	}
	return err
}

// draft is a file that the door has created for a new object.
type draft struct {
	d     *door
	c     *conn
	id    uint64
	name  string
	fds   [2]int
	reply wire.Created
}

// create asks the door for a file to write into.
func (d *door) create(ctx context.Context, w *Write, dev device.Device) (*draft, error) {
	return d.draft(ctx, urlOf(w.Bucket, w.Key), w.request(dev), nil)
}

// request returns the message that begins a draft for the write.
func (w *Write) request(dev device.Device) *wire.Create {
	req := &wire.Create{Bucket: w.Bucket, Key: w.Key, Size: w.Size, Device: deviceOf(dev),
		Want:        wire.WantBuffered | wire.WantDirect,
		ContentType: w.ContentType, IfMatch: w.IfMatch, IfNoneMatch: w.IfNoneMatch}
	for k, v := range w.Metadata {
		req.Metadata = append(req.Metadata, wire.Pair{Name: k, Value: v})
	}
	sort.Slice(req.Metadata, func(i, j int) bool { return req.Metadata[i].Name < req.Metadata[j].Name })
	return req
}

// draft begins a draft over the connection on, or over any connection if on is nil. A draft with a source takes as long
// as its copy.
func (d *door) draft(ctx context.Context, name string, req *wire.Create, on *conn) (*draft, error) {
	f := &draft{d: d, name: name, fds: [2]int{-1, -1}}
	a := asking{op: "write", name: name, req: req, each: func(m wire.Message, fds []int) error {
		r, ok := m.(*wire.Created)
		if !ok {
			closeAll(fds)
			return unexpected(m, "Created")
		}
		f.id, f.reply = r.Handle, *r
		for k, bit := range [...]uint8{wire.WantBuffered, wire.WantDirect} {
			if r.Has&bit != 0 && len(fds) > 0 {
				f.fds[k], fds = fds[0], fds[1:]
			}
		}
		closeAll(fds)
		return nil
	}}
	var err error
	if on == nil {
		f.c, err = d.ask(ctx, a)
	} else {
		f.c, a.patience = on, commitPatience
		on.slow.Add(1)
		err = d.askOn(ctx, on, a)
		on.slow.Add(-1)
		d.nudge()
	}
	if err != nil {
		closeAll(f.fds[:])
		return nil, err
	}
	f.c.drafts.Add(1)
	return f, nil
}

// abort deletes the draft. It ignores errors, because the server also deletes the draft when the connection ends.
func (f *draft) abort() {
	closeAll(f.fds[:])
	f.fds = [2]int{-1, -1}
	_ = f.d.askOn(context.WithoutCancel(context.Background()), f.c,
		asking{op: "abort", name: f.name, req: &wire.Abort{Handle: f.id}, stay: true})
	f.c.drafts.Add(-1)
}

// grant announces the ranges from at to size that will be written, each at most MaxTransferSize bytes.
func (f *draft) grant(ctx context.Context, dev device.Device, at, size int64) error {
	step := f.d.settings().MaxTransferSize
	if step <= 0 {
		return errs.New(errs.Invalid, "read door message", "Greeting",
			fmt.Sprintf("max_transfer_size is %d, expected more than 0", step))
	}
	for at < size {
		m := &wire.Move{Handle: f.id, Device: deviceOf(dev)}
		for at < size && len(m.Ranges) < wire.MaxRanges {
			k := min(step, size-at)
			m.Ranges = append(m.Ranges, wire.Range{Off: at, N: k})
			at += k
		}
		if err := f.d.askOn(ctx, f.c, asking{op: "write", name: f.name, req: m, each: wantAck}); err != nil {
			return err
		}
	}
	return nil
}

// writerPatience is the longest time that commit waits for a library to release a closed descriptor.
const (
	writerPatience = 2 * time.Second
	writerPause    = 2 * time.Millisecond
)

// commit publishes the draft. The caller has closed the draft's descriptors.
func (f *draft) commit(sums *checksum.Sums) (wire.Committed, error) {
	// The outcome must be known from here on, so the caller's context is ignored.
	ctx := context.WithoutCancel(context.Background())
	c := &wire.Commit{Handle: f.id, Size: sums.Size, CRC64: sums.Whole()}
	rest := sums.Blocks
	for ; len(rest) > wire.MaxSums; rest = rest[wire.MaxSums:] {
		a := &wire.AddSums{Handle: f.id, First: c.First, Sums: rest[:wire.MaxSums]}
		if err := f.d.askOn(ctx, f.c, asking{op: "commit", name: f.name, req: a, each: wantAck, stay: true}); err != nil {
			return wire.Committed{}, err
		}
		c.First += wire.MaxSums
	}
	c.Sums = rest
	f.c.slow.Add(1)
	defer func() {
		f.c.slow.Add(-1)
		f.d.nudge()
	}()
	var done wire.Committed
	for began, pause := time.Now(), writerPause; ; pause = min(2*pause, 100*time.Millisecond) {
		sent := false
		err := f.d.askOn(ctx, f.c, asking{op: "commit", name: f.name, req: c, patience: commitPatience, stay: true,
			sent: func() { sent = true }, each: func(m wire.Message, fds []int) error {
				closeAll(fds)
				r, ok := m.(*wire.Committed)
				if !ok {
					return unexpected(m, "Committed")
				}
				done = *r
				return nil
			}})
		if codeOf(err) == wire.CodeWriterLeft && time.Since(began) < writerPatience {
			time.Sleep(pause)
			continue
		}
		if err != nil && sent && codeOf(err) == "" {
			e := &errs.Error{Kind: errs.KindOf(err), Op: "commit", Name: f.name,
				Msg: "the answer did not come: the object may have been written, whole, or not at all", Err: err,
				Fix: "look at the object (stat) before it is written again"}
			return done, e
		}
		return done, err
	}
}

// writeDoor writes through the door. If begun is false, nothing was moved and the write can be tried in another way.
func (c *Client) writeDoor(ctx context.Context, d *door, m *Move, w *Write, dev device.Device) (begun bool, err error) {
	f, err := d.create(ctx, w, dev)
	if err != nil {
		return false, err
	}
	m.report.Via = ViaDoor
	committed := false
	defer func() {
		if !committed {
			f.abort()
		} else {
			f.c.drafts.Add(-1)
		}
	}()
	if err := f.grant(ctx, dev, 0, w.Size); err != nil {
		return true, err
	}
	if f.fds[0] < 0 {
		return true, errs.New(errs.Invalid, "read door message", "Created", "came without a descriptor of "+f.name)
	}
	sink, err := vfs.SinkFromDescriptors(vfs.Descriptors{Name: f.name, Buffered: f.fds[0], Direct: f.fds[1],
		Refused: f.reply.Refused, Size: w.Size})
	f.fds = [2]int{-1, -1}
	if err != nil {
		return true, err
	}
	m.opened()
	t, err := c.opt.Engine.StartWrite(ctx,
		transfer.WriteRequest{Sink: sink, Sources: w.Sources, Route: w.Route, Checksums: true, Streams: w.Streams})
	if err != nil {
		return true, errors.Join(err, sink.Close())
	}
	m.runs(t.Progress)
	err = t.Err()
	m.take(t.Report())
	n, _ := t.Progress()
	m.runs(func() (int64, int64) { return n, n }) // replaced in one step, so that Progress counts no bytes twice
	if cerr := sink.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return true, err
	}
	sums := t.Sums()
	if sums == nil || sums.Block != object.SumBlock || sums.Size != w.Size {
		return true, errs.New(errs.Other, "write", f.name, "the engine made no checksums of the blocks; this is a defect")
	}
	if ctx.Err() != nil {
		return true, errs.Wrap("write", f.name, context.Cause(ctx))
	}
	m.sums = sums
	began := time.Now()
	done, err := f.commit(sums)
	m.report.CommitSeconds = time.Since(began).Seconds()
	if err != nil {
		return true, err
	}
	committed = true
	m.report.ETag, m.report.Version = done.ETag, done.Version
	if m.report.Save != nil {
		m.report.Save.Durable = true
	}
	c.counts.doorWrites.Add(1)
	c.counts.bytesWritten.Add(n)
	d.countReport(&m.report.Report, true)
	return true, nil
}
