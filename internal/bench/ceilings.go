// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/dataset"
	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/units"
)

// CeilingOptions selects which limits of the machine (highest rates of copies and storage) MeasureCeilings measures.
type CeilingOptions struct {
	Version string
	Machine record.Machine
	Device  device.Device
	// Set holds the files for measuring storage reads, and Spare holds the empty files for measuring storage writes.
	// If Set is nil, storage reads are not measured; if Spare is nil, storage writes are not.
	Set, Spare *dataset.Set
	Rounds     int           // number of rounds of each measurement; 0 means 5
	Time       time.Duration // duration of each round that measures storage; 0 means 2 seconds
	// Step, if not nil, is called before each measurement with the measurement's name, its index i and the number n
	// of measurements.
	Step func(name string, i, n int)
}

// MeasureCeilings measures the limits of this machine: the highest rates of memory copies, device copies and storage.
// Each measured limit is the median of the rates of CeilingOptions.Rounds rounds. If ctx ends, MeasureCeilings
// returns the limits measured so far, and context.Cause(ctx) as the error.
func MeasureCeilings(ctx context.Context, o CeilingOptions) (*record.Ceilings, error) {
	def(&o.Rounds, 5)
	def(&o.Time, 2*time.Second)
	c := &record.Ceilings{Schema: record.Schema, Version: o.Version, Measured: time.Now().UTC(), Machine: o.Machine}
	steps := []ceiling{{"memory copy", memoryCopy}, {"loopback", loopback}}
	if o.Device.Info().Kind != device.Host {
		steps = append(steps, ceiling{"host and device", busCopies})
	} else {
		c.Notes = append(c.Notes, "there is no GPU: copies to and from one were not measured")
	}
	if o.Set != nil {
		steps = append(steps, ceiling{"page cache", pageCacheRead}, ceiling{"storage read", storageRead})
	}
	if o.Spare != nil {
		steps = append(steps, ceiling{"storage write", storageWrite})
	}
	for i, s := range steps {
		if ctx.Err() != nil {
			return c, context.Cause(ctx)
		}
		if o.Step != nil {
			o.Step(s.name, i, len(steps))
		}
		limits, notes, err := s.measure(ctx, o, c.Machine)
		c.Limits = append(c.Limits, limits...)
		c.Notes = append(c.Notes, notes...)
		if err != nil {
			return c, err
		}
	}
	return c, ctx.Err()
}

type ceiling struct {
	name    string
	measure func(context.Context, CeilingOptions, record.Machine) ([]record.Limit, []string, error)
}

func limitOf(id, name, on, how string, rounds []float64) record.Limit {
	sorted := slices.Sorted(slices.Values(rounds))
	l := record.Limit{ID: id, Name: name, On: on, Rounds: rounds, How: how}
	if n := len(sorted); n > 0 {
		l.GBps = (sorted[(n-1)/2] + sorted[n/2]) / 2
	}
	return l
}

// copySize is the number of bytes that one copy moves: far more than any processor cache holds.
const copySize = 256 * units.MiB

// memoryCopy copies between buffers with a thread per core.
func memoryCopy(ctx context.Context, o CeilingOptions, _ record.Machine) ([]record.Limit, []string, error) {
	threads := min(runtime.NumCPU(), 16)
	each := int64(copySize) / int64(threads) &^ 4095
	src, err := hostmem.Map(each * int64(threads))
	if err != nil {
		return nil, nil, err
	}
	defer src.Unmap()
	dst, err := hostmem.Map(each * int64(threads))
	if err != nil {
		return nil, nil, err
	}
	defer dst.Unmap()
	hostmem.Touch(src.Bytes(), threads)
	hostmem.Touch(dst.Bytes(), threads)
	const times = 8
	var rounds []float64
	for range o.Rounds {
		if ctx.Err() != nil {
			break
		}
		var wg sync.WaitGroup
		began := time.Now()
		for k := range int64(threads) {
			wg.Go(func() {
				for range times {
					copy(dst.Bytes()[k*each:(k+1)*each], src.Bytes()[k*each:(k+1)*each])
				}
			})
		}
		wg.Wait()
		rounds = append(rounds, units.GBps(times*each*int64(threads), time.Since(began)))
	}
	how := fmt.Sprintf("%d threads copying %s each, %d times; bytes copied, not bytes read and written", threads,
		units.Bytes(each), times)
	return []record.Limit{limitOf(record.MemoryCopy, "memory copy", "host", how, rounds)}, nil, nil
}

// busCopies copies between host and device memory, pinned and pageable, both
// ways, in turns, so that a disturbance hits all four alike.
func busCopies(ctx context.Context, o CeilingOptions, _ record.Machine) (_ []record.Limit, _ []string, err error) {
	d := o.Device
	dev, err := d.Alloc(copySize)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, dev.Free()) }()
	pinned, err := hostmem.Map(copySize)
	if err != nil {
		return nil, nil, err
	}
	defer pinned.Unmap()
	pageable, err := hostmem.Map(copySize)
	if err != nil {
		return nil, nil, err
	}
	defer pageable.Unmap()
	hostmem.Touch(pinned.Bytes(), runtime.NumCPU())
	hostmem.Touch(pageable.Bytes(), runtime.NumCPU())
	unpin, err := d.Register(pinned.Bytes())
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, unpin()) }()
	var queues []device.Queue
	defer func() {
		for _, q := range queues {
			err = errors.Join(err, q.Close())
		}
	}()
	for range pageableStreams {
		q, err := d.NewQueue()
		if err != nil {
			return nil, nil, err
		}
		queues = append(queues, q)
	}
	// spread lets n threads copy one part each, again and again, each on its own queue. The driver copies pageable
	// memory on the thread that asks.
	spread := func(n int, piece int64, mem []byte, out bool) func() error {
		return func() error {
			failed := make([]error, n)
			times := copySize / int64(n) / piece
			var wg sync.WaitGroup
			for k := range n {
				wg.Go(func() {
					part, at := mem[int64(k)*piece:int64(k+1)*piece], dev.Ptr()+device.Ptr(int64(k)*piece)
					for range times {
						if out {
							failed[k] = errors.Join(queues[k].CopyOut(part, at), queues[k].Drain())
						} else {
							failed[k] = errors.Join(queues[k].CopyIn(at, part), queues[k].Drain())
						}
						if failed[k] != nil {
							return
						}
					}
				})
			}
			wg.Wait()
			return errors.Join(failed...)
		}
	}
	one := queues[0]
	id := d.Info().ID
	const times = 16
	queued := func(copy func() error) func() error {
		return func() error {
			for range times {
				if err := copy(); err != nil {
					return err
				}
			}
			return one.Drain()
		}
	}
	pin, page := pinned.Bytes()[:copySize], pageable.Bytes()[:copySize]
	pinnedHow := fmt.Sprintf("%d copies of %s on one queue a round", times, units.Bytes(copySize))
	type kind struct {
		id, name, how string
		bytes         int64
		copy          func() error
		rounds        []float64
	}
	kinds := []kind{
		{record.H2DPinned, "pinned host memory to " + id, pinnedHow, times * copySize,
			queued(func() error { return one.CopyIn(dev.Ptr(), pin) }), nil},
		{record.D2HPinned, id + " to pinned host memory", pinnedHow, times * copySize,
			queued(func() error { return one.CopyOut(pin, dev.Ptr()) }), nil},
	}
	for _, out := range []bool{false, true} {
		limit, name := record.H2DPageable, "pageable host memory to "+id
		if out {
			limit, name = record.D2HPageable, id+" to pageable host memory"
		}
		// One large copy, and small ones that stay in the processor's cache, as
		// programs that reuse a buffer do.
		for _, shape := range []struct {
			threads int
			piece   int64
		}{{1, copySize}, {4, units.MiB}, {pageableStreams, units.MiB}} {
			how := fmt.Sprintf("%s a round, by %s, %s at a time", units.Bytes(copySize), counted(shape.threads, "thread"),
				units.Bytes(shape.piece))
			kinds = append(kinds, kind{limit, name, how, copySize, spread(shape.threads, shape.piece, page, out), nil})
		}
	}
	for round := range o.Rounds + 1 {
		for k := range kinds {
			if ctx.Err() != nil {
				break
			}
			began := time.Now()
			if err := kinds[k].copy(); err != nil {
				return nil, nil, err
			}
			if round > 0 { // the first one wakes the link up
				kinds[k].rounds = append(kinds[k].rounds, units.GBps(kinds[k].bytes, time.Since(began)))
			}
		}
	}
	var all []record.Limit
	for _, k := range kinds {
		l := limitOf(k.id, k.name, DeviceKey(d.Info()), k.how, k.rounds)
		if n := len(all); n > 0 && all[n-1].ID == l.ID { // another shape of the same: the better one is the limit
			if l.GBps > all[n-1].GBps {
				all[n-1] = l
			}
			continue
		}
		all = append(all, l)
	}
	return all, nil, nil
}

// pageableStreams is the number of threads that copy pageable memory at once, because one thread does not saturate
// the link.
const pageableStreams = 8

// pageCacheRead reads a cached file into memory with a thread per core.
func pageCacheRead(ctx context.Context, o CeilingOptions, mc record.Machine) ([]record.Limit, []string, error) {
	threads := min(runtime.NumCPU(), 16)
	spec := Spec{Route: Buffered, Cache: Warm, BlockSize: units.MiB, Workers: threads, Time: min(o.Time, time.Second)}
	var rounds []float64
	for range o.Rounds {
		r, err := Run(ctx, Job{Spec: spec, Set: o.Set, Machine: mc})
		if err != nil || r.Interrupted {
			return nil, nil, err
		}
		if r.Cache.Verdict != "memory" {
			return nil, []string{"reads from the page cache were not measured: the files do not stay there (" + r.Cache.Why +
				")"}, nil
		}
		rounds = append(rounds, r.GBps)
	}
	how := fmt.Sprintf("%d threads reading %s at a time from a cached file", threads, units.Bytes(spec.BlockSize))
	return []record.Limit{limitOf(record.PageCache, "page cache", "host", how, rounds)}, nil, nil
}

// storageRead measures the request shapes that fast readers use, in turns, and keeps the best rate. The limit is that
// of the storage, not of one shape.
func storageRead(ctx context.Context, o CeilingOptions, mc record.Machine) ([]record.Limit, []string, error) {
	return storage(ctx, o, mc, Read, record.StorageRead, "read")
}

func storageWrite(ctx context.Context, o CeilingOptions, mc record.Machine) ([]record.Limit, []string, error) {
	return storage(ctx, o, mc, Write, record.StorageWrite, "write")
}

func storage(ctx context.Context, o CeilingOptions, mc record.Machine, op Op, id, word string) ([]record.Limit,
	[]string, error) {
	shapes := []Spec{
		{BlockSize: 512 * units.KiB, Workers: 16},
		{BlockSize: units.MiB, Workers: 8},
		{BlockSize: units.MiB, Workers: 16},
		{BlockSize: 4 * units.MiB, Workers: 8},
	}
	set := o.Set
	if op == Write {
		set = o.Spare
	}
	if ok, _ := set.Files()[0].Direct(); !ok {
		return nil, []string{fmt.Sprintf("storage %s was not measured: %s cannot be read past the page cache", word,
			mc.Storage[0].FS)}, nil
	}
	var all []record.Limit
	var notes []string
	for i, g := range set.Groups {
		one := &dataset.Set{Groups: []dataset.Group{g}}
		rounds := make([][]float64, len(shapes))
		for range o.Rounds {
			for k, s := range shapes {
				s.Op, s.Route = op, Direct
				s.Time = o.Time
				if op == Write {
					s.Passes, s.Time = 1, 0
				}
				r, err := Run(ctx, Job{Spec: s, Set: one, Machine: mc})
				if err != nil || r.Interrupted {
					return all, notes, err
				}
				rounds[k] = append(rounds[k], r.GBps)
			}
		}
		best := record.Limit{}
		for k, s := range shapes {
			how := fmt.Sprintf("O_DIRECT, %d threads with %s each", s.Workers, units.Bytes(s.BlockSize))
			if op == Write {
				how += ", allocated before, fdatasync in the time"
			}
			key := mc.Storage[min(i, len(mc.Storage)-1)]
			l := limitOf(id, "storage "+word+" of "+StorageKey(key), StorageKey(key), how, rounds[k])
			if l.GBps > best.GBps {
				best = l
			}
		}
		all = append(all, best)
	}
	return all, notes, nil
}
