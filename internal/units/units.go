// SPDX-License-Identifier: Apache-2.0

// Package units parses and prints sizes, rates and durations.
//
// Sizes are printed in binary units (KiB, MiB, GiB), and rates in decimal units (GB/s).
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Sizes in bytes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30
)

// ParseBytes parses a size such as "4194304", "4MiB", "4M", "1.5GiB" or "2GB". The units K, M, G, T, KiB, MiB, GiB
// and TiB are powers of 1024; kB, MB, GB and TB are powers of 1000.
func ParseBytes(s string) (int64, error) {
	bad := func(why string) (int64, error) {
		return 0, errs.New(errs.Invalid, "parse size", strconv.Quote(s),
			why+"; expected a number with an optional unit, such as 4194304, 4MiB or 2GB")
	}
	t := strings.TrimSpace(s)
	i := 0
	for i < len(t) && (t[i] >= '0' && t[i] <= '9' || t[i] == '.') {
		i++
	}
	if i == 0 {
		return bad("does not start with a digit")
	}
	n, err := strconv.ParseFloat(t[:i], 64)
	if err != nil {
		return bad("is not a number")
	}
	mult, ok := unit(strings.TrimSpace(t[i:]))
	if !ok {
		return bad(fmt.Sprintf("has the unknown unit %q", strings.TrimSpace(t[i:])))
	}
	v := n * mult
	if v > math.MaxInt64/2 {
		return bad("is too large")
	}
	if v != math.Trunc(v) {
		return bad("is not a whole number of bytes")
	}
	return int64(v), nil
}

func unit(u string) (float64, bool) {
	switch strings.ToLower(u) {
	case "", "b":
		return 1, true
	case "kb":
		return 1e3, true
	case "mb":
		return 1e6, true
	case "gb":
		return 1e9, true
	case "tb":
		return 1e12, true
	case "k", "kib":
		return KiB, true
	case "m", "mib":
		return MiB, true
	case "g", "gib":
		return GiB, true
	case "t", "tib":
		return GiB * 1024, true
	}
	return 0, false
}

// Bytes formats a size with a binary unit and at most two decimals, such as "1.40 GiB".
func Bytes(n int64) string {
	switch a := max(n, -n); {
	case a >= GiB:
		return fmt.Sprintf("%.2f GiB", float64(n)/GiB)
	case a >= MiB:
		return fmt.Sprintf("%.2f MiB", float64(n)/MiB)
	case a >= KiB:
		return fmt.Sprintf("%.2f KiB", float64(n)/KiB)
	}
	return fmt.Sprintf("%d B", n)
}

// GBps returns the rate of n bytes in the time d, in decimal gigabytes per second, or 0 if d is 0.
func GBps(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds() / 1e9
}

// Rate formats a rate in GB/s, such as "52.1 GB/s".
func Rate(gbps float64) string {
	switch {
	case gbps >= 10:
		return fmt.Sprintf("%.1f GB/s", gbps)
	case gbps >= 0.1:
		return fmt.Sprintf("%.2f GB/s", gbps)
	}
	return fmt.Sprintf("%.1f MB/s", gbps*1e3)
}

// Duration formats a duration with about three significant digits, such as "27.4 ms".
func Duration(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.0f µs", float64(d)/1e3)
}
