// SPDX-License-Identifier: Apache-2.0

package transfer

import "sync"

// quota limits how many goroutines do something at the same time. Each caller names the limit of that moment, which
// may change. The zero value is ready for use.
type quota struct {
	mu    sync.Mutex
	freed *sync.Cond // made by the first caller that waits
	taken int
}

// take waits until fewer than most() places are taken, and takes one. The caller gives the place back.
func (q *quota) take(most func() int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.taken >= most() {
		if q.freed == nil {
			q.freed = sync.NewCond(&q.mu)
		}
		q.freed.Wait()
	}
	q.taken++
}

// give gives a place back.
func (q *quota) give() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken--
	if q.freed != nil {
		q.freed.Broadcast() // the limit may have grown
	}
}
