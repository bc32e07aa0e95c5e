// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"errors"
	"os"
	"syscall"
)

// allocate reserves the blocks of f, so that a full disk shows before the work
// is done and the file lies in few extents. File systems that cannot reserve
// get a sparse file.
func allocate(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return f.Truncate(size)
		default:
			return err
		}
	}
}
