// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// TestASilentUpstreamIsAskedOnce: a read whose bytes stop to come fails at the deadline. It does not ask again, because
// the next request could take as long.
func TestASilentUpstreamIsAskedOnce(t *testing.T) {
	data := content(50, 2*mib)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
		w.Header().Set("Content-Length", "2097152")
		if r.Method != http.MethodGet {
			return
		}
		asked.Add(1)
		_, _ = w.Write(data[:mib/2])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	b, err := upstream.New(upstream.Options{Endpoint: server.URL, Bucket: bucket, Stall: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, newFar(t), cache.Rules{})
	local := model.NewIn(t.TempDir())
	if err := local.CreateBucket(t.Context(), object.Bucket{Name: bucket}); err != nil {
		t.Fatal(err)
	}
	s := &rig{Store: cache.New(cache.Options{Local: local, Files: r.files,
		Buckets: []cache.Bucket{{Name: bucket, From: b, Pass: b.Through(bucket, nil)}}})}
	got, _, err := s.get(t.Context(), "a", 0, -1)
	if !upstream.Silent(err) || asked.Load() != 1 {
		t.Errorf("%d bytes, %v; the upstream was asked %d times, expected once", len(got), err, asked.Load())
	}
}

// TestTheUpstreamChoosesTheClass: the storage class of a write is not remembered, because some upstreams choose
// another.
func TestTheUpstreamChoosesTheClass(t *testing.T) {
	f := newFar(t)
	r := newRig(t, f, cache.Rules{Validate: time.Hour})
	for class, questions := range map[string]int64{"": 0, "GLACIER": 1} {
		attrs := map[string]string{}
		if class != "" {
			attrs[object.AttrClass] = class
		}
		if _, err := r.Put(t.Context(), object.Put{Bucket: bucket, Key: "a" + class, Size: 3,
			Body:       bytes.NewReader([]byte("abc")),
			Attributes: attrs}); err != nil {
			t.Fatal(err)
		}
		before := f.stats.Load()
		for range 2 {
			if _, err := r.Stat(t.Context(), object.Ref{Bucket: bucket, Key: "a" + class}); err != nil {
				t.Fatal(err)
			}
		}
		if got := f.stats.Load() - before; got != questions {
			t.Errorf("after a write in the class %q, the upstream was asked %d times, expected %d", class, got, questions)
		}
	}
}
