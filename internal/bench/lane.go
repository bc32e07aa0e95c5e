// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/uring"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// open allocates what belongs to the lane's thread, before the clock runs.
func (ln *lane) open() (err error) {
	if ln.l.Spec.IO == Uring {
		ln.ring, err = uring.New(uint32(len(ln.slots)))
	}
	return err
}

// shut frees what open allocated, on the same thread.
func (ln *lane) shut() {
	if ln.ring != nil && ln.ring.InFlight() == 0 {
		_ = ln.ring.Close() // nothing is in flight
	}
	ln.ring = nil
}

// run processes the lane's blocks until no block or no time is left.
func (ln *lane) run() (err error) {
	defer func() {
		ln.l.meter.merge(ln.tally)
		ln.tally = newTally()
	}()
	if ln.l.Spec.IO == Uring {
		return ln.runRing()
	}
	one := ln.readBlock
	switch {
	case ln.l.Spec.Memory == CuFile:
		one = ln.byCuFile
	case ln.l.Spec.Op == Write:
		one = ln.writeBlock
	}
	for {
		i, ok := ln.w.next(ln.l)
		if !ok {
			return nil
		}
		b := ln.l.block(i)
		began := time.Now()
		if err := one(b); err != nil {
			return err
		}
		ln.done(b, began)
	}
}

// done counts a block whose bytes are in place.
func (ln *lane) done(b block, began time.Time) {
	note(ln.tally.hist, time.Since(began))
	ln.tally.ops++
	ln.l.meter.bytes.Add(b.len)
}

// readBlock reads one block into its destination.
func (ln *lane) readBlock(b block) error {
	sl := ln.slots[0]
	if err := ln.fetch(b, sl.mem); err != nil {
		return err
	}
	if ln.l.dev != nil {
		if err := ln.copyIn(b, 0); err != nil {
			return err
		}
		if err := ln.marks[0].Wait(); err != nil {
			return ln.lost("copy to", err)
		}
	}
	if ln.l.Spec.Verify {
		return ln.verify(b, 0)
	}
	return nil
}

// fetch reads a block into host memory by the run's route.
func (ln *lane) fetch(b block, mem []byte) error {
	f := ln.l.file(b)
	if ln.l.route == Direct {
		ln.tally.byRoute[Direct] += b.len
		return direct(f, mem, b)
	}
	ln.tally.byRoute[Buffered] += b.len
	if ln.l.Spec.Pattern == Random {
		_, err := f.ReadAt(mem[:b.len], b.off)
		return err
	}
	r, err := ln.reader.of(f)
	if err != nil {
		return err
	}
	return r.ReadFull(mem[:b.len], b.off)
}

// direct reads a block past the page cache. A short last block is requested as whole pages.
func direct(f *vfs.File, mem []byte, b block) error {
	a := f.Align().Offset
	n := (b.len + a - 1) / a * a
	if n > int64(len(mem)) {
		return errs.New(errs.Unsupported, "read past the page cache", f.Path(),
			fmt.Sprintf("needs blocks of whole %d bytes", a)).WithFix("give a larger --block-size")
	}
	err := f.ReadDirect(mem[:n], b.off, int(b.len))
	if errors.Is(err, vfs.ErrDirectRefused) {
		return errs.New(errs.Unsupported, "read past the page cache", f.Path(),
			"the file system declined "+b.String()).WithFix("give --route buffered")
	}
	return err
}

func (ln *lane) copyIn(b block, k int) error {
	sl := ln.slots[k]
	if err := ln.w.queue.CopyIn(sl.dev, sl.mem[:b.len]); err != nil {
		return ln.lost("copy to", err)
	}
	if err := ln.marks[k].Record(); err != nil {
		return ln.lost("copy to", err)
	}
	return nil
}

func (ln *lane) lost(op string, err error) error {
	return errs.Wrap(op, ln.l.Device.Info().ID, err)
}

// verify compares the block in memory with its expected content.
func (ln *lane) verify(b block, k int) error {
	sl := ln.slots[k]
	got := sl.mem[:b.len]
	if ln.l.dev != nil {
		got = ln.back[:b.len]
		if err := ln.w.queue.CopyOut(got, sl.dev); err != nil {
			return ln.lost("copy from", err)
		}
		if err := ln.w.queue.Drain(); err != nil {
			return ln.lost("copy from", err)
		}
	}
	want := ln.expect[:b.len]
	switch f := ln.l.file(b); {
	case ln.l.Set.Known:
		ln.l.Set.Content(b.group, b.file, b.off, want)
	default:
		// Nobody knows what is in the file: the page cache's word is taken.
		if _, err := f.ReadAt(want, b.off); err != nil {
			return err
		}
	}
	ln.compare(b, got, want)
	return nil
}

func (ln *lane) compare(b block, got, want []byte) {
	ln.tally.verified += b.len
	if bytes.Equal(got, want) {
		return
	}
	ln.tally.mismatches++
	if ln.tally.firstBad != "" {
		return
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	ln.tally.firstBad = fmt.Sprintf("%s at offset %d: 0x%02x, expected 0x%02x", ln.l.file(b).Path(), b.off+int64(i),
		got[i], want[i])
}

// writeBlock writes one block to storage.
func (ln *lane) writeBlock(b block) error {
	sl, t := ln.slots[0], ln.l.targets[b.group][b.file]
	if ln.l.Spec.Verify {
		ln.l.Set.Content(b.group, b.file, b.off, sl.mem[:b.len])
	}
	if ln.l.dev != nil {
		if err := ln.fromDevice(b, sl); err != nil {
			return err
		}
	}
	if ln.l.route == Direct && b.len%4096 == 0 {
		ln.tally.byRoute[Direct] += b.len
		return t.WriteDirect(sl.mem[:b.len], b.off)
	}
	ln.tally.byRoute[Buffered] += b.len
	return t.WriteBuffered(sl.mem[:b.len], b.off)
}

// fromDevice brings the block from device memory into the slot. Under
// verification its content is put there first.
func (ln *lane) fromDevice(b block, sl slot) error {
	q := ln.w.queue
	if ln.l.Spec.Verify {
		if err := q.CopyIn(sl.dev, sl.mem[:b.len]); err != nil {
			return ln.lost("copy to", err)
		}
		if err := q.Drain(); err != nil {
			return ln.lost("copy to", err)
		}
		clear(sl.mem[:b.len])
	}
	if err := q.CopyOut(sl.mem[:b.len], sl.dev); err != nil {
		return ln.lost("copy from", err)
	}
	if err := ln.marks[0].Record(); err != nil {
		return ln.lost("copy from", err)
	}
	if err := ln.marks[0].Wait(); err != nil {
		return ln.lost("copy from", err)
	}
	return nil
}

// readBack compares everything that was written with what a read from storage returns.
func (l *lanes) readBack() error {
	if _, err := l.Set.Drop(); err != nil {
		return err
	}
	ln := l.all[0]
	defer func() { l.meter.merge(ln.tally) }()
	for i := range l.space.total {
		b := l.space.block(i)
		f, got, want := l.file(b), ln.slots[0].mem, ln.expect[:b.len]
		if ok, _ := f.Direct(); ok {
			if err := direct(f, got, b); err != nil {
				return err
			}
		} else if _, err := f.ReadAt(got[:b.len], b.off); err != nil {
			return err
		}
		l.Set.Content(b.group, b.file, b.off, want)
		ln.compare(b, got[:b.len], want)
	}
	return nil
}

// runRing keeps every slot of the lane's ring in flight.
func (ln *lane) runRing() error {
	ring := ln.ring
	var failed error
	flying := make([]block, len(ln.slots))
	began := make([]time.Time, len(ln.slots))
	submit := func(k int) {
		i, ok := ln.w.next(ln.l)
		if !ok || failed != nil {
			return
		}
		b := ln.l.block(i)
		f, n := ln.l.file(b), b.len
		fd := f.DirectFD()
		if ln.l.route == Direct {
			a := f.Align().Offset
			n = min((b.len+a-1)/a*a, int64(len(ln.slots[k].mem)))
		} else {
			fd = f.BufferedFD()
		}
		flying[k], began[k] = b, time.Now()
		ring.Read(fd, ln.slots[k].mem[:n], b.off, -1, uint64(k))
		// Each at once: a batch leaves the disk with less to do meanwhile, by a
		// quarter of its rate for small reads on the disks measured.
		if err := ring.Wait(0); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	for k := range ln.slots {
		submit(k)
	}
	var landed []int
	for ring.InFlight() > 0 {
		least := 1
		if ring.Ready() > 0 {
			least = 0
		}
		if err := ring.Wait(least); err != nil {
			return errors.Join(err, failed) // the ring is beyond use; the kernel frees it with the process
		}
		landed = landed[:0]
		ring.Reap(func(token uint64, res int32) {
			k := int(token)
			switch b := flying[k]; {
			case res < 0:
				failed = errors.Join(failed, errs.Wrap("read", fmt.Sprintf("%s at offset %d", ln.l.file(b).Path(), b.off),
					unix.Errno(-res)))
			case int64(res) < b.len:
				failed = errors.Join(failed, ln.l.file(b).ErrShort(b.off, int(b.len), int(res)))
			default:
				landed = append(landed, k)
			}
		})
		for _, k := range landed {
			if failed == nil {
				failed = ln.land(k, flying[k], began[k])
			}
		}
		for _, k := range landed {
			submit(k)
		}
	}
	return failed
}

// land brings a block that the ring has read on to its place.
func (ln *lane) land(k int, b block, began time.Time) error {
	ln.tally.byRoute[ln.l.route] += b.len
	if ln.l.dev != nil {
		if err := ln.copyIn(b, k); err != nil {
			return err
		}
		if err := ln.marks[k].Wait(); err != nil {
			return ln.lost("copy to", err)
		}
	}
	if ln.l.Spec.Verify {
		if err := ln.verify(b, k); err != nil {
			return err
		}
	}
	ln.done(b, began)
	return nil
}
