// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"cmp"
	"container/list"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/codec"
)

// index knows all entries of a cache: by identity, by key, and in the order in which they may be evicted. It counts
// what they occupy. All fields but opts are guarded by mu.
type index struct {
	opts   *Options
	counts *counts
	evicts chan<- struct{} // tells the writer that there are evicted entries

	mu       sync.Mutex
	closed   bool
	entries  map[object.Identity]*version
	byKey    map[keyName][]*version
	byFile   map[uint64]*version // files that must not be swept, also of drafts and of evicted entries in use
	queues   [3]list.List        // see queue numbers; the entry that was read last is in front
	idle     list.List           // loaded entries without users
	idleSums int64               // blocks of them
	whole    int64               // entries with all blocks
	used     int64               // bytes on the disk
	promised int64
	guard    Guard
	ghosts   ghosts
	clock    int64
	dirty    map[*version]struct{} // entries with changes that the database does not have
	touched  map[*version]struct{} // entries with read times that the database does not have
	doomed   []doomed              // evicted entries whose records and files are still to be removed
	unsaved  int64                 // bytes that are not durable
	pins     pins
	origins  map[string]string // one copy of each origin
}

// The queues in the order in which their entries are evicted.
const (
	queueSuperseded = iota
	queueForeign
	queueOrdinary
)

// keyName is a key of an origin.
type keyName struct{ origin, key string }

// doomed is an evicted entry whose records are still to be removed.
type doomed struct {
	file   uint64
	blocks int64
	v      *version // nil for a record that is not readable
}

// reset empties the index.
func (x *index) reset() {
	x.entries, x.byKey, x.byFile = map[object.Identity]*version{}, map[keyName][]*version{}, map[uint64]*version{}
	x.dirty, x.touched = map[*version]struct{}{}, map[*version]struct{}{}
	x.pins, x.origins = pins{all: map[Pin]Pin{}, epoch: 1}, map[string]string{}
	for i := range x.queues {
		x.queues[i].Init()
	}
	x.idle.Init()
	x.idleSums, x.whole, x.unsaved, x.doomed = 0, 0, 0, nil
	x.used, x.clock = 0, 0
	x.guard = Guard{Capacity: x.opts.Capacity, ColdTime: x.opts.ColdTime}
}

// ghostOf returns the key of content for ghosts.
func ghostOf(id object.Identity) uint64 {
	h := id.Hash()
	return binary.BigEndian.Uint64(h[:])
}

// note advances the access clock, and tells the Guard of a re-read. The caller holds mu.
func (x *index) note(id object.Identity, n int64) {
	x.clock += n
	now := Moment{Bytes: x.clock, Time: x.opts.Now()}
	if v := x.entries[id]; v != nil {
		x.guard.Reread(now.Bytes-v.read.Bytes, n)
		x.touch(v, now)
		return
	}
	if before, ok := x.ghosts.note(ghostOf(id), x.clock); ok {
		x.guard.Reread(x.clock-before, n)
	}
}

// touch records a read of an entry. The caller holds mu.
func (x *index) touch(v *version, now Moment) {
	v.read = now
	if v.place != nil {
		v.queue.MoveToFront(v.place)
	}
	if v.named && !v.touched {
		v.touched = true
		x.touched[v] = struct{}{}
	}
}

// take adds a user to the entry of id, or returns nil if there is none. The caller holds mu.
func (x *index) take(id object.Identity) *version {
	v := x.entries[id]
	if v == nil || x.closed {
		return nil
	}
	x.hold(v)
	return v
}

// hold adds a user to an entry. The caller holds mu.
func (x *index) hold(v *version) {
	v.refs++
	x.unrest(v)
}

// mostSums limits the blocks of entries that stay loaded without users to 64 MiB of sums.
const mostSums = 8 << 20

// unrest removes an entry from the idle ones. The caller holds mu.
func (x *index) unrest(v *version) {
	if v.rest != nil {
		x.idle.Remove(v.rest)
		v.rest = nil
		x.idleSums -= v.all()
	}
}

// enter adds an entry to the index. The caller holds mu.
func (x *index) enter(v *version) {
	if o, ok := x.origins[v.id.Origin]; ok {
		v.id.Origin = o
	} else {
		x.origins[v.id.Origin] = v.id.Origin
	}
	v.known = true
	if v.admitted.IsZero() {
		v.admitted = x.opts.Now()
		v.read = Moment{Bytes: x.clock, Time: v.admitted}
	}
	x.entries[v.id] = v
	x.unsaved += v.unsaved
	if v.count == v.all() {
		x.whole++
	}
	k := keyName{v.id.Origin, v.id.Key}
	x.byKey[k] = append(x.byKey[k], v)
	x.requeue(v)
}

// requeue puts an entry into the queue that its marks ask for. The caller holds mu.
func (x *index) requeue(v *version) {
	to := &x.queues[queueOrdinary]
	switch {
	case v.superseded:
		to = &x.queues[queueSuperseded]
	case v.foreign:
		to = &x.queues[queueForeign]
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
func (x *index) forget(v *version) {
	if !v.known {
		return
	}
	v.known, v.gone = false, true
	delete(x.entries, v.id)
	k := keyName{v.id.Origin, v.id.Key}
	if rest := slices.DeleteFunc(x.byKey[k], func(o *version) bool { return o == v }); len(rest) > 0 {
		x.byKey[k] = rest
	} else {
		delete(x.byKey, k)
	}
	v.queue.Remove(v.place)
	v.queue, v.place = nil, nil
	x.unrest(v)
	if v.count == v.all() {
		x.whole--
	}
	x.used -= v.allocated
	x.promised -= v.promise
	v.promise = 0
	x.unsaved -= v.unsaved
	delete(x.touched, v)
	delete(x.dirty, v)
	if v.file != 0 {
		x.doom(v)
	}
}

// doom lets the writer remove the record and then the file of an evicted entry. The caller holds mu.
func (x *index) doom(v *version) {
	x.doomed = append(x.doomed, doomed{v.file, v.all(), v})
	select {
	case x.evicts <- struct{}{}:
	default: // the writer will look anyway
	}
}

// supersede marks the entries of a key that are not its current content.
func (x *index) supersede(origin, key string, k Known) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, v := range x.byKey[keyName{origin, key}] {
		if old := k.Absent || v.id != k.Identity; old != v.superseded {
			v.superseded = old
			x.requeue(v)
			if v.named {
				x.dirty[v] = struct{}{}
			}
		}
	}
}

// selected returns the selected entries in the order of origin and key.
func (x *index) selected(m Match) []*version {
	x.mu.Lock()
	var out []*version
	for _, v := range x.entries {
		if m.Matches(v.id.Origin, v.id.Key) {
			out = append(out, v)
		}
	}
	x.mu.Unlock()
	slices.SortFunc(out, func(a, b *version) int {
		return cmp.Or(strings.Compare(a.id.Origin, b.id.Origin), strings.Compare(a.id.Key, b.id.Key),
			a.admitted.Compare(b.admitted))
	})
	return out
}

// takeReads returns the read times that the database does not have. The caller holds mu.
func (x *index) takeReads() []pair {
	var out []pair
	for v := range x.touched {
		v.touched = false
		out = append(out, pair{numberKey(kindRead, v.file), encodeRead(v.read)})
	}
	clear(x.touched)
	return out
}

// rest keeps an entry without users loaded, and returns entries that are to be unloaded for it. The caller holds mu.
func (x *index) rest(v *version) (out []*version) {
	v.rest = x.idle.PushFront(v)
	x.idleSums += v.all()
	for x.idle.Len() > x.opts.OpenFiles || x.idleSums > mostSums {
		old := x.idle.Back().Value.(*version)
		x.unrest(old)
		out = append(out, old)
	}
	return out
}

// policy returns the record of the access clock, the Guard and the generations of Known records. The caller holds mu.
func (x *index) policy(g generations) pair {
	var e codec.Encoder
	e.Byte(recordVersion)
	e.Int(x.clock)
	e.Word(math.Float64bits(x.guard.Usual))
	g.encode(&e)
	return pair{metaKey("policy"), e}
}
