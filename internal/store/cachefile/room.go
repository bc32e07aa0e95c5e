// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
)

// admit makes room for content, or reports that there is none. It returns evicted entries for discard. The caller
// holds mu.
func (x *index) admit(id object.Identity) ([]*version, bool) {
	need := allocatedOf(id.Size)
	if need > x.opts.Capacity {
		return nil, false
	}
	total := x.used + x.promised + need
	if float64(total) <= float64(x.opts.Capacity)*x.opts.High {
		return nil, true
	}
	// Above High, what may go goes. If nothing may go, the cache fills up to Capacity.
	_, pinned := x.pins.of(id.Origin, id.Key, x.opts.Now())
	return x.makeRoom(total-x.opts.Capacity, total-int64(float64(x.opts.Capacity)*x.opts.Low), pinned)
}

// makeRoom evicts entries of at least `least` bytes, and of up to `most` bytes, or none if there are not enough. If
// force is true, the Guard is not asked. The caller holds mu, and calls discard with the result without it.
func (x *index) makeRoom(least, most int64, force bool) (out []*version, ok bool) {
	now := Moment{Bytes: x.clock, Time: x.opts.Now()}
	var sum int64
	for q := range x.queues {
		for e := x.queues[q].Back(); e != nil && sum < most; e = e.Prev() {
			v := e.Value.(*version)
			if q == queueOrdinary && !force && !x.guard.MayEvict(v.read, now) {
				break // all others were read later
			}
			if force && sum >= least {
				break
			}
			if v.refs > 0 || v.allocated == 0 || x.isPinned(v, now.Time) {
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
		x.ghosts.note(ghostOf(v.id), v.read.Bytes)
		x.counts.evicted.Add(1)
		x.counts.freed.Add(v.allocated)
		x.forget(v)
	}
	return out, true
}

// spare evicts entries of up to n bytes without asking the Guard, and returns all evicted entries whose files still
// exist. Their files may go before their records. The caller holds mu.
func (x *index) spare(n int64) (out []*version) {
	x.makeRoom(1, n, true)
	for _, d := range x.doomed {
		if d.v != nil && !d.v.erased {
			d.v.erased = true
			out = append(out, d.v)
		}
	}
	return out
}

// charge accounts for a new block of n bytes, and makes room for it. It returns evicted entries for Store.discard. It
// fails with object.ErrNoSpace if there is no room.
func (x *index) charge(op string, v *version, n int64) ([]*version, error) {
	need := allocatedOf(n)
	x.mu.Lock()
	if v.gone {
		x.mu.Unlock()
		return nil, absent(op, v.name(), "the entry was evicted")
	}
	paid := min(need, v.promise)
	var out []*version
	ok := true
	if more := x.used + x.promised - paid + need - x.opts.Capacity; more > 0 {
		low := x.used + x.promised - paid + need - int64(float64(x.opts.Capacity)*x.opts.Low)
		out, ok = x.makeRoom(more, low, x.isPinned(v, x.opts.Now()))
	}
	if ok {
		v.promise -= paid
		x.promised -= paid
		if v.count++; v.known && v.count == v.all() {
			x.whole++
		}
		v.bytes += n
		v.allocated += need
		x.used += need
		x.unsave(v, n)
	}
	used := x.used
	x.mu.Unlock()
	if !ok {
		return nil, fullError(op, v.name(), fmt.Sprintf("the cache holds %d of %d bytes, and nothing may be evicted", used,
			x.opts.Capacity))
	}
	return out, nil
}

// refund takes back charge. The caller says whether the block was counted as not durable.
func (x *index) refund(v *version, n int64, unsaved bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if v.known && v.count == v.all() {
		x.whole--
	}
	v.count--
	v.bytes -= n
	v.allocated -= allocatedOf(n)
	if !v.gone {
		x.used -= allocatedOf(n)
	}
	if unsaved {
		x.unsave(v, -n)
	}
}

// unsave adds to the bytes of an entry that are not durable. Drafts and evicted entries do not count. The caller holds
// mu.
func (x *index) unsave(v *version, n int64) {
	v.unsaved += n
	if v.known {
		x.unsaved += n
	}
}

// isPinned reports whether a pin matches an entry. The caller holds mu.
func (x *index) isPinned(v *version, now time.Time) bool {
	if v.pinEpoch != x.pins.epoch {
		v.pinEpoch = x.pins.epoch
		v.pin, v.pinned = x.pins.of(v.id.Origin, v.id.Key, now)
	}
	if v.pinned && !v.pin.IsZero() && !now.Before(v.pin) {
		v.pin, v.pinned = x.pins.of(v.id.Origin, v.id.Key, now) // another one may last longer
	}
	return v.pinned
}
