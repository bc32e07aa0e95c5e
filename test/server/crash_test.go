// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/effort"
)

// sum identifies content. absent is the sum of a missing object.
type sum [32]byte

var absent sum

// state is what the test knows about one key: the last acknowledged content, and the content that an unanswered
// request may have written.
type state struct {
	acked    sum
	maybe    []sum
	versions map[string]sum // acknowledged versions, by identifier
}

// acknowledge records content that the server has acknowledged, and the version in which it is.
func (s *state) acknowledge(x sum, version string) {
	s.acked, s.maybe = x, nil
	if version != "" {
		s.versions[version] = x
	}
}

func (s *state) allows(x sum) bool { return x == s.acked || slices.Contains(s.maybe, x) }

// worker owns some keys, so that it knows the expected content of each.
type worker struct {
	rnd    *rand.Rand
	bucket string
	keys   []string
	state  map[string]*state
}

const (
	plainBucket, versionedBucket = "plain", "versioned"
	partSize                     = 5 << 20
)

// content returns n random bytes that follow from rnd. It uses AES in counter mode, which is fast under the race
// detector.
func content(rnd *rand.Rand, n int) []byte {
	key := make([]byte, 16)
	for i := range key {
		key[i] = byte(rnd.Uint32())
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // 16 bytes are a key
	}
	b := make([]byte, n)
	cipher.NewCTR(block, make([]byte, aes.BlockSize)).XORKeyStream(b, b)
	return b
}

// TestKilledUnderLoad repeatedly kills the server under a mixed load. After each start every acknowledged object is
// present and complete, and no object is partly visible. Every few rounds the test also checks the store's
// invariants.
func TestKilledUnderLoad(t *testing.T) {
	effort.Slow(t)
	t.Parallel() // with TestIdleConnections, which waits
	rounds := effort.Rounds{Test: 2, CI: 8, Long: 200}.Of(t)
	seed := uint64(effort.Number(t, "NEBULAIO_CRASH_SEED", int(time.Now().UnixNano())))
	t.Logf("NEBULAIO_CRASH_SEED=%d", seed)
	data := t.TempDir()
	s := start(t, data)
	c := s.client(t)
	for _, b := range []string{plainBucket, versionedBucket} {
		if err := c.MakeBucket(t.Context(), b, minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.EnableVersioning(t.Context(), versionedBucket); err != nil {
		t.Fatal(err)
	}
	var workers []*worker
	for i := range 6 {
		w := &worker{rnd: rand.New(rand.NewPCG(seed, uint64(i))), bucket: plainBucket, state: map[string]*state{}}
		if i >= 4 {
			w.bucket = versionedBucket
		}
		for k := range 12 {
			key := fmt.Sprintf("w%d/%d", i, k)
			w.keys = append(w.keys, key)
			w.state[key] = &state{versions: map[string]sum{}}
		}
		workers = append(workers, w)
	}
	rnd := rand.New(rand.NewPCG(seed, 1<<32))
	var acked, slowest int64
	for round := range rounds {
		limit := 1 + rnd.Int64N(120)
		acked += load(t, s, workers, limit)
		if round%5 == 4 || round == rounds-1 {
			out, code := run(t, "store", "check", "--data", data)
			if code != 0 {
				t.Fatalf("round %d: store check: exit code %d\n%s", round, code, out)
			}
		}
		s = start(t, data)
		slowest = max(slowest, int64(s.startedIn))
		verify(t, round, s, workers)
		if t.Failed() {
			t.Fatalf("log of the server:\n%s", s.log)
		}
	}
	s.stop(t)
	if out, code := run(t, "store", "check", "--data", data); code != 0 {
		t.Fatalf("store check at the end: exit code %d\n%s", code, out)
	}
	t.Logf("%d rounds, %d requests acknowledged, slowest start %v", rounds, acked, time.Duration(slowest))
}

// load runs all workers until limit requests were acknowledged. It then kills the server while the workers continue,
// and waits until they notice.
func load(t *testing.T, s *server, workers []*worker, limit int64) int64 {
	var acked atomic.Int64
	var kill sync.Once
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			// A connection pool of its own per worker: none waits for another one's.
			c := s.client(t)
			for {
				if err := w.step(context.Background(), c); err != nil {
					if refused := minio.ToErrorResponse(err); refused.StatusCode >= 400 &&
						refused.StatusCode != http.StatusServiceUnavailable {
						t.Errorf("a request was refused: %v", err)
					}
					kill.Do(func() { go s.kill() }) // a failure that nobody caused ends the round too
					return
				}
				if acked.Add(1) >= limit {
					kill.Do(func() { go s.kill() })
				}
			}
		})
	}
	wg.Wait()
	s.kill()
	return acked.Load()
}

// step sends one request. It records the possible outcome before the request is sent, and the real outcome when the
// request is acknowledged.
func (w *worker) step(ctx context.Context, c *minio.Core) error {
	key := w.keys[w.rnd.IntN(len(w.keys))]
	st := w.state[key]
	switch n := w.rnd.IntN(100); {
	case n < 45:
		return w.put(ctx, c, key, w.rnd.IntN(16<<10))
	case n < 65:
		return w.put(ctx, c, key, 16<<10+w.rnd.IntN(3<<20))
	case n < 80:
		st.maybe = append(st.maybe, absent)
		if err := c.RemoveObject(ctx, w.bucket, key, minio.RemoveObjectOptions{}); err != nil {
			return err
		}
		st.acked, st.maybe = absent, nil
		return nil
	case n < 90:
		return w.copy(ctx, c, key)
	case n < 93:
		return w.multipart(ctx, c, key)
	default:
		return w.read(ctx, c, key)
	}
}

func (w *worker) put(ctx context.Context, c *minio.Core, key string, n int) error {
	st := w.state[key]
	b := content(w.rnd, n)
	x := sum(sha256.Sum256(b))
	st.maybe = append(st.maybe, x)
	info, err := c.Client.PutObject(ctx, w.bucket, key, bytes.NewReader(b), int64(n),
		minio.PutObjectOptions{DisableMultipart: true})
	if err != nil {
		return err
	}
	st.acknowledge(x, info.VersionID)
	return nil
}

func (w *worker) copy(ctx context.Context, c *minio.Core, key string) error {
	from := w.keys[w.rnd.IntN(len(w.keys))]
	x := w.state[from].acked
	if x == absent || len(w.state[from].maybe) > 0 || from == key {
		return nil
	}
	st := w.state[key]
	st.maybe = append(st.maybe, x)
	info, err := c.Client.CopyObject(ctx, minio.CopyDestOptions{Bucket: w.bucket, Object: key},
		minio.CopySrcOptions{Bucket: w.bucket, Object: from})
	if err != nil {
		return err
	}
	st.acknowledge(x, info.VersionID)
	return nil
}

func (w *worker) multipart(ctx context.Context, c *minio.Core, key string) error {
	st := w.state[key]
	id, err := c.NewMultipartUpload(ctx, w.bucket, key, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	sizes := []int{partSize, partSize, 1 + w.rnd.IntN(partSize)}
	if w.rnd.IntN(2) == 0 {
		sizes[0] += 4097 // the second part does not fit behind the first one's grid
	}
	h := sha256.New()
	var parts []minio.CompletePart
	for i, n := range sizes {
		b := content(w.rnd, n)
		h.Write(b)
		p, err := c.PutObjectPart(ctx, w.bucket, key, id, i+1, bytes.NewReader(b), int64(n), minio.PutObjectPartOptions{})
		if err != nil {
			return err
		}
		parts = append(parts, minio.CompletePart{PartNumber: i + 1, ETag: p.ETag})
	}
	if w.rnd.IntN(4) == 0 {
		return c.AbortMultipartUpload(ctx, w.bucket, key, id)
	}
	x := sum(h.Sum(nil))
	st.maybe = append(st.maybe, x)
	info, err := c.CompleteMultipartUpload(ctx, w.bucket, key, id, parts, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	st.acknowledge(x, info.VersionID)
	return nil
}

func (w *worker) read(ctx context.Context, c *minio.Core, key string) error {
	x, err := fetch(ctx, c, w.bucket, key, "")
	if err != nil {
		return err
	}
	if st := w.state[key]; !st.allows(x) {
		return fmt.Errorf("%s/%s has content that nobody wrote there", w.bucket, key)
	}
	return nil
}

// fetch reads a whole object. A missing object has the sum absent.
func fetch(ctx context.Context, c *minio.Core, bucket, key, version string) (sum, error) {
	body, info, _, err := c.GetObject(ctx, bucket, key, minio.GetObjectOptions{VersionID: version})
	if err != nil {
		if r := minio.ToErrorResponse(err); r.Code == "NoSuchKey" || r.Code == "NoSuchVersion" ||
			r.StatusCode == http.StatusMethodNotAllowed {
			return absent, nil
		}
		return absent, err
	}
	defer body.Close()
	h := sha256.New()
	n, err := io.Copy(h, body)
	if err == nil && n != info.Size {
		err = errors.New("short body")
	}
	return sum(h.Sum(nil)), err
}

// verify compares every key, every acknowledged version and the listing with the expected state. It then takes the
// state that it found as the expected one.
func verify(t *testing.T, round int, s *server, workers []*worker) {
	c := s.client(t)
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			for key, st := range w.state {
				x, err := fetch(context.Background(), c, w.bucket, key, "")
				if err != nil {
					t.Errorf("round %d: read %s/%s: %v", round, w.bucket, key, err)
					return
				}
				if !st.allows(x) {
					t.Errorf("round %d: %s/%s is %x, acknowledged was %x (possible: %x)", round, w.bucket, key, x[:4], st.acked[:4],
						st.maybe)
				}
				st.acked, st.maybe = x, nil
				for id, want := range st.versions {
					if got, err := fetch(context.Background(), c, w.bucket, key, id); err != nil || got != want {
						t.Errorf("round %d: version %s of %s/%s is %x (%v), acknowledged was %x", round, id, w.bucket, key, got[:4], err,
							want[:4])
					}
				}
				if len(st.versions) > 20 { // the oldest are as good as the others: bounded work per round
					st.versions = map[string]sum{}
				}
			}
		})
	}
	wg.Wait()
	listed := map[string]bool{}
	for _, b := range []string{plainBucket, versionedBucket} {
		for o := range c.Client.ListObjects(context.Background(), b, minio.ListObjectsOptions{Recursive: true}) {
			if o.Err != nil {
				t.Errorf("round %d: list %s: %v", round, b, o.Err)
				return
			}
			listed[b+"/"+o.Key] = true
		}
	}
	for _, w := range workers {
		for key, st := range w.state {
			if name := w.bucket + "/" + key; listed[name] != (st.acked != absent) {
				t.Errorf("round %d: %s is listed: %v, can be read: %v", round, name, listed[name], st.acked != absent)
			}
			delete(listed, w.bucket+"/"+key)
		}
	}
	for name := range listed {
		t.Errorf("round %d: %s is listed and nobody wrote it", round, strings.TrimSpace(name))
	}
}
