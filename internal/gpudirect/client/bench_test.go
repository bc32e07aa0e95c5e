// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
)

// BenchmarkSmallRead is open and read of one object of 4 KiB to host memory,
// from the call to the bytes being there.
func BenchmarkSmallRead(b *testing.B) {
	r := newRig(b, false)
	r.put("k", content(1, 4096))
	c := r.client()
	mem := r.alloc("host", 4096)
	rd := Read{Bucket: "b", Key: "k", Size: -1, Dst: mem.ptr(), DstSize: 4096, Device: "host"}
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		m, err := c.StartRead(b.Context(), rd)
		if err == nil {
			err = m.Wait()
		}
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
}

// BenchmarkBatch is a batch of 1,000 objects of 1 MiB out of the page cache to host memory.
func BenchmarkBatch(b *testing.B) {
	r := newRig(b, false)
	c := r.client()
	mem := r.alloc("host", 1000<<20)
	data := content(2, 1<<20)
	var reads []Read
	for i := range 1000 {
		key := fmt.Sprintf("k%d", i)
		r.put(key, data)
		reads = append(reads, Read{Bucket: "b", Key: key, Size: -1, Dst: mem.ptr() + device.Ptr(i<<20), DstSize: 1 << 20,
			Device: "host"})
	}
	b.SetBytes(1000 << 20)
	for b.Loop() {
		m, err := c.StartReadMany(b.Context(), reads)
		if err == nil {
			err = m.Wait()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
