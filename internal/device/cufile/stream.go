// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"fmt"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Flags of StreamRegister: what stays the same for all operations on a stream.
const (
	StreamFixedBufferOffset = 1
	StreamFixedFileOffset   = 2
	StreamFixedSize         = 4
	StreamPageAligned       = 8 // sizes and offsets are multiples of 4096
)

// StreamOp is one read or write in the order of a CUDA stream. The library
// reads the fields when the stream gets there, not when it is queued, and
// writes Done then. So it lies in memory that the Go runtime does not own, and
// stays as it is until the stream has passed it.
type StreamOp struct {
	Size       uint64
	FileOffset int64
	BufOffset  int64
	Done       int64 // bytes, or a negative code; 0 until then
}

// NewStreamOp places an operation at the start of mem, which lies outside the
// Go heap and is aligned to 8. Kind Invalid where mem does not fit.
func NewStreamOp(mem []byte, size, fileOffset, bufOffset int64) (*StreamOp, error) {
	const need = int(unsafe.Sizeof(StreamOp{}))
	if len(mem) < need || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		return nil, errs.New(errs.Invalid, "place a stream operation in", fmt.Sprintf("%d bytes", len(mem)), fmt.Sprintf("expected %d bytes, aligned to 8", need))
	}
	if size < 0 || fileOffset < 0 || bufOffset < 0 {
		return nil, errs.New(errs.Invalid, "place a stream operation", "", fmt.Sprintf("%d bytes at offsets %d and %d; expected 0 or more", size, fileOffset, bufOffset))
	}
	op := (*StreamOp)(unsafe.Pointer(&mem[0]))
	*op = StreamOp{Size: uint64(size), FileOffset: fileOffset, BufOffset: bufOffset}
	return op, nil
}

// Result is what the operation did, once the stream has passed it.
func (o *StreamOp) Result() (int64, error) {
	if o.Done < 0 {
		return 0, failure("cuFile stream operation", int(max(o.Done, -1<<31)), 0)
	}
	return o.Done, nil
}

// StreamRegister tells the library what stays the same on a stream, so that it
// prepares less for each operation. Kind Unsupported with an older library.
func (s *Session) StreamRegister(stream uint64, flags int) error {
	return s.call("register a stream with cuFile on", "cuFileStreamRegister", &s.lib.fn.streamRegister, stream, flags)
}

// StreamDeregister undoes StreamRegister.
func (s *Session) StreamDeregister(stream uint64) error {
	return s.call("unregister a stream with cuFile on", "cuFileStreamDeregister", &s.lib.fn.streamDeregister, stream)
}

// call calls a function of a newer release with the device's context.
func (s *Session) call(op, name string, fn *dl.Func, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.gone(op)
	}
	if err := s.lib.need("use", fn); err != nil {
		return errs.Wrap(op, s.info.ID, err)
	}
	return errs.Wrap(op, s.info.ID, s.ctx.WithContext(func() error { return check(name, fn.Call(args...)) }))
}

// ReadAsync queues a read on a CUDA stream (a CUstream as a number). Neither
// the file nor the operation may go before the stream has passed it.
func (f *File) ReadAsync(base device.Ptr, op *StreamOp, stream uint64) error {
	return f.queue("queue a read through cuFile, descriptor", "cuFileReadAsync", &f.s.lib.fn.readAsync, base, op, stream)
}

// WriteAsync queues a write; see ReadAsync.
func (f *File) WriteAsync(base device.Ptr, op *StreamOp, stream uint64) error {
	return f.queue("queue a write through cuFile, descriptor", "cuFileWriteAsync", &f.s.lib.fn.writeAsync, base, op, stream)
}

func (f *File) queue(what, name string, fn *dl.Func, base device.Ptr, op *StreamOp, stream uint64) error {
	f.use.RLock()
	defer f.use.RUnlock()
	if f.closed {
		return errs.New(errs.Closed, what, fmt.Sprint(f.fd), "it was closed for cuFile")
	}
	err := f.s.lib.need("use", fn)
	if err == nil {
		err = f.s.ctx.WithContext(func() error {
			return check(name, fn.Call(uintptr(f.handle), uint64(base), ptr(&op.Size), ptr(&op.FileOffset), ptr(&op.BufOffset), ptr(&op.Done), stream))
		})
	}
	return errs.Wrap(what, fmt.Sprint(f.fd), err)
}
