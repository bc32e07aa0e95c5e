// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestExamineFindsWhatIsNotMapped(t *testing.T) {
	d := New()
	b, err := d.Alloc(8 << 20)
	if err != nil {
		t.Fatal(err)
	}
	p := b.Ptr()
	for _, c := range []struct {
		p device.Ptr
		n int64
	}{{p, 8 << 20}, {p + 1, 1}, {0, 0}} {
		if err := d.Examine(c.p, c.n); err != nil {
			t.Error(err)
		}
	}
	for says, c := range map[string]struct {
		p device.Ptr
		n int64
	}{"address is 0": {0, 1}, "negative": {p, -1}, "beyond the end": {p, -1 << 62}, "nothing is mapped": {p, 1 << 46}} {
		if says == "beyond the end" {
			c.p, c.n = ^device.Ptr(0)-5, 100
		}
		if err := d.Examine(c.p, c.n); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), says) ||
			errs.FixOf(err) == "" {
			t.Errorf("%d bytes at 0x%x: %v, expected %q", c.n, c.p, err, says)
		}
	}
	if err := b.Free(); err != nil {
		t.Fatal(err)
	}
	if err := d.Examine(p, 8<<20); !errs.Is(err, errs.Invalid) {
		t.Errorf("freed: %v", err)
	}
}
