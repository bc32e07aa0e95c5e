// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// shelf holds the versions that are being read now.
type shelf struct {
	s   *Store
	mu  sync.Mutex
	all map[[sha256.Size]byte]*version
}

func newShelf(s *Store) *shelf { return &shelf{s: s, all: map[[sha256.Size]byte]*version{}} }

// version is one content that is being read: its entry on the disk and the fetches of missing blocks.
type version struct {
	b     *bucket
	id    object.Identity
	hash  [sha256.Size]byte
	entry *cachefile.Entry
	users int // protected by shelf.mu

	comparison

	mu      sync.Mutex
	flights []*flight
	proved  sync.Cond   // signals the end of a flight, of a question and of a comparison
	dead    atomic.Bool // broken is set
	broken  error       // why the content is not usable: it differs from the upstream's checksum
}

// take returns the version of id with one more user. The parameter n is the number of bytes that a client is going to
// read; -1 means that the read is not a client's. If admit is false, take makes no new entry. The second result is
// false if the content is not kept in the cache.
func (h *shelf) take(ctx context.Context, b *bucket, id object.Identity, about *upstream.About, n int64,
	admit bool) (*version, bool, error) {
	key := id.Hash()
	var entry *cachefile.Entry
	var ok bool
	if n >= 0 {
		entry, ok = h.s.files.Lookup(id, n)
	} else {
		entry, ok = h.s.files.Peek(id)
	}
	h.mu.Lock()
	if v := h.all[key]; v != nil && v.alive() {
		v.users++
		h.mu.Unlock()
		if ok {
			entry.Release()
		}
		v.learn(about)
		return v, true, nil
	}
	h.mu.Unlock()
	if !ok {
		if !admit {
			return nil, false, nil
		}
		var err error
		if entry, ok, err = h.s.files.Admit(ctx, id); err != nil || !ok {
			if err != nil {
				h.s.log.Warn("the cache takes no new entry", "bucket", b.Name, "key", id.Key, "error", err)
			}
			return nil, false, nil // the content is served without being kept
		}
		if b.Rules.Pinned(id.Key) {
			if err := h.s.files.Pin(ctx, cachefile.Pin{Origin: id.Origin, Key: id.Key}); err != nil {
				h.s.log.Warn("an entry cannot be pinned", "bucket", b.Name, "key", id.Key, "error", err)
			}
		}
	}
	h.mu.Lock()
	if v := h.all[key]; v != nil && v.alive() { // somebody was faster
		v.users++
		h.mu.Unlock()
		entry.Release()
		v.learn(about)
		return v, true, nil
	}
	if entry.Evicted() { // perhaps because its content was wrong, which this reader must not see
		h.mu.Unlock()
		entry.Release()
		return h.take(ctx, b, id, about, -1, admit)
	}
	v := &version{b: b, id: id, hash: key, entry: entry, users: 1, comparison: comparison{about: about}}
	v.proved.L, v.v = &v.mu, v
	h.all[key] = v
	h.mu.Unlock()
	return v, true, nil
}

// reading returns the version of id with one more user if somebody reads it now, or nil.
func (h *shelf) reading(id object.Identity) *version {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.all[id.Hash()]
	if v == nil || !v.alive() {
		return nil
	}
	v.users++
	return v
}

// release counts one user less. The last one gives the entry back.
func (v *version) release() {
	h := v.b.s.shelf
	h.mu.Lock()
	v.users--
	last := v.users == 0
	if last && h.all[v.hash] == v {
		delete(h.all, v.hash)
	}
	h.mu.Unlock()
	if last {
		v.entry.Release()
	}
}

// hold counts one user more, for a user that a flight is.
func (v *version) hold() {
	h := v.b.s.shelf
	h.mu.Lock()
	v.users++
	h.mu.Unlock()
}

// alive reports whether the content is usable. alive takes no lock: the order of locks is version, flight, shelf.
func (v *version) alive() bool { return !v.dead.Load() }

// length returns the length of a block in bytes.
func (v *version) length(n int64) int64 { return min(blockSize, v.id.Size-n*blockSize) }

// blockCount returns the number of blocks up to the byte `end`.
func blockCount(end int64) int64 { return (end + blockSize - 1) / blockSize }

// follow returns a flight that brings block n, with the caller as one of its readers. If there is none, follow starts a
// flight that reaches up to block end at most. If own is true, the flight asks the upstream and no neighbour.
func (v *version) follow(n, end int64, own bool) (*follower, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.broken != nil {
		return nil, v.broken
	}
	for _, f := range v.flights {
		if own && f.asksPeer() {
			continue
		}
		if r := f.join(n); r != nil {
			return r, nil
		}
	}
	// Blocks may have arrived since the caller looked.
	missing := v.entry.Missing(object.Range{Off: n * blockSize, N: min(end*blockSize, v.id.Size) - n*blockSize})
	if len(missing) == 0 || missing[0].Off > n*blockSize {
		return nil, errPassed
	}
	end = min(end, blockCount(missing[0].Off+missing[0].N))
	for _, f := range v.flights { // do not fetch what another flight brings
		if !(own && f.asksPeer()) {
			end = min(end, f.bringsFrom(n, end))
		}
	}
	from := object.ServedUpstream
	if near := v.b.s.neighboursOf(v.id); near != nil && !own {
		extent := n * blockSize / object.Extent
		end = min(end, (extent+1)*(object.Extent/blockSize)) // an extent has one owner
		if !near.Mine(v.id, extent) {
			from = object.ServedPeer
		}
	}
	return v.start(n, max(end, n+1), from, nil), nil
}

// bringsElsewhere reports whether another flight than f reads block n from the upstream, or has stored it.
func (v *version) bringsElsewhere(f *flight, n int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.flights, func(g *flight) bool { return g != f && !g.asksPeer() && g.covers(n) }) ||
		len(v.entry.Missing(object.Range{Off: n * blockSize, N: 1})) == 0
}

// idleStart is the longest time for which a flight waits for its reader to send the first bytes to the client. After
// idleStart, the flight fetches on in any case.
const idleStart = 10 * time.Millisecond

// start starts a flight with one reader. If src is nil, the flight opens its source itself. The caller holds v.mu.
//
// If src has read some bytes already, the reader gets them at once, and the goroutine of the flight starts when the
// reader has sent them, waits or leaves, at the latest after idleStart. Otherwise, the flight would take the processor
// to copy all bytes that the upstream has sent before the client has got the first one.
func (v *version) start(first, end int64, from string, src *stream) *follower {
	s := v.b.s
	ctx, cancel := context.WithCancel(s.fetches)
	f := &flight{v: v, from: from, first: first, end: min(end, blockCount(v.id.Size)), ends: cancel,
		keeps: from == object.ServedUpstream && s.neighbours() != nil, readers: map[*follower]struct{}{}}
	f.queue = queue{budget: &s.budget, unsummed: true, first: first}
	f.moved.L, f.works.L, f.room.L = &f.mu, &f.mu, &f.mu
	if f.spans() {
		f.sum = v.sumFor()
	}
	r := f.add(first)
	v.flights = append(v.flights, f)
	v.hold()
	s.running.Add(1)
	s.counts.fills.Add(1)
	if src == nil {
		own := &source{ctx: ctx, v: v, f: f, pos: first * blockSize, end: min(f.end*blockSize, v.id.Size)}
		f.launch = sync.OnceFunc(func() { go f.run(ctx, own) })
		f.launch()
		return r
	}
	f.launch = sync.OnceFunc(func() { go f.run(ctx, src) })
	if head := src.takeHead(); len(head) > 0 {
		b := f.queue.grow(v.length(first))
		b.have = copy(b.data, head)
		v.b.received(from, b.have)
		time.AfterFunc(idleStart, f.launch)
		return r
	}
	f.launch()
	return r
}

// landed removes a flight that has ended, and compares the content when it has become whole.
func (v *version) landed(f *flight) {
	f.mu.Lock()
	left, judged := f.queue.left, f.proof
	f.mu.Unlock()
	var err error
	if v.alive() && v.entry.Whole() && v.entry.Proof() == "" {
		err = v.conclude(judged, f.crc)
	}
	if len(left) > 0 && v.alive() { // before the flight is removed, so that readers can wait for all blocks
		v.b.s.refills.add(v, left)
	}
	v.mu.Lock()
	v.flights = slices.DeleteFunc(v.flights, func(g *flight) bool { return g == f })
	v.proved.Broadcast()
	v.mu.Unlock()
	f.finish(err)
	v.release()
}

// absent returns the parts of a range that neither the entry nor the memory of a flight has. Each part has whole
// blocks.
func (v *version) absent(r object.Range) []object.Range {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []object.Range
	for _, gap := range v.entry.Missing(r) {
		for n := gap.Off / blockSize; n < blockCount(gap.Off+gap.N); n++ {
			if slices.ContainsFunc(v.flights, func(f *flight) bool { return f.has(n) }) {
				continue
			}
			if last := len(out) - 1; last >= 0 && out[last].Off+out[last].N == n*blockSize {
				out[last].N += v.length(n)
			} else {
				out = append(out, object.Range{Off: n * blockSize, N: v.length(n)})
			}
		}
	}
	return out
}

// unkept returns the error for a block that the entry did not take.
func (v *version) unkept(n int64, err error) error {
	s := v.b.s
	if errs.Is(err, errs.Corrupt) {
		// The block is present with other bytes: one of the two fetches was wrong, and nobody knows which.
		s.counts.wrong.Add(1)
		return v.condemn(wrongReply(v.b.name(v.id.Key), "two reads of one block gave different bytes"))
	}
	if !errors.Is(err, cachefile.ErrAbsent) && !errors.Is(err, object.ErrNoSpace) {
		s.log.Warn("a block was not kept in the cache", "bucket", v.b.Name, "key", v.id.Key, "block", n, "error", err)
	}
	v.mu.Lock()
	broken := v.broken
	v.mu.Unlock()
	if broken != nil { // the entry was dropped because its content is wrong
		return broken
	}
	s.counts.unkept.Add(1)
	return layout.Both{Sentinel: errUnkept, Cause: err}
}

// condemn drops the entry of a version whose content is wrong, and returns why.
func (v *version) condemn(why error) error {
	v.mu.Lock()
	if v.broken == nil {
		v.broken = why
	}
	why = v.broken
	v.mu.Unlock()
	s := v.b.s
	if s.neighbours() != nil {
		s.alone.add(v.id, s.now())
	}
	s.log.Error("wrong content from the upstream was dropped", "bucket", v.b.Name, "key", v.id.Key, "etag", v.id.ETag,
		"error", why)
	if err := v.entry.Drop(); err != nil {
		s.log.Error("an entry of the cache cannot be dropped", "bucket", v.b.Name, "key", v.id.Key, "error", err)
	}
	v.dead.Store(true) // after Drop, so that the next version of the content gets another entry
	v.b.records.forget(object.Ref{Key: v.id.Key})
	return why
}
