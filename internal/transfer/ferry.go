// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"sync"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
)

// A few bytes are not worth a plan, workers and a report. The caller's own goroutine copies them, through one of a
// few small slots. Each small slot has its own queue, so that it waits for no bulk copy and for no other small copy.
const (
	ferryCount = 4
	ferrySize  = 64 * units.KiB
)

// ferry is a small slot with a queue of its own.
type ferry struct {
	mem   []byte
	queue device.Queue
}

// ferries are the small slots of one device, made at their first use.
type ferries struct {
	mu     sync.Mutex
	free   chan *ferry // nil until the first use
	all    []*ferry
	region *hostmem.Region
	unpin  func() error
}

// open makes the ferries of a device, once. Memory that cannot be pinned still works, but slower.
func (y *ferries) open(dev device.Device) (chan *ferry, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.free != nil {
		return y.free, nil
	}
	r, err := hostmem.MapFor("map staging memory for small copies to a GPU", "", ferryCount*ferrySize)
	if err != nil {
		return nil, err
	}
	y.region = r
	mem := r.Bytes()[:ferryCount*ferrySize]
	hostmem.Touch(mem, 1)
	if unpin, err := dev.Register(mem); err == nil {
		y.unpin = unpin
	}
	free := make(chan *ferry, ferryCount)
	for i := range ferryCount {
		q, err := dev.NewQueue()
		if err != nil {
			return nil, errors.Join(err, y.shut())
		}
		f := &ferry{mem: mem[i*ferrySize : (i+1)*ferrySize : (i+1)*ferrySize], queue: q}
		y.all = append(y.all, f)
		free <- f
	}
	y.free = free
	return free, nil
}

// close frees the queues and the memory. No copy may be running.
func (y *ferries) close() error {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.shut()
}

func (y *ferries) shut() error {
	var all []error
	for _, f := range y.all {
		all = append(all, f.queue.Close())
	}
	if y.unpin != nil {
		all = append(all, y.unpin())
	}
	if y.region != nil {
		all = append(all, y.region.Unmap())
	}
	y.free, y.all, y.unpin, y.region = nil, nil, nil, nil
	return errors.Join(all...)
}

// cross copies data to a device; see Engine.Deliver.
func (y *ferries) cross(ctx context.Context, dev device.Device, dst device.Ptr, data []byte, streams []uint64) error {
	if !dst.Holds(int64(len(data))) {
		return errs.New(errs.Invalid, "", "", "expected an address that they can begin at")
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if m, ok := dev.(device.Mapper); ok {
		copy(m.Map(dst, int64(len(data))), data)
		return nil
	}
	free, err := y.open(dev)
	if err != nil {
		return err
	}
	var f *ferry
	select {
	case f = <-free:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { free <- f }()
	for _, s := range streams {
		if dev.Info().Kind == device.Host {
			break // host memory has no streams
		}
		if err := f.queue.After(s); err != nil {
			return errors.Join(err, f.queue.Drain())
		}
	}
	for len(data) > 0 && ctx.Err() == nil {
		n := copy(f.mem, data)
		if err := errors.Join(f.queue.CopyIn(dst, f.mem[:n]), f.queue.Drain()); err != nil {
			return err
		}
		dst, data = dst+device.Ptr(n), data[n:]
	}
	if len(data) > 0 {
		return ctx.Err()
	}
	return nil
}
