// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"fmt"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// queue collects the handles of jobs that have ended. One thread waits for many jobs with it, so that a language with
// futures needs no thread for each job.
type queue struct {
	mu    sync.Mutex
	ended []uint64
	some  chan struct{} // holds one token while ended is not empty
	gone  chan struct{} // closed when the queue is released
}

func (q *queue) push(h uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = append(q.ended, h)
	q.signal()
}

// signal puts a token into some, unless there is one. The caller holds the lock.
func (q *queue) signal() {
	select {
	case q.some <- struct{}{}:
	default:
	}
}

// pop removes and returns the first ended job. If there are more, it leaves a token.
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

// NextJob is nebulaio_queue_next. NextJob returns true for running if the timeout passed before a job of the queue
// had ended.
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
