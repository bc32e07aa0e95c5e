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

// summing is whether a port's device sums. Summing on the CPU what a disk has
// just written to memory slows the disk, by a fifth on a virtual machine, and
// in loads out of the page cache it takes a tenth of the threads' time; the
// device does it beside its copies, and what it sums has arrived.
type summing struct {
	once  sync.Once
	ready chan struct{} // closed when it is known; nil: nobody has asked
	able  atomic.Bool
	mu    sync.Mutex
	err   error       // why not
	spare []*spareSum // for what comes past slots
}

// spareSum is a sum that belongs to no slot. Its mark is never recorded: what it
// sums is in place when it is started.
type spareSum struct {
	device.Sum
	mark device.Mark
}

// ask finds out, once and in the background: the driver may have to compile.
// Until it is known the CPU sums.
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

// refuse remembers why the device does not sum; the first reason counts.
func (y *summing) refuse(err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.err == nil {
		y.err = err
	}
	y.able.Store(false)
}

// refused is why the device does not sum; nil where it does, or nobody knows yet.
func (y *summing) refused() error {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.err
}

// take gives a sum for one chunk that came past slots; keep takes it back.
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

// close frees the sums; nothing is summed any more.
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

// wait lets a question that was asked be answered.
func (y *summing) wait() {
	if y.ready != nil {
		<-y.ready
	}
}
