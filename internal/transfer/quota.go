// SPDX-License-Identifier: Apache-2.0

package transfer

import "sync"

// quota limits how many goroutines do something at the same time. Each of them takes a place first and gives it back
// later. Goroutines that wait get their places in the order in which they came. The limit may change, so every call
// gets a function that returns the limit. The zero value is ready for use.
type quota struct {
	mu    sync.Mutex
	queue []chan struct{} // those that wait; closed when they have a place
	taken int
}

// take waits for a place and takes it. There is one if fewer than most() places are taken and no other goroutine has
// waited longer. The caller gives the place back.
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
