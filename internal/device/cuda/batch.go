// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
)

// copyAttributes is CUmemcpyAttributes. The location hints of source and destination, and the flags, are 0.
type copyAttributes struct {
	order int32
	_     [2][2]int32 // location hints
	_     uint32      // flags
}

// inStreamOrder is CU_MEMCPY_SRC_ACCESS_ORDER_STREAM: the source is read when the copy's turn in the stream comes.
const inStreamOrder = 1

// Batches implements device.CopyBatcher. CUDA 12.8 and newer drivers take several copies by one call.
func (q *queue) Batches() bool {
	return q.dev.drv.fn.memcpyBatchAsync != 0 || q.dev.drv.fn.memcpyBatchAsyncOld != 0
}

// CopyInAll implements device.CopyBatcher.
func (q *queue) CopyInAll(copies []device.Copy) error {
	dst, src, size := make([]uint64, 0, len(copies)), make([]uint64, 0, len(copies)), make([]uint64, 0, len(copies))
	only := -1
	for i, c := range copies {
		if len(c.Src) == 0 {
			continue
		}
		only = i
		dst = append(dst, uint64(c.Dst))
		src = append(src, uint64(uintptr(unsafe.Pointer(&c.Src[0]))))
		size = append(size, uint64(len(c.Src)))
	}
	switch len(dst) {
	case 0:
		return nil
	case 1: // a single copy is queued in less time
		return q.CopyIn(copies[only].Dst, copies[only].Src)
	}
	d := q.dev.drv
	attributes, first := copyAttributes{order: inStreamOrder}, uint64(0)
	return d.withContext(q.dev.ctx, func() error {
		if d.fn.memcpyBatchAsync != 0 {
			return d.check("cuMemcpyBatchAsync", d.fn.memcpyBatchAsync.Call(ptr(&dst[0]), ptr(&src[0]), ptr(&size[0]),
				len(dst), ptr(&attributes), ptr(&first), 1, q.stream))
		}
		var failed uint64 // index of the copy that the driver refused
		return d.check("cuMemcpyBatchAsync", d.fn.memcpyBatchAsyncOld.Call(ptr(&dst[0]), ptr(&src[0]), ptr(&size[0]),
			len(dst), ptr(&attributes), ptr(&first), 1, ptr(&failed), q.stream))
	})
}
