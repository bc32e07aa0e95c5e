// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Engine runs transfers. One engine serves a process: all transfers, to all
// devices, share its workers and its staging memory.
type Engine struct {
	opts  tuned
	sched *sched
	pool  pool

	mu      sync.Mutex
	ports   map[device.Device]*port
	started [ways]bool
	io      IO // what direct reads use; settled when they first start
	running int
	closed  bool
	judged  map[place]Peers // see Options.Peers
	puts    chan *slot      // staging of writes; nil until the first one

	workers sync.WaitGroup
	// releasing gives the space of replaced files back behind their saves.
	releasing releases

	// onStep, in tests, hears of each step of a save before it is taken, and
	// fails the save by an error.
	onStep func(step string) error
}

// port is the engine's side of one device.
type port struct {
	dev device.Device
	// One queue for all copies: two were measured to be slower, by 2 to 4 %.
	queue  device.Queue
	mapper device.Mapper // nil where memory is not addressable
	lib    *library      // cuFile; nil until first asked for
}

// New returns an engine; staging and threads come with Prepare or the first
// transfer.
func New(o Options) (*Engine, error) {
	t, err := o.tune()
	if err != nil {
		return nil, err
	}
	return &Engine{opts: t, sched: newSched(), ports: map[device.Device]*port{}, judged: map[place]Peers{}, pool: pool{deal: t}}, nil
}

// Prepare makes ready in the background what a transfer to dev will need, for a
// caller that knows of one a little ahead: staging memory and threads. What
// fails here fails again, and is reported, in Start.
func (e *Engine) Prepare(dev device.Device) {
	if _, ok := dev.(device.Mapper); ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.pool.open() != nil {
		return
	}
	// The queue first: a driver that is pinning memory makes others wait.
	if _, err := e.portOf(dev); err != nil {
		return
	}
	e.pool.prepare(dev, largeSlot)
	if !e.started[viaCache] {
		e.started[viaCache] = e.start(viaCache) == nil
	}
}

// enter counts a transfer in and makes ready what it needs.
func (e *Engine) enter(dev device.Device) (*port, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errs.New(errs.Closed, "start transfer", dev.Info().ID, "the engine is closed")
	}
	p, err := e.portOf(dev)
	if err != nil {
		return nil, err
	}
	e.running++
	return p, nil
}

// portOf is the port of dev, made on first use; the caller holds mu.
func (e *Engine) portOf(dev device.Device) (*port, error) {
	if p, ok := e.ports[dev]; ok {
		return p, nil
	}
	q, err := dev.NewQueue()
	if err != nil {
		return nil, err
	}
	m, _ := dev.(device.Mapper)
	p := &port{dev: dev, queue: q, mapper: m}
	e.ports[dev] = p
	return p, nil
}

func (e *Engine) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
}

// Close ends the workers and frees staging and queues. Running transfers make
// it fail with kind Invalid: end them first.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.running > 0 {
		n := e.running
		e.mu.Unlock()
		return errs.New(errs.Invalid, "close engine", "", fmt.Sprintf("%d transfers are still running", n)).WithFix("cancel them and wait for their end")
	}
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	e.sched.close()
	e.workers.Wait()
	e.releasing.Wait()
	all := []error{e.pool.close()}
	for _, p := range e.ports {
		if p.lib != nil {
			all = append(all, p.lib.close())
		}
		all = append(all, p.queue.Close())
	}
	return errors.Join(all...)
}
