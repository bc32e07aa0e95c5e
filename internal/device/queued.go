// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Streamer is implemented by queues that are a vendor's stream, so that the vendor's
// other libraries can use them.
type Streamer interface {
	// Stream is the queue's stream as a number.
	Stream() uint64
}

// StreamOp is one read or write in the order of a stream. The library looks at
// the fields when the stream gets there, not when it is queued, and writes Done
// then. So it lies in memory that the Go runtime does not own, and stays as it
// is until the stream has passed it.
type StreamOp struct {
	Size       uint64
	FileOffset int64
	BufOffset  int64
	Done       int64 // bytes, or a negative code; 0 until then
}

// StreamOpSize is the memory that one operation needs, in bytes.
const StreamOpSize = int(unsafe.Sizeof(StreamOp{}))

// NewStreamOp places an operation at the start of mem, which lies outside the
// Go heap and is aligned to 8. It returns kind Invalid if mem does not fit.
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

// StreamFile is implemented by a DirectFile whose library moves bytes in the
// order of a stream. Neither the file nor the operation may go before the
// stream has passed it. It returns kind Unsupported if the library is too old.
type StreamFile interface {
	// ReadAsync queues a read to op.BufOffset behind base.
	ReadAsync(base Ptr, op *StreamOp, stream uint64) error
	// WriteAsync queues a write from there.
	WriteAsync(base Ptr, op *StreamOp, stream uint64) error
	// Moved is what the operation did, once the stream has passed it. Fewer
	// bytes than asked for with a nil error is the end of the file.
	Moved(op *StreamOp) (int64, error)
}

// Batcher is implemented by a Direct whose library takes requests in groups.
type Batcher interface {
	// NewDirectBatch makes room for n requests at a time. Kind Unsupported where
	// the library is too old. The caller closes it before the Direct.
	NewDirectBatch(n int) (DirectBatch, error)
}

// DirectRead is one read of a group.
type DirectRead struct {
	File               DirectFile // of the Direct that the batch is of
	Base               Ptr
	BufOff, N, FileOff int64
	Cookie             uint64 // comes back with the result
}

// DirectDone is the result of one read of a group. Fewer bytes than requested with a
// nil error mean the end of the file.
type DirectDone struct {
	Cookie uint64
	N      int64
	Err    error
}

// DirectBatch is a group of reads that are submitted and collected together,
// by one goroutine at a time.
type DirectBatch interface {
	// Submit starts reads. Files and memory stay as they are until their results
	// have come. After an error none of them was started.
	Submit(reads []DirectRead) error
	// Wait collects results, at least one unless the timeout passes.
	Wait(timeout time.Duration) ([]DirectDone, error)
	// Close ends the group; reads that are not done are cancelled first.
	Close() error
}
