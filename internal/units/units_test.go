// SPDX-License-Identifier: Apache-2.0

package units_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "1": 1, "4194304": 4 << 20, " 7 ": 7, "12B": 12, "12 b": 12,
		"4K": 4 << 10, "4KiB": 4 << 10, "4k": 4 << 10, "4MiB": 4 << 20, "4M": 4 << 20, "4 MiB": 4 << 20, "2G": 2 << 30,
		"1T": 1 << 40, "1TiB": 1 << 40,
		"4kB": 4000, "2MB": 2e6, "2GB": 2e9, "1TB": 1e12, "1.5GiB": 3 << 29, "0.5k": 512, "1.": 1,
	} {
		if got, err := units.ParseBytes(in); err != nil || got != want {
			t.Errorf("%q: %d, %v; expected %d", in, got, err, want)
		}
	}
}

func TestParseBytesSaysWhatItExpects(t *testing.T) {
	for in, why := range map[string]string{
		"": "does not start with a digit", "MiB": "does not start with a digit", "-1": "does not start with a digit",
		"+1":    "does not start with a digit",
		"1.2.3": "is not a number", "..": "is not a number", "1X": `unknown unit "X"`, "1e3": `unknown unit "e3"`,
		"4MiBs": "unknown unit", "0x10": "unknown unit",
		"1.5": "is not a whole number of bytes", "0.3k": "is not a whole number of bytes",
		"9223372036854775807": "is too large", "99999999T": "is too large",
		strings.Repeat("9", 400): "is ",
	} {
		_, err := units.ParseBytes(in)
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "4MiB") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestPrinted(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 1536: "1.50 KiB",
		4 << 20: "4.00 MiB", 3 << 29: "1.50 GiB", 5 << 40: "5120.00 GiB", -2048: "-2.00 KiB"} {
		if got := units.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, expected %q", n, got, want)
		}
	}
	for r, want := range map[float64]string{52.06: "52.1 GB/s", 10: "10.0 GB/s", 1.5: "1.50 GB/s", 0.1: "0.10 GB/s",
		0.0123: "12.3 MB/s", 0: "0.0 MB/s"} {
		if got := units.Rate(r); got != want {
			t.Errorf("Rate(%v) = %q, expected %q", r, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0 µs", 1500: "2 µs", 27400 * time.Microsecond: "27.4 ms",
		1234 * time.Millisecond: "1.23 s", 90 * time.Second: "1m30s"} {
		if got := units.Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, expected %q", int64(d), got, want)
		}
	}
}

func TestGBps(t *testing.T) {
	if got := units.GBps(2e9, 500*time.Millisecond); got != 4 {
		t.Errorf("got %v", got)
	}
	for _, d := range []time.Duration{0, -1} {
		if got := units.GBps(1, d); got != 0 || math.IsInf(got, 0) {
			t.Errorf("in %v: %v, expected 0", d, got)
		}
	}
}
