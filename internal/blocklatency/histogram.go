// SPDX-License-Identifier: Apache-2.0

package blocklatency

import (
	"cmp"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
)

// Histogram has the latencies of one kind of requests to one device.
type Histogram struct {
	Disk      string   `json:"disk"`      // such as "nvme0n1", or "259:0" if the device has no name any more
	Operation string   `json:"operation"` // "read", "write", "discard", "flush" or "other"
	Requests  uint64   `json:"requests"`
	Buckets   []Bucket `json:"buckets"` // those that have requests, from fast to slow
}

// Bucket counts the requests that took less than Below seconds, and not less than the bucket before allows.
type Bucket struct {
	Below    float64 `json:"below_seconds"`
	Requests uint64  `json:"requests"`
}

// Quantile returns a latency in seconds that the given share of the requests did not exceed, or 0 without requests. The
// answer is at most 25 % too high, because it is the upper end of a bucket.
func (h Histogram) Quantile(share float64) float64 {
	seen := uint64(0)
	for _, b := range h.Buckets {
		if seen += b.Requests; float64(seen) >= share*float64(h.Requests) {
			return b.Below
		}
	}
	return 0
}

// slot returns the number of the bucket of a latency in nanoseconds.
func slot(ns uint64) int {
	k := max(bits.Len64(ns)-1, 0)
	if k < partBits {
		return k * parts
	}
	return k*parts + int(ns>>(k-partBits))&(parts-1)
}

// below returns the smallest number of nanoseconds that is not in the bucket any more.
func below(slot int) float64 {
	k, part := slot/parts, slot%parts
	low := float64(uint64(1) << k)
	if k < partBits {
		return 2 * low
	}
	return low * (1 + float64(part+1)/parts)
}

// operation names the kind of a request by the first letter of its flags.
func operation(letter byte) string {
	switch letter {
	case 'R':
		return "read"
	case 'W':
		return "write"
	case 'D':
		return "discard"
	case 'F':
		return "flush"
	}
	return "other"
}

// histograms sorts the counts of the kernel's map, whose keys are those that function completed makes.
func histograms(counts map[uint64]uint64, name func(dev uint32) string) []Histogram {
	type kind struct{ disk, operation string }
	all := map[kind]map[int]uint64{}
	for key, n := range counts {
		k := kind{name(uint32(key >> 32)), operation(byte(key >> 16))}
		if all[k] == nil {
			all[k] = map[int]uint64{}
		}
		all[k][min(int(key&0xffff), slots-1)] += n
	}
	var out []Histogram
	for k, found := range all {
		h := Histogram{Disk: k.disk, Operation: k.operation}
		for s, n := range found {
			h.Requests += n
			h.Buckets = append(h.Buckets, Bucket{Below: below(s) / 1e9, Requests: n})
		}
		slices.SortFunc(h.Buckets, func(a, b Bucket) int { return cmp.Compare(a.Below, b.Below) })
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b Histogram) int {
		return cmp.Or(cmp.Compare(a.Disk, b.Disk), cmp.Compare(a.Operation, b.Operation))
	})
	return out
}

// diskName returns the name of a block device by its number as the kernel's tracepoints print it.
func diskName(dev uint32) string {
	number := fmt.Sprintf("%d:%d", dev>>20, dev&(1<<20-1))
	if to, err := os.Readlink("/sys/dev/block/" + number); err == nil {
		return filepath.Base(to)
	}
	return number
}
