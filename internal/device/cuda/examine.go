// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// These constants are attributes of a pointer, and two values of the first attribute.
const (
	pointerMemoryType    = 2
	pointerIsManaged     = 8
	pointerDeviceOrdinal = 9
	pointerRangeStart    = 11
	pointerRangeSize     = 12

	memoryHost   = 1
	memoryDevice = 2
)

// pointerFacts are the driver's facts about an address. They are zero for an address that the driver does not know.
// names and places are the arguments of the call.
type pointerFacts struct {
	kind    uint32
	managed uint8
	ordinal int32
	start   uint64
	size    uint64

	names  [5]int32
	places [5]unsafe.Pointer
}

func (g *Device) factsOf(p device.Ptr) (*pointerFacts, error) {
	f := &pointerFacts{names: [5]int32{pointerMemoryType, pointerIsManaged, pointerDeviceOrdinal, pointerRangeStart,
		pointerRangeSize}}
	f.places = [5]unsafe.Pointer{unsafe.Pointer(&f.kind), unsafe.Pointer(&f.managed), unsafe.Pointer(&f.ordinal),
		unsafe.Pointer(&f.start), unsafe.Pointer(&f.size)}
	d := g.drv
	err := d.withContext(g.ctx, func() error {
		return d.check("cuPointerGetAttributes", d.fn.pointerGetAttributes.Call(len(f.names), ptr(&f.names[0]),
			ptr(&f.places[0]), uint64(p)))
	})
	runtime.KeepAlive(f)
	return f, err
}

// Examine implements device.Examiner.
func (g *Device) Examine(p device.Ptr, n int64) error {
	name := fmt.Sprintf("%d bytes at 0x%x", n, uint64(p))
	bad := func(msg, fix string) error {
		return errs.New(errs.Invalid, "use memory of "+g.info.ID+",", name, msg).WithFix(fix)
	}
	if n < 0 {
		return bad("the size is negative", "give the number of bytes")
	}
	if n == 0 {
		return nil
	}
	if p == 0 {
		return bad("the address is 0", "give the address of an allocation")
	}
	if g.drv.fn.pointerGetAttributes == 0 {
		return nil
	}
	f, err := g.factsOf(p)
	if err != nil {
		return errs.Wrap("ask what lies at", name, err)
	}
	switch {
	case f.managed != 0: // managed memory: every device can use it
	case f.kind == memoryHost:
		return bad("the driver says that this is host memory", "give memory of the GPU, or name the device host")
	case f.kind != memoryDevice:
		msg := "the driver knows of no allocation there: it was freed, or is no memory of a GPU"
		if readable(p) {
			msg += "; the CPU can read that address, so it may be host memory"
		}
		return bad(msg, "keep the buffer alive until the move has ended, and check that it was allocated on "+g.info.ID)
	case f.ordinal != g.dev:
		return bad(fmt.Sprintf("it lies on cuda:%d, expected %s", f.ordinal, g.info.ID),
			fmt.Sprintf("name the device cuda:%d, or allocate on %s", f.ordinal, g.info.ID))
	}
	if f.size == 0 {
		return nil // the driver does not report the bounds of this kind of memory
	}
	if left := f.start + f.size - uint64(p); uint64(n) > left {
		return bad(fmt.Sprintf("the allocation has %d bytes at 0x%x, of which %d lie behind the address", f.size, f.start,
			left), "give a larger buffer, or move fewer bytes")
	}
	return nil
}

// Bounds implements device.Bounder.
func (g *Device) Bounds(p device.Ptr) (device.Ptr, int64, error) {
	if g.drv.fn.pointerGetAttributes == 0 {
		return 0, 0, nil
	}
	f, err := g.factsOf(p)
	if err != nil {
		return 0, 0, errs.Wrap("ask what lies at", fmt.Sprintf("0x%x", uint64(p)), err)
	}
	return device.Ptr(f.start), int64(f.size), nil
}

// readable reports whether the CPU can read an address of this process. It does not access the address itself.
func readable(p device.Ptr) bool {
	var b [1]byte
	local := []unix.Iovec{{Base: &b[0], Len: 1}}
	n, err := unix.ProcessVMReadv(unix.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(p), Len: 1}}, 0)
	return err == nil && n == 1
}
