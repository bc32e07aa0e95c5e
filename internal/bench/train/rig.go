// SPDX-License-Identifier: Apache-2.0

package train

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/data/loader"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
)

// place is a slot for one batch, with host memory and device memory.
type place struct {
	host  *hostmem.Region // nil if the engine reads
	unpin func() error
	dev   device.Buffer
	fed   *loader.Batch // of the loader, in place of dev
	// copied marks the end of the batch's copy, and ended the end of its step.
	copied, ended device.Mark

	// Of the batch that it holds now.
	batch   int
	left    atomic.Int64  // samples still to be read
	loaded  chan struct{} // closed when all are in host memory
	ready   chan struct{} // closed when the batch is in device memory
	readyAt time.Time     // set before ready is closed
}

// settle prepares the slot for a batch.
func (pl *place) settle(batch, samples int) {
	pl.batch = batch
	pl.left.Store(int64(samples))
	pl.loaded, pl.ready = make(chan struct{}), make(chan struct{})
}

// at returns the address of the batch on the device.
func (pl *place) at() device.Ptr {
	if pl.fed != nil {
		return pl.fed.Columns[0].Memory.Ptr()
	}
	return pl.dev.Ptr()
}

// giveBack returns the memory of the batch to the loader, if there is one.
func (pl *place) giveBack() {
	if pl.fed != nil {
		pl.fed.Free()
		pl.fed = nil
	}
}

// stampRing is the number of steps whose stamps are kept: the step that is waited for, the one before it, and those
// queued behind it.
const stampRing = 4

// rig holds the resources of a run: queues, slots and stamps.
type rig struct {
	*plan
	hooks   hooks
	copies  device.Queue
	compute device.Queue
	steps   device.Stepper
	follow  device.Follower // nil if the host orders the queues
	places  []*place
	begin   []device.Stamp // stampRing of each, none if the host's clock is used
	end     []device.Stamp
	took    routes
	notes   []string
}

// hooks are replaced by tests. The zero value is used in production.
type hooks struct {
	now  func() time.Time
	read func(sample int64, dst []byte) error
	// step is called when a batch's step has ended, before its place is used again.
	step func(batch int, at device.Ptr)
}

// open allocates everything that the run needs. close frees it, also after an error of open.
func (r *rig) open() (err error) {
	if r.hooks.now == nil {
		r.hooks.now = time.Now
	}
	if r.copies, err = r.Device.NewQueue(); err != nil {
		return err
	}
	if r.compute, err = r.Device.NewQueue(); err != nil {
		return err
	}
	if err := r.openCompute(); err != nil {
		return err
	}
	for i := range r.plan.places {
		pl := &place{}
		r.places = append(r.places, pl)
		if pl.dev, err = r.Device.Alloc(r.slotBytes()); err != nil {
			return &errs.Error{Kind: errs.KindOf(err), Op: fmt.Sprintf("place batch %d of %d, %s each, on", i+1, r.plan.places,
				units.Bytes(r.slotBytes())), Name: r.Device.Info().ID, Err: err,
				Fix: fmt.Sprintf("lower prefetch (now %d) or the batch (now %d samples), or free device memory", r.Prefetch,
					r.Batch)}
		}
		if pl.copied, err = r.copies.NewMark(); err != nil {
			return err
		}
		if pl.ended, err = r.compute.NewMark(); err != nil {
			return err
		}
		if i < r.hostPlaces() {
			if err := r.openHost(pl); err != nil {
				return err
			}
		}
	}
	return nil
}

// openCompute finds out which operations besides copies the device supports.
func (r *rig) openCompute() error {
	id := r.Device.Info().ID
	var ok bool
	if r.steps, ok = r.compute.(device.Stepper); !ok {
		return errs.New(errs.Unsupported, "run steps on", id, "this device can copy but not compute")
	}
	// The first step compiles a kernel, which no figure should have in it.
	if err := errors.Join(r.steps.Step(0), r.compute.Drain()); err != nil {
		return errs.Wrap("run steps on", id, err)
	}
	r.follow, _ = r.compute.(device.Follower)
	t, ok := r.compute.(device.Timer)
	for range stampRing {
		if !ok {
			break
		}
		for _, to := range []*[]device.Stamp{&r.begin, &r.end} {
			s, err := t.NewStamp()
			if errs.Is(err, errs.Unsupported) {
				r.note("steps are timed by the host's clock: %v", err)
				return nil
			}
			if err != nil {
				return err
			}
			*to = append(*to, s)
		}
	}
	return nil
}

// openHost allocates a slot's host memory. The memory is faulted in before anything is measured, and pinned if the
// Config asks for it. The engine's staging is pinned.
func (r *rig) openHost(pl *place) (err error) {
	if pl.host, err = hostmem.Map(r.slotBytes()); err != nil {
		return err
	}
	hostmem.Touch(pl.host.Bytes(), runtime.NumCPU())
	if r.Memory == Pageable {
		return nil
	}
	if pl.unpin, err = r.Device.Register(pl.host.Bytes()); err != nil {
		return errs.Wrap("pin host memory of batches for", r.Device.Info().ID, err)
	}
	return nil
}

func (r *rig) timed() bool { return len(r.end) == stampRing }

// note adds a note to the result, once.
func (r *rig) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.notes, text) {
		r.notes = append(r.notes, text)
	}
}

// closeHost frees a slot's host memory. No copy from it may be queued.
func (pl *place) closeHost() error {
	var all []error
	if pl.unpin != nil {
		all = append(all, pl.unpin())
		pl.unpin = nil
	}
	if pl.host != nil {
		all = append(all, pl.host.Unmap())
		pl.host = nil
	}
	return errors.Join(all...)
}

// close waits until nothing is queued and frees everything.
func (r *rig) close() error {
	var all []error
	for _, q := range []device.Queue{r.copies, r.compute} {
		if q != nil {
			all = append(all, q.Drain())
		}
	}
	for _, pl := range r.places {
		all = append(all, pl.closeHost())
		pl.giveBack()
		for _, m := range []device.Mark{pl.copied, pl.ended} {
			if m != nil {
				all = append(all, m.Close())
			}
		}
		if pl.dev != nil {
			all = append(all, pl.dev.Free())
		}
	}
	for _, s := range append(r.begin, r.end...) {
		all = append(all, s.Close())
	}
	for _, q := range []device.Queue{r.compute, r.copies} {
		if q != nil {
			all = append(all, q.Close())
		}
	}
	return errors.Join(all...)
}
