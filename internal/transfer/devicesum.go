// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/transfer/plan"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// VerifyOn is where what a transfer verifies is summed.
type VerifyOn string

const (
	// VerifyAuto lets the device sum what it got, where it can, and the CPU the
	// rest: what is not copied, what is packed, and what is too small to be worth it.
	VerifyAuto VerifyOn = "auto"
	// VerifyHost lets the CPU sum everything before it is sent.
	VerifyHost VerifyOn = "host"
	// VerifyDevice is VerifyAuto, but small pieces too are summed on a GPU, and
	// one that cannot makes the transfer fail.
	VerifyDevice VerifyOn = "device"
)

// ParseVerifyOn checks a place given as text; empty is VerifyAuto.
func ParseVerifyOn(s string) (VerifyOn, error) {
	switch v := VerifyOn(s); v {
	case "":
		return VerifyAuto, nil
	case VerifyAuto, VerifyHost, VerifyDevice:
		return v, nil
	}
	return "", errs.New(errs.Invalid, "choose where to verify", strconv.Quote(s), "is not a place; expected auto, host or device")
}

// leastOnDevice is the smallest chunk that auto leaves to the device: to sum less
// takes the CPU no longer than to start a kernel and to learn of its end.
const leastOnDevice = 256 * units.KiB

// portSums is whether a port's device sums. Summing on the CPU what a disk has
// just written to memory slows the disk, by a fifth on a virtual machine, and
// in loads out of the page cache it takes a tenth of the threads' time; the
// device does it beside its copies, and what it sums has arrived.
type portSums struct {
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
func (y *portSums) ask(p *port) {
	y.once.Do(func() {
		y.ready = make(chan struct{})
		go func() {
			defer close(y.ready)
			q, ok := p.queue.(device.Summer)
			if !ok {
				y.refuse(errs.New(errs.Unsupported, "sum on", p.dev.Info().ID, "it cannot compute").WithFix("none needed: the CPU sums"))
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
func (y *portSums) refuse(err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.err == nil {
		y.err = err
	}
	y.able.Store(false)
}

// refused is why the device does not sum; nil where it does, or nobody knows yet.
func (y *portSums) refused() error {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.err
}

// take gives a sum for one chunk that came past slots; keep takes it back.
func (y *portSums) take(p *port, room int64) (*spareSum, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if n := len(y.spare); n > 0 {
		s := y.spare[n-1]
		y.spare = y.spare[:n-1]
		return s, nil
	}
	m, err := p.queue.NewMark()
	if err != nil {
		return nil, err
	}
	s, err := p.queue.(device.Summer).NewSum(int(room/checksum.MinBlock) + 2)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &spareSum{s, m}, nil
}

func (y *portSums) keep(s *spareSum) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.spare = append(y.spare, s)
}

// close frees the sums; nothing is summed any more.
func (y *portSums) close() error {
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
func (y *portSums) wait() {
	if y.ready != nil {
		<-y.ready
	}
}

// askForSums makes the device ready to sum what the transfer verifies.
func (t *Transfer) askForSums() {
	if on := t.e.opts.VerifyOn; t.proof != nil && t.port.mapper == nil && (on == VerifyDevice || on == VerifyAuto && t.total >= leastOnDevice) {
		t.port.sums.ask(t.port)
		t.sums = true
	}
}

// needSums fails where the device was named as the place and cannot sum.
func (t *Transfer) needSums() error {
	if !t.sums || t.e.opts.VerifyOn != VerifyDevice || t.port.dev.Info().Kind == device.Host {
		return nil
	}
	t.port.sums.wait()
	return errs.Wrap("verify on", t.port.dev.Info().ID, t.port.sums.refused())
}

// sumOf is the slot's sum for a chunk that is summed on the device after its
// copy; nil where the CPU sums it before.
func (t *Transfer) sumOf(c plan.Chunk, s *slot) device.Sum {
	if !t.sums || s == nil || c.Extra || c.Weave != nil || c.Summed || !t.verifies(c.File) || !t.port.sums.able.Load() ||
		t.e.opts.VerifyOn == VerifyAuto && c.Len < leastOnDevice || !tileable(t.proof.files[c.File].sums) {
		return nil
	}
	sum, err := s.sumFor(t.port)
	if err != nil {
		t.port.sums.refuse(err)
	}
	return sum
}

// sumFor returns the slot's sum on a port's queue, made on first use; nil after an error.
func (s *slot) sumFor(p *port) (device.Sum, error) {
	if m, ok := s.sums[p]; ok {
		return m, nil
	}
	m, err := p.queue.(device.Summer).NewSum(len(s.mem)/checksum.MinBlock + 2)
	if err != nil {
		return nil, err
	}
	if s.sums == nil {
		s.sums = map[*port]device.Sum{}
	}
	s.sums[p] = m
	return m, nil
}

// tileOf is how the blocks of a file are cut for the device: at multiples of it.
func tileOf(s *checksum.Sums) int64 { return min(s.Block, device.SumTile) }

// tileable reports whether every tile lies in one block, and none is tiny: so it
// is where the block is a power of two, or there is one block alone.
func tileable(s *checksum.Sums) bool {
	size := tileOf(s)
	return s.Block >= s.Size || size >= checksum.MinBlock && s.Block%size == 0
}

// startSum queues the summing of a chunk behind its copy.
func (t *Transfer) startSum(sum device.Sum, m device.Mark, c plan.Chunk) error {
	if sum == nil {
		return nil
	}
	size := tileOf(t.proof.files[c.File].sums)
	return sum.Start(m, c.Dst, c.Len, size-c.Off%size, size)
}

// judge puts together what the device made of a chunk, and compares each block
// that it completes.
func (t *Transfer) judge(c plan.Chunk, tiles []uint64) error {
	defer t.tally.verifiedOnDevice(c.Len, time.Now())
	p := t.proof
	f := &p.files[c.File]
	size := tileOf(f.sums)
	for off, end := c.Off, c.Off+c.Len; off < end; {
		i := off / f.sums.Block
		lo, n := f.sums.Extent(i)
		from, stop := off, min(end, lo+n)
		var sum uint64
		for off < stop {
			next := min(stop, (off/size+1)*size)
			sum = p.join.After(sum, next-off) ^ tiles[0]
			tiles, off = tiles[1:], next
		}
		if err := t.checkPiece(c.File, i, from, stop, sum, t.port.dev.Info().ID); err != nil {
			return err
		}
	}
	return nil
}

// sumsInPlace reports whether the device will sum what it gets of a file past
// staging; it waits until that is known.
func (t *Transfer) sumsInPlace(file int) bool {
	if !t.verifies(file) {
		return true
	}
	if !t.sums || !tileable(t.proof.files[file].sums) {
		return false
	}
	t.port.sums.wait()
	return t.port.sums.able.Load()
}

// proveInPlace sums a chunk that came past staging, where it is, and waits.
func (t *Transfer) proveInPlace(c plan.Chunk) error {
	if !t.verifies(c.File) {
		return nil
	}
	s, err := t.port.sums.take(t.port, t.e.opts.piece)
	if err == nil {
		defer t.port.sums.keep(s)
		if err = t.startSum(s.Sum, s.mark, c); err == nil {
			err = s.Wait()
		}
	}
	if err != nil {
		return errs.Wrap(fmt.Sprintf("verify %d bytes from offset %d of", c.Len, c.Off), t.req.Files[c.File].Path(), err)
	}
	return t.judge(c, s.Tiles())
}

// describePlace tells where the sums were made, and why not on the device.
func (t *Transfer) describePlace(r *report.Report, v *report.Verification) {
	v.Where = v.Place()
	if err := t.port.sums.refused(); err != nil && t.sums && t.port.dev.Info().Kind != device.Host {
		r.Refusals = append(r.Refusals, report.Refusal{What: "verification on the device", On: t.port.dev.Info().ID, Reason: plainly(err), Fix: errs.FixOf(err)})
	}
	switch {
	case v.Where == "both":
		r.Notes = append(r.Notes, fmt.Sprintf("%s were summed on %s where they had arrived, %s by the CPU: pieces below %s, what was packed or not wanted itself, and what came before the device was ready to sum",
			units.Bytes(v.DeviceBytes), t.port.dev.Info().ID, units.Bytes(v.Bytes-v.DeviceBytes), units.Bytes(leastOnDevice)))
	case v.Where == "host" && t.port.mapper != nil:
		r.Notes = append(r.Notes, "verification needs every byte in the CPU's reach: all were read into place in host memory and summed there")
	case v.Where == "host":
		r.Notes = append(r.Notes, "verification needs every byte in the CPU's reach: all were staged in host memory and summed there")
	}
}
