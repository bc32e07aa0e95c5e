// SPDX-License-Identifier: Apache-2.0

package cufile

import "github.com/nebulaio/nebulaio/internal/device"

// The functions below use the current CUDA context of the calling thread. Callers call them inside
// Contexts.WithContext.

// Handle is libcufile's handle of a registered file.
type Handle uintptr

// registerFile registers an open descriptor with the library.
func (l *Library) registerFile(fd int) (Handle, error) {
	d := descr{kind: handleFD, fd: int32(fd)}
	var h uintptr
	err := check("cuFileHandleRegister", l.fn.handleRegister.Call(ptr(&h), ptr(&d)))
	return Handle(h), err
}

// forgetFile removes the registration of a file. The library returns no error.
func (l *Library) forgetFile(h Handle) { l.fn.handleDeregister.Call(uintptr(h)) }

// registerBuffer registers device memory with the library, which pins it.
func (l *Library) registerBuffer(base device.Ptr, size int64) error {
	return check("cuFileBufRegister", l.fn.bufRegister.Call(uint64(base), uint64(size), 0))
}

// forgetBuffer removes the registration of device memory.
func (l *Library) forgetBuffer(base device.Ptr) error {
	return check("cuFileBufDeregister", l.fn.bufDeregister.Call(uint64(base)))
}

// readAt calls cuFileRead once and returns the number of bytes read.
func (l *Library) readAt(h Handle, base device.Ptr, bufOff, n, fileOff int64) (int64, error) {
	*l.errno() = 0
	return l.transferred("cuFileRead", l.fn.read.Call(uintptr(h), uint64(base), uint64(n), uint64(fileOff),
		uint64(bufOff)))
}

// writeAt calls cuFileWrite once and returns the number of bytes written.
func (l *Library) writeAt(h Handle, base device.Ptr, bufOff, n, fileOff int64) (int64, error) {
	*l.errno() = 0
	return l.transferred("cuFileWrite", l.fn.write.Call(uintptr(h), uint64(base), uint64(n), uint64(fileOff),
		uint64(bufOff)))
}
