// SPDX-License-Identifier: Apache-2.0

package transfer

import "sync"

// quota limits how many goroutines do something at the same time. Those that wait get in by the order in which they
// came. Each caller names the limit of that moment, which may change. The zero value is ready for use.
type quota struct {
	mu    sync.Mutex
	queue []chan struct{} // those that wait; closed when they have a place
	taken int
}

// take waits until fewer than most() places are taken and nobody waits for longer, and takes a place. The caller gives
// the place back.
func (q *quota) take(most func() int) {
	q.mu.Lock()
	if len(q.queue) == 0 && q.taken < most() {
		q.taken++
		q.mu.Unlock()
		return
	}
	in := make(chan struct{})
	q.queue = append(q.queue, in)
	q.mu.Unlock()
	<-in
}

// give gives a place back, and lets in as many of those that wait as the limit allows now.
func (q *quota) give(most func() int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken--
	for len(q.queue) > 0 && q.taken < most() {
		q.taken++
		close(q.queue[0])
		q.queue = q.queue[1:]
	}
}

// full reports whether a call of take would wait.
func (q *quota) full(most func() int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) > 0 || q.taken >= most()
}
