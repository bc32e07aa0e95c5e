// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// readInPlace reads past the page cache straight into the destination.
func readInPlace(t *Load, c plan.Chunk) {
	buf := t.port.mapper.Map(c.Dst, c.Len)
	if tryDirect(t, c, buf, c.Off, int(c.Len)) {
		deliver(t, c, buf, nil)
	}
}

// readDirect reads the aligned superset of a chunk into its slot.
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
	f := t.req.Files[c.File]
	err := t.truths[c.File].readDirect(&t.tally, c, buf, int64(n), func() error { return f.ReadDirect(buf, off, n) })
	switch {
	case err == nil:
		return true
	case errors.Is(err, vfs.ErrDirectRefused):
		readAnotherWay(t, c)
	default:
		t.e.sched.failed(&t.task, err)
	}
	return false
}

// superset widens a chunk to aligned bounds: the file offset of the read, the
// part of mem it fills, and how many bytes of it the file has.
func superset(f *vfs.File, c plan.Chunk, mem []byte) (lo int64, buf []byte, need int) {
	a := f.Align().Offset
	lo = c.Off / a * a
	hi := (c.Off + c.Len + a - 1) / a * a
	return lo, mem[:hi-lo], int(min(hi, f.Size()) - lo)
}

// readAnotherWay sends a chunk the other way after its file declined a direct read.
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
