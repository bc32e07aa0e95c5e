// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"runtime"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

// Share is what one device has for itself.
type Share struct {
	PoolSize int64 // bytes of staging; 0: as many as the engine
	// Near is the node that its threads stay on and its staging comes from; nil
	// where that makes no difference.
	Near *hostmem.Node
}

// lane is the engine that serves a device: one of its own where it has a share,
// so that transfers to different devices do not wait for each other's slots.
func (e *Engine) lane(dev device.Device) (*Engine, error) {
	if e.given.Share == nil || dev.Info().Kind == device.Host {
		return e, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.lanes[dev]; l != nil {
		return l, nil
	}
	if e.closed {
		return nil, errs.New(errs.Closed, "start transfer", dev.Info().ID, "the engine is closed")
	}
	l := e
	if s, own := e.given.Share(dev.Info()); own {
		o := e.given
		o.Share, o.Near = nil, s.Near
		if s.PoolSize > 0 {
			o.PoolSize = max(s.PoolSize, minPoolSize)
		}
		var err error
		if l, err = New(o); err != nil {
			return nil, err
		}
	}
	e.lanes[dev] = l
	return l, nil
}

// laneOf is the lane of the first GPU that bytes come from: those of others
// come through it too.
func (e *Engine) laneOf(all []Source) (*Engine, error) {
	for _, s := range all {
		if s.Device != nil && s.Device.Info().Kind != device.Host {
			return e.lane(s.Device)
		}
	}
	return e, nil
}

// busy counts what runs, on all lanes; the caller holds mu.
func (e *Engine) busy() int {
	n := e.running
	for _, l := range e.lanes {
		if l != e {
			l.mu.Lock()
			n += l.running
			l.mu.Unlock()
		}
	}
	return n
}

// spawn runs a worker, near the device where the engine is told to.
func (e *Engine) spawn(f func()) {
	e.workers.Go(func() {
		if e.opts.Near != nil {
			// The thread is not given back: it ends with the worker.
			runtime.LockOSThread()
			_ = e.opts.Near.Stay() // it works from anywhere
		}
		f()
	})
}

// node is the NUMA node that the engine keeps to, nil: none.
func (e *Engine) node() *int {
	if e.opts.Near == nil {
		return nil
	}
	return &e.opts.Near.ID
}
