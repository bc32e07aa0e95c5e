// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/binary"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Layout describes how a file is stored on its disk, as the file system reports it without root.
type Layout struct {
	// Extents is the number of extents, at most 65536, or -1 if the file system does not tell.
	Extents int `json:"extents"`
	// Odd counts extents with special flags, by kind: inline, encoded (compressed or encrypted), unwritten, delayed,
	// shared.
	Odd map[string]int `json:"odd,omitempty"`
	// Hole is the offset of the first hole, or -1 if there is none.
	Hole int64 `json:"hole"`
	// Flags lists the relevant attributes of the file: compressed, encrypted, verity, inline, dax.
	Flags []string `json:"flags,omitempty"`
}

// Numbers of linux/fiemap.h and linux/fs.h that x/sys does not have.
const (
	fiemapIoctl   = 0xc020660b
	fiemapHeader  = 32
	fiemapExtent  = 56
	fiemapBatch   = 256
	maxExtents    = 1 << 16
	fiemapLast    = 0x1
	fiemapDelayed = 0x4
	fiemapEncoded = 0x8
	fiemapInline  = 0x200
	fiemapUnwrit  = 0x800
	fiemapShared  = 0x2000

	flagCompressed = 0x4
	flagEncrypted  = 0x800
	flagVerity     = 0x100000
	flagDAX        = 0x2000000
	flagInline     = 0x10000000
)

// layout returns the layout of a file without reading its data. It returns nil if the file cannot be opened.
func layout(name string, size int64) *Layout {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOATIME, 0)
	if err != nil { // only the owner may leave access times alone
		if f, err = os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
			return nil
		}
	}
	defer f.Close()
	l := &Layout{Extents: -1, Hole: -1}
	if at, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_HOLE); err == nil && at < size {
		l.Hole = at
	}
	if flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		l.Flags = flagNames(uint32(flags))
	}
	l.extents(int(f.Fd()))
	return l
}

func flagNames(flags uint32) []string {
	var out []string
	for _, x := range []struct {
		bit  uint32
		name string
	}{{flagCompressed, "compressed"}, {flagEncrypted, "encrypted"}, {flagVerity, "verity"}, {flagInline,
		"inline"}, {flagDAX, "dax"}} {
		if flags&x.bit != 0 {
			out = append(out, x.name)
		}
	}
	return out
}

// extents asks for batches of extents until the last one or the bound.
func (l *Layout) extents(fd int) {
	buf := make([]byte, fiemapHeader+fiemapBatch*fiemapExtent)
	start, n := uint64(0), 0
	for n < maxExtents {
		clear(buf)
		binary.NativeEndian.PutUint64(buf, start)
		binary.NativeEndian.PutUint64(buf[8:], ^uint64(0)-start)
		binary.NativeEndian.PutUint32(buf[24:], fiemapBatch)
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fiemapIoctl, uintptr(unsafe.Pointer(&buf[0]))); e != 0 {
			if !errors.Is(e, unix.EINTR) {
				return
			}
			continue
		}
		got, next, last := l.take(buf)
		n += got
		if last || got == 0 || next <= start {
			break
		}
		start = next
	}
	l.Extents = min(n, maxExtents)
}

// take counts the extents of one reply. next is the offset after the last extent.
func (l *Layout) take(buf []byte) (n int, next uint64, last bool) {
	if len(buf) < fiemapHeader {
		return 0, 0, true
	}
	mapped := min(int(binary.NativeEndian.Uint32(buf[20:])), (len(buf)-fiemapHeader)/fiemapExtent)
	for i := range mapped {
		e := buf[fiemapHeader+i*fiemapExtent:]
		next = binary.NativeEndian.Uint64(e) + binary.NativeEndian.Uint64(e[16:])
		flags := binary.NativeEndian.Uint32(e[40:])
		for _, x := range []struct {
			bit  uint32
			name string
		}{{fiemapInline, "inline"}, {fiemapEncoded, "encoded"}, {fiemapUnwrit, "unwritten"}, {fiemapDelayed,
			"delayed"}, {fiemapShared, "shared"}} {
			if flags&x.bit == 0 {
				continue
			}
			if l.Odd == nil {
				l.Odd = map[string]int{}
			}
			l.Odd[x.name]++
		}
		last = flags&fiemapLast != 0
	}
	return mapped, next, last
}
