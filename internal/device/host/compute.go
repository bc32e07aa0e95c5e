// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Step makes the queue sleep for the time d, without keeping a processor busy.
func (q *queue) Step(d time.Duration) error {
	_, err := q.push(op{do: func() { time.Sleep(d) }})
	return err
}

// Follow makes all later work of the queue wait until the mark m is reached.
func (q *queue) Follow(m device.Mark) error {
	o, ok := m.(*mark)
	if !ok {
		return errs.New(errs.Invalid, "order queues of", "host", "the mark is of another device")
	}
	from, seq := o.q, o.seq // as it is recorded now
	_, err := q.push(op{do: func() { from.await(seq) }})
	return err
}

// stamp is the host's time at the moment when the queue reached it. The queue's goroutine writes at before seq has
// ended.
type stamp struct {
	q   *queue
	seq uint64
	at  *time.Time
}

// NewStamp creates a stamp of the queue.
func (q *queue) NewStamp() (device.Stamp, error) { return &stamp{q: q}, nil }

func (s *stamp) Record() error {
	at := new(time.Time) // a new one, because the queue may not have reached an earlier Record yet
	seq, err := s.q.push(op{do: func() { *at = time.Now() }})
	if err == nil {
		s.seq, s.at = seq, at
	}
	return err
}

func (s *stamp) Since(earlier device.Stamp) (time.Duration, error) {
	e, ok := earlier.(*stamp)
	if !ok {
		return 0, errs.New(errs.Invalid, "measure time on", "host", "the earlier stamp is of another device")
	}
	if s.at == nil || e.at == nil {
		return 0, errs.New(errs.Invalid, "measure time on", "host", "a stamp was never recorded")
	}
	e.q.await(e.seq)
	s.q.await(s.seq)
	return s.at.Sub(*e.at), nil
}

func (s *stamp) Close() error { return nil }
