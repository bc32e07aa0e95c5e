// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"testing"
	"time"
)

// simulate lets a tuner see batches of a made-up storage: each batch takes a latency, and the storage delivers at most
// one batch in each interval. The caller needs a time of its own for each batch.
func simulate(batches int, latency, interval, step time.Duration) tuner {
	t := newTuner()
	for range batches {
		each := max(interval, latency/time.Duration(t.depth))
		t.observe(max(0, each-step), step)
	}
	return t
}

func TestDepthFollowsTheWait(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name                    string
		latency, interval, step time.Duration
		least, most             int
	}{
		{"a caller that never waits", 2 * ms, 1 * ms, 50 * ms, 8, 8},
		{"storage that is the limit", 10 * ms, 10 * ms, 1 * ms, 8, 8},
		{"storage with a long latency", 100 * ms, 5 * ms, 10 * ms, 16, 16},
		{"a latency that no depth hides", time.Hour, 1 * ms, 1 * ms, mostDepth, mostDepth},
	} {
		if got := simulate(5000, c.latency, c.interval, c.step); got.depth < c.least || got.depth > c.most {
			t.Errorf("%s: depth %d, expected %d to %d", c.name, got.depth, c.least, c.most)
		}
	}
}
