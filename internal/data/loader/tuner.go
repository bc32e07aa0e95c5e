// SPDX-License-Identifier: Apache-2.0

package loader

import "time"

// Bounds of the number of batches that are read ahead. With batches of 64 MiB in the page cache and an H200, 2 batches
// ahead gave 35 GB/s, 4 gave 42 GB/s and 8 gave 43 GB/s.
const (
	firstDepth = 8
	mostDepth  = 64
)

const (
	window  = 8  // batches that are observed together
	patient = 16 // windows after a trial that did not help, until the next
)

// tuner chooses how many batches are read ahead. If the caller waits for batches, the tuner tries more of them. It
// keeps the higher number only if batches then come faster: where the storage is the limit, more of them in flight
// would only take memory.
type tuner struct {
	depth  int           // the most batches that are read ahead now
	before int           // the depth before the trial that is under way, 0 if there is none
	rate   float64       // batches in a second at that depth
	rest   int           // windows until the next trial
	n      int           // batches of this window
	waited time.Duration // in this window
	took   time.Duration // this window, with the time that the caller did other things
}

func newTuner() tuner { return tuner{depth: firstDepth} }

// observe takes the times of one batch: how long the caller waited for it, and how long it did other things before.
func (t *tuner) observe(waited, away time.Duration) {
	t.n++
	t.waited += waited
	t.took += waited + away
	if t.n < window {
		return
	}
	rate := float64(t.n) / max(t.took, 1).Seconds()
	waits := t.waited*50 > t.took // for more than a fiftieth of the time
	t.n, t.waited, t.took = 0, 0, 0
	if t.before > 0 {
		before, base := t.before, t.rate
		t.before = 0
		if waits && rate < base*1.05 {
			t.depth, t.rest = before, patient
			return
		}
	}
	switch {
	case !waits || t.depth == mostDepth:
	case t.rest > 0:
		t.rest--
	default:
		t.before, t.rate = t.depth, rate
		t.depth = min(mostDepth, 2*t.depth)
	}
}
