// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// RawWrite measures the highest rate in GB/s at which size bytes can be saved into dir. RawWrite creates a file of
// size bytes, reserves its blocks, writes it past the page cache and syncs it. The parameter depth is the number of
// threads that write, and the parameter block is the size of each write in bytes. Creating, reserving and syncing the
// file count as measured time; removing it afterwards does not. If the file system cannot write past the page cache,
// RawWrite returns an error of kind Unsupported.
func RawWrite(ctx context.Context, dir string, size, block int64, depth int) (float64, error) {
	const op = "measure raw writes to"
	if size <= 0 || block <= 0 || depth <= 0 || depth > 1024 {
		return 0, errs.New(errs.Invalid, op, dir, "expected a size, a block and 1 to 1024 threads")
	}
	memory, err := hostmem.Map(block * int64(depth))
	if err != nil {
		return 0, err
	}
	defer memory.Unmap()
	rand.NewChaCha8([32]byte{1}).Read(memory.Bytes()) // zeros may be cheaper to store
	began := time.Now()
	d, err := vfs.Create(filepath.Join(dir, "raw-write"), size)
	if err != nil {
		return 0, err
	}
	defer d.Abandon()
	if ok, why := d.Direct(); !ok {
		return 0, errs.New(errs.Unsupported, op, dir, why.Reason).WithFix(why.Fix)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for i := range int64(depth) {
		all.Go(func() {
			buf := memory.Bytes()[i*block:][:block]
			for ctx.Err() == nil {
				off := next.Add(block) - block
				if off >= size {
					return
				}
				a := d.Align().Offset
				n := min(block, (size-off+a-1)/a*a)
				if err := d.WriteDirect(buf[:n], off); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return 0, errs.Wrap(op, dir, context.Cause(ctx))
	}
	if _, err := d.Seal(); err != nil {
		return 0, err
	}
	return units.GBps(size, time.Since(began)), nil
}
