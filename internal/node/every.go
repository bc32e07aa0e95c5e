// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"
)

// every calls f each time the interval is over, until ctx ends. The first call comes after first.
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
