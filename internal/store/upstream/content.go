// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/object"
)

// check fails if the bucket is not the one of t, or if the key is invalid.
func (t *Through) check(op, bucket, key string) error {
	if bucket != t.name {
		return object.Fail(op, bucket, object.ErrNoSuchBucket, "")
	}
	if err := object.CheckKey(op, key); err != nil {
		return err
	}
	return object.CheckKey(op, t.b.path(key))
}

// Stat implements object.Objects.
func (t *Through) Stat(ctx context.Context, ref object.Ref) (object.Info, error) {
	if err := t.check("look at", ref.Bucket, ref.Key); err != nil {
		return object.Info{}, err
	}
	a, err := t.b.Stat(ctx, ref.Key, t.b.named(ctx, ref.Version), "")
	if err != nil && !a.Marker {
		return object.Info{}, err
	}
	i := a.Info(t.name)
	t.b.uploads.restore(i.Key, i.ETag, i.Attributes)
	if err == nil {
		if i.Parts, err = t.b.Parts(ctx, a); err != nil {
			return object.Info{}, err
		}
		if n, asked := object.AsksForDetails(ctx); asked && n > 0 && len(i.Parts) == 0 && a.Parts > 0 {
			if i.Part, err = partOf(ctx, t.b, a, n); err != nil {
				return object.Info{}, err
			}
		}
	}
	i.Latest = ref.Version == ""
	return i, err
}

// Open implements object.Objects. The content stays readable only as long as the upstream has it: if the object is
// replaced or deleted there, reads fail with ErrChanged.
func (t *Through) Open(ctx context.Context, ref object.Ref) (object.Content, error) {
	i, err := t.Stat(ctx, ref)
	if err != nil {
		return nil, err
	}
	if i.Marker {
		return nil, object.Fail("open", t.b.label(ref.Key), object.ErrIsMarker, ref.Version)
	}
	return &content{ctx: ctx, b: t.b, id: t.identity(ref, i), info: i}, nil
}

// content is an object on the upstream, open for reading.
type content struct {
	ctx    context.Context
	b      *Bucket
	id     object.Identity
	info   object.Info
	closed atomic.Bool
}

func (c *content) Info() object.Info { return c.info.Clone() }

func (c *content) Section(r object.Range) (object.Body, error) {
	if c.closed.Load() {
		return nil, object.Fail("read", c.b.label(c.id.Key), object.ErrClosed, "")
	}
	if r.Off < 0 || r.N < 0 || r.Off > c.id.Size || r.N > c.id.Size-r.Off {
		return nil, object.Fail("read", c.b.label(c.id.Key), object.ErrInvalidRange,
			fmt.Sprintf("%d bytes from %d of %d", r.N, r.Off, c.id.Size))
	}
	return &body{c: c, off: r.Off, left: r.N}, nil
}

func (c *content) Close() error {
	c.closed.Store(true)
	return nil
}

// body reads a range of an object. The request is sent with the first Read or Verify.
type body struct {
	c         *content
	off, left int64
	r         io.ReadCloser
	err       error
}

// Verify implements object.Verifier: it sends the request, so that its error comes before the status line of a reply.
func (b *body) Verify() error {
	if b.r == nil && b.err == nil && b.left > 0 {
		b.r, b.err = b.c.b.Fetch(b.c.ctx, b.c.id, b.off, b.left)
	}
	return b.err
}

func (b *body) Len() int64 { return b.left }

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if err := b.Verify(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	b.off += int64(n)
	if err == io.EOF && b.left > 0 {
		err = io.ErrUnexpectedEOF // cannot happen: a reader of Fetch returns every byte or an error
	}
	b.err = err
	return n, err
}

// copySize is the size in bytes of the buffer of WriteTo.
const copySize = 256 << 10

func (b *body) WriteTo(w io.Writer) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{b}, make([]byte, min(copySize, max(b.left, 1))))
}

func (b *body) Close() error {
	if b.r != nil {
		_ = b.r.Close()
	}
	if b.err == nil {
		b.err = object.Fail("read", b.c.b.label(b.c.id.Key), object.ErrClosed, "")
	}
	b.left = 0
	return nil
}
