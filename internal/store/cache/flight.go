// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"hash"
	"io"
	"sync"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/object"
)

// finishing is the largest number of remaining blocks that a flight still fetches after its last reader has left.
const finishing = 8

var (
	// errUnkept means that the disk did not take a block, so that the readers must go on without the cache.
	errUnkept = errors.New("the cache did not keep the block")
	// errPassed means that the flight does not bring the block any more.
	errPassed = errors.New("the flight has ended before the block")
)

// flight is one fetch of neighbouring blocks, which any number of readers follow. A flight belongs to no reader: it
// goes on while it has readers.
//
// One goroutine fetches blocks, one writes them to the disk, and one computes the checksums of whole content. If the
// disk is slower than the upstream and a reader waits, the flight leaves out blocks: their bytes go to the reader
// alone.
type flight struct {
	v    *version
	from string    // object.ServedPeer or object.ServedUpstream
	sum  hash.Hash // of the whole content; nil if the CRC-64 is enough. Used by one goroutine at a time.
	ends context.CancelFunc
	// launch starts the goroutine of the flight, if it has not started yet. See version.start.
	launch func()
	// keeps means that no block is left out, because other nodes of the cluster would have to fetch it again.
	keeps bool
	alone atomic.Bool // the neighbour has failed, and the flight reads from the upstream itself

	mu      sync.Mutex
	moved   sync.Cond // signals every change to readers
	works   sync.Cond // signals whole blocks, and the end, to the goroutines that store and count
	room    sync.Cond // signals to the goroutine that fetches that it may go on
	first   int64     // number of the first block
	end     int64     // number of the block after the last one; becomes smaller if all readers leave
	queue   queue
	read    bool // all blocks have been read from the source, or reading has failed
	readers map[*follower]struct{}
	hungry  int    // readers that wait for the next block
	crc     uint64 // of the blocks up to summed, if the flight spans the content
	summed  int64  // number of the next block to sum
	proof   string // how the content that the flight brought was compared; empty if it was not
	refused bool   // the entry did not take a block
	done    bool   // nothing changes any more
	err     error  // why the flight ended before its end
}

// changed signals a change to everybody. The caller holds mu.
func (f *flight) changed() {
	f.moved.Broadcast()
	f.works.Broadcast()
	f.room.Broadcast()
}

// spans reports whether the flight brings the whole content. The caller holds mu, or nobody else knows the flight.
func (f *flight) spans() bool { return f.first == 0 && f.end == blockCount(f.v.id.Size) }

// asksPeer reports whether the flight waits for a neighbour. Another node must not wait for such a flight: the two
// nodes could wait for each other.
func (f *flight) asksPeer() bool { return f.from == object.ServedPeer && !f.alone.Load() }

// goAlone records that the flight reads from the upstream itself. From now on, other nodes may need its blocks.
func (f *flight) goAlone() {
	f.alone.Store(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keeps = true
}

// covers reports whether the flight brings the block.
func (f *flight) covers(n int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.brings(n)
}

// has reports whether the memory of the flight has the whole block.
func (f *flight) has(n int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.done && f.err == nil && f.queue.whole(n) != nil
}

// brings reports whether a reader can get the block from the flight. The caller holds mu.
func (f *flight) brings(n int64) bool {
	return !f.done && n >= f.first && n < f.end && !f.queue.isLeft(n)
}

// bringsFrom returns the number of the first block from n on that the flight brings, or none if there is no such block.
func (f *flight) bringsFrom(n, none int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = f.queue.left.after(max(n, f.first))
	if f.done || n >= f.end {
		return none
	}
	return n
}

// join adds a reader from block n on, or returns nil if the flight does not bring that block. A flight that has failed,
// but still writes blocks to the disk, counts: its readers look at the disk when it is done.
func (f *flight) join(n int64) *follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.brings(n) {
		return nil
	}
	return f.add(n)
}

// add adds a reader. The caller holds mu, or nobody else knows the flight.
func (f *flight) add(n int64) *follower {
	r := &follower{f: f, at: n}
	f.readers[r] = struct{}{}
	return r
}

// run reads the source to its end, in the goroutine of the flight.
func (f *flight) run(ctx context.Context, src io.ReadCloser) {
	defer f.v.b.s.running.Done()
	var sums, stores sync.WaitGroup
	// The goroutines that work on whole blocks begin after the first one, so that they do not delay its readers.
	err := f.fetch(ctx, src, func() {
		stores.Go(func() { f.store(ctx) })
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.spans() {
			sums.Go(f.count)
		} else {
			f.queue.forgo()
		}
	})
	_ = src.Close() // only read from
	f.mu.Lock()
	if f.err == nil {
		f.err = err
	}
	f.read = true
	f.moved.Broadcast()
	f.works.Broadcast()
	f.mu.Unlock()
	sums.Wait()
	f.judge()
	stores.Wait()
	f.ends()
	f.mu.Lock()
	f.queue.drop()
	f.mu.Unlock()
	f.v.landed(f)
}

// fetch reads the source block by block. It calls the function begun once, after the first whole block.
func (f *flight) fetch(ctx context.Context, src io.Reader, begun func()) error {
	for n := f.first; ; n++ {
		b := f.begin(n)
		if b == nil {
			return nil
		}
		for data, have := b.data, b.have; have < len(data); { // the memory may be given back with the last byte
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			k, err := src.Read(data[have:])
			have += k
			f.mu.Lock()
			b.have = have
			f.moved.Broadcast()
			whole := have == len(data)
			if whole {
				f.works.Broadcast()
			}
			stop := f.err
			f.mu.Unlock()
			if begun != nil && whole {
				begun()
				begun = nil
			}
			if stop != nil {
				return stop
			}
			if k > 0 {
				from := object.ServedUpstream
				if f.asksPeer() {
					from = object.ServedPeer
				}
				f.v.b.received(from, k)
			}
			if err != nil && have < len(data) {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return err
			}
		}
	}
}

// begin adds block n to the blocks in memory. If there are too many of them, begin waits for the disk. If a reader
// waits for block n, begin leaves out blocks instead. begin returns nil if the flight ends before block n.
func (f *flight) begin(n int64) *block {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.queue.at(n); b != nil && f.err == nil {
		return b // the first bytes of the block came with the answer of the upstream
	}
	for f.err == nil && n < f.end {
		if b := f.queue.grow(f.v.length(n)); b != nil {
			return b
		}
		if f.hungry == 0 || f.keeps || !f.leaveOut() {
			f.room.Wait()
		}
	}
	return nil
}

// leaveOut frees the memory of blocks that no reader needs any more and the disk has not taken yet. It reports whether
// there was one. The caller holds mu.
func (f *flight) leaveOut() bool {
	before := f.end
	for r := range f.readers {
		before = min(before, r.at)
	}
	n := f.queue.leave(before)
	f.v.b.s.counts.left.Add(n)
	return n > 0
}

// count computes the checksums of whole content, block by block.
func (f *flight) count() {
	join := f.v.b.s.join
	for {
		f.mu.Lock()
		b := f.queue.whole(f.summed)
		for b == nil && !f.read {
			f.works.Wait()
			b = f.queue.whole(f.summed)
		}
		if b == nil || !f.spans() {
			f.queue.forgo()
			f.changed()
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		sum := checksum.Of(b.data)
		if f.sum != nil {
			f.sum.Write(b.data)
		}
		f.mu.Lock()
		f.crc = join.After(f.crc, int64(len(b.data))) ^ sum
		f.summed++
		f.queue.counted(b)
		f.changed()
		f.mu.Unlock()
	}
}

// judge compares the whole content, so that its last block can be given to readers before the disk has all blocks.
func (f *flight) judge() {
	f.mu.Lock()
	whole := f.err == nil && f.spans() && f.summed == f.end
	f.mu.Unlock()
	if !whole {
		return
	}
	how, err := f.v.prove(f.crc, f.sum)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proof = how
	if f.err == nil {
		f.err = err
	}
	f.moved.Broadcast()
}

// store writes complete blocks to the entry, in order.
func (f *flight) store(ctx context.Context) {
	for {
		f.mu.Lock()
		n, b := f.queue.next()
		for b == nil && !f.read && !f.refused {
			f.works.Wait()
			n, b = f.queue.next()
		}
		if b == nil || f.refused {
			f.mu.Unlock()
			return
		}
		b.storing = true
		f.mu.Unlock()
		err := f.v.entry.Put(context.WithoutCancel(ctx), n, b.data)
		if err != nil {
			err = f.v.unkept(n, err) // locks the version, which is locked before a flight
		}
		f.mu.Lock()
		b.storing = false
		if err != nil {
			f.err, f.refused = err, true
			f.ends() // the source may be silent
		} else {
			f.queue.kept(n)
		}
		f.changed()
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
