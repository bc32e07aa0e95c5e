// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/loader"
	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/report"
)

// LoaderOptions choose the batches of a Loader. Batch is required.
type LoaderOptions struct {
	// Device is the device of the batches: "auto" (the default), "host", "cuda" or "cuda:N".
	Device string
	// Batch is the number of samples in a batch.
	Batch int64
	// Columns are the names of the columns to read; empty means all columns of the data.
	Columns []string
	// Shuffle is "full", "blocks" or "stored"; empty means "full". With "full", all samples come in a random order. With
	// "blocks", blocks of neighbouring samples do, for storage that is slow at random reads. With "stored", samples come
	// in the order of the files.
	Shuffle string
	// For the shuffle "blocks", ShuffleBlock is the number of samples in a block, and ShuffleWindow the number of blocks
	// that are mixed with each other. The default of ShuffleBlock is 256, and that of ShuffleWindow is 64.
	ShuffleBlock, ShuffleWindow int64
	// Seed chooses the random order. Every epoch has another order.
	Seed uint64
	// Rank and World split each step among the processes of a training job; World 0 means 1. Worker and Workers split
	// the batches of one rank among its processes; Workers 0 means 1.
	Rank, World, Worker, Workers int
	// Tail chooses the end of an epoch, if the last samples do not fill a batch of every rank. The tail "drop" (the
	// default) leaves the last samples out. The tail "pad" repeats samples from the start of the epoch, and "short" makes
	// smaller batches.
	Tail string
	// Epochs is the number of epochs; 0 means no end.
	Epochs int64
	// State, if not nil, is where the loader begins: the State of a batch of an earlier loader. Seed must then be 0 or
	// that of the state. If the data, the shuffle or the seed is not that of the state, the error is of kind Invalid.
	State *LoaderState
	// AllowChanged begins at State even if the fingerprint of the data has changed. The number of samples must be the
	// same.
	AllowChanged bool
	// Ahead is the most bytes of batches that are read ahead; 0 means 1 GiB.
	Ahead int64
	// OpenFiles is the most files that stay open; 0 means seven sixteenths of the limit of open files of this process,
	// from 64 to 16384.
	OpenFiles int
	// SkipBad leaves out samples of files that are missing or have changed since OpenData. The report counts them.
	SkipBad bool
	// Route and Cache have the same meaning as in SourceLoadOptions.
	Route Route
	Cache CachePolicy
}

// LoaderState is the place of a training job in its data: three numbers, and what they refer to. All ranks have the
// same state after the same number of batches, and a job with another number of ranks can go on with it.
type LoaderState struct {
	Seed     uint64 `json:"seed"`
	Epoch    int64  `json:"epoch"`
	Position int64  `json:"position"` // samples of the epoch that all ranks together have read
	// Fingerprint and Samples identify the data, and Shuffle, ShuffleBlock and ShuffleWindow the order.
	Fingerprint   string `json:"fingerprint"`
	Samples       int64  `json:"samples"`
	Shuffle       string `json:"shuffle"`
	ShuffleBlock  int64  `json:"shuffle_block,omitempty"`
	ShuffleWindow int64  `json:"shuffle_window,omitempty"`
}

// Loader reads batches of samples into device memory, several batches ahead of their use. Only one goroutine at a time
// may call Next; all other methods are safe for concurrent use.
type Loader struct {
	data    *Data
	l       *loader.Loader
	dev     device.Device
	base    LoaderState // without the place
	batches int64       // of a whole epoch
	columns []DataColumn
	feed    feed
	life    lifetime
}

// NewLoader starts a loader, which begins to read at once. The caller closes the loader before the data. While a loader
// is open, System.Close fails with kind Invalid.
func (d *Data) NewLoader(ctx context.Context, o LoaderOptions) (made *Loader, err error) {
	if err := d.sys.sys.Enter("make loader", ""); err != nil {
		return nil, err
	}
	defer func() {
		if made == nil {
			d.sys.sys.Leave() // otherwise Close leaves
		}
	}()
	l := &Loader{data: d}
	in, err := l.options(o)
	if err != nil {
		return nil, err
	}
	if l.dev, err = d.sys.sys.Devices.Open(ctx, o.Device); err != nil {
		return nil, err
	}
	in.Device = l.dev
	in.Open = func(ctx context.Context, names []string) ([]dataset.Opened, []error) {
		return d.place.openFor(ctx, l.dev.Info().ID, names)
	}
	if l.batches, err = order.Batches(d.Len(), in.Mixing, in.Split); err != nil {
		return nil, err
	}
	l.feed = feed{device: l.dev.Info(), asked: report.Asked{Route: in.Route, Cache: in.Cache},
		refused: d.place.refusals(ctx)}
	if why := d.sys.noGPU(l.dev, o.Device); why != nil {
		l.feed.refused = append(l.feed.refused, *why)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return nil, errs.New(errs.Closed, "make loader", "", "the data is closed")
	}
	if l.l, err = loader.New(in); err != nil {
		return nil, err
	}
	d.uses++
	return l, nil
}

// options checks the caller's options and returns those of the internal loader.
func (l *Loader) options(o LoaderOptions) (loader.Options, error) {
	set := l.data.data.Set
	mixing, state, err := l.order(o)
	if err != nil {
		return loader.Options{}, err
	}
	route, err := report.ParseRoute(string(o.Route))
	if err != nil {
		return loader.Options{}, err
	}
	cache, err := report.ParseCachePolicy(string(o.Cache))
	if err != nil {
		return loader.Options{}, err
	}
	in := loader.Options{Set: set, Engine: l.data.sys.sys.Engine, Mixing: mixing, State: state,
		Split: order.Split{Batch: o.Batch, Rank: o.Rank, World: o.World, Worker: o.Worker, Workers: o.Workers,
			Tail: order.Tail(o.Tail)},
		Epochs: o.Epochs, Route: route, Cache: cache, Ahead: o.Ahead, OpenFiles: o.OpenFiles, SkipBad: o.SkipBad}
	names := o.Columns
	if len(names) == 0 {
		names = set.Columns()
	}
	described := l.data.columns()
	for _, name := range names {
		i, err := set.Column(name)
		if err != nil {
			return in, err
		}
		in.Columns = append(in.Columns, i)
		c := DataColumn{Name: name}
		for _, d := range described {
			if d.Name == name {
				c = d
			}
		}
		l.columns = append(l.columns, c)
	}
	return in, nil
}

// order returns the shuffle and the place to begin.
func (l *Loader) order(o LoaderOptions) (order.Mixing, order.State, error) {
	if o.Shuffle == "" {
		o.Shuffle = string(order.Full)
	}
	l.base = LoaderState{Seed: o.Seed, Fingerprint: l.data.print(), Samples: l.data.Len(), Shuffle: o.Shuffle,
		ShuffleBlock: o.ShuffleBlock, ShuffleWindow: o.ShuffleWindow}
	state := order.State{Seed: o.Seed}
	if s := o.State; s != nil {
		if o.Seed == 0 {
			l.base.Seed = s.Seed
		}
		if err := l.base.resumes(s, o.AllowChanged); err != nil {
			return order.Mixing{}, state, err
		}
		state = order.State{Seed: s.Seed, Epoch: s.Epoch, Position: s.Position}
	}
	return order.Mixing{Shuffle: order.Shuffle(o.Shuffle), Block: o.ShuffleBlock, Window: o.ShuffleWindow}, state, nil
}

// resumes returns an error if a loader of this data and order cannot go on at a state.
func (b LoaderState) resumes(s *LoaderState, changed bool) error {
	refuse := func(what string, was, is any, fix string) error {
		return errs.New(errs.Invalid, "resume loader", fmt.Sprintf("epoch %d, position %d", s.Epoch, s.Position),
			fmt.Sprintf("the state is of %s %v, and the loader has %v", what, was, is)).WithFix(fix)
	}
	switch {
	case s.Samples != 0 && s.Samples != b.Samples:
		return refuse("data with a number of samples of", s.Samples, b.Samples,
			"open the data of the state, or begin without a state")
	case s.Fingerprint != "" && s.Fingerprint != b.Fingerprint && !changed:
		return refuse("data with the fingerprint", s.Fingerprint, b.Fingerprint,
			"open the data of the state, or allow changed data")
	case s.Seed != b.Seed:
		return refuse("the seed", s.Seed, b.Seed, "use the seed of the state, or begin without a state")
	case s.Shuffle != "" && (s.Shuffle != b.Shuffle || s.ShuffleBlock != b.ShuffleBlock ||
		s.ShuffleWindow != b.ShuffleWindow):
		return refuse("the shuffle", fmt.Sprint(s.Shuffle, " ", s.ShuffleBlock, " ", s.ShuffleWindow),
			fmt.Sprint(b.Shuffle, " ", b.ShuffleBlock, " ", b.ShuffleWindow),
			"use the shuffle of the state, or begin without a state")
	}
	return nil
}

// Columns describes the columns of the batches, in their order.
func (l *Loader) Columns() []DataColumn { return l.columns }

// Batches returns the number of batches in a whole epoch of this loader.
func (l *Loader) Batches() int64 { return l.batches }

// Start returns the state with which a loader of this data and this order begins the first epoch.
func (l *Loader) Start() LoaderState { return l.base }

// Device describes the device of the batches.
func (l *Loader) Device() DeviceInfo { return infoOf(l.dev.Info()) }

// BatchColumn is one column of a batch: the samples one after the other.
type BatchColumn struct {
	Ptr  Ptr     // address of the first byte on the device; 0 if Size is 0
	Size int64   // in bytes
	Ends []int64 // where each sample ends, in bytes from Ptr
}

// DataBatch is a batch in device memory. The caller frees it. A batch has no samples if all of them were left out.
type DataBatch struct {
	Samples []int64 // numbers of the samples
	Columns []BatchColumn
	Epoch   int64
	Last    bool        // whether this is the last batch of the epoch
	State   LoaderState // with which a later loader goes on after this batch

	b *loader.Batch
	l *Loader
}

// Next returns the next batch as soon as it is in device memory, or io.EOF after the last batch. An error ends the
// loader, and later calls return the error again. If ctx ends first, a later call of Next goes on.
func (l *Loader) Next(ctx context.Context) (*DataBatch, error) {
	if err := l.life.enter("wait for batch", "", "the loader is closed"); err != nil {
		return nil, err
	}
	defer l.life.leave()
	b, err := l.l.Next(ctx)
	if err != nil {
		return nil, err
	}
	out := &DataBatch{Samples: b.Samples, Epoch: b.Epoch, Last: b.Last, State: l.base, b: b, l: l}
	out.State.Seed, out.State.Epoch, out.State.Position = b.State.Seed, b.State.Epoch, b.State.Position
	for _, c := range b.Columns {
		column := BatchColumn{Size: c.Size, Ends: c.Ends}
		if c.Memory != nil {
			column.Ptr = Ptr(c.Memory.Ptr())
		}
		out.Columns = append(out.Columns, column)
	}
	l.feed.count(b.Epoch, b.Last, l.l.Stats())
	return out, nil
}

// Free gives the memory of the batch back to the loader. The caller must not use the memory afterwards. A second call
// of Free does nothing. Batches may be freed after the loader was closed. After System.Close, the memory of a GPU has
// gone with its device, and Free does nothing.
func (b *DataBatch) Free() { b.free(b.b.Free) }

// FreeAfter gives the memory of the batch back. The loader uses the memory again only after the work that is now queued
// on the given CUDA stream has ended. On the device "host", FreeAfter is Free.
func (b *DataBatch) FreeAfter(stream uint64) {
	if b.l.dev.Info().Kind == device.Host {
		b.Free()
		return
	}
	b.free(func() { b.b.FreeAfter(stream) })
}

// free calls give, unless the device has been closed.
func (b *DataBatch) free(give func()) {
	if b.l.dev.Info().Kind != device.Host {
		sys := b.l.data.sys.sys
		if sys.Enter("free batch", "") != nil {
			return
		}
		defer sys.Leave()
	}
	give()
}

// Read copies the bytes of one sample and column of the batch to host memory, mainly for tests and tools. Sample counts
// from 0 within the batch.
func (b *DataBatch) Read(column, sample int) ([]byte, error) {
	if column < 0 || column >= len(b.Columns) || sample < 0 || sample >= len(b.Columns[column].Ends) {
		return nil, errs.New(errs.Invalid, "read batch", fmt.Sprintf("sample %d, column %d", sample, column),
			fmt.Sprintf("the batch has %d samples and %d columns", len(b.Samples), len(b.Columns)))
	}
	c := b.Columns[column]
	from, to := int64(0), c.Ends[sample]
	if sample > 0 {
		from = c.Ends[sample-1]
	}
	out := make([]byte, to-from)
	m := &Memory{sys: b.l.data.sys.sys, dev: b.l.dev, ptr: c.Ptr, size: c.Size}
	return out, m.Read(out, from)
}

// Report describes the batches so far: bytes by route, the time that the caller waited, and what limited the rate.
func (l *Loader) Report() FeedReport { return l.feed.report(l.l.Stats()) }

// Close ends all reads and frees the batches that were not taken. A second call of Close does nothing.
func (l *Loader) Close() error {
	if !l.life.alive() {
		return nil
	}
	err := l.l.Close() // ends a waiting Next
	return errors.Join(err, l.life.end(func() error {
		l.data.mu.Lock()
		defer l.data.mu.Unlock()
		l.data.uses--
		l.data.sys.sys.Leave()
		return nil
	}))
}
