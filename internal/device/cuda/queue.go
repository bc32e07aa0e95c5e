// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	streamNonBlocking  = 1
	eventDisableTiming = 2
)

// pollEvery is the time that a waiter sleeps between two checks of an event. Events that interrupt the CPU cost the
// copy engine 2 % of its rate. Spinning costs CPU time that copies from the page cache need. A copy of 4 MiB takes 80
// µs.
const pollEvery = 20 * time.Microsecond

// queue is a CUDA stream that does not synchronise with the legacy default stream. Callers order it after their own
// work with After.
type queue struct {
	dev    *Device
	stream uintptr
	sums   sums
}

// NewQueue creates a queue, which is a CUDA stream.
func (g *Device) NewQueue() (device.Queue, error) {
	q := &queue{dev: g}
	err := g.drv.withContext(g.ctx, func() error {
		return g.drv.check("cuStreamCreate", g.drv.fn.streamCreate.Call(ptr(&q.stream), streamNonBlocking))
	})
	if err != nil {
		return nil, errs.Wrap("open a copy queue on", g.info.ID, err)
	}
	return q, nil
}

// Stream implements device.Streamer.
func (q *queue) Stream() uint64 { return uint64(q.stream) }

// CopyIn queues a copy from host memory src to device memory dst.
func (q *queue) CopyIn(dst device.Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	d := q.dev.drv
	return d.withContext(q.dev.ctx, func() error {
		return d.check("cuMemcpyHtoDAsync", d.fn.memcpyHtoDAsync.Call(uint64(dst), ptr(&src[0]), len(src), q.stream))
	})
}

// CopyOut queues a copy from device memory src to host memory dst.
func (q *queue) CopyOut(dst []byte, src device.Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	d := q.dev.drv
	return d.withContext(q.dev.ctx, func() error {
		return d.check("cuMemcpyDtoHAsync", d.fn.memcpyDtoHAsync.Call(ptr(&dst[0]), uint64(src), len(dst), q.stream))
	})
}

// After makes the queue's stream wait for the work that is now queued on the caller's stream.
func (q *queue) After(stream uint64) error {
	d := q.dev.drv
	return d.withContext(q.dev.ctx, func() error {
		var ev uintptr
		if err := d.check("cuEventCreate", d.fn.eventCreate.Call(ptr(&ev), eventDisableTiming)); err != nil {
			return err
		}
		err := d.check("cuEventRecord", d.fn.eventRecord.Call(ev, uintptr(stream)))
		if err == nil {
			err = d.check("cuStreamWaitEvent", d.fn.streamWaitEvent.Call(q.stream, ev, 0))
		}
		// Destroying a recorded event is legal; the driver frees it when done.
		if derr := d.check("cuEventDestroy", d.fn.eventDestroy.Call(ev)); err == nil {
			err = derr
		}
		return err
	})
}

// Drain waits until all work of the queue's stream has ended.
func (q *queue) Drain() error {
	d := q.dev.drv
	return d.withContext(q.dev.ctx, func() error {
		return d.check("cuStreamSynchronize", d.fn.streamSynchronize.Call(q.stream))
	})
}

// Close waits for all queued work, then destroys the queue's stream.
func (q *queue) Close() error {
	return errors.Join(q.sums.close(q.dev), q.dev.endStream(q.stream))
}

// endStream waits for a stream and destroys it.
func (g *Device) endStream(stream uintptr) error {
	d := g.drv
	return d.withContext(g.ctx, func() error {
		err := d.check("cuStreamSynchronize", d.fn.streamSynchronize.Call(stream))
		if derr := d.check("cuStreamDestroy", d.fn.streamDestroy.Call(stream)); err == nil {
			err = derr
		}
		return err
	})
}

// mark is a CUDA event.
type mark struct {
	q        *queue
	event    uintptr
	recorded bool
	sums     uintptr // the stream of sums that the event is recorded on; 0 means that of the queue
}

// NewMark creates a mark, which is a CUDA event.
func (q *queue) NewMark() (device.Mark, error) {
	m := &mark{q: q}
	d := q.dev.drv
	err := d.withContext(q.dev.ctx, func() error {
		return d.check("cuEventCreate", d.fn.eventCreate.Call(ptr(&m.event), eventDisableTiming))
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *mark) Record() error {
	d := m.q.dev.drv
	m.recorded, m.sums = true, 0
	return d.withContext(m.q.dev.ctx, func() error {
		return d.check("cuEventRecord", d.fn.eventRecord.Call(m.event, m.q.stream))
	})
}

func (m *mark) Wait() error {
	ts := unix.NsecToTimespec(int64(pollEvery))
	for {
		if done, err := m.Done(); done || err != nil {
			if err != nil && m.sums != 0 {
				// The event does not show whether the kernels have ended.
				d := m.q.dev.drv
				err = errors.Join(err, d.withContext(m.q.dev.ctx, func() error {
					return d.check("cuStreamSynchronize", d.fn.streamSynchronize.Call(m.sums))
				}))
			}
			return err
		}
		_ = unix.Nanosleep(&ts, nil) // an early wakeup does no harm
	}
}

func (m *mark) Done() (bool, error) {
	if !m.recorded {
		return true, nil
	}
	d := m.q.dev.drv
	var r uintptr
	err := d.withContext(m.q.dev.ctx, func() error {
		if r = d.fn.eventQuery.Call(m.event); r == resNotReady {
			return nil
		}
		return d.check("cuEventQuery", r)
	})
	return r != resNotReady, err
}

func (m *mark) Close() error {
	if m.event == 0 {
		return nil
	}
	d := m.q.dev.drv
	err := d.withContext(m.q.dev.ctx, func() error { return d.check("cuEventDestroy", d.fn.eventDestroy.Call(m.event)) })
	m.event = 0
	return err
}
