// SPDX-License-Identifier: Apache-2.0

package fakegpu_test

import (
	"bytes"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

func pinnable(t *testing.T, n int64) []byte {
	t.Helper()
	r, err := hostmem.Map(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Unmap() })
	return r.Bytes()
}

func TestACopyReadsItsSourceLater(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	b, err := d.Alloc(8)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	src := pinnable(t, 4096)
	copy(src, "too soon")
	g.Hold(0)
	if err := q.CopyIn(b.Ptr(), src[:8]); err != nil {
		t.Fatal(err)
	}
	g.Await("copies_held", 1)
	copy(src, "reused!!")
	g.Release()
	if err := q.Drain(); err != nil {
		t.Fatal(err)
	}
	if got := g.Bytes(b.Ptr(), 8); !bytes.Equal(got, []byte("reused!!")) {
		t.Fatalf("the copy took %q: early reuse of a slot would not be seen", got)
	}
	if g.Count("pageable_copies") != 1 {
		t.Fatal("a copy from memory that is not registered was not counted as pageable")
	}
}

func TestACopyOutsideAnAllocationIsRefused(t *testing.T) {
	g, d := fakegpu.OpenOne(t)
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	b, err := d.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	src := pinnable(t, 4096)
	for _, dst := range []device.Ptr{b.Ptr() - 1, b.Ptr() + 93, 0} {
		if err := q.CopyIn(dst, src[:8]); err == nil {
			t.Errorf("a copy to 0x%x, with 100 bytes allocated at 0x%x, was taken", dst, b.Ptr())
		}
	}
	own := pinnable(t, 4096)
	g.Adopt(own[:64], 0)
	dst := g.Pointer(own)
	if err := q.CopyIn(dst, src[:64]); err != nil {
		t.Errorf("a copy into memory of another user of the GPU: %v", err)
	}
	if err := q.Drain(); err != nil {
		t.Fatal(err)
	}
	g.CheckIdle()
}
