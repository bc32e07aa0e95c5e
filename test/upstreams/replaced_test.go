// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// replacedSize is the size of the objects that are replaced in mid-download: more than an extent of a node (64 MiB), so
// that every reader needs more than one request.
const replacedSize = 66<<20 + 12345

// replacer replaces an object upstream once a given number of bytes of it has passed the proxy.
type replacer struct {
	after atomic.Int64 // bytes left until the replacement; negative means done
	seen  atomic.Int64
	do    atomic.Pointer[func()]
}

func (r *replacer) passed(req *http.Request, _ int64) {
	if req.Method != http.MethodGet {
		return
	}
	if r.seen.Add(32<<10) > r.after.Load() {
		if f := r.do.Swap(nil); f != nil {
			(*f)()
		}
	}
}

// arm makes the replacement wait for n more bytes.
func (r *replacer) arm(n int64, f func()) {
	r.seen.Store(0)
	r.after.Store(n)
	r.do.Store(&f)
}

// replaced runs rounds in which an object is replaced in the middle of a download. read downloads the object and
// returns the whole content, or an error. The result must be one of the two contents.
func replaced(t *testing.T, u *upstreams.Upstream, bucket string, r *replacer, read func(key string) ([]byte, error)) {
	t.Helper()
	theirs := direct(t, u)
	data := content(40, 2*replacedSize)
	random := rand.New(rand.NewPCG(18, 4))
	old, fresh, failed, inTime := 0, 0, 0, 0
	rounds := sizeOf(t, "NEBULAIO_UPSTREAMS_REPLACED", 6)
	for round := range rounds {
		// Each round has contents of its own, which no cache has seen.
		now, next := data[round:round+replacedSize], data[replacedSize-round-1:2*replacedSize-round-1]
		put(t, theirs, bucket, "key", now)
		var hit atomic.Bool
		r.arm(random.Int64N(replacedSize), func() {
			hit.Store(true)
			if _, err := tryPut(context.Background(), theirs, bucket, "key", next); err != nil {
				t.Errorf("replace the object: %v", err)
			}
		})
		got, err := read("key")
		r.do.Store(nil)
		if hit.Load() {
			inTime++
		}
		switch {
		case err != nil:
			failed++
		case bytes.Equal(got, now):
			old++
		case bytes.Equal(got, next):
			fresh++
		default:
			t.Fatalf("round %d: %d bytes that are neither the old nor the new content", round, len(got))
		}
	}
	t.Logf("%d rounds, replaced in mid-download in %d: %d old, %d new, %d errors, no mixture", rounds, inTime, old, fresh,
		failed)
	if inTime == 0 {
		t.Error("no object was replaced in time")
	}
}

// TestReplacedInMidRead replaces an object while a node reads it through its cache.
func TestReplacedInMidRead(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket, r := newBucket(t, u), &replacer{}
	p := proxied(t, u, liar.Options{Passed: r.passed})
	n := startNode(t, tempDir(t), configuration([]bucketAt{{name: "models", endpoint: p.Endpoint, bucket: bucket}}, ""))
	ours := n.client(t)
	replaced(t, u, bucket, r, func(key string) ([]byte, error) {
		a := get(t.Context(), ours, "models", key, 0, -1)
		if a.err == nil && a.header.Get("Content-Length") == "" {
			t.Error("a reply without a length")
		}
		return a.data, a.err
	})
	// What the cache holds must be right, too.
	want := get(t.Context(), direct(t, u), bucket, "key", 0, -1)
	for range 2 {
		get(t.Context(), ours, "models", "key", 0, -1).expect(t, "read after the rounds", want.data)
	}
	n.stop(t)
	n.verify(t)
}

// TestReplacedInMidCopy replaces an object while `nebulaio cp` downloads it.
func TestReplacedInMidCopy(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket, r := newBucket(t, u), &replacer{}
	p := proxied(t, u, liar.Options{Passed: r.passed})
	target := filepath.Join(tempDir(t), "file")
	env := copyEnv(p.Endpoint)
	replaced(t, u, bucket, r, func(key string) ([]byte, error) {
		_ = os.Remove(target)
		out, code := command(t, env, "cp", "s3://"+bucket+"/"+key, target)
		data, err := os.ReadFile(target)
		if code != 0 {
			if err == nil {
				t.Fatalf("cp failed with %d and left a file of %d bytes: %s", code, len(data), out)
			}
			return nil, minio.ErrorResponse{Message: out}
		}
		if err != nil {
			t.Fatalf("cp succeeded without a file: %v\n%s", err, out)
		}
		return data, nil
	})
}

// copyEnv is the environment of transfer commands that use a server.
func copyEnv(endpoint string) []string {
	return append(os.Environ(), "AWS_ENDPOINT_URL="+endpoint, "AWS_ACCESS_KEY_ID="+upstreams.Access,
		"AWS_SECRET_ACCESS_KEY="+upstreams.Secret, "AWS_REGION="+upstreams.Region, "AWS_EC2_METADATA_DISABLED=true")
}
