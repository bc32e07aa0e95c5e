// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Examine fails if the first or the last byte of the range is not mapped into this process. Examine does not detect
// freed memory that is still mapped, as small allocations often are.
func (d *Device) Examine(p device.Ptr, n int64) error {
	name := fmt.Sprintf("%d bytes at 0x%x", n, uint64(p))
	bad := func(msg, fix string) error {
		return errs.New(errs.Invalid, "use host memory,", name, msg).WithFix(fix)
	}
	switch {
	case n < 0:
		return bad("the size is negative", "give the number of bytes")
	case n == 0:
		return nil
	case p == 0:
		return bad("the address is 0", "give the address of an allocation")
	case uint64(p)+uint64(n) < uint64(p):
		return bad("the range goes beyond the end of memory", "give the number of bytes that the buffer has")
	}
	for _, at := range []uint64{uint64(p), uint64(p) + uint64(n) - 1} {
		if !mapped(at) {
			return bad(fmt.Sprintf("nothing is mapped at 0x%x: the memory was freed, is smaller, or belongs to a GPU", at),
				"keep the buffer alive until the move has ended; for memory of a GPU name its device")
		}
	}
	return nil
}

// mapped reports whether the page of an address is mapped.
func mapped(at uint64) bool {
	var in [1]byte
	size := uint64(os.Getpagesize())
	_, _, no := unix.Syscall(unix.SYS_MINCORE, uintptr(at&^(size-1)), uintptr(size), uintptr(unsafe.Pointer(&in[0])))
	return no != unix.ENOMEM && no != unix.EINVAL
}
