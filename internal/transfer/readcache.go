// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"iter"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// readCached reads a chunk through the page cache into buf. If s is the chunk's slot, readCached also copies the
// chunk to the device.
func readCached(t *Load, c plan.Chunk, buf []byte, s *slot) {
	f := t.req.Files[c.File]
	if c.Exchanged {
		switch {
		case lendOver(t, c, s):
		case takeOver(t, c, buf):
			deliver(t, c, buf, s)
		case readPastCache(t, c, 0, false):
			t.arrived(&c)
			t.e.sched.drop(&t.task) // others bring its bytes
		}
		return
	}
	if byRows(t, &c) {
		readRows(t, c, buf, s)
		return
	}
	if c.NoWait {
		start := t.tally.Begin(tally.StageReadCache)
		n := f.ReadCached(buf, c.Off)
		t.tally.Read(c.Extra, report.RouteTakenCache, n, start)
		if n < c.Len && !readPastCache(t, c, n, c.CuFile) {
			return
		}
		if n == 0 {
			t.arrived(&c)
			t.e.sched.drop(&t.task) // no byte of this chunk is left to deliver
			return
		}
		c.Len = n
		deliver(t, c, buf[:n], s)
		return
	}
	if t.verify.covers(c.File) && t.verify.sumFor(c, s.staged()) == nil {
		if err := readSummed(t, c, buf); err != nil {
			t.e.sched.failed(&t.task, err)
			return
		}
		c.Summed = true
		deliver(t, c, buf, s)
		return
	}
	start := t.tally.Begin(tally.StageReadCache)
	b, err := f.ReadBuffered(buf, c.Off)
	if err != nil {
		start.Drop()
		t.e.sched.failed(&t.task, err)
		return
	}
	t.truths[c.File].countBuffered(&t.tally, c, b, start)
	deliver(t, c, buf, s)
}

// readPastCache queues the bytes of c after the first n, which are not cached, for a read with O_DIRECT or, if cufile
// is set, by cuFile. It returns false if c has failed.
func readPastCache(t *Load, c plan.Chunk, n int64, cufile bool) bool {
	w, size := plan.ViaDirect, t.e.opts.block
	if cufile {
		w, size = plan.ViaCuFile, t.e.opts.piece
	}
	if err := t.e.need(w, t); err != nil {
		t.e.sched.failed(&t.task, err)
		return false
	}
	for n < c.Len {
		off := c.Off + n
		stop := min(c.Off+c.Len, (off/size+1)*size)
		n = stop - c.Off
		rest := plan.Chunk{File: c.File, Off: off, Len: stop - off, Dst: c.Dst + device.Ptr(off-c.Off), Extra: c.Extra,
			Weave: c.Weave, Verdict: plan.Verdict{Way: w}}
		for part := range wantedOf(t, rest) {
			t.expects(&part)
			if !t.e.sched.add(&t.task, part) {
				t.e.sched.drop(&t.task)
				return false
			}
		}
	}
	return true
}

// wantedOf yields the parts of chunk c that must be read if c is not in the page cache. If no unwanted byte may be
// read, these parts are the rows of c. Otherwise the only part is c without the unwanted bytes at its ends.
func wantedOf(t *Load, c plan.Chunk) iter.Seq[plan.Chunk] {
	return func(yield func(plan.Chunk) bool) {
		w := c.Weave
		switch {
		case w == nil:
			yield(c)
		case w.Apart:
			for row := range w.Rows(c.Off, c.Off+c.Len) {
				if !yield(plan.Chunk{File: c.File, Off: row.Off, Len: row.Len, Dst: row.Dst, Verdict: c.Verdict}) {
					return
				}
			}
		default:
			if part, some := w.Narrow(c, t.verify.covers(c.File)); some {
				yield(part)
			}
		}
	}
}

// hotPiece is the number of bytes that are read from the page cache before they are summed. They are then still in
// the core's cache, where summing is faster. Smaller pieces cost more in calls than they gain.
const hotPiece = units.MiB

// readSummed reads a chunk of a verified file through the page cache into buf, and verifies it piece by piece.
func readSummed(t *Load, c plan.Chunk, buf []byte) error {
	f := t.req.Files[c.File]
	var all vfs.Buffered
	var reading time.Duration
	hit, known := f.CachedBytes(c.Off, c.Len)
	for at := int64(0); at < c.Len; at += hotPiece {
		piece := c
		piece.Off, piece.Len = c.Off+at, min(hotPiece, c.Len-at)
		data := buf[at : at+piece.Len]
		start := t.tally.Begin(tally.StageReadCache)
		b, err := readPiece(f, data, piece.Off, known)
		reading += start.Drop() // counted once for the whole chunk
		if err != nil {
			return err
		}
		all.Cached, all.Missed = all.Cached+b.Cached, all.Missed+b.Missed
		if err := t.verify.check(piece, data); err != nil {
			return err
		}
	}
	if known {
		all = vfs.Buffered{Cached: hit, Missed: c.Len - hit}
	}
	t.truths[c.File].countBuffered(&t.tally, c, all, tally.Ago(reading))
	return nil
}

// readPiece reads through the page cache. If known is set, the cached bytes of the whole chunk were already counted.
// Counting them again would be wrong, because the kernel reads ahead for the next piece.
func readPiece(f *vfs.File, p []byte, off int64, known bool) (vfs.Buffered, error) {
	if !known {
		return f.ReadBuffered(p, off)
	}
	_, err := f.ReadAt(p, off)
	return vfs.Buffered{}, err
}
