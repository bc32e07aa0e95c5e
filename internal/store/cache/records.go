// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// records is what the upstream said about keys of a bucket, in the database of the cache. Records of one key are read
// and written one after the other, in the order of the answers. So an answer can be recorded while its bytes already go
// to the client.
type records struct {
	b     *bucket
	locks [256]sync.Mutex // by hash of the key; taken before bucket.mu
}

var seed = maphash.MakeSeed()

// stripe returns the index of the change counter and of the lock of a key.
func stripe(key string) uint8 { return uint8(maphash.String(seed, key)) }

// recordName returns the name under which the cache remembers a version of a key.
func recordName(key, version string) string {
	if version == "" {
		return key
	}
	return key + "\x00" + version
}

// recall returns what is known about a version of a key. It waits for an answer that is being recorded.
func (r *records) recall(key, version string) (cachefile.Known, bool) {
	at := &r.locks[stripe(key)]
	at.Lock()
	defer at.Unlock()
	return r.b.s.files.Known(r.b.origin, recordName(key, version))
}

// remember records an answer, unless this node has changed the object since the question.
func (r *records) remember(ref object.Ref, changes uint64, k cachefile.Known) {
	at := &r.locks[stripe(ref.Key)]
	at.Lock()
	defer at.Unlock()
	r.write(ref, changes, k)
}

// rememberSoon records an answer like remember, in the background. Everybody who asks for the record waits for it.
func (r *records) rememberSoon(ref object.Ref, changes uint64, about upstream.About, asked time.Time) {
	at := &r.locks[stripe(ref.Key)]
	at.Lock() // before rememberSoon returns, so that no later answer is recorded before this one
	r.b.s.running.Go(func() {
		defer at.Unlock()
		r.write(ref, changes, cachefile.Known{Identity: about.Identity, About: about.Encode(), Checked: asked})
	})
}

// write writes a record. The caller holds the lock of the key.
func (r *records) write(ref object.Ref, changes uint64, k cachefile.Known) {
	r.b.mu.Lock()
	same := r.b.changes[stripe(ref.Key)] == changes
	r.b.mu.Unlock()
	if !same {
		return
	}
	if err := r.b.s.files.Remember(r.b.origin, recordName(ref.Key, ref.Version), k); err != nil {
		r.b.s.log.Warn("the cache cannot remember a key", "bucket", r.b.Name, "key", ref.Key, "error", err)
	}
}

// changed records that this node changes an object. What is known about the object does not count any more.
func (b *bucket) changed(key string) {
	b.mu.Lock()
	b.changes[stripe(key)]++
	b.mu.Unlock()
	b.records.forget(object.Ref{Key: key})
}

// forget removes a record, also one that is being written.
func (r *records) forget(ref object.Ref) {
	at := &r.locks[stripe(ref.Key)]
	at.Lock()
	defer at.Unlock()
	if err := r.b.s.files.Forget(r.b.origin, recordName(ref.Key, ref.Version)); err != nil {
		r.b.s.log.Error("the cache cannot forget a key", "bucket", r.b.Name, "key", ref.Key, "error", err)
	}
}
