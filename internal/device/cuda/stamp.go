// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// eventTimed is the flag of an event that records its time.
const eventTimed = 0

// stamp is a mark with an event that records its time.
type stamp struct{ mark }

// NewStamp creates a stamp, which is a CUDA event that records its time.
func (q *queue) NewStamp() (device.Stamp, error) {
	d := q.dev.drv
	if err := d.lacks("take device-side time on", q.dev.info.ID, d.fn.eventElapsedTime); err != nil {
		return nil, err
	}
	s := &stamp{mark{q: q}}
	err := d.withContext(q.dev.ctx, func() error {
		return d.check("cuEventCreate", d.fn.eventCreate.Call(ptr(&s.event), eventTimed))
	})
	if err != nil {
		return nil, errs.Wrap("make a stamp on", q.dev.info.ID, err)
	}
	return s, nil
}

// Since returns the time between the CUDA events of the two stamps. The resolution of the returned time is about half
// a microsecond.
func (s *stamp) Since(earlier device.Stamp) (time.Duration, error) {
	id := s.q.dev.info.ID
	e, ok := earlier.(*stamp)
	if !ok || e.q.dev != s.q.dev {
		return 0, errs.New(errs.Invalid, "measure time on", id, "the earlier stamp is of another device")
	}
	if !s.recorded || !e.recorded {
		return 0, errs.New(errs.Invalid, "measure time on", id, "a stamp was never recorded")
	}
	for _, m := range []*mark{&e.mark, &s.mark} {
		if err := m.Wait(); err != nil {
			return 0, err
		}
	}
	var ms float32
	d := s.q.dev.drv
	err := d.withContext(s.q.dev.ctx, func() error {
		return d.check("cuEventElapsedTime", d.fn.eventElapsedTime.Call(ptr(&ms), e.event, s.event))
	})
	if err != nil {
		return 0, errs.Wrap("measure time on", id, err)
	}
	return time.Duration(float64(ms) * float64(time.Millisecond)), nil
}
