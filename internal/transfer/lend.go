// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/exchange"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/units"
)

// lentPart is the number of bytes of shared memory that one call pins. Other calls of the driver wait until such a call
// has ended.
const lentPart = 4 * units.MiB

// lender pins the memory that loads of several processes share. The device can then copy blocks directly from this
// memory. Without a lender, the CPU copies every block into the staging memory of each process. On two cores, these
// copies took 70 % of the CPU time of a load.
//
// Pinning takes time, too. So a load pins nothing before it uses a slot of the shared memory for the second time, and
// nothing if few blocks are left.
type lender struct {
	of     *exchange.Exchange
	pinned atomic.Int64 // bytes from the beginning of the memory
	copied atomic.Int64 // bytes that the device has copied directly from the memory
	stop   atomic.Bool
	done   chan struct{} // closed when nothing more is pinned
	unpin  []func() error
	err    error // why not all is pinned; valid after done

	release func() error // unpinAll, once

	mu    sync.Mutex
	users int  // copies from the memory that are on their way
	ended bool // the memory is unpinned, or is being unpinned
}

func newLender(of *exchange.Exchange) *lender {
	l := &lender{of: of, done: make(chan struct{})}
	l.release = sync.OnceValue(l.unpinAll)
	return l
}

// lenderFor returns the lender of the load. If there is none yet, lenderFor makes one, or returns nil if pinning is not
// worth the time at this block.
func (x *sharing) lenderFor(ex *exchange.Exchange, block int64, dev device.Device) *lender {
	l := x.trade.lender.Load()
	_, again := ex.Place(block)
	if l != nil || !again || x.f.Size()-block*exchange.Block < int64(len(ex.Memory())) {
		return l
	}
	l = newLender(ex)
	if !x.trade.lender.CompareAndSwap(nil, l) {
		return x.trade.lender.Load()
	}
	go l.pin(dev)
	return l
}

// pin pins the memory part by part, until stop is set.
func (l *lender) pin(dev device.Device) {
	defer close(l.done)
	for mem := l.of.Memory(); len(mem) > 0 && !l.stop.Load(); {
		n := min(lentPart, int64(len(mem)))
		unpin, err := dev.Register(mem[:n:n])
		if err != nil {
			l.err = cannotLend(dev, err)
			return
		}
		l.unpin = append(l.unpin, unpin)
		l.pinned.Add(n)
		mem = mem[n:]
	}
}

// cannotLend returns the reason why memory cannot be pinned, with advice for shared memory instead of staging memory.
func cannotLend(dev device.Device, cause error) error {
	var e *errs.Error
	if errors.As(cause, &e) && e.Err != nil {
		cause = e.Err
	}
	return &errs.Error{Kind: errs.KindOf(cause), Op: "pin memory shared with other processes for", Name: dev.Info().ID,
		Err: cause, Fix: "raise the locked-memory limit (ulimit -l)"}
}

// take reports whether a copy from the memory may begin, which then ends with give.
func (l *lender) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.users++
	}
	return !l.ended
}

func (l *lender) give() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
}

// retire unpins the memory early, unless a copy from it is on its way. Later copies go through staging memory.
func (l *lender) retire() {
	l.mu.Lock()
	busy := l.ended || l.users > 0
	l.ended = l.ended || !busy
	l.mu.Unlock()
	if !busy {
		_ = l.release() // end returns the error
	}
}

// end unpins the memory, unless retire has done so. No copy from it may be running. After an error the memory must stay
// mapped.
func (l *lender) end() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	return l.release()
}

// unpinAll unpins the parts of the memory, after pin has returned.
func (l *lender) unpinAll() error {
	l.stop.Store(true)
	<-l.done
	var all []error
	for _, unpin := range l.unpin {
		all = append(all, unpin())
	}
	return errors.Join(all...)
}

// describe returns the number of bytes that the device has copied directly from the memory. If a part of the memory
// could not be pinned, refused is the reason.
func (l *lender) describe() (copied int64, refused error) {
	if l == nil {
		return 0, nil
	}
	select {
	case <-l.done:
		return l.copied.Load(), l.err
	default:
		return l.copied.Load(), nil
	}
}

// lendOver queues a copy of chunk c from the shared memory to the device. The slot s keeps the state of this copy, but
// its memory is not used. If lendOver returns false, the caller copies the chunk into the memory of the slot. This is
// so if the shared memory is not pinned, the CPU computes the checksum, or several devices receive the chunk.
func lendOver(t *Load, c plan.Chunk, s *slot) bool {
	x := t.shared[c.File]
	ex, block := x.trade.joined.Load(), c.Off/exchange.Block
	if s == nil || ex == nil || len(t.fan.peers) > 0 {
		return false
	}
	sum := t.verify.sumFor(c, s.staged())
	if sum == nil && t.verify.covers(c.File) {
		return false
	}
	l := x.lenderFor(ex, block, t.port.dev)
	if at, _ := ex.Place(block); l == nil || l.of != ex || at+exchange.Block > l.pinned.Load() {
		return false
	}
	if !l.take() {
		return false
	}
	lent, ok := ex.Lend(c.Off, c.Len)
	if !ok {
		l.give()
		return false
	}
	send(t, c, lent.Mem, s, sum, func(to copier) error { return t.copyIn(c.Dst, lent.Mem, to) })
	if s.t == nil { // the load has failed, and nothing is on its way
		l.give()
		return true
	}
	s.lent = lent
	return true
}

// landLent counts a chunk that the device has copied directly from the shared memory. If another process has replaced
// the chunk during the copy, landLent queues a new read of the chunk and returns false. Another process does so only if
// this load seems to be dead or far behind.
func landLent(t *Load, c plan.Chunk, lent exchange.Lent) bool {
	if !lent.Valid() {
		if readPastCache(t, c, 0, false) {
			t.arrived(&c)
			t.e.sched.drop(&t.task) // others bring its bytes
		}
		return false
	}
	countTaken(t, c, tally.Ago(0))
	t.shared[c.File].trade.lender.Load().copied.Add(c.Len)
	t.arrived(&c)
	return true
}
