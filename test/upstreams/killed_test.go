// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// moment is what a node does when it is killed.
type moment int

const (
	inFill  moment = iota // a body is on its way from the upstream to the cache
	inWrite               // a write of a client is on its way to the upstream, or its answer on the way back
	inEvict               // entries were evicted since the last look
	moments
)

var momentNames = [moments]string{"fill", "write-through", "eviction"}

// killer kills a node at a moment of its traffic to the upstream.
type killer struct {
	mu   sync.Mutex
	left int // events until the kill
	at   moment
	kill func()
	hits [moments]int // nodes that were killed, by moment
}

// arm makes the killer wait for so many events.
func (k *killer) arm(at moment, events int, kill func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.left, k.kill = at, events, kill
}

// event counts an event, and kills the node at the last one.
func (k *killer) event(at moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kill == nil || at != k.at {
		return
	}
	if k.left--; k.left > 0 {
		return
	}
	k.kill()
	k.hits[at]++
	k.kill = nil
}

// passed is called by the proxy for each piece of a body.
func (k *killer) passed(r *http.Request, _ int64) {
	if r.Method == http.MethodGet {
		k.event(inFill)
	}
}

// TestKilledNodes kills a node with SIGKILL while it fills its cache, writes through and evicts, and starts it again.
// After each kill, the cache is verified, and every acknowledged write is at the upstream. Every read is right.
func TestKilledNodes(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket := newBucket(t, u)
	theirs, dir := direct(t, u), tempDir(t)
	k := &killer{}
	writes := func(r *http.Request) {
		if r.Method == http.MethodPut {
			k.event(inWrite)
		}
	}
	p := proxied(t, u, liar.Options{Passed: k.passed, Answered: writes, Plan: func(r *http.Request) liar.Fault {
		writes(r)
		return liar.Honest
	}})
	// The cache is smaller than the objects together, so that each round evicts.
	config := configuration([]bucketAt{{name: "models", endpoint: p.Endpoint, bucket: bucket}},
		"cache:\n  capacity: 6MiB\n")
	known := &versions{all: map[string]map[string][]byte{}, now: map[string]string{}}
	for i := range 40 {
		key, data := fmt.Sprintf("read-%02d", i), content(uint64(70+i), 1+i*i*1200)
		known.add(key, put(t, theirs, bucket, key, data), data)
	}
	rounds := sizeOf(t, "NEBULAIO_UPSTREAMS_KILLS", 12)
	random := rand.New(rand.NewPCG(18, 70))
	acknowledged, unacknowledged, reads, found, evicted := 0, 0, 0, 0.0, 0
	// A node writes down what it caches after a moment. On a busy machine all nodes may be killed before that.
	round := 0
	for ; round < rounds || found == 0 && round < 10*rounds; round++ {
		n := startNode(t, dir, config)
		found += n.metric(t, "entries")
		w := &workload{known: known, acknowledged: map[string][]byte{}, k: k}
		at := moment(round % int(moments))
		w.run(t, n, round, at, []int{1 + random.IntN(1200), 1 + random.IntN(60), 1 + random.IntN(60)}[at])
		for key, data := range w.acknowledged {
			get(t.Context(), theirs, bucket, key, 0, -1).expect(t, "an acknowledged write, upstream: "+key, data)
		}
		acknowledged += len(w.acknowledged)
		unacknowledged += w.unacknowledged
		evicted += w.evicted
		reads += int(w.reads.Load())
		n.verify(t) // right after the kill, before the next start
		if t.Failed() {
			t.Fatalf("failed in round %d, killed in %s", round, momentNames[at])
		}
	}
	n := startNode(t, dir, config)
	for key := range known.now {
		want, _ := known.get(key, "")
		get(t.Context(), n.client(t), "models", key, 0, -1).expect(t, "read after the kills: "+key, want)
	}
	n.stop(t)
	t.Logf("cache verify: %s", n.verify(t))
	t.Logf("%d kills, %v by moment (fill, write-through, eviction), with %.1f entries found again at each start: %d "+
		"acknowledged writes are upstream, %d had no answer, %d reads were right, at least %d entries were evicted", round,
		k.hits, found/float64(round), acknowledged, unacknowledged, reads, evicted)
	if acknowledged == 0 || reads == 0 || found == 0 || slices.Min(k.hits[:]) < rounds/int(moments) {
		t.Error("nothing was written, read or found again, or not every moment was met")
	}
}

// workload reads and writes until its server is killed.
type workload struct {
	known          *versions
	k              *killer
	mu             sync.Mutex
	acknowledged   map[string][]byte
	unacknowledged int
	evicted        int
	reads          atomic.Int64
}

// run runs six clients until the server is killed at the given moment, after so many events of it.
func (w *workload) run(t *testing.T, n *node, round int, at moment, events int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w.k.arm(at, events, func() { n.kill(); cancel() })
	var group sync.WaitGroup
	for worker := range 6 {
		c := n.client(t)
		random := rand.New(rand.NewPCG(uint64(round), uint64(worker)))
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				switch worker {
				case 0, 1:
					w.write(ctx, c, fmt.Sprintf("write-%d-%d-%d", round, worker, i), content(random.Uint64(), random.IntN(200_000)))
				default:
					w.read(ctx, t, c, fmt.Sprintf("read-%02d", random.IntN(40)))
				}
				if worker == 2 && (at == inEvict || i%50 == 0) {
					w.watch(t, n)
				}
			}
		})
	}
	group.Wait()
	if context.Cause(ctx) == context.DeadlineExceeded {
		t.Errorf("round %d: the server was not killed in two minutes: %s does not happen", round, momentNames[at])
	}
}

// write writes a new object, and keeps what was acknowledged.
func (w *workload) write(ctx context.Context, c *minio.Core, key string, data []byte) {
	_, err := tryPut(ctx, c, "models", key, data)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.acknowledged[key] = data
	} else {
		w.unacknowledged++
	}
}

// watch counts evictions.
func (w *workload) watch(t *testing.T, n *node) {
	for now := int(n.metric(t, "evictions_total")); w.evicted < now; w.evicted++ {
		w.k.event(inEvict)
	}
}

// read reads an object and compares it.
func (w *workload) read(ctx context.Context, t *testing.T, c *minio.Core, key string) {
	a := get(ctx, c, "models", key, 0, -1)
	if a.err != nil {
		if r := minio.ToErrorResponse(a.err); r.StatusCode >= 400 && ctx.Err() == nil {
			t.Errorf("%s: %v", key, a.err)
		}
		return
	}
	w.reads.Add(1)
	if want, _ := w.known.get(key, ""); !bytes.Equal(a.data, want) {
		t.Errorf("%s: %d bytes that differ, served as %s", key, len(a.data), a.from())
	}
}
