// SPDX-License-Identifier: Apache-2.0

package cufile

import "github.com/nebulaio/nebulaio/internal/device"

// The functions here work on the context that is current on the calling
// thread; callers are inside Contexts.WithContext.

// Handle is a registered file.
type Handle uintptr

// registerFile makes an open descriptor known.
func (l *Library) registerFile(fd int) (Handle, error) {
	d := descr{kind: handleFD, fd: int32(fd)}
	var h uintptr
	err := check("cuFileHandleRegister", l.fn.handleRegister.Call(ptr(&h), ptr(&d)))
	return Handle(h), err
}

// forgetFile ends a registration; the library reports nothing.
func (l *Library) forgetFile(h Handle) { l.fn.handleDeregister.Call(uintptr(h)) }

// registerBuffer pins device memory.
func (l *Library) registerBuffer(base device.Ptr, size int64) error {
	return check("cuFileBufRegister", l.fn.bufRegister.Call(uint64(base), uint64(size), 0))
}

// forgetBuffer unpins it.
func (l *Library) forgetBuffer(base device.Ptr) error {
	return check("cuFileBufDeregister", l.fn.bufDeregister.Call(uint64(base)))
}

// readAt reads once and returns how much came.
func (l *Library) readAt(h Handle, base device.Ptr, bufOff, n, fileOff int64) (int64, error) {
	*l.errno() = 0
	return l.transferred("cuFileRead", l.fn.read.Call(uintptr(h), uint64(base), uint64(n), uint64(fileOff),
		uint64(bufOff)))
}

// writeAt writes once and returns how much went.
func (l *Library) writeAt(h Handle, base device.Ptr, bufOff, n, fileOff int64) (int64, error) {
	*l.errno() = 0
	return l.transferred("cuFileWrite", l.fn.write.Call(uintptr(h), uint64(base), uint64(n), uint64(fileOff),
		uint64(bufOff)))
}
