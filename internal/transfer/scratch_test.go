// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
)

// TestScratchUsesTheLastBufferFirst: a buffer that was given back is taken again before memory that nobody has used.
func TestScratchUsesTheLastBufferFirst(t *testing.T) {
	var s scratch
	const size = 512 * units.KiB
	a, b := s.take(size), s.take(size)
	if len(a) != size || len(b) != size || &a[0] == &b[0] {
		t.Fatalf("%d and %d bytes, expected two buffers of %d", len(a), len(b), size)
	}
	s.give(a)
	s.give(b)
	s.give(nil)
	if got := s.take(size); &got[0] != &b[0] {
		t.Error("another buffer than the one that was given back last")
	}
	if got := s.take(size); &got[0] != &a[0] {
		t.Error("another buffer than the one that was given back before")
	}
	for range 3 { // two are in use, and a huge page has four
		if s.take(size) == nil {
			t.Fatal("no buffer")
		}
	}
	if n := len(s.regions); n != 2 {
		t.Errorf("%d huge pages are mapped for five buffers of %d bytes, expected 2", n, size)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if large := s.take(2 * hostmem.HugePage); len(large) != 2*hostmem.HugePage {
		t.Errorf("%d bytes, expected two huge pages", len(large))
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}
