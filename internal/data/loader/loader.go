// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// Column is the part of a batch that one column of its samples makes.
type Column struct {
	// Memory has the samples one after the other. Memory can be larger than Size, and is nil if Size is 0.
	Memory device.Buffer
	Size   int64   // bytes of the samples
	Ends   []int64 // where each sample ends in Memory
}

// Batch is a batch in device memory. The caller frees it.
type Batch struct {
	Samples []int64 // the numbers of the samples; none if all of them were left out
	Columns []Column
	Epoch   int64
	Last    bool        // whether this is the reader's last batch of the epoch
	State   order.State // with which a later loader goes on after this batch

	pool  *pool
	load  *transfer.Load
	files []*held
	bytes int64
}

// Free gives the memory of the batch back. The caller must not use the batch or its memory afterwards.
func (b *Batch) Free() { b.free(0, false) }

// FreeAfter gives the memory of the batch back. The memory is used again only after the work that is now queued on a
// CUDA stream of the caller has ended.
func (b *Batch) FreeAfter(stream uint64) { b.free(stream, true) }

func (b *Batch) free(stream uint64, has bool) {
	for i := range b.Columns {
		b.pool.put(b.Columns[i].Memory, stream, has)
		b.Columns[i].Memory = nil
	}
}

// Loader reads the batches of one reader in their order. Only one goroutine at a time may call Next; any goroutine may
// call Close and Stats.
type Loader struct {
	o     Options
	ctx   context.Context //nolint:containedctx // of the loader's life, not of a call
	stop  context.CancelFunc
	ended chan struct{} // closed when the filler has ended
	files *files
	pool  *pool

	mu     sync.Mutex
	change sync.Cond // of ready, ahead, the tuner's depth or the filler's end
	ready  []*Batch  // started and not taken, in order
	ahead  int64     // bytes of ready
	using  int       // files of ready, counted once for each batch
	tuner  tuner     // of the most batches in ready, unless they are too large
	err    error     // why no batch follows those of ready; io.EOF after the last one; set if closed
	closed bool
	stats  Stats
	since  time.Time     // when Next last returned a batch
	vain   time.Duration // how long calls of Next since then waited and returned no batch
}

// New starts a loader, which begins to read at once. The caller closes it.
func New(o Options) (*Loader, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	cursor, err := order.NewCursor(o.Set.Len(), o.Mixing, o.Split, o.State)
	if err != nil {
		return nil, err
	}
	l := &Loader{o: o, ended: make(chan struct{}), tuner: newTuner(), pool: &pool{device: o.Device, limit: o.Ahead},
		files: &files{open: o.Open, most: o.OpenFiles, opening: map[int]bool{}, all: map[int]*held{}}}
	l.change.L = &l.mu
	l.ctx, l.stop = context.WithCancel(context.Background())
	go l.fill(cursor)
	return l, nil
}

// fill starts the batches, one after the other, until the last epoch or the loader ends.
func (l *Loader) fill(cursor *order.Cursor) {
	defer close(l.ended)
	err := l.fillAll(cursor)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed { // else the reason is known already
		l.err = err
	}
	l.change.Broadcast()
}

func (l *Loader) fillAll(cursor *order.Cursor) error {
	var queue []coming
	defer func() { // the files of later batches must not be opened after Close
		for _, c := range queue {
			c.await()
		}
	}()
	next, stop := iter.Pull2(l.batches(cursor))
	defer stop()
	for more := true; more || len(queue) > 0; {
		for more && len(queue) < batchesComing {
			var b *Batch
			var err error
			if b, err, more = next(); err != nil {
				return err
			}
			if more {
				queue = append(queue, l.announce(b))
			}
		}
		if len(queue) == 0 {
			break
		}
		c := queue[0]
		c.await()
		queue = queue[1:]
		if err := l.start(c); err != nil {
			return l.explain(c.b, err)
		}
	}
	return io.EOF
}

// batches yields the batches in their order, or an error as the last.
func (l *Loader) batches(cursor *order.Cursor) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		first := l.o.State.Epoch
		for epoch := first; l.o.Epochs == 0 || epoch-first < l.o.Epochs; epoch++ {
			if epoch > first {
				var err error
				begin := order.State{Seed: l.o.State.Seed, Epoch: epoch}
				if cursor, err = order.NewCursor(l.o.Set.Len(), l.o.Mixing, l.o.Split, begin); err != nil {
					yield(nil, err)
					return
				}
			}
			for samples, more := cursor.Next(nil); more; samples, more = cursor.Next(nil) {
				b := &Batch{Samples: samples, Epoch: epoch, Last: cursor.Ended(), State: cursor.State(), pool: l.pool}
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// Next returns the next batch as soon as it is in device memory. After the last batch it returns io.EOF. An error ends
// the loader: later calls return it again. If ctx ends first, Next returns its error, and a later call goes on.
func (l *Loader) Next(ctx context.Context) (*Batch, error) {
	asked := time.Now()
	b, err := l.take(ctx)
	if err != nil {
		l.gaveUp(asked)
		return nil, err
	}
	if b.load != nil {
		select {
		case <-b.load.Done():
			err = b.load.Err()
		case <-ctx.Done():
			select {
			case <-b.load.Done(): // the batch and the time ended together: the batch counts
				err = b.load.Err()
			default:
				l.gaveUp(asked)
				return nil, errs.Wrap("wait for batch", "", context.Cause(ctx))
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, l.err
	}
	l.ready = l.ready[1:]
	l.ahead -= b.bytes
	l.using -= len(b.files)
	defer l.files.release(b.files) // after count, because the report of a load asks its files
	b.files = nil
	if err != nil {
		b.Free()
		l.err, l.closed = l.explain(b, err), true
		l.stop()
		l.change.Broadcast()
		return nil, l.err
	}
	l.count(b, asked)
	l.change.Broadcast()
	return b, nil
}

// take waits for the first batch of ready, which stays there.
func (l *Loader) take(ctx context.Context) (*Batch, error) {
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.change.Broadcast()
	})()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case len(l.ready) > 0 && !l.closed:
			return l.ready[0], nil
		case l.err != nil:
			return nil, l.err
		case ctx.Err() != nil:
			return nil, errs.Wrap("wait for batch", "", context.Cause(ctx))
		}
		l.change.Wait()
	}
}

// explain says which samples the failed batch has.
func (l *Loader) explain(b *Batch, err error) error {
	if len(b.Samples) == 0 || l.ctx.Err() != nil {
		return err
	}
	return errs.Wrap("read batch", fmt.Sprintf("epoch %d, %d samples from %s on", b.Epoch, len(b.Samples),
		l.o.Set.Name(b.Samples[0])), err)
}

func errClosed() error { return errs.New(errs.Closed, "wait for batch", "", "the loader is closed") }

// Close ends all reads, frees the memory of batches that were not taken, and closes the files. If batches
// were left, later calls of Next return an error of kind Closed. Batches that the caller has must be freed before the
// device is closed; their memory is freed at once after Close.
func (l *Loader) Close() error {
	l.mu.Lock()
	if !l.closed && (l.err == nil || len(l.ready) > 0) { // else Next has said, or will say, why there is no batch
		l.err = errClosed()
	}
	l.closed = true
	l.stop()
	l.change.Broadcast()
	l.mu.Unlock()
	<-l.ended
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.ready {
		if b.load != nil {
			<-b.load.Done()
		}
		b.Free()
		l.files.release(b.files)
	}
	l.ready, l.ahead, l.using = nil, 0, 0
	return errors.Join(l.pool.close(), l.files.close())
}
