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
	join *checksum.Joiner // shared by all transfers, because making one takes longer than a small transfer

	mu      sync.Mutex // guards what follows
	ports   ports
	running int // transfers
	entered int // transfers that have begun so far
	closed  bool
	judged  map[place]*judgement // see Options.DirectPath
	puts    chan *staging.Slot   // staging of writes to open files; nil until the first one
	network network

	storages vfs.Storages
	workers  sync.WaitGroup
}

// network is the staging of transfers over networks; guarded by lane.mu.
type network struct {
	fetchers int                   // number of goroutines that read
	pairs    chan [2]*staging.Slot // slots of uploads; nil until the first one
	paired   int                   // number of pairs
}

// place is a device and a file system, for which a direct path is judged once.
type place struct {
	dev string
	fs  uint64
}

func newLane(t tuned) *lane {
	l := &lane{opts: t, join: checksum.NewJoiner(), ports: ports{all: map[device.Device]*port{},
		links: map[pair]*link{}}, judged: map[place]*judgement{}}
	l.pool.SetLayout(t.layout())
	return l
}

// enter registers a running transfer and returns the port of its device.
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
	l.entered++
	return p, nil
}

// leave deregisters a transfer that has ended.
func (l *lane) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
}

// spawn runs a worker. If Options.Near is set, the worker runs on that NUMA node.
func (l *lane) spawn(f func()) {
	l.workers.Go(func() {
		if l.opts.Near != nil {
			// The thread is not unlocked: it ends with the worker.
			runtime.LockOSThread()
			_ = l.opts.Near.Stay() // a worker on another node is slower, not wrong
		}
		f()
	})
}

// background runs f in another goroutine, for which the end of the lane waits. If the lane is closed, background runs f
// at once.
func (l *lane) background(f func()) {
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.workers.Go(f)
	}
	l.mu.Unlock()
	if closed {
		f()
	}
}

// node returns the NUMA node of the lane, or nil if it uses any node.
func (l *lane) node() *int {
	if l.opts.Near == nil {
		return nil
	}
	return &l.opts.Near.ID
}

const (
	// netBlock is the size in bytes of a slot for network transfers. It is large enough for one read of all arrived
	// bytes and for an efficient copy to a GPU (slots of 1 MiB were a fifth slower on an H200). It is small enough to
	// stay in a CPU cache until it is summed and copied.
	netBlock = 2 * units.MiB
	// mostFetchers is the largest number of connections that a transfer uses at once.
	mostFetchers = 64
)

// pairUp makes staging slots for the given number of concurrent parts of uploads. The caller holds mu.
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

// slotsForPut returns the staging slots of writes to open files, and makes them at the first call.
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

// Writes to open files have their own staging slots beside the pool of reads. The slots are made at the first write.
const (
	putSlots = 8
	putSize  = 2 * units.MiB
)
