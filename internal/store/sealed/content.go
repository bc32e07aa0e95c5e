// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"fmt"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/seal"
)

// piece is one stream of an object's content: the whole content, or a part.
type piece struct {
	stream *seal.Stream
	off    int64 // offset of the piece in the content
	size   int64 // bytes of content
	at     int64 // offset of the piece in the stored bytes
}

// content decrypts the content of an object.
type content struct {
	below  object.Content
	info   object.Info
	pieces []piece
	closed atomic.Bool
}

var (
	_ object.Content  = (*content)(nil)
	_ object.Stricter = (*content)(nil)
)

// newContent returns the decrypted content of an object with that data key. It fails if the stored bytes are not as
// many as the sizes of the object and of its parts tell.
func newContent(below object.Content, info object.Info, key []byte) (*content, error) {
	c := &content{below: below, info: info}
	var off, at int64
	add := func(salt []byte, name string, size int64) error {
		stream, err := seal.NewStream(key, salt, name)
		if err != nil {
			return err
		}
		c.pieces = append(c.pieces, piece{stream: stream, off: off, size: size, at: at})
		off += size
		at += seal.Size(size)
		return nil
	}
	if len(info.Parts) == 0 {
		if err := add(nil, "object", info.Size); err != nil {
			return nil, err
		}
	}
	for i := range info.Parts {
		p := &info.Parts[i]
		s, err := object.ParsePartSeal(p.Attributes[object.AttrSealedPart])
		if err == nil {
			err = add(s.Salt, partName(p.Number), s.Size)
		}
		if err != nil {
			return nil, object.Fail("open", info.Key, damagedBy{err}, "")
		}
	}
	if off != info.Size || at != info.Stored {
		return nil, object.Fail("open", info.Key, object.ErrDamaged,
			fmt.Sprintf("%d bytes in %d stored bytes, expected %d in %d", info.Size, info.Stored, off, at))
	}
	return c, nil
}

// Info implements object.Content.
func (c *content) Info() object.Info { return c.info.Clone() }

// Section implements object.Content.
func (c *content) Section(r object.Range) (object.Body, error) { return c.section(r, false) }

// Strict implements object.Stricter. Every block is authenticated anyway; the store's own checksums are compared too.
func (c *content) Strict(r object.Range) (object.Body, error) { return c.section(r, true) }

func (c *content) section(r object.Range, strictly bool) (object.Body, error) {
	if c.closed.Load() {
		return nil, object.Fail("read", c.info.Key, object.ErrClosed, "")
	}
	if r.Off < 0 || r.N < 0 || r.Off > c.info.Size || r.N > c.info.Size-r.Off {
		return nil, object.Fail("read", c.info.Key, object.ErrInvalidRange,
			fmt.Sprintf("%d bytes at offset %d of %d", r.N, r.Off, c.info.Size))
	}
	b := &body{of: c, off: r.Off, end: r.Off + r.N, strict: strictly}
	// The range is opened now, so that it stays readable after the content is closed.
	return b, b.begin()
}

// Close implements object.Content.
func (c *content) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	return c.below.Close()
}

// raw returns a body of stored bytes. Nothing but Strict compares them with the store's checksums, because every block
// is authenticated.
func (c *content) raw(r object.Range, strictly bool) (object.Body, error) {
	if strictly {
		return strict(c.below, r)
	}
	if u, ok := c.below.(object.Unchecked); ok {
		return u.Unchecked(r)
	}
	return c.below.Section(r)
}
