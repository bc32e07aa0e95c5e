// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// The Stream constants are flags of StreamRegister. Each flag names a value that is the same for all operations on a
// stream.
const (
	StreamFixedBufferOffset = 1
	StreamFixedFileOffset   = 2
	StreamFixedSize         = 4
	StreamPageAligned       = 8 // all sizes and offsets are multiples of 4096
)

// StreamOp is one read or write that runs in the order of a CUDA stream; see device.StreamOp.
type StreamOp = device.StreamOp

// NewStreamOp creates a StreamOp at the start of the memory mem; see device.NewStreamOp.
func NewStreamOp(mem []byte, size, fileOffset, bufOffset int64) (*StreamOp, error) {
	return device.NewStreamOp(mem, size, fileOffset, bufOffset)
}

// Moved implements device.StreamFile. If the Session counts operations itself, the first call of Moved for an
// operation also counts that operation.
func (f *File) Moved(o *StreamOp) (int64, error) {
	n, err := f.result(o)
	if f.s.own != nil {
		if write, known := f.queued.take(o); known {
			f.s.own.moved(write, n, err)
		}
	}
	return n, err
}

func (f *File) result(o *StreamOp) (int64, error) {
	if o.Done < 0 {
		return 0, failure("cuFile stream operation", int(max(o.Done, -1<<31)), 0)
	}
	if uint64(o.Done) > o.Size {
		return 0, errs.New(errs.Device, "cuFile stream operation", fmt.Sprint(f.fd),
			fmt.Sprintf("the library says %d bytes for %d asked", o.Done, o.Size))
	}
	return o.Done, nil
}

// StreamRegister tells libcufile which values are fixed on a stream, so that each operation needs less preparation.
// StreamRegister fails with kind Unsupported if libcufile is too old.
func (s *Session) StreamRegister(stream uint64, flags int) error {
	return s.call("register a stream with cuFile on", "cuFileStreamRegister", &s.lib.fn.streamRegister, stream, flags)
}

// StreamDeregister removes a stream that StreamRegister has registered.
func (s *Session) StreamDeregister(stream uint64) error {
	return s.call("unregister a stream with cuFile on", "cuFileStreamDeregister", &s.lib.fn.streamDeregister, stream)
}

// call calls an optional function of the library with the device's context.
func (s *Session) call(op, name string, fn *dl.Func, args ...any) error {
	return s.within(op, fn, func() error { return check(name, fn.Call(args...)) })
}

// within runs do with the device's context, and fails if the library lacks fn.
func (s *Session) within(op string, fn *dl.Func, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.gone(op)
	}
	if err := s.lib.need("use", fn); err != nil {
		return errs.Wrap(op, s.info.ID, err)
	}
	return errs.Wrap(op, s.info.ID, s.ctx.WithContext(do))
}

// ReadAsync queues a read on a CUDA stream (a CUstream as a number). The file and the StreamOp op must stay valid
// until the stream has passed the operation.
func (f *File) ReadAsync(base device.Ptr, op *StreamOp, stream uint64) error {
	return f.queue("queue a read through cuFile, descriptor", "cuFileReadAsync", false, &f.s.lib.fn.readAsync, base, op,
		stream)
}

// WriteAsync queues a write on a CUDA stream (a CUstream as a number). The file and the StreamOp op must stay valid
// until the stream has passed the operation.
func (f *File) WriteAsync(base device.Ptr, op *StreamOp, stream uint64) error {
	return f.queue("queue a write through cuFile, descriptor", "cuFileWriteAsync", true, &f.s.lib.fn.writeAsync, base, op,
		stream)
}

func (f *File) queue(what, name string, write bool, fn *dl.Func, base device.Ptr, op *StreamOp, stream uint64) error {
	f.use.RLock()
	defer f.use.RUnlock()
	if f.closed {
		return errs.New(errs.Closed, what, fmt.Sprint(f.fd), "it was closed for cuFile")
	}
	err := f.s.lib.need("use", fn)
	if err == nil {
		err = f.s.ctx.WithContext(func() error {
			err := check(name, fn.Call(uintptr(f.handle), uint64(base), ptr(&op.Size), ptr(&op.FileOffset), ptr(&op.BufOffset),
				ptr(&op.Done), stream))
			switch {
			case f.s.own == nil:
			case err != nil:
				f.s.own.moved(write, 0, err)
			default:
				f.queued.add(op, write)
			}
			return err
		})
	}
	return errs.Wrap(what, fmt.Sprint(f.fd), err)
}
