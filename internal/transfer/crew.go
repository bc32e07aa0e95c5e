// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/transfer/plan"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/report"
)

// crew is a lane with its workers, which are started when they are first needed.
type crew struct {
	*lane
	loads   loads
	saves   saves
	started [plan.Ways]bool // guarded by lane.mu
}

func newCrew(t tuned) *crew {
	l := newLane(t)
	k := &crew{lane: l}
	k.loads.lane, k.loads.sched = l, newSched[*Load]()
	k.saves.lane, k.saves.sched = l, newSched[*Save]()
	k.loads.need = k.need
	return k
}

// retune gives a crew without started workers other options.
func (k *crew) retune(t tuned) {
	k.opts = t
	k.pool.SetLayout(t.layout())
}

// need starts the workers for one way of reading, once. If this way uses staging, need also prepares staging for the
// load's device.
func (k *crew) need(w plan.Way, t *Load) error {
	if w == plan.ViaNetwork {
		return k.needFetchers(t)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.started[w] {
		k.started[w] = true
		if err := k.start(w); err != nil {
			k.started[w] = false
			return err
		}
	}
	staged := w == plan.ViaDirect ||
		w != plan.ViaDirectInPlace && w != plan.ViaCuFile && (t.port.mapper == nil || t.packs)
	if staged && !t.prepared[w] {
		t.prepared[w] = true
		if w == plan.ViaCache {
			k.pool.PrepareNow(t.port.dev, staging.Large, k.slotsFor(t))
		} else {
			k.pool.PrepareNow(t.port.dev, staging.Small, staging.All)
		}
	}
	return nil
}

// oneGulp is the size in bytes from which on a first load is worth the time to pin all slots.
const oneGulp = 2 * units.GiB

// slotsFor returns how many slots a load from the page cache needs; the caller holds lane.mu.
func (k *crew) slotsFor(t *Load) int {
	if k.entered == 1 && t.total < oneGulp {
		return 2 * k.opts.Workers
	}
	return staging.All
}

// start starts the workers of a way; the caller holds lane.mu.
func (k *crew) start(w plan.Way) error {
	o := &k.opts
	switch w {
	case plan.ViaCache:
		return k.startThreads(w, o.Workers, o.largeSlots, staging.Large)
	case plan.ViaFill:
		return k.startThreads(w, o.fillers, o.smallSlots-o.directSlots, staging.Small)
	case plan.ViaWrite:
		return k.startThreads(w, o.WriteDepth, o.writeSlots, staging.Write)
	case plan.ViaDirectInPlace:
		for range o.QueueDepth {
			k.startThread(w, nil)
		}
		return nil
	case plan.ViaCuFile:
		return k.startCuFile()
	}
	if o.IO == IOUring {
		slots, err := k.pool.Take(o.directSlots, staging.Small)
		if err != nil {
			return err
		}
		ready := make(chan error, 1)
		k.spawn(func() { runUring(&k.loads, slotsOf(slots), ready) })
		k.loads.io = IOUring
		return <-ready
	}
	k.loads.io = IOPread
	return k.startThreads(w, o.QueueDepth, o.directSlots, staging.Small)
}

// startThreads starts n workers and divides slots among them. The first slot of every worker is prepared before the
// second slot of any worker.
func (k *crew) startThreads(w plan.Way, n, slots int, kind staging.Kind) error {
	all, err := k.pool.Take(slots, kind)
	if err != nil {
		return err
	}
	for i := range n {
		var own []*staging.Slot
		for at := i; at < len(all); at += n {
			own = append(own, all[at])
		}
		k.startThread(w, own)
	}
	return nil
}

func (k *crew) startThread(w plan.Way, slots []*staging.Slot) {
	if w == plan.ViaWrite {
		k.spawn((&writer{e: &k.saves, slots: slots}).run)
		return
	}
	wk := &worker{e: &k.loads, way: w, slots: slotsOf(slots)}
	k.spawn(wk.run)
}

// startCuFile starts the workers of the route cufile, for the chosen interface of libcufile.
func (k *crew) startCuFile() error {
	switch k.opts.CuFile {
	case report.CuFileAsync:
		ops, err := hostmem.Map(int64(cuFileThreads * cuFileDepth * opStride))
		if err != nil {
			return err
		}
		hostmem.AdviseSmall(ops.Bytes())
		k.pool.Keep(ops)
		for i := range cuFileThreads {
			k.spawn((&streamReader{e: &k.loads, mem: ops.Bytes()[i*cuFileDepth*opStride:][:cuFileDepth*opStride],
				queues: map[*port]*streamQueue{}}).run)
		}
	case report.CuFileBatch:
		for range cuFileBatches {
			k.spawn((&batchReader{e: &k.loads, batches: map[device.Direct]device.DirectBatch{}}).run)
		}
	default:
		for range cuFileThreads {
			k.startThread(plan.ViaCuFile, nil)
		}
	}
	return nil
}

// needFetchers starts as many fetchers as the transfer's remote files want, with their own slots beside the pool.
func (k *crew) needFetchers(t *Load) error {
	want := t.fetch.want
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := want - k.network.fetchers; n > 0 {
		r, err := hostmem.MapFor("map staging memory for reads over the network", "use fewer connections",
			int64(2*n)*netBlock)
		if err != nil {
			return err
		}
		slots := k.pool.Adopt(r, 2*n, netBlock)
		for i := range n {
			// The first slots of all fetchers are neighbours in memory, and are pinned first.
			own := slotsOf([]*staging.Slot{slots[i], slots[n+i]})
			f := &fetcher{worker{e: &k.loads, way: plan.ViaNetwork, slots: own}}
			k.spawn(f.run)
		}
		k.network.fetchers = want
		if dev := t.port.dev; t.port.mapper == nil {
			k.pool.PrepareSlots(dev, slots)
		}
	}
	t.prepared[plan.ViaNetwork] = t.prepared[plan.ViaNetwork] || t.port.mapper == nil || t.packs
	return nil
}

// enterSave registers a save with the lane, and makes a port for each of its devices and threads to write.
func (k *crew) enterSave(t *Save) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return errs.New(errs.Closed, "save", t.req.Path, "the engine is closed")
	}
	if err := t.from.enter(&k.ports); err != nil {
		return err
	}
	if !k.started[plan.ViaWrite] {
		if err := k.start(plan.ViaWrite); err != nil {
			return err
		}
		k.started[plan.ViaWrite] = true
	}
	for _, p := range t.from.ports {
		if p.mapper == nil {
			k.pool.PrepareNow(p.dev, staging.Write, staging.All)
		}
	}
	k.running++
	return nil
}

// prepare makes the port, the staging memory and the threads for a load to dev.
func (k *crew) prepare(dev device.Device) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.opensFor(dev) {
		return
	}
	k.pool.Prepare(dev, staging.Large, 2*k.opts.Workers) // the size of the load is not known yet
	if !k.started[plan.ViaCache] {
		k.started[plan.ViaCache] = k.start(plan.ViaCache) == nil
	}
}

// prepareCold prepares the staging memory for reads from storage to dev.
func (k *crew) prepareCold(dev device.Device) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opensFor(dev) {
		k.pool.PrepareNow(dev, staging.Small, staging.All)
	}
}

// opensFor maps the pool and opens the copy queue of dev, and reports whether this worked. The copy queue is opened
// before staging memory is pinned: while the driver pins memory, its other calls wait. The caller holds lane.mu.
func (k *crew) opensFor(dev device.Device) bool {
	if k.closed || k.pool.Open() != nil {
		return false
	}
	_, err := k.ports.of(dev)
	return err == nil
}

// close ends the workers and frees staging and queues. No transfer may be running or begin.
func (k *crew) close() error {
	k.loads.sched.close()
	k.saves.sched.close()
	k.workers.Wait()
	k.saves.releasing.Wait()
	k.loads.ending.Wait()
	all := []error{k.loads.ending.Err(), k.loads.scratch.close(), k.pool.Close()}
	return errors.Join(append(all, k.ports.close()...)...)
}
