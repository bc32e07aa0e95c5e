// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// mostJoined is the most bytes of chunks that share a slot. On an H200, 1 MiB was slower by 6 %, and 4 MiB as fast.
const mostJoined = 2 * units.MiB

// joins reports whether chunk b can follow chunk a in the same staging slot, so that one copy brings both to the
// device. With a copy for each chunk of 256 KiB, an H200 received 18 GB/s, and 50 GB/s with copies of 2 MiB. Pinned
// memory is copied at 55 GB/s.
func (w *worker) joins(t *Load, a, b *plan.Chunk) bool {
	return w.way == plan.ViaCache && t.port.mapper == nil && a.Dst+device.Ptr(a.Len) == b.Dst && t.plain(a) && t.plain(b)
}

// plain reports whether a chunk is read from the page cache and copied as a whole.
func (t *Load) plain(c *plan.Chunk) bool {
	return !c.NoWait && !c.Exchanged && !c.Extra && c.Weave == nil &&
		(t.verify.on != VerifyDevice || !t.verify.covers(c.File))
}

// doJoined reads several chunks into one slot, and queues one copy of all. The chunks follow each other in the
// destination.
func (w *worker) doJoined(t *Load, cs []plan.Chunk) {
	s := w.slot(t)
	if s == nil {
		w.e.sched.dropAll(&t.task, len(cs))
		return
	}
	all := cs[0]
	all.Len = 0
	for i := range cs {
		c := &cs[i]
		if err := readJoined(t, c, s.Mem[all.Len:all.Len+c.Len]); err != nil {
			w.e.sched.failed(&t.task, err)
			w.e.sched.dropAll(&t.task, len(cs)-1)
			return
		}
		all.Len += c.Len
	}
	data := s.Mem[:all.Len]
	all.Summed = true // each chunk by itself, if its file is verified
	send(t, all, data, s, nil, func(to copier) error { return t.copyIn(all.Dst, data, to) })
	if s.t == nil { // send has counted one chunk as failed
		w.e.sched.dropAll(&t.task, len(cs)-1)
		return
	}
	s.joined = cs
}

// readJoined reads one of several chunks, and compares its checksums if its file is verified.
func readJoined(t *Load, c *plan.Chunk, buf []byte) error {
	f := t.req.Files[c.File]
	if err := f.Pin(); err != nil {
		return err
	}
	defer f.Unpin()
	if t.verify.covers(c.File) {
		c.Summed = true
		return readSummed(t, *c, buf)
	}
	start := t.tally.Begin(tally.StageReadCache)
	// The bytes that the kernel returns without I/O were in the page cache: no other call needs to ask.
	b := vfs.Buffered{Cached: f.ReadCached(buf, c.Off)}
	if n := b.Cached; n < c.Len {
		rest, err := f.ReadBuffered(buf[n:], c.Off+n)
		if err != nil {
			start.Drop()
			return err
		}
		b.Cached, b.Missed = n+rest.Cached, rest.Missed
	}
	t.truths[c.File].countBuffered(&t.tally, *c, b, start)
	return nil
}
