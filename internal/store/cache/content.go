// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// Stat implements object.Objects.
func (s *Store) Stat(ctx context.Context, ref object.Ref) (object.Info, error) {
	b, err := s.upstreamOf("stat", ref.Bucket)
	if err != nil {
		return object.Info{}, err
	}
	if b == nil {
		return s.local.Stat(ctx, ref)
	}
	if _, asked := object.AsksForDetails(ctx); asked {
		if info, answered, err := b.detailed(ctx, ref); answered {
			return info, err
		}
	}
	f, err := b.find(ctx, &wanted{ref: ref})
	return b.info(ref, f), err
}

// info returns a description as the contracts of package object have it.
func (b *bucket) info(ref object.Ref, f found) object.Info {
	if f.about.Identity.Key == "" {
		return object.Info{}
	}
	i := f.about.Info(b.Name)
	i.Latest = ref.Version == ""
	return i
}

// Open implements object.Objects.
func (s *Store) Open(ctx context.Context, ref object.Ref) (object.Content, error) {
	b, err := s.upstreamOf("open", ref.Bucket)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return s.local.Open(ctx, ref)
	}
	return b.open(ctx, ref)
}

// open opens an object of an upstream bucket.
func (b *bucket) open(ctx context.Context, ref object.Ref) (object.Content, error) {
	// In a cluster, the owners fetch the content. Without neighbours, the question already asks for the bytes.
	w := &wanted{ref: ref, open: b.s.neighbours() == nil && b.opener != nil, rng: object.ExpectedRange(ctx)}
	f, err := b.find(ctx, w)
	if err != nil {
		w.first.drop()
		return nil, err
	}
	if f.about.Marker {
		return nil, object.Fail("open", b.name(ref.Key), object.ErrIsMarker, ref.Version)
	}
	c := &content{b: b, ctx: ctx, info: b.info(ref, f), found: f, first: w.first}
	id := f.about.Identity
	if w.first != nil {
		c.came = w.first.f != nil || w.first.body != nil
		c.v = w.first.v
		w.first.v = nil
		return c, nil
	}
	n := w.rng.N
	if n < 0 {
		n = max(id.Size-w.rng.Off, 0)
	}
	c.v, _, err = b.s.shelf.take(ctx, b, id, &f.about, n, !f.stale)
	if c.v != nil && f.full {
		c.v.fullyDescribed()
	}
	return c, err
}

// content is the content of an object of an upstream bucket.
type content struct {
	b     *bucket
	ctx   context.Context
	info  object.Info
	found found
	came  bool     // bytes came with the answer of the upstream
	v     *version // nil if the content is not kept

	mu     sync.Mutex
	first  *opened // what came with the answer of the upstream; nil if nothing came or it is used
	closed bool
}

var _ object.Sourced = (*content)(nil)

// Info implements object.Content.
func (c *content) Info() object.Info { return c.info.Clone() }

// Served implements object.Sourced.
func (c *content) Served(r object.Range) object.Served {
	s := object.Served{From: object.ServedUpstream, Age: int64(c.b.s.now().Sub(c.found.checked).Seconds()),
		Verified: byLength}
	if c.v != nil {
		if how := c.v.comparedBy(); how != "" {
			s.Verified = how
		}
		missing := c.v.absent(r)
		if near := c.b.s.neighboursOf(c.v.id); len(missing) > 0 && near != nil &&
			!near.Mine(c.v.id, missing[0].Off/object.Extent) {
			s.From = object.ServedPeer
		}
		if len(missing) == 0 && !c.came {
			s.From = object.ServedHit
		}
	}
	if c.found.stale {
		s.From = object.ServedStale
	}
	return s
}

// Section implements object.Content.
func (c *content) Section(r object.Range) (object.Body, error) {
	size := c.info.Size
	if r.Off < 0 || r.N < 0 || r.Off > size || r.N > size-r.Off {
		return nil, object.Fail("read", c.b.name(c.info.Key), object.ErrInvalidRange,
			fmt.Sprintf("%d bytes from %d of %d", r.N, r.Off, size))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, object.Fail("read", c.b.name(c.info.Key), object.ErrClosed, "")
	}
	first := c.first
	c.first = nil
	id := c.found.about.Identity
	if c.v == nil {
		if c.found.stale {
			return nil, c.offline()
		}
		var src io.ReadCloser
		if first != nil && first.body != nil && (first.off == r.Off || id.Size <= blockSize) && r.N > 0 {
			src = first.body
		} else {
			first.drop()
		}
		c.b.served.count(object.ServedUpstream)
		return newPlainBody(c.ctx, c.b, id, &c.found.about, r, src), nil
	}
	if c.found.stale && len(c.v.absent(r)) > 0 {
		first.drop()
		return nil, c.offline()
	}
	c.b.served.count(c.Served(r).From)
	c.v.hold()
	b := &body{ctx: c.ctx, v: c.v, whole: r.N == id.Size, pos: r.Off, end: r.Off + r.N}
	if first != nil && first.f != nil {
		if n := r.Off / blockSize; first.f.f.covers(n) {
			b.now = first.f
		} else {
			first.f.leave()
		}
	}
	return b, nil
}

// offline returns the error for content that is not on the disk while the upstream does not answer.
func (c *content) offline() error {
	st := c.b.From.State()
	return &errs.Error{Kind: errs.IO, Op: "read", Name: c.b.name(c.info.Key),
		Msg: "the object is not whole in the cache, and the upstream does not answer: " + st.Last,
		Err: layout.Both{Sentinel: upstream.ErrUnavailable, Cause: &object.Refusal{Kind: errs.IO,
			Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable",
			Message: "The object is not in the cache of this server, and the upstream does not answer."}},
		Fix: "check that the upstream runs and can be reached from here"}
}

// Close implements object.Content.
func (c *content) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	c.first.drop()
	c.first = nil
	if c.v != nil {
		c.v.release()
	}
	return nil
}

// Handle implements object.Handles. Only content that is whole on the disk can be handed out.
func (s *Store) Handle(ctx context.Context, ref object.Ref) (object.Handle, error) {
	b, err := s.upstreamOf("open", ref.Bucket)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return s.local.Handle(ctx, ref)
	}
	f, err := b.find(ctx, &wanted{ref: ref})
	if err != nil {
		return nil, err
	}
	if f.about.Marker {
		return nil, object.Fail("open", b.name(ref.Key), object.ErrIsMarker, ref.Version)
	}
	v, kept, err := s.shelf.take(ctx, b, f.about.Identity, &f.about, f.about.Identity.Size, false)
	if err != nil {
		return nil, err
	}
	if !kept || !v.arrive(ctx) {
		if kept {
			v.release()
		}
		b.served.doorMisses.Add(1)
		return nil, &errs.Error{Kind: errs.Unsupported, Op: "open", Name: b.name(ref.Key), Err: object.ErrNotCached,
			Fix: "read it over HTTP once: the server then keeps it on its disk"}
	}
	err = v.settle(ctx)
	var crc uint64
	if err == nil {
		crc, err = v.crc64()
	}
	if err != nil {
		v.release()
		return nil, errs.Wrap("open", b.name(ref.Key), err)
	}
	from := object.ServedHit
	if f.stale {
		from = object.ServedStale
	}
	b.served.count(from)
	info := b.info(ref, f)
	info.CRC64, info.NoCRC64 = crc, false // of the bytes on the disk, which the client compares
	return &handle{v: v, info: info, from: from, age: int64(s.now().Sub(f.checked).Seconds())}, nil
}

// handle is content in the cache that is handed out to a client of the door.
type handle struct {
	v      *version
	info   object.Info
	from   string // object.ServedHit or object.ServedStale
	age    int64  // seconds since the upstream was asked
	closed sync.Once
}

// Info implements object.Handle.
func (h *handle) Info() object.Info { return h.info.Clone() }

// Served implements object.Sourced.
func (h *handle) Served(object.Range) object.Served {
	how := h.v.comparedBy()
	if how == "" {
		how = byLength
	}
	return object.Served{From: h.from, Age: h.age, Verified: how}
}

// Inline implements object.Handle.
func (h *handle) Inline() ([]byte, bool) { return h.v.entry.Inline() }

// Sums implements object.Handle.
func (h *handle) Sums(first, n int64) ([]uint64, error) { return h.v.entry.Sums(first, n) }

// Open implements object.Handle.
func (h *handle) Open(direct bool) (*os.File, error) { return h.v.entry.Open(direct) }

// Path implements object.Handle.
func (h *handle) Path() string { return h.v.entry.Path() }

// Close implements object.Handle.
func (h *handle) Close() error {
	h.closed.Do(h.v.release)
	return nil
}
