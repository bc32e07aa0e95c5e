// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// byRows reports whether the rows of a chunk are read one by one from the page cache.
func byRows(t *Load, c *plan.Chunk) bool {
	return c.Weave != nil && !c.Extra && !t.verify.covers(c.File) && c.Weave.ByRows(c.Off, c.Off+c.Len)
}

// readRows reads the rows of a chunk through the page cache, and nothing between them. If s is nil, readRows reads the
// rows into the destination. Otherwise it packs them into buf, the memory of slot s, and copies them to the device. If
// the chunk is NoWait, readRows stops at the first byte that is not cached, and queues the rest for a reader that does
// not use the page cache.
func readRows(t *Load, c plan.Chunk, buf []byte, s *slot) {
	f, u, end := t.req.Files[c.File], t.truths[c.File], c.Off+c.Len
	start := t.tally.Begin(tally.StageReadCache)
	var all vfs.Buffered
	n := int64(0)
	for row := range c.Weave.Rows(c.Off, end) {
		if n == 0 && c.NoWait && !hasRow(f, row) {
			end = c.Off
			break
		}
		var to []byte
		if s == nil {
			to = t.port.mapper.Map(row.Dst, row.Len)
		} else {
			to = buf[n:][:row.Len]
		}
		b := vfs.Buffered{Cached: f.ReadCached(to, row.Off)}
		switch short := b.Cached < row.Len; {
		case short && c.NoWait:
			end = row.Off + b.Cached
		case short:
			rest, err := f.ReadBuffered(to[b.Cached:], row.Off+b.Cached)
			if err != nil {
				start.Drop()
				t.e.sched.failed(&t.task, err)
				return
			}
			b.Cached, b.Missed = b.Cached+rest.Cached, rest.Missed
		}
		n += b.Cached + b.Missed
		b = u.buffered(b, row.Off, row.Len)
		all.Cached, all.Missed = all.Cached+b.Cached, all.Missed+b.Missed
		if end < row.Off+row.Len {
			break
		}
	}
	u.count(&t.tally, c.Extra, all, start)
	if past := end - c.Off; past < c.Len && !readPastCache(t, c, past, c.CuFile) {
		return
	}
	t.arrived(&c)
	if n == 0 {
		t.e.sched.drop(&t.task) // no byte of this chunk is left to deliver
		return
	}
	c.Len = end - c.Off
	if s != nil {
		sendPacked(t, c, buf[:n], s)
		return
	}
	t.fan.place(c)
	t.ready.landed(c)
	t.e.sched.done(&t.task, n)
}

// hasRow reports whether a row is in the page cache. If the kernel does not tell, hasRow returns true, and the read
// finds out. It is asked before the read because a failed read with RWF_NOWAIT makes the kernel read ahead.
func hasRow(f *vfs.File, row plan.Segment) bool {
	hit, known := f.CachedBytes(row.Off, row.Len)
	return !known || hit == row.Len
}
