// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// longest is the largest latency that the histogram can represent. Longer ones count as longest.
const longest = 10 * time.Minute

// newHistogram returns a histogram with two significant digits, which is an error below one per cent, in 30 KiB.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longest), 2) }

func note(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d), 1), int64(longest))) // in range by construction
}

// latencyOf returns nil if no latency was recorded.
func latencyOf(h *hdrhistogram.Histogram) *record.Latency {
	if h.TotalCount() == 0 {
		return nil
	}
	at := func(p float64) float64 { return time.Duration(h.ValueAtPercentile(p)).Seconds() }
	l := &record.Latency{
		Min: time.Duration(h.Min()).Seconds(), Mean: h.Mean() / float64(time.Second), Max: time.Duration(h.Max()).Seconds(),
		P50: at(50), P90: at(90), P99: at(99), P999: at(99.9),
	}
	l.Buckets = buckets(h)
	return l
}

// perOctave is the number of columns for each doubling of latency: enough for a smooth picture, few enough for a
// file.
const perOctave = 8

// buckets merges the histogram's fine bars into columns of equal width on a logarithmic axis.
func buckets(h *hdrhistogram.Histogram) []record.Bucket {
	var out []record.Bucket
	column := math.MinInt
	for _, b := range h.Distribution() {
		if b.Count == 0 {
			continue
		}
		c := int(math.Ceil(perOctave * math.Log2(float64(b.To))))
		if c != column || len(out) == 0 {
			column = c
			out = append(out, record.Bucket{UpTo: math.Exp2(float64(c)/perOctave) / float64(time.Second)})
		}
		out[len(out)-1].Count += b.Count
	}
	return out
}
