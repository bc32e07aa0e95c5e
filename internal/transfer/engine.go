// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Engine runs transfers. One engine serves a process: all transfers share its
// workers and its staging memory, but for those of devices that have a share of
// their own; see Options.Share.
type Engine struct {
	given Options
	opts  tuned
	sched *sched
	pool  pool
	join  *checksum.Joiner // of all transfers: making one takes longer than a small transfer

	mu       sync.Mutex
	ports    map[device.Device]*port
	started  [plan.Ways]bool
	io       IO // what direct reads use; settled when they first start
	running  int
	closed   bool
	storages vfs.Storages
	judged   map[place]Peers           // see Options.Peers
	links    map[pair]*link            // between devices
	lanes    map[device.Device]*Engine // of devices with a share of their own; the engine itself for the others
	puts     chan *slot                // staging of writes; nil until the first one
	network  network                   // what reads and writes over networks have

	workers sync.WaitGroup
	totals  totals
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
	libMu  sync.Mutex    // guards lib; also a Target of another lane's engine asks for it
	lib    *library      // cuFile; nil until first asked for

	ferries ferries
	sums    portSums
}

// passed waits until what is queued on the port has been done.
func (p *port) passed() error {
	m, err := p.queue.NewMark()
	if err == nil {
		err = m.Record()
	}
	if err == nil {
		err = errors.Join(m.Wait(), m.Close())
	}
	return errs.Wrap("wait for the caller's stream on", p.dev.Info().ID, err)
}

// New returns an engine; staging and threads come with Prepare or the first
// transfer.
func New(o Options) (*Engine, error) {
	t, err := o.tune()
	if err != nil {
		return nil, err
	}
	return &Engine{given: o, opts: t, lanes: map[device.Device]*Engine{}, sched: newSched(), ports: map[device.Device]*port{}, judged: map[place]Peers{}, links: map[pair]*link{}, pool: pool{deal: t}, join: checksum.NewJoiner()}, nil
}

// Prepare makes ready in the background what a transfer to dev will need, for a
// caller that knows of one a little ahead: staging memory and threads. What
// fails here fails again, and is reported, in Start.
func (e *Engine) Prepare(dev device.Device) {
	if _, ok := dev.(device.Mapper); ok {
		return
	}
	e, err := e.lane(dev)
	if err != nil {
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
	if !e.started[plan.ViaCache] {
		e.started[plan.ViaCache] = e.start(plan.ViaCache) == nil
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
	if n := e.busy(); n > 0 {
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
	for _, l := range e.lanes {
		if l != e {
			all = append(all, l.Close())
		}
	}
	for _, l := range e.links {
		if l.queue != nil {
			all = append(all, l.queue.Close())
		}
	}
	for _, p := range e.ports {
		if p.lib != nil {
			all = append(all, p.lib.close())
		}
		all = append(all, p.sums.close(), p.ferries.close(), p.queue.Close())
	}
	return errors.Join(all...)
}

// Bound tells the engine of bounds that somebody else asks it to keep, a server
// of the objects that it will move: staging and direct reads in flight are then no
// more, where the caller has not chosen them. It comes before the first
// transfer; later it changes nothing and reports false. Zero means no bound.
func (e *Engine) Bound(poolSize int64, queueDepth int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.given
	if o.PoolSize == 0 && poolSize > 0 && poolSize < DefaultPoolSize {
		o.PoolSize = max(poolSize, minPoolSize)
	}
	if o.QueueDepth == 0 && queueDepth > 0 && queueDepth < defaultQueueDepth {
		o.QueueDepth = queueDepth
	}
	if o.PoolSize == e.given.PoolSize && o.QueueDepth == e.given.QueueDepth {
		return true // the engine takes no more by itself
	}
	t, err := o.tune()
	if err != nil || e.closed || len(e.ports) > 0 || len(e.lanes) > 0 {
		return false
	}
	e.given.PoolSize, e.given.QueueDepth, e.opts, e.pool.deal = o.PoolSize, o.QueueDepth, t, t
	return true
}
