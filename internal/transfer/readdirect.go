// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// readInPlace reads a chunk with O_DIRECT directly into the destination.
func readInPlace(t *Load, c plan.Chunk) {
	buf := t.port.mapper.Map(c.Dst, c.Len)
	if tryDirect(t, c, buf, c.Off, int(c.Len)) {
		deliver(t, c, buf, nil)
	}
}

// readDirect reads the aligned superset of a chunk into its slot with O_DIRECT.
func readDirect(t *Load, c plan.Chunk, s *slot) {
	f := t.req.Files[c.File]
	lo, buf, need := superset(f, c, s.Mem)
	if tryDirect(t, c, buf, lo, need) {
		t.tally.Padded(int64(need) - c.Len)
		deliver(t, c, buf[c.Off-lo:][:c.Len], s)
	}
}

// tryDirect reads n bytes at off into buf with O_DIRECT and reports whether buf holds them. If the file system refuses
// the read, another way reads the chunk. If the read fails, the transfer fails.
func tryDirect(t *Load, c plan.Chunk, buf []byte, off int64, n int) bool {
	f, x := t.req.Files[c.File], t.shared[c.File]
	// For other devices bringTogether has tried it.
	if t.port.mapper != nil && exchanged(t, c) && takeOver(t, c, buf[c.Off-off:][:c.Len]) {
		return true
	}
	if x.together(off, int64(n)) {
		return readTogether(t, x, c, buf, off, n)
	}
	err := t.truths[c.File].readDirect(&t.tally, c, buf, int64(n), func() error { return f.ReadDirect(buf, off, n) })
	switch {
	case err == nil:
		x.passed(c.Len)
		return true
	case errors.Is(err, vfs.ErrDirectRefused):
		readAnotherWay(t, c)
	default:
		t.e.sched.failed(&t.task, err)
	}
	return false
}

// superset widens a chunk to aligned bounds. lo is the file offset of the read, buf the part of mem to fill, and need
// the number of bytes that the file has there.
func superset(f *vfs.File, c plan.Chunk, mem []byte) (lo int64, buf []byte, need int) {
	a := f.Align().Offset
	lo = c.Off / a * a
	hi := (c.Off + c.Len + a - 1) / a * a
	return lo, mem[:hi-lo], int(min(hi, f.Size()) - lo)
}

// readAnotherWay queues a chunk for another way after its file system refused an O_DIRECT read.
func readAnotherWay(t *Load, c plan.Chunk) {
	f := t.req.Files[c.File]
	if t.req.Route == report.RouteDirect {
		_, why := f.Direct()
		t.e.sched.failed(&t.task, errDirect(f, why))
		return
	}
	c.Verdict = plan.Verdict{Way: plan.ViaFill}
	if err := t.e.need(plan.ViaFill, t); err != nil {
		t.e.sched.failed(&t.task, err)
		return
	}
	t.e.sched.requeue(&t.task, c)
}

func errDirect(f *vfs.File, why *vfs.Refusal) error {
	if why == nil {
		why = &vfs.Refusal{Reason: "unknown"}
	}
	return errs.New(errs.Unsupported, "read past the page cache", f.Path(), why.Reason).
		WithFix("use route auto, or: " + why.Fix)
}
