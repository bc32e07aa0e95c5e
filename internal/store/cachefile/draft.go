// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Draft is content that is written before its identity is known, such as an upload that passes through to another
// server. Nothing of a Draft is left after a crash. A Draft must be ended by Keep or Drop.
type Draft struct {
	v     *version
	ended atomic.Bool
}

// Draft begins content of size bytes. The second result is false if there is no room, as with Admit. Draft fails if the
// key or the size is invalid or the cache is closed.
func (s *Store) Draft(ctx context.Context, origin, key string, size int64) (*Draft, bool, error) {
	const op = "draft in cache"
	id := object.Identity{Origin: origin, Key: key, Size: size}
	if err := checkIdentity(op, id); err != nil {
		return nil, false, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, false, fail(op, key, err)
	}
	s.index.mu.Lock()
	if s.index.closed {
		s.index.mu.Unlock()
		return nil, false, object.Fail(op, key, object.ErrClosed, "")
	}
	out, ok := s.index.admit(id)
	v := newVersion(s, id)
	if ok {
		v.promise = allocatedOf(size)
		s.index.promised += v.promise
		v.refs, v.blocks = 1, v.empty()
	} else {
		s.counts.refused.Add(1)
	}
	s.index.mu.Unlock()
	s.discard(out)
	if !ok {
		return nil, false, nil
	}
	return &Draft{v: v}, true, nil
}

// Put stores one whole block, as Entry.Put does.
func (d *Draft) Put(ctx context.Context, block int64, data []byte) error {
	return d.v.put(ctx, block, data)
}

// Keep makes the draft a durable entry under id, which must have the origin, key and size of the draft. All blocks must
// have been put. If there is a whole entry of id already, Keep drops the draft and flushes the entry. After an error
// the draft is dropped too.
func (d *Draft) Keep(ctx context.Context, id object.Identity) error {
	const op = "keep in cache"
	v, s := d.v, d.v.s
	if d.ended.Swap(true) {
		return errs.New(errs.Closed, op, id.Key, "the draft has ended")
	}
	err := checkIdentity(op, id)
	if err == nil && (id.Origin != v.id.Origin || id.Key != v.id.Key || id.Size != v.id.Size) {
		err = errs.New(errs.Invalid, op, id.Key, fmt.Sprintf("the draft is for %q with %d bytes, the identity for %q with %d",
			v.id.Key, v.id.Size, id.Key, id.Size))
	}
	if err != nil {
		d.end()
		return err
	}
	s.index.mu.Lock()
	whole, closed := v.count == v.all(), s.index.closed
	old := s.index.entries[id]
	better := old != nil && old.count == old.all() // as good, and known already
	if !whole || closed || better {
		if better {
			s.index.hold(old)
		}
		s.index.mu.Unlock()
		d.end()
		switch {
		case better:
			err = s.writer.flush(ctx, old, false)
			s.release(old)
			return err
		case closed:
			return object.Fail(op, id.Key, object.ErrClosed, "")
		}
		return absent(op, id.Key, "blocks of the draft are absent")
	}
	if old != nil {
		s.index.forget(old)
	}
	v.id = id
	s.index.enter(v)
	s.index.dirty[v] = struct{}{}
	s.index.mu.Unlock()
	if old != nil {
		s.unload(old)
	}
	err = s.writer.flush(ctx, v, false)
	if err != nil {
		s.drop(v)
	}
	s.release(v)
	return err
}

// Drop ends the draft and removes its content. After Keep, and after the first call, Drop does nothing.
func (d *Draft) Drop() {
	if !d.ended.Swap(true) {
		d.end()
	}
}

// end removes the content of a draft.
func (d *Draft) end() {
	s, v := d.v.s, d.v
	s.index.mu.Lock()
	v.gone, v.erased = true, true // it never had a record
	s.index.used -= v.allocated
	s.index.mu.Unlock()
	s.release(v)
}
