// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"runtime"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// lane is one set of staging memory, queues and threads. An engine has one for all devices, and one more for each
// device with a share of its own; see Options.Share.
type lane struct {
	opts tuned
	pool staging.Pool
	join *checksum.Joiner // of all transfers: making one takes longer than a small transfer

	mu      sync.Mutex // guards what follows
	ports   ports
	running int // transfers
	closed  bool
	judged  map[place]DirectPath // see Options.DirectPath
	puts    chan *staging.Slot   // staging of writes in place; nil until the first one
	network network

	storages vfs.Storages
	workers  sync.WaitGroup
}

// network is the staging of transfers over networks; guarded by lane.mu.
type network struct {
	fetchers int                   // goroutines that read
	pairs    chan [2]*staging.Slot // of uploads; nil until the first one
	paired   int                   // how many there are
}

// place is a device and a file system, for which a direct path is judged once.
type place struct {
	dev string
	fs  uint64
}

func newLane(t tuned) *lane {
	l := &lane{opts: t, join: checksum.NewJoiner(), ports: ports{all: map[device.Device]*port{},
		links: map[pair]*link{}}, judged: map[place]DirectPath{}}
	l.pool.SetLayout(t.layout())
	return l
}

// enter counts a transfer in and makes ready what it needs.
func (l *lane) enter(dev device.Device) (*port, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errs.New(errs.Closed, "start transfer", dev.Info().ID, "the engine is closed")
	}
	p, err := l.ports.of(dev)
	if err != nil {
		return nil, err
	}
	l.running++
	return p, nil
}

// leave counts a transfer out.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
}

// spawn runs a worker, near the device where the engine is told to.
func (l *lane) spawn(f func()) {
	l.workers.Go(func() {
		if l.opts.Near != nil {
			// The thread is not given back: it ends with the worker.
			runtime.LockOSThread()
			_ = l.opts.Near.Stay() // it works from anywhere
		}
		f()
	})
}

// node is the NUMA node that the engine keeps to, nil: none.
func (l *lane) node() *int {
	if l.opts.Near == nil {
		return nil
	}
	return &l.opts.Near.ID
}

// directPath judges once for each device and file system.
func (l *lane) directPath(f *vfs.File, dev device.Info) DirectPath {
	at := place{dev.ID, fileSystem(f)}
	l.mu.Lock()
	p, ok := l.judged[at]
	l.mu.Unlock()
	if ok {
		return p
	}
	p = l.opts.DirectPath(f.Locate(), dev)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.judged[at] = p
	return p
}

const (
	// netBlock is a slot of transfers over a network: large enough that one read of the socket takes all
	// that has arrived and that a copy to a GPU is worth its start (slots of 1 MiB
	// were a fifth slower on an H200), small enough to stay in a cache until it is summed and copied.
	netBlock = 2 * units.MiB
	// mostFetchers bounds the connections that a transfer uses at once, whatever remotes ask for.
	mostFetchers = 64
)

// pairUp makes staging for so many parts of uploads at once; the caller holds mu.
func (l *lane) pairUp(want int) error {
	n := &l.network
	if n.pairs == nil {
		n.pairs = make(chan [2]*staging.Slot, mostFetchers)
	}
	k := want - n.paired
	if k <= 0 {
		return nil
	}
	r, err := hostmem.MapFor("map staging memory for uploads", "use fewer connections", int64(2*k)*netBlock)
	if err != nil {
		return err
	}
	slots := l.pool.Adopt(r, 2*k, netBlock)
	for i := range k {
		n.pairs <- [2]*staging.Slot{slots[i], slots[k+i]}
	}
	n.paired = want
	return nil
}

// slotsForPut are the staging slots of writes, made on first usl.
func (l *lane) slotsForPut() (chan *staging.Slot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.puts != nil {
		return l.puts, nil
	}
	r, err := hostmem.MapFor("map staging memory for writes to open files", "", putSlots*putSize)
	if err != nil {
		return nil, err
	}
	l.puts = make(chan *staging.Slot, putSlots)
	for _, s := range l.pool.Adopt(r, putSlots, putSize) {
		l.puts <- s
	}
	return l.puts, nil
}

// Writes in place have staging of their own, beside the pool of reads: few and
// fixed slots, taken when the first such write runs.
const (
	putSlots = 8
	putSize  = 2 * units.MiB
)
