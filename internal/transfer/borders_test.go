// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/report"
)

// TestCopiesEndWithTheirAllocation has destinations that follow each other in memory, with a border between two
// allocations after every third. The driver refuses copies across a border.
func TestCopiesEndWithTheirAllocation(t *testing.T) {
	for name, prepare := range map[string]func(*strewn){
		"joined from the page cache": func(*strewn) {},
		"packed from one read": func(s *strewn) {
			s.Gap, s.Verify = DefaultGap, nil
			slices.SortFunc(s.Segments, func(a, b Segment) int {
				if a.File != b.File {
					return a.File - b.File
				}
				return int(a.Off - b.Off)
			})
			for i := range s.Segments { // a byte of each piece is not wanted, so that no two follow each other in the file
				s.Segments[i].Len = max(s.Segments[i].Len-1, 1)
			}
		},
		"packed from storage": func(s *strewn) { s.Gap, s.Verify, s.Route = DefaultGap, nil, report.RouteDirect },
	} {
		t.Run(name, func(t *testing.T) {
			g, d := fakegpu.OpenOne(t)
			s := newStrewn(t, d, smallPieces)
			prepare(s)
			if s.Route == report.RouteDirect {
				if ok, _ := s.Files[0].Direct(); !ok {
					t.Skip("the file system has no O_DIRECT")
				}
			}
			mem, err := unix.Mmap(-1, 0, len(s.want), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Munmap(mem) })
			at, from := 0, 0
			for i := range s.Segments {
				s.Segments[i].Dst = device.Ptr(uintptr(unsafe.Pointer(&mem[at])))
				at += int(s.Segments[i].Len)
				if i%3 == 2 || i == len(s.Segments)-1 {
					g.Adopt(mem[from:at], 0)
					from = at
				}
			}
			l, err := newEngine(t, Options{Workers: 2}).Start(t.Context(), s.Request)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
			for _, x := range s.Segments {
				want := make([]byte, x.Len)
				if _, err := s.Files[x.File].ReadAt(want, x.Off); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(g.Bytes(x.Dst, x.Len), want) {
					t.Fatalf("%d bytes at offset %d of file %d are wrong", x.Len, x.Off, x.File)
				}
			}
			if l.borders == nil {
				t.Error("the load found no border between allocations")
			}
		})
	}
}
