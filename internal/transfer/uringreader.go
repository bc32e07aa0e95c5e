// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
	"github.com/nebulaio/nebulaio/internal/uring"
	"github.com/nebulaio/nebulaio/report"
	"golang.org/x/sys/unix"
)

// uringReader makes all O_DIRECT reads of an engine from one thread. It keeps a read in flight for every free slot,
// and copies each slot to the device when its read has ended.
type uringReader struct {
	e     *loads
	ring  *uring.Ring
	slots []*slot
	// free lists slots that can be read into. sent lists slots that are copied to a device, oldest first.
	free []int
	sent []int
}

// newUring makes the ring on the calling goroutine's thread, and locks the goroutine to the thread.
func newUring(slots []*slot) (*uring.Ring, func(), error) {
	runtime.LockOSThread()
	entries := uint32(1)
	for int(entries) < len(slots) {
		entries <<= 1
	}
	ring, err := uring.New(entries)
	if err != nil {
		runtime.UnlockOSThread()
		return nil, nil, err
	}
	bufs := make([][]byte, len(slots))
	for i, s := range slots {
		bufs[i] = s.Mem
	}
	// Registered buffers save a page lookup for each read. If the limit on locked memory forbids them, reads still
	// work.
	_ = ring.RegisterBuffers(bufs)
	return ring, func() {
		_ = ring.Close()
		runtime.UnlockOSThread()
	}, nil
}

func (u *uringReader) run() {
	for i := range u.slots {
		u.free = append(u.free, i)
	}
	for {
		closed := u.fill()
		switch {
		case u.ring.InFlight() > 0:
			if err := u.ring.Wait(1); err != nil {
				// The ring is unusable and reads may be in flight. Going on would risk that the kernel writes into
				// reused memory.
				panic(fmt.Sprintf("transfer: io_uring failed with reads in flight: %v", err))
			}
			u.ring.Reap(u.arrived)
			u.collect(false)
		case len(u.sent) > 0:
			u.collect(true)
		case closed:
			return
		}
	}
}

// fill submits a read for every free slot if there is work. If nothing is running, fill waits for work. It returns
// true if the engine is closed.
func (u *uringReader) fill() (closed bool) {
	for len(u.free) > 0 && u.ring.InFlight() < u.e.opts.QueueDepth {
		idle := u.ring.InFlight() == 0 && len(u.sent) == 0
		t, cs := u.e.sched.next(plan.ViaDirect, 1, idle)
		if t == nil {
			return idle
		}
		c := cs[0]
		i := u.free[len(u.free)-1]
		u.free = u.free[:len(u.free)-1]
		s := u.slots[i]
		if x := t.shared[c.File]; x.together(c.Off, c.Len) {
			u.free = append(u.free, i)
			readAnotherWay(t, c) // a ring would need another thread for a read through the page cache
			continue
		}
		s.Ensure(t.port.dev)
		if t.truths[c.File].storage().Falls {
			u.alone(i, t, c)
			continue
		}
		s.t, s.reading, s.got, s.queued = t, c, 0, t.tally.Begin(tally.StageReadDirect)
		u.submit(i)
	}
	return false
}

// alone reads one chunk while no other read runs, on a file system that may fall back to the page cache. The page
// cache and the thread's counters then show the route of this read.
func (u *uringReader) alone(i int, t *Load, c plan.Chunk) {
	s := u.slots[i]
	if u.e.sched.hasFailed(&t.task) {
		u.e.sched.drop(&t.task)
	} else {
		readDirect(t, c, s)
	}
	u.keep(i)
}

// keep adds a slot to sent if its copy is running, else to free.
func (u *uringReader) keep(i int) {
	if u.slots[i].t != nil {
		u.sent = append(u.sent, i)
	} else {
		u.free = append(u.free, i)
	}
}

// submit queues the read, or the rest of it, for slot i.
func (u *uringReader) submit(i int) {
	s := u.slots[i]
	f := s.t.req.Files[s.reading.File]
	if !s.pinned {
		if err := f.Pin(); err != nil {
			u.e.sched.failed(&s.t.task, err)
			s.queued.Drop()
			s.t = nil
			u.free = append(u.free, i)
			return
		}
		s.pinned = true // until the read has ended
	}
	lo, buf, _ := superset(f, s.reading, s.Mem)
	s.lo = lo
	if !u.ring.Read(f.DirectFD(), buf[s.got:], lo+int64(s.got), i, uint64(i)) {
		panic("transfer: more reads than the ring was made for")
	}
}

// arrived handles the completion of a slot's read.
func (u *uringReader) arrived(token uint64, res int32) {
	i := int(token)
	s := u.slots[i]
	t, c := s.t, s.reading
	f := t.req.Files[c.File]
	_, buf, need := superset(f, c, s.Mem)
	if res == -int32(unix.EINTR) || res == -int32(unix.EAGAIN) {
		u.submit(i)
		return
	}
	if res > 0 {
		s.got += int(res)
		if s.got < need {
			u.submit(i)
			return
		}
	}
	s.t, s.pinned = nil, false
	defer f.Unpin()
	switch {
	case s.got >= need:
		t.tally.Read(c.Extra, t.truths[c.File].below(report.RouteTakenDirect), c.Len, s.queued)
		t.tally.Padded(int64(need) - c.Len)
		t.shared[c.File].passed(c.Len)
		if !u.e.sched.hasFailed(&t.task) {
			deliver(t, c, buf[c.Off-s.lo:][:c.Len], s)
		} else {
			u.e.sched.drop(&t.task)
		}
	case res == 0:
		s.queued.Drop()
		u.e.sched.failed(&t.task, f.ErrShort(s.lo, need, s.got))
	default:
		s.queued.Drop()
		err := error(unix.Errno(-res))
		if s.got == 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)) {
			f.RefuseDirect(fmt.Sprintf("%s accepted O_DIRECT at open but refused an aligned read: %v", f.FS().Name,
				err),
				"keep the file on a file system with direct I/O, such as ext4 or XFS")
			readAnotherWay(t, c)
		} else {
			u.e.sched.failed(&t.task, errs.Wrap("read", fmt.Sprintf("%s at offset %d", f.Path(), s.lo+int64(s.got)),
				err))
		}
	}
	u.keep(i)
}

// collect frees the slots whose copies are done. If wait is set, it waits for the oldest copy. Copies end in the
// order in which they were queued.
func (u *uringReader) collect(wait bool) {
	for len(u.sent) > 0 {
		i := u.sent[0]
		s := u.slots[i]
		if !wait {
			if done, err := s.mark.Done(); !done && err == nil {
				return
			}
			if done, err := s.sumDone(); !done && err == nil {
				return
			}
		}
		settle(s)
		u.sent = u.sent[1:]
		u.free = append(u.free, i)
		wait = false
	}
}

// runUring is the single worker for O_DIRECT reads through io_uring. It sends an error on ready if the kernel does
// not allow io_uring, else nil.
func runUring(e *loads, slots []*slot, ready chan<- error) {
	ring, unlock, err := newUring(slots)
	ready <- err
	if err != nil {
		return
	}
	defer unlock()
	(&uringReader{e: e, ring: ring, slots: slots}).run()
}
