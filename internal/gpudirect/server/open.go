// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

// held is an object that a client has open.
type held struct {
	object.Handle
	size int64
}

// packet is an Opened reply that is being filled.
type packet struct {
	msg   wire.Opened
	size  int
	files []*os.File
	lent  int // number of items with files
}

const emptyPacket = wire.HeaderSize + 4 + 4

func (p *packet) fits(i *wire.OpenedItem, files int) bool {
	return p.size+i.Length() <= wire.MaxMessage && len(p.files)+files <= wire.MaxDescriptors
}

func (p *packet) add(i wire.OpenedItem, files []*os.File) {
	p.size += i.Length()
	p.msg.Items = append(p.msg.Items, i)
	p.files = append(p.files, files...)
	if len(files) > 0 {
		p.lent++
	}
}

// drop empties the packet and closes the server's copies of its files. The client has its own copies.
func (p *packet) drop() {
	closeAll(p.files)
	clear(p.msg.Items)
	clear(p.files)
	p.msg.Items, p.files, p.size, p.lent = p.msg.Items[:0], p.files[:0], emptyPacket, 0
}

// open answers an Open, in one packet or more.
func (c *conn) open(ctx context.Context, h wire.Header, m *wire.Open) error {
	if e := c.mayOpen(m); e != nil {
		return c.refuse(h, e)
	}
	p := &c.pack
	p.drop()
	p.msg.First = 0
	var pair [2]*os.File
	each := described(m.Want)
	opens := each != 0 && m.Want&wire.WantStat == 0
	var out *wire.Error // set if no descriptor was free in time; we do not wait a second time
	for i := range m.Items {
		if opens && out == nil {
			var err error
			if out, err = c.borrow(ctx, h, each); err != nil {
				return err
			}
		}
		item, files := wire.OpenedItem{Err: out}, []*os.File(nil)
		if out == nil {
			item, files = c.openOne(ctx, m.Want, &m.Items[i], pair[:0])
		}
		if item.Err != nil {
			c.s.note(c, item.Err)
		}
		if opens && out == nil {
			c.client.untaken.Add(int64(len(files) - each))
			if len(files) == 0 {
				c.giveBack(1)
			}
		}
		if !p.fits(&item, len(files)) {
			if err := c.flush(h, wire.FlagMore); err != nil {
				c.client.untaken.Add(int64(-len(files)))
				closeAll(files)
				return err
			}
		}
		p.add(item, files)
	}
	return c.flush(h, 0)
}

// borrow waits until the server may open n more descriptors for one object. Before it waits, it sends the packet, so
// that a waiting connection has no descriptors open. An error ends the connection.
func (c *conn) borrow(ctx context.Context, h wire.Header, n int) (*wire.Error, error) {
	reserved := c.reserveDescriptors(n)
	if reserved {
		select {
		case c.s.lent <- struct{}{}:
			c.lent++
			return nil, nil
		default:
		}
	}
	if len(c.pack.msg.Items) > 0 {
		if err := c.flush(h, wire.FlagMore); err != nil {
			if reserved {
				c.client.untaken.Add(int64(-n))
			}
			return nil, err
		}
	}
	if !reserved {
		if why, err := c.awaitDescriptors(ctx, n); why != nil || err != nil {
			return why, err
		}
	}
	why := c.lend(ctx)
	if why != nil {
		c.client.untaken.Add(int64(-n))
	}
	return why, nil
}

// lend waits until the server may open the descriptors of one more object, over all clients.
func (c *conn) lend(ctx context.Context) *wire.Error {
	timer := time.NewTimer(c.s.opts.Limits.Send)
	defer timer.Stop()
	select {
	case c.s.lent <- struct{}{}:
		c.lent++
		return nil
	case <-ctx.Done():
		return draining()
	case <-timer.C:
		return refusal(errs.IO, wire.CodeTooManyFiles, fmt.Sprintf("%d objects wait to be sent to clients that do not "+
			"take them", cap(c.s.lent)),
			"ask again, or raise the server's limit of open files (LimitNOFILE=)")
	}
}

// giveBack frees the entries of n objects, after their descriptors are closed.
func (c *conn) giveBack(n int) {
	c.lent -= n
	for range n {
		<-c.s.lent
	}
}

// descriptorsForUs returns the number of descriptors that the door may use for files that wait to be sent.
func descriptorsForUs() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 256
	}
	return int(min(max(l.Cur/4, 2), 1<<20))
}

// flush sends the packet and begins the next one.
func (c *conn) flush(h wire.Header, flags uint8) error {
	p := &c.pack
	err := c.send(wire.Header{Request: h.Request, Flags: flags}, &p.msg, p.files)
	if errors.Is(err, unix.ETOOMANYREFS) {
		for i := range p.msg.Items {
			if item := &p.msg.Items[i]; item.Has != 0 {
				c.release(item.Handle)
				*item = wire.OpenedItem{Err: crowded()}
				c.s.note(c, item.Err)
			}
		}
		err = c.send(wire.Header{Request: h.Request, Flags: flags}, &p.msg, nil)
	}
	p.msg.First += uint32(len(p.msg.Items))
	n := p.lent
	p.drop()
	c.giveBack(n)
	return err
}

// mayOpen returns why an Open is refused as a whole, or nil.
func (c *conn) mayOpen(m *wire.Open) *wire.Error {
	const all = wire.WantBuffered | wire.WantDirect | wire.WantInline | wire.WantSums | wire.WantStat
	switch {
	case c.s.draining.Load():
		return draining()
	case m.Want&^all != 0:
		return badMessage("Open wants %#x, of which %#x is not known", m.Want, m.Want&^all)
	case len(m.Items) == 0:
		return badMessage("Open names no object")
	}
	return c.s.device(m.Device)
}

// device returns why clients may not use the memory of a device, or nil.
func (s *Server) device(d wire.Device) *wire.Error {
	if d.Index == -1 && d.UUID == "" {
		return nil // host memory
	}
	allowed := s.opts.Settings.Devices
	if len(allowed) == 0 {
		return nil
	}
	index := int(d.Index)
	if d.UUID != "" {
		if i, ok := s.opts.Devices(d.UUID); ok {
			index = i
		}
	}
	if slices.Contains(allowed, index) {
		return nil
	}
	return refusal(errs.Permission, wire.CodeDeviceNotAllowed,
		fmt.Sprintf("GPU %d %s may not be used here; expected one of %v", index, d.UUID, allowed),
		"use one of those, or change gpudirect.device_ids")
}

// openOne opens one object. The returned files go out with the packet.
func (c *conn) openOne(ctx context.Context, want uint8, it *wire.OpenItem, files []*os.File) (wire.OpenedItem,
	[]*os.File) {
	fail := func(e *wire.Error) (wire.OpenedItem, []*os.File) {
		closeAll(files)
		return wire.OpenedItem{Err: e}, nil
	}
	access := object.Access{Account: c.account, Action: object.ActionGet, Bucket: it.Bucket, Key: it.Key,
		Version: it.Version}
	if it.Version != "" {
		access.Action = object.ActionGetVersion
	}
	if err := c.s.opts.Authorizer.Authorize(ctx, access); err != nil {
		return fail(denied(err))
	}
	ref := object.Ref{Bucket: it.Bucket, Key: it.Key, Version: it.Version}
	if want&wire.WantStat != 0 {
		info, err := c.s.opts.Store.Stat(ctx, ref)
		if err == nil && info.Marker {
			err = object.Fail("stat", it.Bucket+"/"+it.Key, object.ErrIsMarker, "version "+info.Version)
		}
		if err != nil {
			return fail(failure(err))
		}
		out := describe(info)
		return out, nil
	}
	if e := c.takeHandle(); e != nil {
		return fail(e)
	}
	keep := false
	defer func() {
		if !keep {
			c.client.handles.Add(-1)
		}
	}()
	h, err := c.s.opts.Store.Handle(ctx, ref)
	if err != nil {
		return fail(failure(err))
	}
	defer func() {
		if !keep {
			_ = h.Close() // a handle that was only read has no error to report
		}
	}()
	out := describe(h.Info())
	if s, ok := h.(object.Sourced); ok {
		from := s.Served(object.Range{N: out.Size})
		out.Served, out.Age, out.Verified = from.From, max(from.Age, 0), from.Verified
	}
	if e := c.grant(&out, it); e != nil {
		return fail(e)
	}
	inline, small := h.Inline()
	if want&wire.WantSums != 0 {
		if err := fillSums(h, &out, it.N < 0); err != nil {
			return fail(failure(err))
		}
	}
	if small && want&wire.WantInline != 0 && len(inline) <= wire.MaxInline {
		out.Inline, out.HasInline = inline, true
		c.s.count.inline.Add(1)
		c.s.count.inlineBytes.Add(out.N)
		c.trace("sent inside the reply", it.Bucket, it.Key, out.Size)
		return out, nil
	}
	if files, out.Has, out.Refused, err = descriptions(h.Open, want, files); err != nil {
		return fail(failure(err))
	}
	keep = true
	out.Handle = c.newHandle()
	c.held[out.Handle] = &held{h, out.Size}
	c.s.count.opened.Add(1)
	c.s.count.held(1, out.Size)
	c.trace("handed out", it.Bucket, it.Key, out.Size)
	return out, files
}

// newHandle returns the number of a new handle of this connection.
func (c *conn) newHandle() uint64 {
	id := c.next
	c.next++
	return id
}

// takeHandle counts one more handle of the access key, or refuses it.
func (c *conn) takeHandle() *wire.Error {
	if c.client.handles.Add(1) <= int64(c.s.opts.Limits.Handles) {
		return nil
	}
	c.client.handles.Add(-1)
	return refusal(errs.Unsupported, wire.CodeTooManyHandles,
		fmt.Sprintf("%d objects are open by this access key", c.s.opts.Limits.Handles),
		"close some, or raise gpudirect.max_handles")
}

func describe(i object.Info) wire.OpenedItem {
	return wire.OpenedItem{Size: i.Size, ETag: i.ETag, CRC64: i.CRC64, Modified: i.Modified, N: i.Size,
		Version: versionOf(&i)}
}

// versionOf returns the version of an object as clients see it: empty in a bucket without versions.
func versionOf(i *object.Info) string {
	if !i.Versioned() {
		return ""
	}
	return i.Version
}

// grant fills in the range that the client may transfer first. A range up to the end of the object is cut to
// MaxTransferSize, and the reply says so. A range of a given length is refused if it is longer.
func (c *conn) grant(out *wire.OpenedItem, it *wire.OpenItem) *wire.Error {
	most := c.s.opts.Settings.MaxTransferSize
	out.Off, out.N = it.Off, it.N
	if it.N == -1 && it.Off >= 0 && it.Off <= out.Size {
		out.N = min(out.Size-it.Off, most)
	}
	return c.within(wire.Range{Off: out.Off, N: out.N}, out.Size)
}

// within returns why a range of an object or a draft is refused, or nil. The largest range is MaxTransferSize.
func (c *conn) within(r wire.Range, size int64) *wire.Error {
	most := c.s.opts.Settings.MaxTransferSize
	switch {
	case r.Off < 0 || r.N < 0 || r.Off > size || r.N > size-r.Off:
		return invalid(wire.CodeInvalidRange, "ask for a range within it", "%d bytes from %d do not lie within its %d bytes",
			r.N, r.Off, size)
	case r.N > most:
		return invalid(wire.CodeTooLarge, "ask for ranges of at most gpudirect.max_transfer_size, all of them in one Move",
			"a range has %d bytes, expected at most %d", r.N, most)
	}
	return nil
}

// fillSums adds the block checksums of the granted range. With toEnd it also adds later ones, as many as fit.
func fillSums(h object.Handle, out *wire.OpenedItem, toEnd bool) error {
	end := out.Off + out.N
	if toEnd {
		end = out.Size
	}
	first := out.Off / object.SumBlock
	n := min((end+object.SumBlock-1)/object.SumBlock-first, wire.MaxSums)
	if n <= 0 {
		return nil
	}
	sums, err := h.Sums(first, n)
	out.SumsFirst, out.Sums = first, sums
	return err
}

// descriptions opens a file with and without O_DIRECT, as the client wants. If the file system has no O_DIRECT,
// descriptions returns the reason in refused and does not fail.
func descriptions(open func(direct bool) (*os.File, error), want uint8, files []*os.File) (all []*os.File, has uint8,
	refused string, err error) {
	for _, bit := range []uint8{wire.WantBuffered, wire.WantDirect} {
		if want&bit == 0 {
			continue
		}
		f, err := open(bit == wire.WantDirect)
		if bit == wire.WantDirect && errs.Is(err, errs.Unsupported) {
			refused = cut(err.Error(), wire.MaxText)
			continue
		}
		if err != nil {
			return files, has, refused, err
		}
		files, has = append(files, f), has|bit
	}
	return files, has, refused, nil
}

// release closes the handle of an object. It returns false if there is no such handle.
func (c *conn) release(id uint64) bool {
	h, ok := c.held[id]
	if !ok {
		return false
	}
	delete(c.held, id)
	c.client.handles.Add(-1)
	c.s.count.held(-1, -h.size)
	if err := h.Close(); err != nil {
		c.s.opts.Log.Error("closing an object failed", "file", h.Path(), "error", err)
	}
	return true
}

// move answers a Move: it checks the ranges that the client is going to transfer.
func (c *conn) move(ctx context.Context, m *wire.Move) wire.Message {
	if e := c.s.device(m.Device); e != nil {
		return e
	}
	h, held := c.held[m.Handle]
	d, drafted := c.drafts[m.Handle]
	if !held && !drafted {
		return noHandle(m.Handle)
	}
	for _, r := range m.Ranges {
		var size int64
		if held {
			size = h.size
		} else {
			if e := d.grow(ctx, c, r); e != nil {
				return e
			}
			size = d.size.Load()
		}
		if e := c.within(r, size); e != nil {
			return e
		}
	}
	return &wire.Ack{}
}

func noHandle(id uint64) *wire.Error {
	return refusal(errs.NotFound, wire.CodeNoSuchHandle, fmt.Sprintf("this connection has no handle %d", id),
		"open the object again: handles end with their connection")
}

// sums answers a Sums with the checksums of blocks.
func (c *conn) sums(m *wire.Sums) wire.Message {
	h, ok := c.held[m.Handle]
	if !ok {
		return noHandle(m.Handle)
	}
	blocks := (h.size + object.SumBlock - 1) / object.SumBlock
	if m.First < 0 || m.N < 0 || m.First > blocks {
		return invalid(wire.CodeInvalidRange, "ask for blocks of the object", "%d blocks from %d do not lie within its %d",
			m.N, m.First, blocks)
	}
	n := min(m.N, blocks-m.First, wire.MaxSums)
	out := &wire.SumsReply{First: m.First}
	if n > 0 {
		sums, err := h.Sums(m.First, n)
		if err != nil {
			return failure(err)
		}
		out.Sums = sums
	}
	return out
}

// close answers a Close: it closes handles and counts the client's reports. If one handle is unknown, the others are
// still closed.
func (c *conn) close(m *wire.Close) wire.Message {
	wrong := c.s.count.report(m.Reports)
	if wrong == nil && c.s.opts.Observe != nil {
		observe(c, objectsOf(c, m.Handles), m.Reports)
	}
	for _, id := range m.Handles {
		if c.release(id) {
			continue
		}
		wrong = noHandle(id)
		if _, ok := c.drafts[id]; ok {
			wrong = invalid(wire.CodeNoSuchHandle, "commit or abort it", "handle %d is a draft's", id)
		}
	}
	if wrong != nil {
		return wrong
	}
	return &wire.Ack{}
}
