// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

const (
	chunk     = 64 << 10 // bytes that are copied from memory at once
	ahead     = 4        // extents of a cluster that are fetched at the same time
	mostTurns = 4        // how often a read without progress is tried in another way
)

var chunks = sync.Pool{New: func() any {
	b := make([]byte, chunk)
	return &b
}}

// body reads a range of a version: present blocks from the disk, missing blocks from flights.
type body struct {
	ctx      context.Context
	v        *version // with one user
	own      bool     // neighbours are not asked
	pos, end int64
	wait     []*flight   // flights with this body as a reader; the first one brings the block at pos
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
	case len(b.wait) > 0:
		var upTo int64
		if n, upTo, err = b.wait[0].wait(b.ctx, b.pos, p, b.last()); err == nil && n == 0 {
			err = b.section(min(upTo, b.end))
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

func (b *body) moved(n int64) {
	b.pos += n
	b.turns = 0
}

// last reports whether the block at pos is the last one of content that has not been compared as a whole. The last block
// is given to the reader only after the comparison, so that no reader gets the whole of a wrong content.
func (b *body) last() bool {
	return b.pos/blockSize == blockCount(b.v.id.Size)-1 && b.v.entry.Proof() == ""
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
	f, err := b.v.follow(n, end, b.own)
	if err != nil {
		return err
	}
	b.wait = append(b.wait, f)
	if b.v.b.s.neighbours() == nil || b.own {
		return nil
	}
	const extent = object.Extent / blockSize
	for i := int64(1); i < ahead; i++ { // other extents have other owners, which work at the same time
		at := (n/extent + i) * extent
		if at >= end {
			break
		}
		if f, err := b.v.follow(at, end, false); err == nil {
			b.wait = append(b.wait, f)
		}
	}
	return nil
}

// section reads from the disk up to the position end.
func (b *body) section(end int64) error {
	if last := (blockCount(b.v.id.Size) - 1) * blockSize; end > last && b.v.entry.Proof() == "" {
		if b.pos < last {
			end = last
		} else if err := b.v.settle(b.ctx); err != nil {
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
		b.leave()
		return nil
	case b.turns >= mostTurns, errors.Is(err, upstream.ErrChanged), errs.Is(err, errs.Corrupt) &&
		!errors.Is(err, object.ErrDamaged):
	case errors.Is(err, object.ErrDamaged):
		b.v.b.s.counts.damaged.Add(1)
		b.dropDisk()
		b.leave()
		return nil // the block is absent now, and is fetched again
	case errors.Is(err, errUnkept):
		b.leave()
		b.dropDisk()
		far := newPlainBody(b.ctx, b.v.b, b.v.id, b.v.described(), object.Range{Off: b.pos, N: b.end - b.pos}, nil)
		if err = far.Verify(); err == nil {
			b.far = far
			return nil
		}
	case len(b.wait) > 0 && b.turns < 2:
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
	return &errs.Error{Kind: errs.IO, Op: "read", Name: b.name(id.Key), Err: layout.Both{Sentinel: object.ErrChanged, Cause: err},
		Fix: "read the object again"}
}

// leave leaves all flights.
func (b *body) leave() {
	for _, f := range b.wait {
		f.leave()
	}
	b.wait = nil
}

func (b *body) dropDisk() {
	if b.disk != nil {
		_ = b.disk.Close() // only read from
		b.disk = nil
	}
}

// WriteTo implements io.WriterTo. Bytes on the disk go to a socket by sendfile.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	var total int64
	p := chunks.Get().(*[]byte)
	defer chunks.Put(p)
	for {
		if done, err := b.over(); done {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, err
		}
		if b.disk != nil && b.disk.Len() > 0 {
			n, err := b.disk.WriteTo(w)
			total += n
			if n > 0 {
				b.moved(n)
			}
			if err == nil {
				b.dropDisk()
				continue
			}
			if !errors.Is(err, object.ErrDamaged) { // the writer failed
				b.err = err
				return total, err
			}
			if err := b.recover(err); err != nil {
				return total, err
			}
			continue
		}
		n, err := b.some((*p)[:min(int64(chunk), b.end-b.pos)])
		if n > 0 {
			k, err := w.Write((*p)[:n])
			total += int64(k)
			if err != nil {
				b.err = err
				return total, err
			}
		}
		if err != nil {
			return total, err
		}
	}
}

// Verify implements object.Verifier. Verify waits until the first byte is there, so that an error is known before a reply
// begins.
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
		case len(b.wait) > 0:
			var upTo int64
			if _, upTo, err = b.wait[0].wait(b.ctx, b.pos, nil, b.last()); err == nil && upTo == 0 {
				return nil
			}
			if err == nil {
				err = b.section(min(upTo, b.end))
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
