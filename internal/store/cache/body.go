// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

const (
	ahead     = 4 // extents of a cluster that are fetched at the same time
	mostTurns = 4 // how often a read without progress is tried in another way
)

// body reads a range of a version: present blocks from the disk, missing blocks from flights.
type body struct {
	ctx      context.Context
	v        *version // with one user
	own      bool     // neighbours are not asked
	pos, end int64
	whole    bool        // a client reads the whole content
	tally    tally       // of what the client has got; used if whole is set
	patient  bool        // keeping the content matters more than speed
	now      *follower   // this body as a reader of the flight that brings the block at pos; nil if there is none
	later    []*follower // this body as a reader of flights that bring blocks after pos
	disk     object.Body // blocks from pos on that are on the disk
	far      io.ReadCloser
	turns    int // ways that were tried since the last byte
	err      error
	closed   bool
}

var _ object.Verifier = (*body)(nil)

// Len implements object.Body.
func (b *body) Len() int64 { return b.end - b.pos }

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if done, err := b.over(); done {
			return 0, err
		}
		n, err := b.some(p[:min(int64(len(p)), b.end-b.pos)])
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// over reports whether nothing more can be read.
func (b *body) over() (bool, error) {
	switch {
	case b.closed:
		return true, object.Fail("read", b.v.b.name(b.v.id.Key), object.ErrClosed, "")
	case b.err != nil:
		return true, b.err
	case b.pos == b.end:
		return true, io.EOF
	}
	return false, nil
}

// some reads some bytes by the next way, or none if another way has to be tried.
func (b *body) some(p []byte) (n int, err error) {
	switch {
	case b.far != nil:
		n, err = b.far.Read(p)
		if errors.Is(err, io.EOF) && n == 0 {
			err = io.ErrUnexpectedEOF
		}
	case b.disk != nil:
		if n, err = b.disk.Read(p); n == 0 && b.disk.Len() == 0 {
			b.dropDisk()
			return 0, nil
		}
		if b.tally.begun {
			b.given(p[:n])
		}
	case b.now != nil:
		var at *block
		var have []byte
		if at, have, err = b.next(); at != nil {
			n = copy(p, have)
			b.given(p[:n])
			b.now.give(at)
			b.now.f.launch()
		}
	default:
		err = b.plan()
	}
	if n > 0 {
		b.moved(int64(n))
		return n, nil
	}
	return 0, b.recover(err)
}

// next returns bytes at pos from a flight, in a block that is given back. If the block is on the disk, next returns no
// block and begins to read from the disk.
func (b *body) next() (*block, []byte, error) {
	held := b.pos/blockSize == blockCount(b.v.id.Size)-1 && b.holds()
	at, have, upTo, err := b.now.wait(b.ctx, wish{b.pos, held, b.patient})
	if err != nil {
		return nil, nil, err
	}
	if at == nil {
		return nil, nil, b.section(min(upTo, b.end))
	}
	if held && b.guarded() { // not if the upstream has told in the meantime that there is nothing to compare with
		if err := b.compare(checksum.Of(have)); err != nil {
			b.now.give(at)
			return nil, nil, err
		}
	}
	return at, have[:min(int64(len(have)), b.end-b.pos)], nil
}

func (b *body) moved(n int64) {
	b.pos += n
	b.turns = 0
}

// holds reports whether the last block of the content may be given to the reader only after the content was compared,
// so that no reader gets the whole of a wrong content.
func (b *body) holds() bool {
	if b.whole {
		return b.guarded()
	}
	return b.v.entry.Proof() == "" && !b.v.unheld()
}

// plan chooses where the bytes at pos come from: the disk, if their block is present, or a fetch of the missing blocks.
// In a cluster, plan also begins to fetch the extents after pos.
func (b *body) plan() error {
	missing := b.v.entry.Missing(object.Range{Off: b.pos, N: b.end - b.pos})
	switch {
	case len(missing) == 0:
		return b.section(b.end)
	case missing[0].Off > b.pos:
		return b.section(missing[0].Off)
	}
	n, end := b.pos/blockSize, blockCount(missing[0].Off+missing[0].N)
	live := b.later[:0]
	for _, r := range b.later {
		switch {
		case b.now == nil && r.f.covers(n):
			b.now = r
		case r.at > n && r.f.covers(r.at):
			live = append(live, r)
		default:
			r.leave()
		}
	}
	b.later = live
	if b.now == nil {
		var err error
		if b.now, err = b.v.follow(n, end, b.own); err != nil {
			return err
		}
	}
	if b.v.b.s.neighbours() != nil && !b.own {
		b.lookAhead(n)
	}
	return nil
}

// lookAhead begins to fetch the extents after block n. Other extents have other owners, which work at the same time.
func (b *body) lookAhead(n int64) {
	const extent = object.Extent / blockSize
	end := blockCount(b.end)
	for i := int64(1); i < ahead; i++ {
		at := (n/extent + i) * extent
		if at >= end {
			break
		}
		if slices.ContainsFunc(b.later, func(r *follower) bool { return r.at == at }) {
			continue
		}
		if r, err := b.v.follow(at, end, false); err == nil {
			b.later = append(b.later, r)
		}
	}
}

// section reads from the disk up to the position end.
func (b *body) section(end int64) error {
	if last := (blockCount(b.v.id.Size) - 1) * blockSize; end > last && b.holds() {
		if b.pos < last {
			end = last
		} else if err := b.settle(); err != nil {
			return err
		}
	}
	if end <= b.pos {
		return errPassed
	}
	d, err := b.v.entry.Section(object.Range{Off: b.pos, N: end - b.pos})
	if err == nil {
		b.disk = d
	}
	return err
}

// recover decides after an error how to go on. It returns nil if another way is to be tried.
func (b *body) recover(err error) error {
	if err == nil {
		return nil
	}
	b.turns++
	passed := errors.Is(err, errPassed)
	switch {
	case b.ctx.Err() != nil, b.far != nil, upstream.Silent(err): // another attempt would take another deadline
	case passed && b.turns < mostTurns*4:
		b.drop() // the flights of later blocks go on
		return nil
	case b.turns >= mostTurns, errors.Is(err, upstream.ErrChanged), errs.Is(err, errs.Corrupt) &&
		!errors.Is(err, object.ErrDamaged):
	case errors.Is(err, object.ErrDamaged):
		b.v.b.s.counts.damaged.Add(1)
		b.dropDisk()
		b.leave()
		return nil // the block is absent now, and is fetched again
	case errors.Is(err, errUnkept) && !b.patient:
		b.leave()
		b.dropDisk()
		if err = b.goFar(); err == nil {
			return nil
		}
	case b.now != nil && b.turns < 2:
		// The flight of another reader has failed, perhaps for a reason of its own: one attempt of our own.
		b.leave()
		return nil
	}
	b.err = b.v.b.told(b.v.id, err)
	b.leave()
	return b.err
}

// told turns the news that the upstream has other content now into object.ErrChanged, and forgets the old content.
func (b *bucket) told(id object.Identity, err error) error {
	if !errors.Is(err, upstream.ErrChanged) {
		return err
	}
	if errors.Is(err, object.ErrChanged) {
		return err
	}
	b.changed(id.Key)
	return &errs.Error{Kind: errs.IO, Op: "read", Name: b.name(id.Key),
		Err: layout.Both{Sentinel: object.ErrChanged, Cause: err}, Fix: "read the object again"}
}

// drop leaves the flight of the block at pos.
func (b *body) drop() {
	if b.now != nil {
		b.now.leave()
		b.now = nil
	}
}

// leave leaves all flights.
func (b *body) leave() {
	b.drop()
	for _, r := range b.later {
		r.leave()
	}
	b.later = nil
}

func (b *body) dropDisk() {
	if b.disk != nil {
		_ = b.disk.Close() // only read from
		b.disk = nil
	}
}

// Verify implements object.Verifier. Verify waits until the first byte is there, so that an error is known before a
// reply begins.
func (b *body) Verify() error {
	for {
		if done, err := b.over(); done {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var err error
		switch {
		case b.far != nil:
			return nil
		case b.disk != nil:
			v, ok := b.disk.(object.Verifier)
			if !ok {
				return nil
			}
			if err = v.Verify(); err == nil {
				return nil
			}
		case b.now != nil:
			var at *block
			if at, _, err = b.next(); at != nil {
				b.now.give(at)
				return nil
			}
		default:
			err = b.plan()
		}
		if err = b.recover(err); err != nil {
			return err
		}
	}
}

// Close implements io.Closer.
func (b *body) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.leave()
	b.dropDisk()
	if b.far != nil {
		_ = b.far.Close() // only read from
	}
	b.v.release()
	return nil
}
