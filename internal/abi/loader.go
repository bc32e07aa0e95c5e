// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"time"

	"github.com/nebulaio/nebulaio"
)

type loaderOptions struct {
	Device        string                `json:"device"`
	Batch         int64                 `json:"batch"`
	Columns       []string              `json:"columns"`
	Shuffle       string                `json:"shuffle"`
	ShuffleBlock  int64                 `json:"shuffle_block"`
	ShuffleWindow int64                 `json:"shuffle_window"`
	Seed          uint64                `json:"seed"`
	Rank          int                   `json:"rank"`
	World         int                   `json:"world"`
	Worker        int                   `json:"worker"`
	Workers       int                   `json:"workers"`
	Tail          string                `json:"tail"`
	Epochs        int64                 `json:"epochs"`
	State         *nebulaio.LoaderState `json:"state"`
	AllowChanged  bool                  `json:"allow_changed"`
	Ahead         int64                 `json:"ahead"`
	OpenFiles     int                   `json:"open_files"`
	SkipBad       bool                  `json:"skip_bad"`
	Route         nebulaio.Route        `json:"route"`
	Cache         nebulaio.CachePolicy  `json:"cache"`
}

// feed is a loader handle.
type feed struct {
	*nebulaio.Loader
	turn chan struct{} // holds one token while a thread waits for a batch, because only one thread at a time may
}

// OpenLoader is nebulaio_loader_open.
func (t Feeds) OpenLoader(data uint64, options string) (uint64, error) {
	d, err := t.data(data)
	if err != nil {
		return 0, err
	}
	var o loaderOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	l, err := d.NewLoader(context.Background(), nebulaio.LoaderOptions{Device: o.Device, Batch: o.Batch,
		Columns: o.Columns, Shuffle: o.Shuffle, ShuffleBlock: o.ShuffleBlock, ShuffleWindow: o.ShuffleWindow,
		Seed: o.Seed, Rank: o.Rank, World: o.World, Worker: o.Worker, Workers: o.Workers, Tail: o.Tail,
		Epochs: o.Epochs, State: o.State, AllowChanged: o.AllowChanged, Ahead: o.Ahead, OpenFiles: o.OpenFiles,
		SkipBad: o.SkipBad, Route: o.Route, Cache: o.Cache})
	if err != nil {
		return 0, err
	}
	return t.put(&feed{Loader: l, turn: make(chan struct{}, 1)}), nil
}

type loaderDescription struct {
	Device  string                `json:"device"`
	Columns []nebulaio.DataColumn `json:"columns"`
	Batches int64                 `json:"batches"`
	State   nebulaio.LoaderState  `json:"state"`
}

// DescribeLoader is nebulaio_loader_describe.
func (t Feeds) DescribeLoader(loader uint64) ([]byte, error) {
	f, err := get[*feed](t.Table, loader, "loader")
	if err != nil {
		return nil, err
	}
	return json.Marshal(loaderDescription{Device: f.Device().ID, Columns: f.Columns(), Batches: f.Batches(),
		State: f.Start()})
}

// LoaderReport is nebulaio_loader_report.
func (t Feeds) LoaderReport(loader uint64) ([]byte, error) {
	f, err := get[*feed](t.Table, loader, "loader")
	if err != nil {
		return nil, err
	}
	return json.Marshal(f.Report())
}

// BatchColumn has the layout of nebulaio_batch_column.
type BatchColumn struct {
	Address nebulaio.Ptr
	Size    uint64
	Offsets *int64 // one more than samples
}

// Batch is a batch handle. Samples and Columns are pinned until the handle is released, so that C may read them.
type Batch struct {
	*nebulaio.DataBatch
	Columns []BatchColumn
	pinned  runtime.Pinner
}

// newBatch pins the numbers and offsets of a batch.
func newBatch(b *nebulaio.DataBatch) *Batch {
	out := &Batch{DataBatch: b, Columns: make([]BatchColumn, len(b.Columns))}
	n := len(b.Samples)
	slab := make([]int64, n+len(b.Columns)*(n+1)) // the numbers, and the offsets of each column
	copy(slab, b.Samples)
	out.Samples = slab[:n]
	at := n
	for i, c := range b.Columns {
		copy(slab[at+1:], c.Ends)
		out.Columns[i] = BatchColumn{Address: c.Ptr, Size: uint64(c.Size), Offsets: &slab[at]}
		at += n + 1
	}
	if len(slab) > 0 {
		out.pinned.Pin(&slab[0])
	}
	if len(out.Columns) > 0 {
		out.pinned.Pin(&out.Columns[0])
	}
	return out
}

// Close frees the memory at once.
func (b *Batch) Close() error {
	b.Free()
	b.pinned.Unpin()
	return nil
}

// Next is nebulaio_loader_next. Next returns true for running if the timeout passed before the batch was complete, and
// the handle 0 after the last batch.
func (t Feeds) Next(loader uint64, timeout time.Duration) (h uint64, b *Batch, running bool, err error) {
	f, err := get[*feed](t.Table, loader, "loader")
	if err != nil {
		return 0, nil, false, err
	}
	ctx := context.Background()
	if timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	select {
	case f.turn <- struct{}{}:
	default: // another thread waits
		select {
		case f.turn <- struct{}{}:
		case <-ctx.Done():
			return 0, nil, true, nil
		}
	}
	defer func() { <-f.turn }()
	got, err := f.Next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return 0, nil, false, nil
	case err != nil && ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return 0, nil, true, nil
	case err != nil:
		return 0, nil, false, err
	}
	b = newBatch(got)
	return t.put(b), b, false, nil
}

// BatchState is nebulaio_batch_state.
func (t Feeds) BatchState(batch uint64) ([]byte, error) {
	b, err := get[*Batch](t.Table, batch, "batch")
	if err != nil {
		return nil, err
	}
	return json.Marshal(b.State)
}

// FreeBatch is nebulaio_batch_free.
func (t Feeds) FreeBatch(batch, stream uint64) error {
	b, err := get[*Batch](t.Table, batch, "batch")
	if err != nil {
		return err
	}
	if err := t.remove(batch); err != nil { // of two threads, only one frees the batch
		return err
	}
	b.FreeAfter(stream)
	b.pinned.Unpin()
	return nil
}
