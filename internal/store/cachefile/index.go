// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// ghostOf returns the key of content for ghosts.
func ghostOf(id object.Identity) uint64 {
	h := id.Hash()
	return binary.BigEndian.Uint64(h[:])
}

// Admit returns the entry of id, and makes an empty one if there is none. If the second result is
// false, the content should be served without being kept. Then it is larger than the cache may be, or there is no room
// and the Guard lets nothing be evicted. The caller releases the entry. Admit fails if id is invalid or the cache is closed.
func (s *Store) Admit(ctx context.Context, id object.Identity) (*Entry, bool, error) {
	const op = "admit to cache"
	if err := checkIdentity(op, id); err != nil {
		return nil, false, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, false, fail(op, id.Key, err)
	}
	s.mu.Lock()
	v := s.take(id)
	if v != nil {
		s.mu.Unlock()
		if e, ok := s.ready(v); ok {
			return e, true, nil
		}
		s.mu.Lock()
		v = s.take(id) // the broken one is gone; somebody may have made a new one
		if v != nil {
			s.mu.Unlock()
			e, ok := s.ready(v)
			return e, ok, nil
		}
	}
	if s.closed {
		s.mu.Unlock()
		return nil, false, object.Fail(op, id.Key, object.ErrClosed, "")
	}
	out, ok := s.admit(id)
	if ok {
		v = newVersion(s, id)
		v.promise = allocatedOf(id.Size)
		s.promised += v.promise
		v.refs, v.blocks = 1, v.empty()
		s.enter(v)
	} else {
		s.refused.Add(1)
	}
	s.mu.Unlock()
	s.discard(out)
	if !ok {
		return nil, false, nil
	}
	return &Entry{v: v}, true, nil
}

// admit makes room for content, or reports that there is none. It returns evicted entries for discard. The caller
// holds mu.
func (s *Store) admit(id object.Identity) ([]*version, bool) {
	need := allocatedOf(id.Size)
	if need > s.opts.Capacity {
		return nil, false
	}
	total := s.used + s.promised + need
	if float64(total) <= float64(s.opts.Capacity)*s.opts.High {
		return nil, true
	}
	// Above High, what may go goes. If nothing may go, the cache fills up to Capacity.
	_, pinned := s.pinOf(id.Origin, id.Key, s.opts.Now())
	return s.makeRoom(total-s.opts.Capacity, total-int64(float64(s.opts.Capacity)*s.opts.Low), pinned)
}

// makeRoom evicts entries of at least `least` bytes, and of up to `most` bytes, or none if there are not enough. If
// force is true, the Guard is not asked. The caller holds mu, and calls discard with the result without it.
func (s *Store) makeRoom(least, most int64, force bool) (out []*version, ok bool) {
	now := Moment{Bytes: s.clock, Time: s.opts.Now()}
	var sum int64
	for q := range s.queues {
		for e := s.queues[q].Back(); e != nil && sum < most; e = e.Prev() {
			v := e.Value.(*version)
			if q == queueOrdinary && !force && !s.guard.MayEvict(v.read, now) {
				break // all others were read later
			}
			if force && sum >= least {
				break
			}
			if v.refs > 0 || v.allocated == 0 || s.isPinned(v, now.Time) {
				continue
			}
			out = append(out, v)
			sum += v.allocated
		}
	}
	if sum < least {
		return nil, false
	}
	for _, v := range out {
		s.ghosts.note(ghostOf(v.id), v.read.Bytes)
		s.evicted.Add(1)
		s.freed.Add(v.allocated)
		s.forget(v)
	}
	return out, true
}

// enter adds an entry to the index. The caller holds mu.
func (s *Store) enter(v *version) {
	if o, ok := s.origins[v.id.Origin]; ok {
		v.id.Origin = o
	} else {
		s.origins[v.id.Origin] = v.id.Origin
	}
	v.known = true
	if v.admitted.IsZero() {
		v.admitted = s.opts.Now()
		v.read = Moment{Bytes: s.clock, Time: v.admitted}
	}
	s.entries[v.id] = v
	s.unsaved += v.unsaved
	if v.count == v.all() {
		s.whole++
	}
	k := keyName{v.id.Origin, v.id.Key}
	s.byKey[k] = append(s.byKey[k], v)
	s.requeue(v)
}

// requeue puts an entry into the queue that its marks ask for. The caller holds mu.
func (s *Store) requeue(v *version) {
	to := &s.queues[queueOrdinary]
	switch {
	case v.superseded:
		to = &s.queues[queueSuperseded]
	case v.foreign:
		to = &s.queues[queueForeign]
	}
	if v.queue == to || !v.known {
		return
	}
	if v.place != nil {
		v.queue.Remove(v.place)
	}
	v.queue = to
	// Changes of queues are rare, so the place is found by a walk.
	for e := to.Front(); e != nil; e = e.Next() {
		if e.Value.(*version).read.Bytes <= v.read.Bytes {
			v.place = to.InsertBefore(v, e)
			return
		}
	}
	v.place = to.PushBack(v)
}

// forget removes an entry from the index and from the accounts. Its record is removed by the flusher. The caller holds
// mu.
func (s *Store) forget(v *version) {
	if !v.known {
		return
	}
	v.known, v.gone = false, true
	delete(s.entries, v.id)
	k := keyName{v.id.Origin, v.id.Key}
	if rest := slices.DeleteFunc(s.byKey[k], func(o *version) bool { return o == v }); len(rest) > 0 {
		s.byKey[k] = rest
	} else {
		delete(s.byKey, k)
	}
	v.queue.Remove(v.place)
	v.queue, v.place = nil, nil
	s.unrest(v)
	if v.count == v.all() {
		s.whole--
	}
	s.used -= v.allocated
	s.promised -= v.promise
	v.promise = 0
	s.unsaved -= v.unsaved
	delete(s.touched, v)
	delete(s.dirty, v)
	if v.file != 0 {
		s.doom(v)
	}
}

// doom lets the flusher remove the record and then the file of an evicted entry. The caller holds mu.
func (s *Store) doom(v *version) {
	s.doomed = append(s.doomed, doomed{v.file, v.all(), v})
	select {
	case s.evicts <- struct{}{}:
	default: // the flusher will look anyway
	}
}

// discard closes the files of entries that forget has removed from the index, unless they are in use.
func (s *Store) discard(out []*version) {
	for _, v := range out {
		s.unload(v)
	}
}

// drop evicts one entry, whoever uses it, and reports whether it was still in the index.
func (s *Store) drop(v *version) bool {
	s.mu.Lock()
	known := v.known
	s.forget(v)
	s.mu.Unlock()
	if known {
		s.unload(v)
	}
	return known
}

// giveWay evicts the entries that were read longest ago, without asking the Guard, so that the database can write to
// a full disk. It reports whether it freed anything.
func (s *Store) giveWay() bool {
	const enough = 64 << 20
	s.mu.Lock()
	_, ok := s.makeRoom(1, enough, true)
	var out []*version
	for _, d := range s.doomed {
		if d.v != nil && !d.v.erased {
			d.v.erased = true // the space is needed now, so the file goes before its record
			out = append(out, d.v)
		}
	}
	s.mu.Unlock()
	s.discard(out)
	return ok || len(out) > 0
}

// charge accounts for a new block of n bytes, and makes room for it. It fails with object.ErrNoSpace if there is none.
func (s *Store) charge(op string, v *version, n int64) error {
	need := allocatedOf(n)
	s.mu.Lock()
	if v.gone {
		s.mu.Unlock()
		return absent(op, v.name(), "the entry was evicted")
	}
	paid := min(need, v.promise)
	var out []*version
	ok := true
	if more := s.used + s.promised - paid + need - s.opts.Capacity; more > 0 {
		low := s.used + s.promised - paid + need - int64(float64(s.opts.Capacity)*s.opts.Low)
		out, ok = s.makeRoom(more, low, s.isPinned(v, s.opts.Now()))
	}
	if ok {
		v.promise -= paid
		s.promised -= paid
		if v.count++; v.known && v.count == v.all() {
			s.whole++
		}
		v.bytes += n
		v.allocated += need
		s.used += need
		s.unsave(v, n)
	}
	used := s.used
	s.mu.Unlock()
	s.discard(out)
	if !ok {
		return fullError(op, v.name(), fmt.Sprintf("the cache holds %d of %d bytes, and nothing may be evicted", used,
			s.opts.Capacity))
	}
	return nil
}

// refund takes back charge. The caller says whether the block was counted as not durable.
func (s *Store) refund(v *version, n int64, unsaved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.known && v.count == v.all() {
		s.whole--
	}
	v.count--
	v.bytes -= n
	v.allocated -= allocatedOf(n)
	if !v.gone {
		s.used -= allocatedOf(n)
	}
	if unsaved {
		s.unsave(v, -n)
	}
}

// unsave adds to the bytes of an entry that are not durable. Drafts and evicted entries do not count. The caller holds
// mu.
func (s *Store) unsave(v *version, n int64) {
	v.unsaved += n
	if v.known {
		s.unsaved += n
	}
}

// isPinned reports whether a pin matches an entry. The caller holds mu.
func (s *Store) isPinned(v *version, now time.Time) bool {
	if v.pinEpoch != s.pinEpoch {
		v.pinEpoch = s.pinEpoch
		v.pin, v.pinned = s.pinOf(v.id.Origin, v.id.Key, now)
	}
	if v.pinned && !v.pin.IsZero() && !now.Before(v.pin) {
		v.pin, v.pinned = s.pinOf(v.id.Origin, v.id.Key, now) // another one may last longer
	}
	return v.pinned
}
