// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
)

// blocks collects the bytes of an image in blocks of host memory and sends several blocks at the same time. Memory is
// bounded: while all blocks are on their way, Write waits, and criu with it.
type blocks struct {
	ctx  context.Context
	size int
	// send stores the bytes of one block. It is called by several goroutines. Blocks are numbered from 0; all but the
	// last have the same size.
	send func(ctx context.Context, number int, data []byte, off int64) error

	memory []*hostmem.Region
	free   chan []byte
	fill   []byte // the block that is being filled; nil if there is none
	number int
	off    int64
	busy   sync.WaitGroup

	mu  sync.Mutex
	err error // first error of send
}

// newBlocks reserves memory for count blocks. The caller calls release after the last use.
func newBlocks(ctx context.Context, size, count int,
	send func(ctx context.Context, number int, data []byte, off int64) error) (*blocks, error) {
	b := &blocks{ctx: ctx, size: size, send: send, free: make(chan []byte, count)}
	for range count {
		r, err := hostmem.Map(int64(size))
		if err != nil {
			return nil, errors.Join(err, b.release())
		}
		b.memory = append(b.memory, r)
		b.free <- r.Bytes()[:0]
	}
	return b, nil
}

// release waits for blocks on their way and frees the memory.
func (b *blocks) release() error {
	b.busy.Wait()
	var all error
	for _, r := range b.memory {
		all = errors.Join(all, r.Unmap())
	}
	b.memory = nil
	return all
}

func (b *blocks) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && b.ctx.Err() != nil {
		b.err = &errs.Error{Kind: errs.Cancelled, Op: "write process image", Err: context.Cause(b.ctx)}
	}
	return b.err
}

// Write appends bytes to the image.
func (b *blocks) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if b.fill == nil {
			b.fill = <-b.free
		}
		take := min(len(p), b.size-len(b.fill))
		b.fill = append(b.fill, p[:take]...)
		if p = p[take:]; len(b.fill) == b.size {
			b.flush()
		}
		if err := b.failed(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// flush sends the block that is being filled.
func (b *blocks) flush() {
	data, number, off := b.fill, b.number, b.off
	b.fill = nil
	b.number++
	b.off += int64(len(data))
	b.busy.Go(func() {
		err := b.failed()
		if err == nil {
			err = b.send(b.ctx, number, data, off)
		}
		b.mu.Lock()
		if b.err == nil {
			b.err = err
		}
		b.mu.Unlock()
		b.free <- data[:0]
	})
}

// finish sends the rest and waits for all blocks.
func (b *blocks) finish() error {
	if err := b.failed(); err != nil {
		return err
	}
	if len(b.fill) > 0 {
		b.flush()
	}
	b.busy.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
