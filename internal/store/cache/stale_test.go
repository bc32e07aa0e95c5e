// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
)

// TestASilentUpstreamDoesNotDelayCachedReads reads cached content while a question to the upstream has no answer. The
// content is served as stale, one question stays open, and its answer counts when it comes.
func TestASilentUpstreamDoesNotDelayCachedReads(t *testing.T) {
	f := newFar(t)
	data := content(30, 2*mib+1)
	f.put(t, "a", data)
	f.put(t, "b", data)
	r := newRig(t, f, cache.Rules{StaleAfter: time.Millisecond})
	for _, key := range []string{"a", "b"} {
		r.want(t, key, data, object.ServedUpstream)
		r.stored(t, key, 0, int64(len(data)))
	}
	answers := make(chan struct{})
	f.set(func() { f.silent = answers })
	before := f.stats.Load()
	for range 3 {
		r.want(t, "a", data, object.ServedStale)
		r.want(t, "b", data, object.ServedStale)
	}
	h, err := r.Handle(t.Context(), object.Ref{Bucket: bucket, Key: "b"})
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Close()
	for f.stats.Load() == before { // a read does not wait until its question is asked
		time.Sleep(time.Millisecond)
	}
	if n := f.stats.Load() - before; n != 1 {
		t.Errorf("%d questions are open, expected one", n)
	}
	changed := content(31, mib)
	f.put(t, "a", changed)
	f.set(func() { f.silent = nil })
	close(answers)
	for _, how, err := r.get(t.Context(), "a", 0, -1); how.From == object.ServedStale; _, how,
		err = r.get(t.Context(), "a", 0, -1) {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, _, err := r.get(t.Context(), "a", 0, -1)
	if err != nil || string(got) != string(changed) {
		t.Errorf("%d bytes, expected the new content; %v", len(got), err)
	}
}
