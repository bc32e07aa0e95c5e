// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// summing holds the checksum ability of a port's device. Checksums on the CPU slow the disk, by a fifth on a virtual
// machine, and take a tenth of the threads' time in loads from the page cache. The device computes them beside its
// copies, and also detects errors of the copy.
type summing struct {
	once  sync.Once
	ready chan struct{} // closed when the ability is known; nil before the first ask
	able  atomic.Bool
	mu    sync.Mutex
	err   error       // why the device does not sum
	spare []*spareSum // for chunks without a slot
}

// spareSum is a checksum object that belongs to no slot. Its mark is never recorded, because its bytes are in place
// when it starts.
type spareSum struct {
	device.Sum
	mark device.Mark
}

// ask finds out once, in the background, whether the device can compute checksums, because the driver may have to
// compile. The CPU sums until the result is known.
func (y *summing) ask(dev device.Device, queue device.Queue) {
	y.once.Do(func() {
		y.ready = make(chan struct{})
		go func() {
			defer close(y.ready)
			q, ok := queue.(device.Summer)
			if !ok {
				y.refuse(errs.New(errs.Unsupported, "sum on", dev.Info().ID, "it cannot compute").
					WithFix("none needed: the CPU sums"))
				return
			}
			s, err := q.NewSum(1)
			if err == nil {
				err = s.Close()
			}
			if err != nil {
				y.refuse(err)
				return
			}
			y.able.Store(true)
		}()
	})
}

// refuse records why the device does not sum. The first reason stays.
func (y *summing) refuse(err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.err == nil {
		y.err = err
	}
	y.able.Store(false)
}

// refused returns the reason why the device does not sum, or nil if it does or if this is not known yet.
func (y *summing) refused() error {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.err
}

// take returns a checksum object for one chunk without a slot; keep takes it back.
func (y *summing) take(q device.Queue, room int64) (*spareSum, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if n := len(y.spare); n > 0 {
		s := y.spare[n-1]
		y.spare = y.spare[:n-1]
		return s, nil
	}
	m, err := q.NewMark()
	if err != nil {
		return nil, err
	}
	s, err := q.(device.Summer).NewSum(int(room/checksum.MinBlock) + 2)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &spareSum{s, m}, nil
}

func (y *summing) keep(s *spareSum) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.spare = append(y.spare, s)
}

// close frees the checksum objects. No checksum may be running.
func (y *summing) close() error {
	y.wait()
	y.mu.Lock()
	defer y.mu.Unlock()
	var all []error
	for _, s := range y.spare {
		all = append(all, s.Close(), s.mark.Close())
	}
	y.spare = nil
	return errors.Join(all...)
}

// wait waits for the result of ask, if it was called.
func (y *summing) wait() {
	if y.ready != nil {
		<-y.ready
	}
}
