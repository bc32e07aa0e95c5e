// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// TestGapDefaultsAndChecks: a gap of 0 is the default, another one stands, and a negative one is refused.
func TestGapDefaultsAndChecks(t *testing.T) {
	for given, want := range map[int64]int64{0: transfer.DefaultGap, 1: 1, 4096: 4096} {
		if r := (Request{Gap: given}); r.gap() != want {
			t.Errorf("Gap %d: got %d, want %d", given, r.gap(), want)
		}
	}
	r := Request{Gap: -1}
	if _, err := r.check(); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Gap -1: %v, want an error of kind Invalid", err)
	}
}

// TestSmallGapsCountRows: rows that a small gap separates count towards the limit of rows.
func TestSmallGapsCountRows(t *testing.T) {
	s := Segment{Segment: transfer.Segment{Len: (mostRows + 1) * 64, Width: 1, Stride: 64, Dst: 1 << 20}}
	for gap, want := range map[int64]bool{0: true, 64: true, 63: false} {
		r := Request{Files: []string{"a"}, Segments: []Segment{s}, Gap: gap}
		if _, err := r.check(); (err == nil) != want {
			t.Errorf("Gap %d: %v", gap, err)
		}
	}
}
