// SPDX-License-Identifier: Apache-2.0

package hostmem

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// scanArg mirrors struct pm_scan_arg of PAGEMAP_SCAN (kernel 6.7).
type scanArg struct {
	size, flags, start, end, walkEnd, vec, vecLen, maxPages   uint64
	categoryInverted, categoryMask, categoryAnyOf, returnMask uint64
}

// pageRegion mirrors struct page_region.
type pageRegion struct{ start, end, categories uint64 }

const (
	pagemapScan = 0xC0606610 // _IOWR('f', 16, struct pm_scan_arg)
	pagePresent = 1 << 3
	pageHuge    = 1 << 6
)

// newRegions allocates on the heap, where memory does not move. The kernel gets the address as a number in a struct,
// which the compiler does not track.
//
//go:noinline
func newRegions(n int) []pageRegion { return make([]pageRegion, n) }

// scan asks the kernel for the pages of [lo, hi) only. Reading /proc/self/smaps would walk every mapping of the
// process.
func scan(lo, hi uint64) (Stats, error) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return Stats{}, errs.Wrap("scan page map", "/proc/self/pagemap", err)
	}
	defer f.Close()
	var s Stats
	regions := newRegions(256)
	for lo < hi {
		arg := scanArg{start: lo, end: hi, vec: uint64(uintptr(unsafe.Pointer(&regions[0]))), vecLen: uint64(len(regions)),
			categoryMask: pagePresent, returnMask: pagePresent | pageHuge}
		arg.size = uint64(unsafe.Sizeof(arg))
		n, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), pagemapScan, uintptr(unsafe.Pointer(&arg)))
		if no != 0 {
			return s, errs.Wrap("scan page map", "PAGEMAP_SCAN", no)
		}
		// arg holds the address of regions only as a number, which does not keep regions alive.
		runtime.KeepAlive(regions)
		for _, r := range regions[:n] {
			s.Resident += int64(r.end - r.start)
			if r.categories&pageHuge != 0 {
				s.HugePages += int64(r.end - r.start)
			}
		}
		if arg.walkEnd <= lo {
			break
		}
		lo = arg.walkEnd
	}
	return s, nil
}
