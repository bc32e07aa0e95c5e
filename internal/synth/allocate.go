// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"errors"
	"os"
	"syscall"
)

// allocate reserves the blocks of f. A full disk thus fails early, and the file has few extents. On a file system
// that cannot reserve blocks, the file becomes sparse.
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
