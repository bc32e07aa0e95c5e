// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"fmt"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// queue tells one thread which of many jobs have ended, so that a language with
// futures needs no thread for each of them.
type queue struct {
	mu    sync.Mutex
	ended []uint64
	some  chan struct{} // holds one token while ended is not empty
	gone  chan struct{} // closed with the queue
}

func (q *queue) push(h uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = append(q.ended, h)
	q.signal()
}

// signal makes sure that a token is there; the lock is held.
func (q *queue) signal() {
	select {
	case q.some <- struct{}{}:
	default:
	}
}

// pop takes the first of the ended jobs, and leaves a token where there are more.
func (q *queue) pop() (uint64, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ended) == 0 {
		return 0, false
	}
	h := q.ended[0]
	if q.ended = q.ended[1:]; len(q.ended) > 0 {
		q.signal()
	}
	return h, true
}

// OpenQueue is nebulaio_queue_open.
func (t *Table) OpenQueue() uint64 {
	return t.put(&queue{some: make(chan struct{}, 1), gone: make(chan struct{})})
}

// QueueJob is nebulaio_queue_add.
func (t *Table) QueueJob(q, h uint64) error {
	into, err := get[*queue](t, q, "queue")
	if err != nil {
		return err
	}
	j, err := get[*job](t, h, "job")
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-j.Done():
			into.push(h)
		case <-into.gone:
		}
	}()
	return nil
}

// NextJob is nebulaio_queue_next. Without an error, running tells that the time
// slice ended before a job did.
func (t *Table) NextJob(q uint64, timeout time.Duration) (h uint64, running bool, err error) {
	from, err := get[*queue](t, q, "queue")
	if err != nil {
		return 0, false, err
	}
	expired := expiry(timeout)
	for {
		if h, ok := from.pop(); ok {
			return h, false, nil
		}
		select {
		case <-from.some:
		case <-from.gone:
			return 0, false, errs.New(errs.Closed, "wait for a job", fmt.Sprint(q), "the queue was released")
		case <-expired:
			if h, ok := from.pop(); ok {
				return h, false, nil
			}
			return 0, true, nil
		}
	}
}
