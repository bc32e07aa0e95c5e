// SPDX-License-Identifier: Apache-2.0

package cache

import "context"

// follower is one reader of a flight. All fields are protected by flight.mu.
type follower struct {
	f    *flight
	at   int64 // number of the block that the reader needs next
	gone bool
}

// leave ends the reading. A flight without readers ends soon.
func (r *follower) leave() {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.gone {
		return
	}
	r.gone = true
	delete(f.readers, r)
	f.launch() // a flight ends only in its goroutine
	if len(f.readers) > 0 || f.done {
		f.room.Broadcast() // the others may allow to leave out blocks
		return
	}
	if now := f.queue.ends(); f.end-now > finishing {
		f.end = max(now, f.first+1)
		f.changed()
	}
}

// wish says what a reader of a flight wants.
type wish struct {
	pos int64
	// held means that the bytes may be given only after the whole content was compared.
	held bool
	// patient means that the flight should rather wait for the disk than leave out blocks.
	patient bool
}

// wait returns bytes at the position as soon as there are any, in a block that the caller gives back. If the block at
// the position is in the entry, wait returns the end of the neighbouring blocks in the entry instead.
func (r *follower) wait(ctx context.Context, w wish) (b *block, p []byte, upTo int64, err error) {
	f := r.f
	k, in := w.pos/blockSize, int(w.pos%blockSize)
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.at != k {
		r.at = k
		f.room.Broadcast() // this reader may have been the last one that needed the blocks before k
	}
	var stop func() bool
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for {
		q := &f.queue
		switch b := q.at(k); {
		case q.isLeft(k) || k >= f.end:
			return nil, nil, 0, errPassed
		case w.held && !f.done && (f.proof == "" || f.err != nil):
		case k < q.first:
			return nil, nil, min(q.storedUpTo(k)*blockSize, f.v.id.Size), nil
		case b != nil && b.data != nil && b.have > in && !f.done:
			b.users++
			return b, b.data[in:b.have], 0, nil
		case f.done && f.err != nil: // until then, blocks in memory may still go to the disk
			return nil, nil, 0, f.err
		case f.done:
			return nil, nil, 0, errPassed
		}
		if ctx.Err() != nil {
			return nil, nil, 0, context.Cause(ctx)
		}
		if stop == nil {
			stop = context.AfterFunc(ctx, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.moved.Broadcast()
			})
		}
		f.launch()
		starved := !w.patient && k >= q.ends()
		if starved {
			f.hungry++
			f.room.Broadcast() // the flight may wait for the disk
		}
		f.moved.Wait()
		if starved {
			f.hungry--
		}
	}
}

// give gives a block of wait back.
func (r *follower) give(b *block) {
	f := r.f
	f.mu.Lock()
	defer f.mu.Unlock()
	b.users--
	if f.queue.free(b) {
		f.room.Broadcast()
	}
}
