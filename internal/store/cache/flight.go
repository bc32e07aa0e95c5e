// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"hash"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/object"
)

const (
	blockSize = object.SumBlock
	// queued is the largest number of blocks of one flight in memory. The blocks wait to be written to the disk.
	queued = 8
	// finishing is the largest number of remaining blocks that a flight still fetches after its last reader has left.
	finishing = 8
)

// errUnkept means that the disk did not take a block, so that the readers must go on without the cache.
var errUnkept = errors.New("the cache did not keep the block")

// flight is one fetch of neighbouring blocks, which any number of readers follow. A flight belongs to no reader: it goes
// on while it has readers.
type flight struct {
	v    *version
	from string // object.ServedPeer or object.ServedUpstream
	sum  hash.Hash
	ends context.CancelFunc

	mu      sync.Mutex
	moved   sync.Cond // signals every change
	first   int64     // number of the first block
	end     int64     // number of the block after the last one; becomes smaller if all readers leave
	stored  int64     // blocks from first up to stored are in the entry
	recent  []*block  // blocks from stored on, in order; the last one may be incomplete
	read    bool      // all blocks have been read from the source, or reading has failed
	users   int
	refused bool  // the entry did not take a block
	done    bool  // nothing changes any more
	err     error // why the flight ended before its end
}

// block is one block in memory. All fields are protected by flight.mu. Bytes up to have do not change any more.
type block struct {
	data  []byte
	have  int
	users int  // readers that copy from the block now
	gone  bool // the flight does not need the block any more
}

var blocks = sync.Pool{New: func() any {
	b := make([]byte, blockSize)
	return &b
}}

func newBlock(n int64) *block { return &block{data: (*blocks.Get().(*[]byte))[:n]} }

// free gives the memory back when nobody uses the block.
func (b *block) free() {
	if b.gone && b.users == 0 && b.data != nil {
		whole := b.data[:blockSize]
		blocks.Put(&whole)
		b.data = nil
	}
}

// covers reports whether the flight brings the block.
func (f *flight) covers(n int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.done && n >= f.first && n < f.end
}

// join counts one more reader, and reports whether the flight still brings the block. A flight that has failed, but still
// writes blocks to the disk, counts: its readers look at the disk when it is done.
func (f *flight) join(n int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done || n < f.first || n >= f.end {
		return false
	}
	f.users++
	return true
}

// leave counts one reader less. A flight without readers ends soon.
func (f *flight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users--
	if f.users > 0 || f.done {
		return
	}
	if now := f.stored + int64(len(f.recent)); f.end-now > finishing {
		f.end = max(now, f.first+1)
		f.moved.Broadcast()
	}
}

// run reads the source to its end, in the goroutine of the flight.
func (f *flight) run(ctx context.Context, src io.ReadCloser) {
	defer f.v.b.s.running.Done()
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		f.store(ctx)
	}()
	err := f.fetch(ctx, src)
	_ = src.Close() // only read from
	f.mu.Lock()
	if f.err == nil {
		f.err = err
	}
	f.read = true
	f.moved.Broadcast()
	f.mu.Unlock()
	<-stored
	f.ends()
	f.v.landed(f)
}

// fetch reads the source block by block.
func (f *flight) fetch(ctx context.Context, src io.Reader) error {
	for n := f.first; ; n++ {
		b := f.begin(n)
		if b == nil {
			return nil
		}
		data := b.data // the writer to the disk gives a complete block back
		for b.have < len(data) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			k, err := src.Read(data[b.have:])
			f.mu.Lock()
			b.have += k
			f.moved.Broadcast()
			stop := f.err
			f.mu.Unlock()
			if stop != nil {
				return stop
			}
			if k > 0 {
				f.v.b.received(f.from, k)
			}
			if err != nil && b.have < len(data) {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return err
			}
		}
	}
}

// begin adds block n to the blocks in memory, and waits while there are too many of them. begin returns nil if the
// flight ends before block n.
func (f *flight) begin(n int64) *block {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.recent) >= queued && f.err == nil && n < f.end {
		f.moved.Wait()
	}
	if f.err != nil || n >= f.end {
		return nil
	}
	b := newBlock(f.v.length(n))
	f.recent = append(f.recent, b)
	return b
}

// store writes complete blocks to the entry, in order.
func (f *flight) store(ctx context.Context) {
	for {
		f.mu.Lock()
		for !f.read && (f.refused || len(f.recent) == 0 || f.recent[0].have < len(f.recent[0].data)) {
			f.moved.Wait()
		}
		if len(f.recent) == 0 || f.recent[0].have < len(f.recent[0].data) || f.refused {
			for _, b := range f.recent {
				b.gone = true
				b.free()
			}
			f.recent = nil
			f.mu.Unlock()
			return
		}
		b, n := f.recent[0], f.stored
		f.mu.Unlock()
		if f.sum != nil {
			f.sum.Write(b.data)
		}
		err := f.v.entry.Put(context.WithoutCancel(ctx), n, b.data)
		if err != nil {
			err = f.v.unkept(n, err) // locks the version, which is locked before a flight
		}
		f.mu.Lock()
		if err != nil {
			f.err, f.refused = err, true
			f.ends() // the source may be silent
		} else {
			f.stored++
			f.recent = f.recent[1:]
			b.gone = true
			b.free()
		}
		f.moved.Broadcast()
		f.mu.Unlock()
	}
}

// finish ends the flight for its readers.
func (f *flight) finish(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.done = true
	f.moved.Broadcast()
}

// wait copies bytes at the position pos to p as soon as there are any. If the block at pos is in the entry, wait returns
// the end of the blocks in the entry instead. If whole is true, wait returns no bytes from memory: it waits until the
// flight is done.
func (f *flight) wait(ctx context.Context, pos int64, p []byte, whole bool) (n int, upTo int64, err error) {
	stop := context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.moved.Broadcast()
	})
	defer stop()
	k, in := pos/blockSize, int(pos%blockSize)
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch at := k - f.stored; {
		case whole && !f.done:
		case at < 0 && (!whole || f.done):
			return 0, min(f.stored*blockSize, f.v.id.Size), nil
		case !whole && at >= 0 && at < int64(len(f.recent)) && f.recent[at].have > in && !f.done:
			b := f.recent[at]
			b.users++
			have := b.have
			f.mu.Unlock()
			n = copy(p, b.data[in:have])
			f.mu.Lock()
			b.users--
			b.free()
			return n, 0, nil
		case f.done && f.err != nil: // until then, blocks in memory may still go to the disk
			return 0, 0, f.err
		case f.done || k >= f.end:
			return 0, 0, errPassed
		}
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		f.moved.Wait()
	}
}

// errPassed means that the flight does not bring the block any more.
var errPassed = errors.New("the flight has ended before the block")
