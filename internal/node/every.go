// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"
)

// every calls f after the time first, and then again after each interval, until ctx ends.
func every(ctx context.Context, first, interval time.Duration, f func()) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		f()
		timer.Reset(interval)
	}
}
