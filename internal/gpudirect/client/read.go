// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// routeSocket is the route of bytes that are sent inside the door's reply.
const routeSocket report.RouteTaken = "socket"

// check validates the read and parses its route and cache policy, without I/O.
func (r *Read) check() error {
	const op = "read"
	if err := checkName(op, r.Bucket, r.Key); err != nil {
		return err
	}
	name := urlOf(r.Bucket, r.Key)
	if r.Off < 0 || r.Size < -1 || r.DstSize < 0 {
		return errs.New(errs.Invalid, op, name,
			fmt.Sprintf("%d bytes at offset %d into %d; expected 0 or more, or a size of -1 for all", r.Size, r.Off, r.DstSize))
	}
	if !r.Dst.Holds(max(r.DstSize, r.Size)) {
		return errs.New(errs.Invalid, op, name,
			fmt.Sprintf("the destination is at 0x%x, expected an address that %d bytes can begin at", uint64(r.Dst),
				max(r.DstSize, r.Size)))
	}
	if r.Size > r.DstSize {
		return tooSmall(name, r.Size, r.DstSize)
	}
	var err error
	if r.Route, err = report.ParseRoute(string(r.Route)); err != nil {
		return err
	}
	r.Cache, err = report.ParseCachePolicy(string(r.Cache))
	return err
}

func tooSmall(name string, need, have int64) error {
	return errs.New(errs.Invalid, "read", name, fmt.Sprintf("%d bytes are to be read and the buffer has %d", need, have)).
		WithFix("give a larger buffer, or say with the size how much of the object is wanted")
}

// extent returns the number of bytes to read from an object of size bytes.
func (r *Read) extent(size int64) (n int64, err error) {
	name := urlOf(r.Bucket, r.Key)
	switch n = r.Size; {
	case r.Off > size:
		return 0, errs.New(errs.Invalid, "read", name, fmt.Sprintf("offset %d lies behind its end at %d", r.Off, size))
	case n == -1:
		n = size - r.Off
	case n > size-r.Off:
		return 0, errs.New(errs.Invalid, "read", name, fmt.Sprintf("bytes %d to %d are wanted and it has %d", r.Off, r.Off+n,
			size))
	}
	if n > r.DstSize {
		return 0, tooSmall(name, n, r.DstSize)
	}
	return n, nil
}

// same fails if the object does not have the expected ETag.
func (r *Read) same(etag string) error {
	if r.IfETag == "" || r.IfETag == etag {
		return nil
	}
	return errs.New(errs.IO, "read", urlOf(r.Bucket, r.Key),
		fmt.Sprintf("it was overwritten: its ETag is %s, expected %s", etag, r.IfETag)).WithFix("open it again")
}

// examine returns an error if the device knows that n bytes at p are not the caller's memory.
func examine(dev device.Device, op, name string, p device.Ptr, n int64) error {
	x, ok := dev.(device.Examiner)
	if !ok || n == 0 {
		return nil
	}
	return errs.Wrap(op, name, x.Examine(p, n))
}

// verifies reports whether a read compares checksums.
func (c *Client) verifies(r *Read) bool {
	return !c.opt.NoVerify && !r.NoVerify && r.Route != report.RouteCuFile
}

// noteVerify adds a note to the report if route cufile prevents verification.
func (c *Client) noteVerify(m *Move, r *Read) {
	const note = "route cufile puts bytes where the CPU does not see them: they were not compared with the server's " +
		"checksums"
	if r.Route == report.RouteCuFile && !r.NoVerify && !c.opt.NoVerify && !slices.Contains(m.report.Notes, note) {
		m.report.Notes = append(m.report.Notes, note)
	}
}

// StartRead starts to read an object into device memory and returns at once. StartRead itself fails only for invalid
// arguments and devices, or if the client is closed. Move.Wait returns all other errors of the read.
func (c *Client) StartRead(ctx context.Context, r Read) (*Move, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	leave, err := c.enter("read", urlOf(r.Bucket, r.Key))
	if err != nil {
		return nil, err
	}
	dev, err := c.device(ctx, r.Device)
	if err != nil {
		leave()
		return nil, err
	}
	m := newMove("read")
	m.report.Bucket, m.report.Key = r.Bucket, r.Key
	m.report.Device = deviceReport(dev)
	m.report.Asked = report.Asked{Route: r.Route, Cache: r.Cache}
	turn := false
	select {
	case c.reads <- struct{}{}:
		turn = true
	default:
	}
	out := func() {
		<-c.reads
		leave()
	}
	// A request through an open door takes microseconds, so we make it in this goroutine. We do not wait for the
	// transfer here.
	if w := c.wayNow(); turn && w != nil && w.door != nil {
		u, err := c.beginDoor(ctx, w.door, m, &r, dev)
		if err == nil || !w.door.broken.Load() && !wasLost(err) && !uncached(c, err) {
			c.wait(m, u, err, out)
			return c.begun(m), nil
		}
	}
	go func() {
		if !turn {
			select {
			case c.reads <- struct{}{}:
			case <-ctx.Done():
				m.end(errs.Wrap("read", urlOf(r.Bucket, r.Key), context.Cause(ctx)))
				leave()
				return
			}
		}
		u, err := c.begin(ctx, m, &r, dev)
		c.wait(m, u, err, out)
	}()
	return c.begun(m), nil
}

func deviceReport(dev device.Device) report.Device {
	info := dev.Info()
	return report.Device{ID: info.ID, Kind: report.DeviceKind(info.Kind), Model: info.Model}
}

// wait ends a read that is already complete, or starts a goroutine that waits for the engine.
func (c *Client) wait(m *Move, u *under, err error, leave func()) {
	if u == nil {
		m.end(err)
		leave()
		return
	}
	go func() {
		defer leave()
		m.end(c.follow(m, u))
	}()
}

// under is a transfer in progress, with the file to close after it.
type under struct {
	t    *transfer.Load
	file *vfs.File
	door *door // nil if the read is over HTTP
}

// begin opens the object and starts its transfer. If the connection was lost, it tries once more, since nothing has
// been moved yet. It returns nil without an error if the object was already delivered.
func (c *Client) begin(ctx context.Context, m *Move, r *Read, dev device.Device) (*under, error) {
	var err error
	for range 2 {
		var w *way
		if w, err = c.find(ctx); err != nil {
			return nil, err
		}
		if w.door == nil {
			m.refuse(w.refused)
			return c.beginHTTP(ctx, m, r, dev)
		}
		var u *under
		u, err = c.beginDoor(ctx, w.door, m, r, dev)
		if uncached(c, err) {
			m.refuse(notCached(r, err))
			return c.beginHTTP(ctx, m, r, dev)
		}
		if err == nil || !w.door.broken.Load() && !wasLost(err) {
			return u, err
		}
	}
	return nil, err
}

// beginDoor opens an object through the door and starts its transfer.
func (c *Client) beginDoor(ctx context.Context, d *door, m *Move, r *Read, dev device.Device) (*under, error) {
	where := deviceOf(dev)
	w := want{op: "read", bits: wire.WantBuffered | wire.WantDirect | wire.WantInline, device: where}
	if c.verifies(r) {
		w.bits |= wire.WantSums
	}
	o, err := d.one(ctx, w, wire.OpenItem{Bucket: r.Bucket, Key: r.Key, Version: r.Version, Off: r.Off, N: c.ask(d, r)})
	if err != nil {
		return nil, err
	}
	m.report.Via = ViaDoor
	describe(m, &o.item)
	n, err := r.extent(o.item.Size)
	if err == nil {
		err = r.same(o.item.ETag)
	}
	if err == nil {
		err = examine(dev, "read", o.name, r.Dst, n)
	}
	if err != nil {
		o.drop()
		return nil, err
	}
	m.total.Store(n)
	if o.item.HasInline {
		return nil, c.deliver(ctx, d, m, r, o, dev, n)
	}
	c.noteVerify(m, r)
	if err := o.prepare(ctx, "read", where, r.Off, n, c.verifies(r)); err != nil {
		o.drop()
		return nil, err
	}
	return c.start(ctx, d, m, r, o, dev, n)
}

// ask returns the number of bytes that the Open of a read asks for, at most MaxTransferSize. -1 means up to the end.
func (c *Client) ask(d *door, r *Read) int64 {
	if r.Size < 0 {
		return -1
	}
	return min(r.Size, d.settings().MaxTransferSize)
}

func describe(m *Move, it *wire.OpenedItem) {
	m.report.Version, m.report.ETag, m.report.Size = it.Version, it.ETag, it.Size
}

// start passes an opened object to the engine.
func (c *Client) start(ctx context.Context, d *door, m *Move, r *Read, o *opened, dev device.Device, n int64) (*under,
	error) {
	f, err := o.file(nil)
	if err != nil {
		return nil, err
	}
	req := transfer.Request{Device: dev, Files: []*vfs.File{f}, Route: r.Route, Cache: r.Cache, Stream: r.Stream,
		HasStream: r.HasStream, Fresh: true}
	if o.sums != nil {
		req.Verify = []*checksum.Sums{o.sums}
	}
	req.NoP2P = !d.settings().P2P
	return c.launch(ctx, m, r, req, dev, n, d)
}

// launch starts the transfer of a read of one file.
func (c *Client) launch(ctx context.Context, m *Move, r *Read, req transfer.Request, dev device.Device, n int64,
	d *door) (*under, error) {
	f := req.Files[0]
	req.Seen = []bool{seen(f)}
	if n > 0 {
		req.Segments = []transfer.Segment{{Off: r.Off, Len: n, Dst: r.Dst}}
	} else {
		req.Route = report.RouteAuto // there is nothing to route
	}
	if err := c.addPeers(ctx, &req, r, n); err != nil {
		_ = f.Close()
		return nil, err
	}
	m.opened()
	t, err := c.opt.Engine.Start(ctx, req)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	m.runs(t.Progress)
	return &under{t: t, file: f, door: d}, nil
}

// follow waits for a transfer, completes the report and closes the file.
func (c *Client) follow(m *Move, u *under) error {
	err := u.t.Err()
	rep := u.t.Report()
	m.take(rep)
	remember(u.file, rep.Asked.Cache, &rep)
	n, _ := u.t.Progress()
	m.runs(func() (int64, int64) { return n, n }) // replaced in one step, so that Progress counts no bytes twice
	c.counts.bytesRead.Add(n)
	if u.door != nil {
		c.counts.doorReads.Add(1)
		u.door.countReport(&m.report.Report, false)
	} else {
		c.counts.httpReads.Add(1)
		m.report.Network = networkReport(u.file)
	}
	_ = u.file.Close() // only read from
	return err
}

// deliver copies content that was sent inside the reply to its destination.
func (c *Client) deliver(ctx context.Context, d *door, m *Move, r *Read, o *opened, dev device.Device, n int64) error {
	verify := !c.opt.NoVerify && !r.NoVerify
	data, err := o.inline(verify)
	o.drop()
	if err != nil {
		return err
	}
	m.opened()
	began := time.Now()
	if err := c.place(ctx, r, dev, data[r.Off:r.Off+n]); err != nil {
		return err
	}
	took := time.Since(began)
	m.report.Inline = true
	m.moved.Store(n)
	t := inlineReport(dev, r, n, took)
	if it := &o.item; it.Served != "" {
		t.Served = &report.Served{From: it.Served, AgeSeconds: it.Age, Verified: it.Verified}
	}
	if verify {
		t.Verify = &report.Verification{Algorithm: "crc64nvme", Where: "host", Files: 1, Blocks: 1, Bytes: int64(len(data))}
	}
	m.take(t)
	c.counts.inlineReads.Add(1)
	c.counts.bytesRead.Add(n)
	d.count(movedBy{false, t.Device.ID, string(routeSocket), "total"}, n, took)
	return nil
}

// place copies a small object's bytes to the destination and to its peers.
func (c *Client) place(ctx context.Context, r *Read, dev device.Device, data []byte) error {
	var streams []uint64
	if r.HasStream {
		streams = []uint64{r.Stream}
	}
	if err := c.opt.Engine.Deliver(ctx, dev, r.Dst, data, streams...); err != nil {
		return errs.Wrap("read", urlOf(r.Bucket, r.Key), err)
	}
	for _, p := range r.Peers {
		peer, err := c.device(ctx, p.Device)
		if err != nil {
			return err
		}
		if err := examine(peer, "read", urlOf(r.Bucket, r.Key), p.Dst, int64(len(data))); err != nil {
			return err
		}
		if err := c.opt.Engine.Deliver(ctx, peer, p.Dst, data); err != nil {
			return errs.Wrap("read", urlOf(r.Bucket, r.Key), err)
		}
	}
	return nil
}

// inlineReport returns the report for bytes that were sent inside the reply.
func inlineReport(dev device.Device, r *Read, n int64, took time.Duration) report.Report {
	return smallReport(dev, r, n, took, routeSocket, "round trip to the door",
		"the object lies with the server's metadata and came inside the door's reply")
}

// smallReport returns the report for bytes that went through memory without a transfer of the engine.
func smallReport(dev device.Device, r *Read, n int64, took time.Duration, route report.RouteTaken, limit,
	note string) report.Report {
	t := report.Report{Direction: "load", Device: deviceReport(dev),
		Asked: report.Asked{Route: r.Route, Cache: r.Cache}, Bytes: n, Seconds: took.Seconds(),
		GBps: units.GBps(n, took), ReadTotals: &report.ReadTotals{Wanted: n, Read: n},
		Stages: []report.Stage{{Stage: "deliver", Busy: took.Seconds(), Span: took.Seconds(), Bytes: n,
			GBps: units.GBps(n, took)}},
		Limiting: limit, Engine: report.Engine{IO: "unused", StagingState: "unused"}, Notes: []string{note}}
	if n > 0 {
		t.Amplification = 1
		t.Routes = []report.RouteShare{{Route: route, Bytes: n, Chunks: 1, Span: took.Seconds(), GBps: units.GBps(n, took)}}
	}
	if t.Device.Kind == report.HostDevice {
		t.Notes = append(t.Notes, "the device is host memory: no GPU took part")
	}
	return t
}
