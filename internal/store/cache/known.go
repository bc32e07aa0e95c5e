// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// absentFor is the time for which the answer that a key does not exist counts.
const absentFor = time.Second

// askKey identifies questions that one answer serves. Questions before and after a change by this node differ.
type askKey struct {
	key, version string
	changes      uint64
	open         bool
}

// ask is a question to the upstream in progress.
type ask struct {
	done  chan struct{} // closed when found and err are set
	found found
	err   error
}

// found is what is known about an object.
type found struct {
	about   upstream.About
	checked time.Time
	stale   bool // the upstream does not answer, and the description is older than the rules allow otherwise
	full    bool // the description came with a reply about the whole content
}

// wanted is a question about an object. If open is set, and nothing is known about the object, the answer also begins
// to fetch the range.
type wanted struct {
	ref   object.Ref
	open  bool
	rng   object.Range
	first *opened // set by the question that began to fetch
}

// opened is the content that came with the answer to a question.
type opened struct {
	v    *version // with one user
	body *stream
	off  int64 // of body
	f    *follower
}

// drop gives up what came with an answer.
func (o *opened) drop() {
	if o == nil {
		return
	}
	if o.f != nil {
		o.f.leave()
	}
	if o.v != nil {
		o.v.release()
	}
	if o.body != nil {
		_ = o.body.Close() // only read from
	}
}

// fixed reports whether a version never changes. The null version can be replaced.
func fixed(version string) bool { return version != "" && version != object.NullVersion }

// find returns what is known about an object, by the rules of the bucket. find asks the upstream if the rules require
// it.
func (b *bucket) find(ctx context.Context, w *wanted) (found, error) {
	key, version := w.ref.Key, w.ref.Version
	for {
		k, known := b.records.recall(key, version)
		if f, ok, err := b.fresh(w.ref, k, known); ok {
			return f, err
		}
		if known && w.open && !k.Absent && b.lacks(k.Identity, w.rng) {
			known = false // one request brings the description and the bytes
		}
		b.mu.Lock()
		at := askKey{key, version, b.changes[stripe(key)], w.open && !known}
		q := b.asks[at]
		if q == nil {
			q = &ask{done: make(chan struct{})}
			b.asks[at] = q
			b.mu.Unlock()
			q.found, q.err = b.askFor(ctx, w, k, known, at.changes)
			b.mu.Lock()
			delete(b.asks, at)
			b.mu.Unlock()
			close(q.done)
			return q.found, q.err
		}
		b.mu.Unlock()
		select {
		case <-q.done:
		case <-ctx.Done():
			return found{}, errs.Wrap("open", b.name(key), context.Cause(ctx))
		}
		if errs.Is(q.err, errs.Cancelled) { // the one who asked has gone: ask again
			continue
		}
		return q.found, q.err
	}
}

// lacks reports whether no block of a range is on the disk, and nobody fetches the content now.
func (b *bucket) lacks(id object.Identity, r object.Range) bool {
	if v := b.s.shelf.reading(id); v != nil {
		v.release()
		return false
	}
	e, ok := b.s.files.Peek(id)
	if !ok {
		return true
	}
	defer e.Release()
	if r.N < 0 || r.N > id.Size-r.Off {
		r.N = max(id.Size-r.Off, 0)
	}
	missing := e.Missing(r)
	return len(missing) == 1 && missing[0].Off <= r.Off && missing[0].Off+missing[0].N >= r.Off+r.N
}

// fresh returns what is known if it counts without a question to the upstream.
func (b *bucket) fresh(ref object.Ref, k cachefile.Known, known bool) (found, bool, error) {
	if !known {
		return found{}, false, nil
	}
	age := b.s.now().Sub(k.Checked)
	if k.Absent {
		if age >= 0 && age < absentFor {
			return found{}, true, object.Fail("open", b.name(ref.Key), object.ErrNoSuchKey, "")
		}
		return found{}, false, nil
	}
	if !fixed(ref.Version) && !b.Rules.NeverChanges(ref.Key) && (age < 0 || age >= b.Rules.Validate) {
		return found{}, false, nil
	}
	a, err := upstream.DecodeAbout(k.About)
	if err != nil || a.Identity != k.Identity {
		return found{}, false, nil // ask again
	}
	return found{about: a, checked: k.Checked}, true, nil
}

// askFor asks the upstream and remembers the answer. The parameter changes is the number of changes by this node at the
// time of the question.
func (b *bucket) askFor(ctx context.Context, w *wanted, k cachefile.Known, known bool, changes uint64) (found, error) {
	key, version := w.ref.Key, w.ref.Version
	asked := b.s.now()
	var about, old upstream.About
	if known = known && !k.Absent; known {
		var err error
		if old, err = upstream.DecodeAbout(k.About); err != nil || old.Identity != k.Identity {
			known = false
		}
	}
	var body *stream
	var err error
	off, full := int64(0), true
	if w.open && !known {
		off = w.rng.Off / blockSize * blockSize
		n := int64(-1)
		if w.rng.N >= 0 {
			n = blockCount(w.rng.Off+w.rng.N)*blockSize - off
		}
		about, body, err = b.openStream(ctx, w.ref, off, n)
		full = off == 0 && n < 0
		if errors.Is(err, object.ErrInvalidRange) { // the front end needs the size for its reply
			body = nil
			about, err = b.From.Stat(ctx, key, version, "")
			full = true
		}
	} else if known && b.servable(w, k) {
		var late bool
		if about, late, err = b.askSoon(ctx, w.ref, old, changes); late {
			return found{about: old, checked: k.Checked, stale: true}, nil
		}
	} else {
		about, err = b.From.Stat(ctx, key, version, old.Identity.ETag)
	}
	if err == nil && !about.NotModified {
		b.answered(asked)
	}
	switch {
	case err == nil && about.NotModified && known:
		about, full = old, false
		b.s.counts.validated.Add(1)
	case errors.Is(err, object.ErrNoSuchKey) && !about.Marker && version == "":
		b.records.remember(w.ref, changes, cachefile.Known{Absent: true, Checked: asked})
		return found{}, err
	case unanswered(err) && known:
		if b.mayBeStale(w.ref, k) {
			return found{about: old, checked: k.Checked, stale: true}, nil
		}
		return found{}, err
	case err != nil:
		return found{about: about}, err
	}
	if err := b.plausible(&about); err != nil {
		if body != nil {
			_ = body.Close() // only read from
		}
		b.s.counts.wrong.Add(1)
		b.changed(key)
		return found{}, err
	}
	if !about.Marker {
		b.records.rememberSoon(w.ref, changes, about, asked)
	}
	f := found{about: about, checked: asked, full: full}
	if body != nil {
		w.first = b.receive(ctx, &f, w, body, off)
	}
	return f, nil
}

// unanswered reports whether err leaves open how the object is now: the upstream is not available, or it refuses
// because of a failure of its own, such as 503 SlowDown. A refusal of this node's credentials is an answer.
func unanswered(err error) bool {
	var r *object.Refusal
	return errors.Is(err, upstream.ErrUnavailable) || errors.As(err, &r) && r.Kind == errs.IO &&
		!errors.Is(err, upstream.ErrChanged)
}

// receive makes a flight of a body that came with an answer.
func (b *bucket) receive(ctx context.Context, found *found, w *wanted, body *stream, off int64) *opened {
	a := &found.about
	id := a.Identity
	n := w.rng.N
	if n < 0 {
		n = max(id.Size-w.rng.Off, 0)
	}
	v, kept, _ := b.s.shelf.take(ctx, b, id, a, n, true)
	if !kept {
		return &opened{body: body, off: off}
	}
	if found.full {
		v.fullyDescribed()
	}
	first, end := off/blockSize, blockCount(min(id.Size, w.rng.Off+n))
	missing := v.entry.Missing(object.Range{Off: off, N: min(end*blockSize, id.Size) - off})
	if first >= end || len(missing) != 1 || missing[0].Off != off || missing[0].N != min(end*blockSize, id.Size)-off {
		_ = body.Close() // some of it is on the disk already
		return &opened{v: v}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.flights {
		if f.covers(first) || f.covers(end-1) {
			_ = body.Close() // another reader is faster
			return &opened{v: v}
		}
	}
	return &opened{v: v, f: v.start(first, end, object.ServedUpstream, body)}
}
