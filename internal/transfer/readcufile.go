// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/report"
)

// readCuFile lets libcufile read a chunk into its destination, and waits for the read.
func readCuFile(t *Load, c plan.Chunk) {
	start := t.tally.Begin(tally.StageReadCuFile)
	n, err := t.cu.read(c, 0)
	cuFileDone(t, c, n, err, start)
}

// cuFileDone counts a chunk of which got bytes were delivered. If libcufile cannot read this file, the route auto
// uses another route.
func cuFileDone(t *Load, c plan.Chunk, got int64, err error, start tally.Start) {
	f := t.req.Files[c.File]
	if err != nil || got < c.Len {
		start.Drop()
	}
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
			t.e.sched.drop(&t.task) // its pieces are queued instead
		}
	default:
		t.e.sched.failed(&t.task, errs.Wrap(fmt.Sprintf("read %d bytes at offset %d through cuFile of", c.Len, c.Off),
			f.Path(), err))
	}
}

// Batches stay small. In compatibility mode, libcufile waits for ever if more requests are in flight than it has
// slabs: 64 of each size.
const (
	cuFileThreads = 8
	cuFileBatches = 2
	cuFileGroup   = 16
)
