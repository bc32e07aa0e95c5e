// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer/staging"
	"github.com/nebulaio/nebulaio/internal/transfer/tally"
)

// gatherer is the vfs.Blocks of one part of an upload. While a block is being sent, the copies of the next block run.
type gatherer struct {
	*gathering
	ctx     context.Context
	at, end int64 // range that is not yet queued
	pair    [2]*staging.Slot
	turn    int
	ahead   *inbound
	closed  bool
}

// inbound is a block whose bytes are in memory or are being copied there.
type inbound struct {
	off    int64
	data   []byte
	slot   *staging.Slot // nil if data is the source itself
	ports  []*port       // ports with a mark to wait for
	queued tally.Start
}

// gathering holds the state that all gatherers of an upload share.
type gathering struct {
	e      *lane
	what   *sources
	tally  tally.Tally
	staged atomic.Bool    // slots were used
	open   sync.WaitGroup // gatherers

	sums   *checksum.Sums // nil if no checksums are computed
	sumsMu sync.Mutex     // guards sums.Blocks
}

// newSums returns room for the checksums of an object's blocks.
func newSums(size int64) *checksum.Sums {
	const block = checksum.DefaultBlock
	return &checksum.Sums{Size: size, Block: block, Blocks: make([]uint64, (size+block-1)/block)}
}

// sum computes the checksums of the blocks in data, which begin at offset off. A part that is sent again sets the same
// checksums again. netBlock is a multiple of a block, so data has whole blocks.
func (x *gathering) sum(off int64, data []byte) {
	if x.sums == nil {
		return
	}
	for len(data) > 0 {
		n := min(int64(len(data)), x.sums.Block)
		sum := checksum.Of(data[:n])
		x.sumsMu.Lock()
		x.sums.Blocks[off/x.sums.Block] = sum
		x.sumsMu.Unlock()
		off, data = off+n, data[n:]
	}
}

// gather returns a gatherer of n bytes at off. The caller closes it.
func (x *gathering) gather(ctx context.Context, off, n int64) *gatherer {
	x.open.Add(1)
	return &gatherer{gathering: x, ctx: ctx, at: off, end: off + n}
}

// Next returns the next block; see vfs.Blocks.
func (g *gatherer) Next() ([]byte, error) {
	if g.closed {
		return nil, errs.New(errs.Closed, "upload", g.what.name, "the part was given up")
	}
	if g.ahead == nil {
		if err := g.queue(); err != nil {
			return nil, err
		}
	}
	b := g.ahead
	if b == nil {
		return nil, io.EOF
	}
	// The slot of the previous block is free now, because the caller asks for the next block.
	g.ahead = nil
	err := g.queue()
	if werr := g.wait(b); err == nil {
		err = werr
	}
	if err != nil {
		return nil, err
	}
	g.sum(b.off, b.data)
	return b.data, nil
}

// queue begins the next block, if there is one.
func (g *gatherer) queue() error {
	if g.at == g.end {
		return nil
	}
	off := g.at
	n := min(g.end, (off/netBlock+1)*netBlock) - off
	b := &inbound{off: off}
	if b.data = g.what.inPlace(off, n); b.data == nil {
		if err := g.copy(b, n); err != nil {
			return errs.Wrap(fmt.Sprintf("copy %d bytes for offset %d of", n, off),
				g.what.name+" from "+g.what.devices(), err)
		}
	}
	g.at += n
	g.ahead = b
	return nil
}

// copy queues the copies of a block from its sources into the next slot.
func (g *gatherer) copy(b *inbound, n int64) error {
	if g.pair[0] == nil {
		select {
		case g.pair = <-g.e.network.pairs:
		case <-g.ctx.Done():
			return context.Cause(g.ctx)
		}
		g.staged.Store(true)
	}
	b.slot = g.pair[g.turn]
	g.turn = 1 - g.turn
	b.data = b.slot.Mem[:n]
	b.queued = g.tally.Begin(tally.StageCopy)
	var err error
	b.ports, err = g.what.collect(b.off, b.slot, b.data)
	if err == nil {
		return nil
	}
	b.queued.Drop()
	// Some queued copies may have no mark behind them. So the sources and the slot are free only when the queues are
	// empty.
	for _, p := range b.ports {
		err = errors.Join(err, p.queue.Drain())
	}
	return err
}

// wait blocks until the bytes of a block are in memory.
func (g *gatherer) wait(b *inbound) error {
	if b.slot == nil {
		return nil
	}
	waited := g.tally.Begin(tally.StageWaitCopy)
	err := await(b.slot, b.ports)
	g.tally.Copied(int64(len(b.data)), b.queued, waited)
	return errs.Wrap(fmt.Sprintf("copy %d bytes for offset %d of", len(b.data), b.off),
		g.what.name+" from "+g.what.devices(), err)
}

// Close waits for running copies and releases the staging slots.
func (g *gatherer) Close() error {
	if g.closed {
		return nil
	}
	g.closed = true
	var err error
	if g.ahead != nil {
		err = g.wait(g.ahead)
		g.ahead = nil
	}
	if g.pair[0] != nil {
		if g.e.opts.Poison {
			for _, s := range g.pair {
				s.Poison()
			}
		}
		g.e.network.pairs <- g.pair
		g.pair = [2]*staging.Slot{}
	}
	g.open.Done()
	return err
}
