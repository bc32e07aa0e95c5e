// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"errors"
	"io"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/seal"
)

// group is the number of blocks that are read and decrypted at a time. Both buffers of a body fit a core's cache.
const group = 4

// buffers are the memory of a body that is being read.
type buffers struct {
	sealed [group * (seal.Block + seal.Tag)]byte
	plain  [group * seal.Block]byte
}

// pool keeps buffers, because a body needs half a MiB.
var pool = sync.Pool{New: func() any { return new(buffers) }}

// body reads a range of an object's content.
type body struct {
	of       *content
	off, end int64 // the range of content that is not read yet
	strict   bool
	next     int         // index of the piece after the open one
	now      *piece      // the open piece
	raw      object.Body // its stored bytes
	index    int64       // next block of the piece
	skip     int64       // bytes of the next block that lie before the range
	left     int64       // bytes of the range that are in the piece and not decrypted yet
	mem      *buffers
	ready    []byte // decrypted bytes that are not read yet
	err      error
	closed   bool
	ahead    []object.Body // stored bytes of the pieces after the open one
}

var (
	_ object.Body     = (*body)(nil)
	_ object.Verifier = (*body)(nil)
)

// begin opens the stored bytes of every piece that the range touches.
func (b *body) begin() error {
	c := b.of
	for i := range c.pieces {
		p := &c.pieces[i]
		lo, hi := max(b.off, p.off), min(b.end, p.off+p.size)
		empty := p.size == 0 && len(c.pieces) == 1 // even empty content has a block
		if lo >= hi && !empty {
			if len(b.ahead) == 0 {
				b.next = i + 1
			}
			continue
		}
		at, n, _ := seal.Span(lo-p.off, hi-lo, p.size)
		raw, err := c.raw(object.Range{Off: p.at + at, N: n}, b.strict)
		if err != nil {
			_ = b.Close() // the error of this piece is the reason
			return err
		}
		b.ahead = append(b.ahead, raw)
	}
	return nil
}

// advance makes the next piece of the range the open one. It returns false if there is none.
func (b *body) advance() bool {
	if b.raw != nil {
		_ = b.raw.Close() // was only read
		b.raw = nil
	}
	if len(b.ahead) == 0 {
		return false
	}
	for p := &b.of.pieces[b.next]; p.size == 0 && len(b.of.pieces) > 1; p = &b.of.pieces[b.next] {
		b.next++ // an empty part among others has no byte of the range
	}
	b.now, b.raw = &b.of.pieces[b.next], b.ahead[0]
	b.next++
	b.ahead = b.ahead[1:]
	lo, hi := max(b.off, b.now.off), min(b.end, b.now.off+b.now.size)
	_, _, b.index = seal.Span(lo-b.now.off, hi-lo, b.now.size)
	b.skip = lo - b.now.off - b.index*seal.Block
	b.left = hi - lo
	return true
}

// fill decrypts the next blocks. It returns io.EOF at the end of the range.
func (b *body) fill() error {
	switch {
	case b.closed:
		return errs.New(errs.Closed, "read", b.of.info.Key, "the body is closed")
	case b.err != nil:
		return b.err
	}
	if b.raw == nil || b.raw.Len() == 0 {
		if !b.advance() {
			return io.EOF
		}
	}
	if b.mem == nil {
		b.mem = pool.Get().(*buffers)
	}
	n := min(b.raw.Len(), int64(len(b.mem.sealed)))
	stored := b.mem.sealed[:n]
	if _, err := io.ReadFull(b.raw, stored); err != nil {
		b.err = err
		return err
	}
	last := seal.Blocks(b.now.size) - 1
	plain := b.mem.plain[:0]
	for len(stored) > 0 {
		k := min(len(stored), seal.Block+seal.Tag)
		var err error
		if plain, err = b.now.stream.Open(plain, stored[:k], b.index, b.index == last); err != nil {
			b.err = b.refused(err)
			return b.err
		}
		stored = stored[k:]
		b.index++
	}
	plain = plain[b.skip:]
	b.skip = 0
	b.ready = plain[:min(int64(len(plain)), b.left)]
	b.left -= int64(len(b.ready))
	return nil
}

// refused returns the error of a block that is not authentic. If the stored bytes differ from the store's checksums,
// the store reports the damage and its place.
func (b *body) refused(cause error) error {
	at := b.now.at + b.index*(seal.Block+seal.Tag)
	n := min(seal.Block+seal.Tag, b.now.at+seal.Size(b.now.size)-at)
	if raw, err := strict(b.of.below, object.Range{Off: at, N: n}); err == nil {
		_, err = io.Copy(io.Discard, struct{ io.Reader }{raw})
		_ = raw.Close() // was only read
		if errors.Is(err, object.ErrDamaged) {
			return err
		}
	}
	return object.Fail("read", b.of.info.Key, damagedBy{cause}, "")
}

// Verify implements object.Verifier: it decrypts the first blocks.
func (b *body) Verify() error {
	if len(b.ready) > 0 {
		return nil
	}
	if err := b.fill(); err != nil && err != io.EOF {
		return err
	}
	return nil
}

// Len implements object.Body.
func (b *body) Len() int64 { return b.end - b.off }

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(b.ready) == 0 {
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	b.off += int64(n)
	return n, nil
}

// WriteTo implements io.WriterTo.
func (b *body) WriteTo(w io.Writer) (total int64, err error) {
	for {
		if len(b.ready) > 0 {
			n, err := w.Write(b.ready)
			b.ready = b.ready[n:]
			b.off += int64(n)
			total += int64(n)
			if err != nil {
				return total, err
			}
			if len(b.ready) > 0 {
				return total, io.ErrShortWrite
			}
		}
		if err := b.fill(); err == io.EOF {
			return total, nil
		} else if err != nil {
			return total, err
		}
	}
}

// Close implements io.Closer.
func (b *body) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.ready = nil
	if b.raw != nil {
		_ = b.raw.Close() // was only read
	}
	for _, raw := range b.ahead {
		_ = raw.Close() // was only read
	}
	if b.mem != nil {
		pool.Put(b.mem)
		b.mem = nil
	}
	return nil
}
