// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// opened is one object that the door has opened. It owns its descriptors until file takes them over. drop closes
// everything.
type opened struct {
	name string // "s3://bucket/key"
	item wire.OpenedItem
	fds  [2]int // buffered and direct; -1 if there is none
	h    *handle
	sums *checksum.Sums // nil if none were asked for
}

// deviceOf returns a device as the door's protocol names it.
func deviceOf(dev device.Device) wire.Device {
	info := dev.Info()
	n, err := strconv.Atoi(strings.TrimPrefix(info.ID, "cuda:"))
	if info.Kind == device.Host || err != nil {
		return wire.Device{Index: -1}
	}
	return wire.Device{Index: int32(n), UUID: info.UUID}
}

// want holds the fields of an Open other than the objects.
type want struct {
	op     string
	bits   uint8
	device wire.Device
}

// open opens objects in one round trip. For each item, in order, the result has the opened object or an error.
func (d *door) open(ctx context.Context, w want, items []wire.OpenItem) ([]*opened, []error, error) {
	out, fails := make([]*opened, len(items)), make([]error, len(items))
	seen := 0
	c, err := d.ask(ctx, asking{op: w.op, name: nameOf(items),
		req: &wire.Open{Want: w.bits, Device: w.device, Items: items}, each: func(m wire.Message, fds []int) error {
			r, ok := m.(*wire.Opened)
			if !ok {
				closeAll(fds)
				return unexpected(m, "Opened")
			}
			if int(r.First) != seen || seen+len(r.Items) > len(items) {
				closeAll(fds)
				return errs.New(errs.Invalid, "read door message", "Opened",
					fmt.Sprintf("has objects %d to %d, expected %d on of %d", r.First, int(r.First)+len(r.Items), seen, len(items)))
			}
			for i := range r.Items {
				it := &r.Items[i]
				name := urlOf(items[seen].Bucket, items[seen].Key)
				if it.Err != nil {
					fails[seen] = refusal(w.op, name, it.Err)
					seen++
					continue
				}
				o := &opened{name: name, item: *it, fds: [2]int{-1, -1}}
				for k, bit := range [...]uint8{wire.WantBuffered, wire.WantDirect} {
					if it.Has&bit != 0 && len(fds) > 0 {
						o.fds[k], fds = fds[0], fds[1:]
					}
				}
				out[seen] = o
				seen++
			}
			closeAll(fds)
			return nil
		}})
	if err == nil && seen != len(items) {
		err = errs.New(errs.Invalid, "read door message", "Opened",
			fmt.Sprintf("%d of %d objects were answered", seen, len(items)))
	}
	for _, o := range out {
		if o != nil && o.item.Handle != 0 && c != nil {
			c.held.Add(1)
			o.h = &handle{d: d, c: c, id: o.item.Handle}
		}
	}
	if err != nil {
		dropAll(out)
		return nil, nil, err
	}
	return out, fails, nil
}

func nameOf(items []wire.OpenItem) string {
	name := urlOf(items[0].Bucket, items[0].Key)
	if len(items) > 1 {
		name += fmt.Sprintf(" and %d more", len(items)-1)
	}
	return name
}

func dropAll(all []*opened) {
	for _, o := range all {
		if o != nil {
			o.drop()
		}
	}
}

// drop closes the descriptors and the handle.
func (o *opened) drop() {
	closeAll(o.fds[:])
	o.fds = [2]int{-1, -1}
	if o.h != nil {
		o.h.d.letGo(o.h)
		o.h = nil
	}
}

// prepare makes the range [off, off+n) ready to be read. It announces ranges beyond the granted one and, if sums is
// set, fetches the missing checksums.
func (o *opened) prepare(ctx context.Context, op string, dev wire.Device, off, n int64, sums bool) error {
	if o.h == nil {
		return errs.New(errs.Invalid, "read door message", "Opened", "came without a handle of "+o.name)
	}
	d, it := o.h.d, &o.item
	if it.Size < 0 || it.N < 0 || off < 0 || n < 0 || n > it.Size-off {
		return errs.New(errs.Invalid, "read door message", "Opened",
			fmt.Sprintf("tells of %d bytes, %d of them granted; bytes %d+%d were wanted", it.Size, it.N, off, n))
	}
	if sums {
		if err := o.fillSums(ctx, op, off, n); err != nil {
			return err
		}
	}
	at, end := it.Off+it.N, off+n
	if n == 0 || at >= end && it.Off <= off {
		return nil
	}
	step := d.settings().MaxTransferSize
	if step <= 0 {
		return errs.New(errs.Invalid, "read door message", "Greeting",
			fmt.Sprintf("max_transfer_size is %d, expected more than 0", step))
	}
	for at < end {
		m := &wire.Move{Handle: o.h.id, Device: dev}
		for at < end && len(m.Ranges) < wire.MaxRanges {
			k := min(step, end-at)
			m.Ranges = append(m.Ranges, wire.Range{Off: at, N: k})
			at += k
		}
		if err := d.askOn(ctx, o.h.c, asking{op: op, name: o.name, req: m, each: wantAck}); err != nil {
			return err
		}
	}
	return nil
}

func wantAck(m wire.Message, fds []int) error {
	closeAll(fds)
	if _, ok := m.(*wire.Ack); !ok {
		return unexpected(m, "Ack")
	}
	return nil
}

// fillSums fetches the checksums of all blocks that overlap [off, off+n).
func (o *opened) fillSums(ctx context.Context, op string, off, n int64) error {
	it := &o.item
	blocks := (it.Size + object.SumBlock - 1) / object.SumBlock
	if blocks > checksum.MaxBlocks {
		return errs.New(errs.Unsupported, op, o.name,
			fmt.Sprintf("has %d blocks, expected at most %d", blocks,
				checksum.MaxBlocks)).WithFix("read it without verification")
	}
	s := &checksum.Sums{Size: it.Size, Block: object.SumBlock, Blocks: make([]uint64, blocks)}
	next, end := int64(0), int64(0)
	if n > 0 {
		next, end = off/object.SumBlock, (off+n-1)/object.SumBlock+1
	}
	add := func(first int64, sums []uint64) error {
		if first > next || len(sums) == 0 || first < 0 || first+int64(len(sums)) <= next {
			return errs.New(errs.Invalid, "read door message", "sums",
				fmt.Sprintf("has %d sums from block %d on, expected block %d", len(sums), first, next))
		}
		next += int64(copy(s.Blocks[next:end], sums[next-first:]))
		return nil
	}
	if len(it.Sums) > 0 && it.SumsFirst <= next && it.SumsFirst+int64(len(it.Sums)) > next {
		if err := add(it.SumsFirst, it.Sums); err != nil {
			return err
		}
	}
	for next < end {
		err := o.h.d.askOn(ctx, o.h.c, asking{op: op, name: o.name,
			req: &wire.Sums{Handle: o.h.id, First: next, N: min(end-next, wire.MaxSums)},
			each: func(m wire.Message, fds []int) error {
				closeAll(fds)
				r, ok := m.(*wire.SumsReply)
				if !ok {
					return unexpected(m, "SumsReply")
				}
				return add(r.First, r.Sums)
			}})
		if err != nil {
			return err
		}
	}
	o.sums = s
	return nil
}

// file returns a vfs.File that owns the descriptors. Closing the file also closes the handle. beside is another open
// file of the store, or nil.
func (o *opened) file(beside *vfs.File) (*vfs.File, error) {
	if o.fds[0] < 0 {
		o.drop()
		return nil, errs.New(errs.Invalid, "read door message", "Opened", "came without a descriptor of "+o.name)
	}
	d := vfs.Descriptors{Name: o.name, Buffered: o.fds[0], Direct: o.fds[1], Refused: o.item.Refused, Size: o.item.Size,
		Beside: beside, Served: vfs.Served{From: o.item.Served, Age: o.item.Age, Verified: o.item.Verified}}
	h := o.h
	o.fds, o.h = [2]int{-1, -1}, nil
	if h != nil {
		d.Closed = func() { h.d.letGo(h) }
	}
	f, err := vfs.FromDescriptors(d)
	if err != nil && h != nil {
		h.d.letGo(h)
	}
	return f, err
}

// inline returns the content that was sent inside the reply. If verify is set, it compares the checksum.
func (o *opened) inline(verify bool) ([]byte, error) {
	it := &o.item
	if int64(len(it.Inline)) != it.Size {
		return nil, errs.New(errs.Invalid, "read door message", "Opened",
			fmt.Sprintf("has %d bytes of %s, expected %d", len(it.Inline), o.name, it.Size))
	}
	if sum := checksum.Of(it.Inline); verify && sum != it.CRC64 {
		return nil, errs.New(errs.Corrupt, "verify", o.name,
			fmt.Sprintf("its checksum is %016x, expected %016x", sum, it.CRC64)).
			WithFix("write the object again from a good copy")
	}
	return it.Inline, nil
}

// info returns the object's metadata.
func (o *opened) info(bucket, key string) Info {
	it := &o.item
	return Info{Bucket: bucket, Key: key, Version: it.Version, Size: it.Size, ETag: it.ETag, Modified: it.Modified,
		CRC64: crcText(it.CRC64), Via: ViaDoor}
}

// crcText returns a CRC in base64, as in S3.
func crcText(crc uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, crc))
}

// one opens a single object.
func (d *door) one(ctx context.Context, w want, it wire.OpenItem) (*opened, error) {
	all, fails, err := d.open(ctx, w, []wire.OpenItem{it})
	if err != nil {
		return nil, err
	}
	return all[0], fails[0]
}
