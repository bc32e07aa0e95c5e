// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// TestKilledNodes kills a node with SIGKILL while it fills its cache, writes through and evicts, and starts it again.
// After each kill, every acknowledged write is at the upstream and every read is right. At the end the cache is
// verified whole.
func TestKilledNodes(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket := newBucket(t, u)
	theirs, dir := direct(t, u), tempDir(t)
	// The cache is smaller than the objects together, so that each round evicts.
	config := configuration([]bucketAt{{name: "models", endpoint: u.Endpoint, bucket: bucket}}, "cache:\n  capacity: 48MiB\n")
	known := &versions{all: map[string]map[string][]byte{}, now: map[string]string{}}
	for i := range 40 {
		key, data := fmt.Sprintf("read-%02d", i), content(uint64(70+i), 1+i*i*3000)
		known.add(key, put(t, theirs, bucket, key, data), data)
	}
	rounds := sizeOf(t, "NEBULAIO_UPSTREAMS_KILLS", 12)
	random := rand.New(rand.NewPCG(18, 70))
	acknowledged, reads := 0, 0
	for round := range rounds {
		n := startNode(t, dir, config)
		w := &workload{known: known, acknowledged: map[string][]byte{}}
		w.run(t, n, round, 20+random.IntN(400), n.kill)
		for key, data := range w.acknowledged {
			get(t.Context(), theirs, bucket, key, 0, -1).expect(t, "an acknowledged write, upstream: "+key, data)
		}
		acknowledged += len(w.acknowledged)
		reads += int(w.reads.Load())
		if round%4 == 3 {
			n.verify(t) // also right after a kill, before the next start
		}
		if t.Failed() {
			t.Fatalf("failed in round %d", round)
		}
	}
	n := startNode(t, dir, config)
	for key := range known.now {
		want, _ := known.get(key, "")
		get(t.Context(), n.client(t), "models", key, 0, -1).expect(t, "read after the kills: "+key, want)
	}
	n.stop(t)
	n.verify(t)
	t.Logf("%d kills: %d acknowledged writes are upstream, %d reads were right", rounds, acknowledged, reads)
	if acknowledged == 0 || reads == 0 {
		t.Error("nothing was written or read")
	}
}

// workload reads and writes until its server is killed.
type workload struct {
	known        *versions
	mu           sync.Mutex
	acknowledged map[string][]byte
	reads        atomic.Int64
}

// run runs four clients, and kills the server after a number of their requests.
func (w *workload) run(t *testing.T, n *node, round, after int, kill func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var done atomic.Int64
	var once sync.Once
	var group sync.WaitGroup
	for worker := range 4 {
		c := n.client(t)
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(round), uint64(worker)))
			for i := 0; ctx.Err() == nil; i++ {
				if done.Add(1) >= int64(after) {
					once.Do(func() { kill(); cancel() })
				}
				if worker == 0 {
					key, data := fmt.Sprintf("write-%d-%d", round, i), content(random.Uint64(), random.IntN(200_000))
					if _, err := tryPut(ctx, c, "models", key, data); err == nil {
						w.mu.Lock()
						w.acknowledged[key] = data
						w.mu.Unlock()
					}
					continue
				}
				key := fmt.Sprintf("read-%02d", random.IntN(40))
				a := get(ctx, c, "models", key, 0, -1)
				if a.err != nil {
					if r := minio.ToErrorResponse(a.err); r.StatusCode >= 400 && !errors.Is(ctx.Err(), context.Canceled) {
						t.Errorf("round %d: %s: %v", round, key, a.err)
					}
					continue
				}
				w.reads.Add(1)
				if want, _ := w.known.get(key, ""); !bytes.Equal(a.data, want) {
					t.Errorf("round %d: %s: %d bytes that differ, served as %s", round, key, len(a.data), a.from())
				}
			}
		})
	}
	group.Wait()
}
