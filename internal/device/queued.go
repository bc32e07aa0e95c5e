// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Streamer is implemented by queues that are streams of the vendor, such as CUDA streams. Other libraries of the
// vendor, such as cuFile, can use the stream of a Streamer.
type Streamer interface {
	// Stream returns the queue's stream, such as a CUstream, as a number.
	Stream() uint64
}

// StreamOp is one read or write that runs in the order of a stream. The library reads the fields of a StreamOp and
// writes Done when the stream reaches the operation, not when the operation is queued. A StreamOp must be outside the
// Go heap, and must not change until the stream has passed the operation.
type StreamOp struct {
	Size       uint64
	FileOffset int64
	BufOffset  int64
	Done       int64 // bytes that the operation moved, or a negative error code; 0 before the operation has run
}

// StreamOpSize is the size of one StreamOp in bytes.
const StreamOpSize = int(unsafe.Sizeof(StreamOp{}))

// NewStreamOp creates a StreamOp at the start of the memory mem. The memory mem must be outside the Go heap.
// NewStreamOp fails with kind Invalid if mem is too small or not aligned to 8, or if a number is negative.
func NewStreamOp(mem []byte, size, fileOffset, bufOffset int64) (*StreamOp, error) {
	if len(mem) < StreamOpSize || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		return nil, errs.New(errs.Invalid, "place a stream operation in", fmt.Sprintf("%d bytes", len(mem)),
			fmt.Sprintf("expected %d bytes, aligned to 8", StreamOpSize))
	}
	if size < 0 || fileOffset < 0 || bufOffset < 0 {
		return nil, errs.New(errs.Invalid, "place a stream operation", "",
			fmt.Sprintf("%d bytes at offsets %d and %d; expected 0 or more", size, fileOffset, bufOffset))
	}
	op := (*StreamOp)(unsafe.Pointer(&mem[0]))
	*op = StreamOp{Size: uint64(size), FileOffset: fileOffset, BufOffset: bufOffset}
	return op, nil
}

// StreamFile is implemented by a DirectFile with reads and writes that run in the order of a stream. The file and the
// StreamOp must stay valid until the stream has passed the operation. If the library is too old, the methods of
// StreamFile fail with kind Unsupported.
type StreamFile interface {
	// ReadAsync queues a read from the file to the address base+op.BufOffset on the given stream.
	ReadAsync(base Ptr, op *StreamOp, stream uint64) error
	// WriteAsync queues a write from the address base+op.BufOffset to the file on the given stream.
	WriteAsync(base Ptr, op *StreamOp, stream uint64) error
	// Moved returns the number of bytes that the StreamOp op moved, or its error. Callers call Moved only after the
	// stream has passed the StreamOp op. If a read moved fewer bytes than op.Size without an error, the end of the
	// file was reached.
	Moved(op *StreamOp) (int64, error)
}

// Batcher is implemented by a Direct that can submit reads in batches.
type Batcher interface {
	// NewDirectBatch creates a batch for up to n reads at a time. NewDirectBatch fails with kind Unsupported if the
	// library is too old. The caller closes the batch before the Direct.
	NewDirectBatch(n int) (DirectBatch, error)
}

// DirectRead is one read of a DirectBatch.
type DirectRead struct {
	File               DirectFile // a file of the same Direct as the batch
	Base               Ptr
	BufOff, N, FileOff int64
	Cookie             uint64 // returned in DirectDone.Cookie
}

// DirectDone is the result of one read of a DirectBatch. If the N of a DirectDone is less than requested and its Err
// is nil, the end of the file was reached.
type DirectDone struct {
	Cookie uint64
	N      int64
	Err    error
}

// DirectBatch submits reads and collects their results in groups. Only one goroutine may use a DirectBatch at a time.
type DirectBatch interface {
	// Submit starts all given reads. The files and the memory of the reads must stay valid until Wait has returned
	// their results. If Submit fails, none of the reads was started.
	Submit(reads []DirectRead) error
	// Wait waits for results and returns at least one, unless the timeout passes first.
	Wait(timeout time.Duration) ([]DirectDone, error)
	// Close cancels reads that have not ended, then frees the batch.
	Close() error
}
