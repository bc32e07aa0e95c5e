// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"hash/maphash"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// What the upstream said about a key is a record in the database of the cache. Records of one key are read and written
// one after the other, in the order of the answers. So an answer can be recorded while its bytes already go to the client.

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
func (b *bucket) recall(key, version string) (cachefile.Known, bool) {
	at := &b.records[stripe(key)]
	at.Lock()
	defer at.Unlock()
	return b.s.files.Known(b.origin, recordName(key, version))
}

// remember records an answer, unless this node has changed the object since the question.
func (b *bucket) remember(ref object.Ref, changes uint64, k cachefile.Known) {
	at := &b.records[stripe(ref.Key)]
	at.Lock()
	defer at.Unlock()
	b.write(ref, changes, k)
}

// rememberSoon records an answer like remember, in the background. Everybody who asks for the record waits for it.
func (b *bucket) rememberSoon(ref object.Ref, changes uint64, about upstream.About, asked time.Time) {
	at := &b.records[stripe(ref.Key)]
	at.Lock() // before rememberSoon returns, so that no later answer is recorded before this one
	b.s.running.Go(func() {
		defer at.Unlock()
		b.write(ref, changes, cachefile.Known{Identity: about.Identity, About: about.Encode(), Checked: asked})
	})
}

// write writes a record. The caller holds the lock of the key.
func (b *bucket) write(ref object.Ref, changes uint64, k cachefile.Known) {
	b.mu.Lock()
	same := b.changes[stripe(ref.Key)] == changes
	b.mu.Unlock()
	if !same {
		return
	}
	if err := b.s.files.Remember(b.origin, recordName(ref.Key, ref.Version), k); err != nil {
		b.s.log.Warn("the cache cannot remember a key", "bucket", b.Name, "key", ref.Key, "error", err)
	}
}

// changed records that this node changes an object. What is known about the object does not count any more.
func (b *bucket) changed(key string) {
	b.mu.Lock()
	b.changes[stripe(key)]++
	b.mu.Unlock()
	b.forget(object.Ref{Key: key})
}

// forget removes a record, also one that is being written.
func (b *bucket) forget(ref object.Ref) {
	at := &b.records[stripe(ref.Key)]
	at.Lock()
	defer at.Unlock()
	if err := b.s.files.Forget(b.origin, recordName(ref.Key, ref.Version)); err != nil {
		b.s.log.Error("the cache cannot forget a key", "bucket", b.Name, "key", ref.Key, "error", err)
	}
}
