// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

const bucket = "models"

// far is another server with one bucket, in memory. It can be slow, silent and wrong on demand.
type far struct {
	*model.Store
	stats, opens, fetches, sent atomic.Int64

	mu      sync.Mutex
	down    bool
	refuses error                // the answer to every question; nil: none
	noSum   bool                 // the server names no checksum
	sum32   string               // the checksum that the server names besides: "crc32c" or "crc32"
	crcs    map[string][2]uint32 // CRC-32C and CRC-32 by ETag
	flip    int64                // byte of the content that arrives wrong; -1: none
	before  func(at int64)       // called before the byte at this offset is sent
	breakAt map[int64]error      // errors by offset, each once
	silent  chan struct{}        // if not nil, questions about objects wait until it is closed
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{Store: model.New(), flip: -1, breakAt: map[int64]error{}, crcs: map[string][2]uint32{}}
	if err := f.CreateBucket(t.Context(), object.Bucket{Name: bucket, ETag: object.ETagMD5}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *far) Origin() string { return "http://far/models/" }

func (f *far) State() upstream.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return upstream.State{Phase: upstream.Open, Last: "silent"}
	}
	return upstream.State{Phase: upstream.Closed}
}

func (f *far) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *far) reachable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return object.Fail("ask", "far", upstream.ErrUnavailable, "silent")
	}
	return f.refuses
}

func (f *far) Stat(ctx context.Context, key, version, ifNoneMatch string) (upstream.About, error) {
	f.stats.Add(1)
	f.mu.Lock()
	silent := f.silent
	f.mu.Unlock()
	if silent != nil {
		select {
		case <-silent:
		case <-ctx.Done():
			return upstream.About{}, ctx.Err()
		}
	}
	return f.about(ctx, key, version, ifNoneMatch)
}

func (f *far) about(ctx context.Context, key, version, ifNoneMatch string) (upstream.About, error) {
	if err := f.reachable(); err != nil {
		return upstream.About{}, err
	}
	i, err := f.Store.Stat(ctx, object.Ref{Bucket: bucket, Key: key, Version: version})
	if err != nil {
		return upstream.About{}, err
	}
	id := object.Identity{Origin: f.Origin(), Key: key, ETag: i.ETag, Size: i.Size}
	if i.Versioned() {
		id.Version = i.Version
	}
	if ifNoneMatch == i.ETag {
		return upstream.About{Identity: object.Identity{Key: key, ETag: i.ETag}, NotModified: true}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	crc := f.crcs[id.ETag]
	return upstream.About{Identity: id, Modified: i.Modified, Attributes: i.Attributes, CRC64: i.CRC64,
		HasCRC64: !f.noSum, CRC32C: crc[0], HasCRC32C: f.sum32 == "crc32c", CRC32: crc[1], HasCRC32: f.sum32 == "crc32"}, nil
}

func (f *far) Open(ctx context.Context, key, version string, off, n int64) (upstream.About, io.ReadCloser, error) {
	f.opens.Add(1)
	a, err := f.about(ctx, key, version, "")
	if err != nil {
		return a, nil, err
	}
	if off > a.Identity.Size || off == a.Identity.Size && off > 0 {
		return a, nil, object.Fail("open", key, object.ErrInvalidRange, "")
	}
	if n < 0 || n > a.Identity.Size-off {
		n = a.Identity.Size - off
	}
	r, err := f.read(ctx, a.Identity, off, n)
	return a, r, err
}

func (f *far) Fetch(ctx context.Context, id object.Identity, off, n int64) (io.ReadCloser, error) {
	f.fetches.Add(1)
	if err := f.reachable(); err != nil {
		return nil, err
	}
	return f.read(ctx, id, off, n)
}

func (f *far) read(ctx context.Context, id object.Identity, off, n int64) (io.ReadCloser, error) {
	c, err := f.Store.Open(ctx, object.Ref{Bucket: bucket, Key: id.Key, Version: id.Version})
	if err != nil || c.Info().ETag != id.ETag {
		return nil, errors.Join(upstream.ErrChanged, err)
	}
	b, err := c.Section(object.Range{Off: off, N: n})
	if err != nil {
		return nil, err
	}
	return &sending{f: f, ctx: ctx, id: id, r: b, at: off}, nil
}

// sending is a reply of far.
type sending struct {
	f   *far
	ctx context.Context
	id  object.Identity
	r   io.ReadCloser
	at  int64
}

func (s *sending) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	s.f.mu.Lock()
	before := s.f.before
	err := s.f.breakAt[s.at]
	delete(s.f.breakAt, s.at)
	s.f.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if before != nil {
		before(s.at)
	}
	if err := s.f.reachable(); err != nil {
		return 0, err
	}
	s.f.mu.Lock()
	flip := s.f.flip
	s.f.mu.Unlock()
	i, err := s.f.Store.Stat(s.ctx, object.Ref{Bucket: bucket, Key: s.id.Key, Version: s.id.Version})
	if err != nil || i.ETag != s.id.ETag {
		return 0, errors.Join(upstream.ErrChanged, err)
	}
	n, err := s.r.Read(p[:min(len(p), 100<<10)])
	if flip >= s.at && flip < s.at+int64(n) {
		p[flip-s.at] ^= 1
	}
	s.at += int64(n)
	s.f.sent.Add(int64(n))
	return n, err
}

func (s *sending) Close() error { return s.r.Close() }

// passing sends changes to far, and counts nothing.
type passing struct{ *far }

func (p passing) Stat(ctx context.Context, ref object.Ref) (object.Info, error) {
	if err := p.reachable(); err != nil {
		return object.Info{}, err
	}
	return p.Store.Stat(ctx, ref)
}

func (p passing) Open(ctx context.Context, ref object.Ref) (object.Content, error) {
	return p.Store.Open(ctx, ref)
}

func (p passing) Put(ctx context.Context, put object.Put) (object.Info, error) {
	if err := p.reachable(); err != nil {
		return object.Info{}, err
	}
	return p.Store.Put(ctx, put)
}

// rig is a store with one upstream bucket.
type rig struct {
	*cache.Store
	far   *far
	files *cachefile.Store
	dir   string
	rules cache.Rules
	clock atomic.Int64 // seconds
	fs    vfs.FS       // nil: that of the operating system
	// memory is the memory of all fetches besides the 8 MiB of each; 0: the default.
	memory int64
}

func newRig(t *testing.T, f *far, rules cache.Rules) *rig {
	t.Helper()
	r := &rig{far: f, dir: t.TempDir(), rules: rules}
	if rules.StaleIfError == 0 {
		r.rules.StaleIfError = time.Hour
	}
	r.open(t, 1<<30)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func (r *rig) now() time.Time { return time.Unix(1_800_000_000+r.clock.Load(), 0) }

func (r *rig) open(t *testing.T, capacity int64) {
	t.Helper()
	files, err := cachefile.Open(t.Context(), cachefile.Options{Dir: r.dir, FS: r.fs, Capacity: capacity, Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	local := model.NewIn(t.TempDir())
	if err := local.CreateBucket(t.Context(), object.Bucket{Name: bucket}); err != nil {
		t.Fatal(err)
	}
	r.files = files
	r.Store = cache.New(cache.Options{Local: local, Files: files, Memory: r.memory, Now: r.now,
		Buckets: []cache.Bucket{{Name: bucket, From: r.far, Pass: passing{r.far}, Rules: r.rules}}})
}

// content returns n random bytes that depend on the seed.
func content(seed uint64, n int) []byte {
	p := make([]byte, n)
	s := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = s.Read(p)
	return p
}

func (f *far) put(t *testing.T, key string, data []byte) {
	t.Helper()
	i, err := f.Store.Put(t.Context(), object.Put{Bucket: bucket, Key: key, Size: int64(len(data)),
		Body: bytes.NewReader(data), Attributes: map[string]string{"content-type": "text/plain"}})
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crcs[i.ETag] = [2]uint32{crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)), crc32.ChecksumIEEE(data)}
}

// get reads a range of an object through the store, and returns how it was served. An n of -1 means all.
func (r *rig) get(ctx context.Context, key string, off, n int64) ([]byte, object.Served, error) {
	c, err := r.Store.Open(object.ExpectRange(ctx, object.Range{Off: off, N: n}), object.Ref{Bucket: bucket, Key: key})
	if err != nil {
		return nil, object.Served{}, err
	}
	defer c.Close()
	if n < 0 {
		n = c.Info().Size - off
	}
	rng := object.Range{Off: off, N: n}
	how := c.(object.Sourced).Served(rng)
	b, err := c.Section(rng)
	if err != nil {
		return nil, how, err
	}
	defer b.Close()
	if err := b.(object.Verifier).Verify(); err != nil {
		return nil, how, err
	}
	out := bytes.NewBuffer(make([]byte, 0, n))
	_, err = b.WriteTo(out)
	return out.Bytes(), how, err
}

// want reads a whole object and compares it.
func (r *rig) want(t *testing.T, key string, data []byte, from string) object.Served {
	t.Helper()
	got, how, err := r.get(t.Context(), key, 0, -1)
	if err != nil || !bytes.Equal(got, data) || how.From != from {
		t.Errorf("%s: %d bytes of %d, from %s, %v; expected from %s", key, len(got), len(data), how.From, err, from)
	}
	return how
}

// stored waits until the disk has a range: a fetch goes on when its reader has left.
func (r *rig) stored(t *testing.T, key string, off, n int64) {
	t.Helper()
	for {
		c, err := r.Store.Open(t.Context(), object.Ref{Bucket: bucket, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		how := c.(object.Sourced).Served(object.Range{Off: off, N: n})
		_ = c.Close()
		if how.From == object.ServedHit {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the blocks do not come")
		case <-time.After(time.Millisecond):
		}
	}
}
