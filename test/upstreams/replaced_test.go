// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// Sizes of the objects that are replaced in mid-download. Most are small, because 200 rounds move each of them three
// times. One round of twenty has an object of more than an extent of a node (64 MiB).
const (
	replacedSmall = 7<<20 + 12345
	replacedLarge = 66<<20 + 12345
)

// replacer replaces objects upstream, each when a given number of its bytes has passed the proxy.
type replacer struct {
	mu   sync.Mutex
	all  map[string]*replacement // by the last part of the path
	sent map[*http.Request]int64 // bytes of a reply so far
}

// replacement is one replacement that waits for its moment.
type replacement struct {
	left int64
	do   func()
}

// passed is called by the proxy for each piece of a body. The reply waits while the object is replaced.
func (r *replacer) passed(req *http.Request, sent int64) {
	if req.Method != http.MethodGet {
		return
	}
	key := path.Base(req.URL.Path)
	r.mu.Lock()
	one := r.all[key]
	if one != nil {
		one.left -= sent - r.sent[req]
		if r.sent[req] = sent; one.left > 0 {
			one = nil
		} else {
			delete(r.all, key)
		}
	}
	r.mu.Unlock()
	if one != nil {
		one.do()
	}
}

// arm makes the replacement of a key wait for n more bytes. The result ends the wait.
func (r *replacer) arm(key string, n int64, f func()) (disarm func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all, r.sent = map[string]*replacement{}, map[*http.Request]int64{}
	}
	r.all[key] = &replacement{n, f}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, key)
	}
}

// download is one way to read an object whole. prepare runs before the replacement is armed, and may read parts.
type download struct {
	prepare func(key string, size int64, random *rand.Rand)
	read    func(key string) ([]byte, error)
}

// replaced runs rounds in which an object is replaced in the middle of a download. The result of a round must be one of
// the two contents, or an error.
func replaced(t *testing.T, u *upstreams.Upstream, bucket string, r *replacer, d download) {
	t.Helper()
	theirs := direct(t, u)
	data := content(40, 2*replacedLarge)
	var next, old, fresh, failed, inTime atomic.Int64
	rounds := int64(sizeOf(t, "NEBULAIO_UPSTREAMS_REPLACED", 8))
	round := func(round int64) {
		size := int64(replacedSmall)
		if round%20 == 7 {
			size = replacedLarge
		}
		random := rand.New(rand.NewPCG(18, uint64(round)))
		// Each round has contents of its own, which no cache has seen.
		key, end := fmt.Sprintf("key-%03d", round), int64(len(data))-round
		now, then := data[round:round+size], data[end-size:end]
		put(t, theirs, bucket, key, now)
		if d.prepare != nil {
			d.prepare(key, size, random)
		}
		disarm := r.arm(key, random.Int64N(size*2/3), func() {
			inTime.Add(1)
			if _, err := tryPut(context.Background(), theirs, bucket, key, then); err != nil {
				t.Errorf("replace %s: %v", key, err)
			}
		})
		got, err := d.read(key)
		disarm()
		if round > 0 {
			if err := theirs.RemoveObject(t.Context(), bucket, key, minio.RemoveObjectOptions{}); err != nil {
				t.Errorf("remove %s: %v", key, err)
			}
		}
		switch {
		case err != nil:
			failed.Add(1)
		case bytes.Equal(got, now):
			old.Add(1)
		case bytes.Equal(got, then):
			fresh.Add(1)
		default:
			t.Errorf("round %d: %d bytes that are neither the old nor the new content", round, len(got))
		}
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for i := next.Add(1) - 1; i < rounds && !t.Failed(); i = next.Add(1) - 1 {
				round(i)
			}
		})
	}
	group.Wait()
	t.Logf("%d rounds, replaced in mid-download in %d: %d old, %d new, %d errors, no mixture", rounds, inTime.Load(),
		old.Load(), fresh.Load(), failed.Load())
	if inTime.Load() < rounds/2 {
		t.Error("fewer than half of the objects were replaced in time")
	}
}

// TestReplacedInMidRead replaces an object while a node reads it through its cache. Some blocks are cached before, so
// that the read needs several requests to the upstream, and joins their bytes with cached ones.
func TestReplacedInMidRead(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket, r := newBucket(t, u), &replacer{}
	p := proxied(t, u, liar.Options{Passed: r.passed})
	n := startNode(t, tempDir(t), configuration([]bucketAt{{name: "models", endpoint: p.Endpoint, bucket: bucket}},
		"cache:\n  capacity: 512MiB\n"))
	ours := n.client(t)
	replaced(t, u, bucket, r, download{
		prepare: func(key string, size int64, random *rand.Rand) {
			for range random.IntN(4) {
				at := random.Int64N(size - 1)
				if a := get(t.Context(), ours, "models", key, at, at+1); a.err != nil {
					t.Errorf("read 2 bytes of %s: %v", key, a.err)
				}
			}
		},
		read: func(key string) ([]byte, error) {
			a := get(t.Context(), ours, "models", key, 0, -1)
			if a.err == nil && a.header.Get("Content-Length") == "" {
				t.Error("a reply without a length")
			}
			return a.data, a.err
		}})
	t.Logf("the proxy answered %v", p.Counts().Methods)
	// What the cache holds must be right, too.
	want := get(t.Context(), direct(t, u), bucket, "key-000", 0, -1)
	for range 2 {
		get(t.Context(), ours, "models", "key-000", 0, -1).expect(t, "read after the rounds", want.data)
	}
	n.stop(t)
	t.Logf("cache verify: %s", n.verify(t))
}

// TestReplacedInMidCopy replaces an object while `nebulaio cp` downloads it.
func TestReplacedInMidCopy(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket, r := newBucket(t, u), &replacer{}
	p := proxied(t, u, liar.Options{Passed: r.passed})
	dir, env := tempDir(t), copyEnv(p.Endpoint)
	replaced(t, u, bucket, r, download{read: func(key string) ([]byte, error) {
		target := filepath.Join(dir, key)
		defer os.Remove(target)
		out, code := command(t, env, "cp", "s3://"+bucket+"/"+key, target)
		data, err := os.ReadFile(target)
		if code != 0 {
			if err == nil {
				t.Errorf("cp failed with %d and left a file of %d bytes: %s", code, len(data), out)
			}
			return nil, minio.ErrorResponse{Message: out}
		}
		if err != nil {
			t.Errorf("cp succeeded without a file: %v\n%s", err, out)
		}
		return data, err
	}})
	t.Logf("the proxy answered %v", p.Counts().Methods)
}

// copyEnv is the environment of transfer commands that use a server.
func copyEnv(endpoint string) []string {
	return append(os.Environ(), "AWS_ENDPOINT_URL="+endpoint, "AWS_ACCESS_KEY_ID="+upstreams.Access,
		"AWS_SECRET_ACCESS_KEY="+upstreams.Secret, "AWS_REGION="+upstreams.Region, "AWS_EC2_METADATA_DISABLED=true")
}
