// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/report"
)

// readCuFile lets the library read a chunk to its place and waits for it.
func readCuFile(t *Load, c plan.Chunk) {
	start := time.Now()
	n, err := t.cu.read(c, 0)
	cuFileDone(t, c, n, err, start)
}

// cuFileDone counts a chunk of which got bytes were delivered. Where the
// library turns out not to read this file, the route auto takes another.
func cuFileDone(t *Load, c plan.Chunk, got int64, err error, start time.Time) {
	f := t.req.Files[c.File]
	switch {
	case err == nil && got >= c.Len:
		t.tally.ReadByCuFile(c.Len, start)
		if err := t.verify.proveInPlace(c, t.e.opts.piece); err != nil {
			t.e.sched.failed(&t.task, err)
			return
		}
		t.ready.landed(c)
		t.e.sched.done(&t.task, c.Len)
	case err == nil:
		t.e.sched.failed(&t.task, f.ErrShort(c.Off, int(c.Len), int(got)))
	case t.req.Route == report.RouteAuto && errs.Is(err, errs.Unsupported):
		t.cu.refuse(f.Path(), plainly(err), errs.FixOf(err))
		if readPastCache(t, c, 0, false) {
			t.e.sched.drop(&t.task) // its pieces are queued in its place
		}
	default:
		t.e.sched.failed(&t.task, errs.Wrap(fmt.Sprintf("read %d bytes at offset %d through cuFile of", c.Len, c.Off),
			f.Path(), err))
	}
}

// How the library is used. Batches stay small: in compatibility mode the library
// waits for ever for a slab when more are under way than it has, 64 of a size.
const (
	cuFileThreads = 8
	cuFileBatches = 2
	cuFileGroup   = 16
)
