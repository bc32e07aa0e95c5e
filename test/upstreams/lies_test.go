// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"crypto/md5" // the ETag of an object
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// versions knows every content that an object ever had, by key and ETag.
type versions struct {
	mu  sync.Mutex
	all map[string]map[string][]byte
	now map[string]string
}

func (v *versions) add(key, tag string, data []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.all[key] == nil {
		v.all[key] = map[string][]byte{}
	}
	v.all[key][tag] = data
	v.now[key] = tag
}

// get returns the content of a key with an ETag. Without a tag it is the current content.
func (v *versions) get(key, tag string) ([]byte, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if tag == "" {
		tag = v.now[key]
	}
	data, ok := v.all[key][tag]
	return data, ok
}

// current returns the ETag of the current content.
func (v *versions) current(key string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now[key]
}

// wrong returns what is wrong with a complete reply, or "".
func (v *versions) wrong(key string, a answer, first, last int64) string {
	data, ok := v.get(key, strings.Trim(a.tag, `"`))
	if !ok {
		return fmt.Sprintf("ETag %s, which the object never had", a.tag)
	}
	if last >= 0 {
		data = data[min(first, int64(len(data))):min(last+1, int64(len(data)))]
	}
	if !bytes.Equal(a.data, data) {
		return fmt.Sprintf("%d bytes that differ from the %d of ETag %s, served as %s, verified by %s", len(a.data),
			len(data), a.tag, a.from(), a.header.Get("X-Nebulaio-Verified"))
	}
	return ""
}

// liedTo is a bucket whose objects change while a node reads them through a proxy that lies.
type liedTo struct {
	u      *upstreams.Upstream
	bucket string
	known  *versions
	keys   []string
	put    *minio.Client
}

// sizesOfLies are the sizes of the objects: none, inline ones, those with files of their own, and one of two blocks.
var sizesOfLies = []int{0, 1, 100, 4096, 4097, 9_000, 20_000, 70_001, 300, 2_000, 33_000, 5_000, 12_345, 4_000,
	64 << 10, 1<<20 + 333}

func newLiedTo(t *testing.T, u *upstreams.Upstream) *liedTo {
	t.Helper()
	b := &liedTo{u: u, bucket: newBucket(t, u), put: summing(t, u),
		known: &versions{all: map[string]map[string][]byte{}, now: map[string]string{}}}
	for i := range 64 {
		b.keys = append(b.keys, fmt.Sprintf("key-%02d", i))
		b.write(t, i, uint64(1000+i))
	}
	return b
}

// write replaces an object. The content is known before the upstream has it: its ETag is the MD5 of the content.
func (b *liedTo) write(t *testing.T, i int, seed uint64) {
	t.Helper()
	key, data := b.keys[i], content(seed, sizesOfLies[i%len(sizesOfLies)])
	b.known.add(key, fmt.Sprintf("%x", md5.Sum(data)), data)
	if tag := putWith(t, b.put, b.bucket, key, data); tag != b.known.now[key] {
		t.Fatalf("PUT %s: the ETag is %s, expected the MD5 %s", key, tag, b.known.now[key])
	}
}

// TestNothingWrongIsServedOrKept sends reads through a node whose upstream lies in every way. Each complete reply must
// be right, and each failure must say what happened. The objects have sums at the upstream, so that a flipped bit can
// be known, too.
func TestNothingWrongIsServedOrKept(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	b := newLiedTo(t, u)
	p := proxied(t, u, liar.Options{Delay: 5 * time.Millisecond, Content: func(path string) ([]byte, bool) {
		return b.known.get(strings.TrimPrefix(path, "/"+b.bucket+"/"), "")
	}})
	n := startNode(t, tempDir(t), configuration([]bucketAt{{name: "models", endpoint: p.Endpoint, bucket: b.bucket,
		more: map[string]string{"first_byte": "400ms"}}}, "cache:\n  capacity: 4MiB\n"))
	// Hangs cost the whole deadline, so that they are rare.
	quick := liar.Without(liar.HangHeader, liar.HangBody)
	some := liar.Random(18, 0.4, append(append(append(quick, quick...), quick...), liar.HangHeader, liar.HangBody)...)
	calm := liar.Random(19, 0.05, liar.All()...)
	var number atomic.Int64
	p.SetPlan(func(r *http.Request) liar.Fault { // storms and calms, so that a breaker opens and closes
		if number.Add(1)/500%2 == 0 {
			return calm(r)
		}
		return some(r)
	})
	total := int64(sizeOf(t, "NEBULAIO_UPSTREAMS_LIES", 4000))
	c := b.ask(t, n, total, p)
	said := p.Counts()
	t.Logf(
		"%d reads: %d served %v, %d failed %v; %d replies were of a replaced version; the slowest failure took %.1f s; "+
			"the proxy answered %d requests: %v", c.served+c.failed, c.served, c.from, c.failed, c.reasons, c.old,
		c.slowest.Seconds(),
		said.Requests, said.Faults)
	if said.Requests < total || int64(c.served) < total/5 || len(said.Faults) < len(liar.All())*2/3 {
		t.Error("too little was served, or too few faults were met, for this test to show anything")
	}
	p.SetPlan(nil)
	b.settle(t, n)
	t.Logf("the cache has %.0f object versions, evicted %.0f, and dropped %.0f wrong contents", n.metric(t, "entries"),
		n.metric(t, "evictions_total"), n.metric(t, "wrong_contents_total"))
	n.stop(t)
	t.Logf("cache verify: %s", n.verify(t))
}

// settle reads every object twice while nobody lies any more. The node serves the current content.
func (b *liedTo) settle(t *testing.T, n *node) {
	t.Helper()
	ours := n.client(t)
	for _, key := range b.keys {
		want, _ := b.known.get(key, "")
		for range 2 {
			eventually(t, "honest read of "+key, func() error {
				a := get(t.Context(), ours, "models", key, 0, -1)
				if a.err == nil {
					if what := b.known.wrong(key, a, 0, -1); what != "" {
						t.Fatalf("%s: %s", key, what)
					}
					if !bytes.Equal(a.data, want) {
						return fmt.Errorf("an old version, served as %s", a.from())
					}
				}
				return a.err
			})
		}
	}
}

// outcome counts replies.
type outcome struct {
	mu             sync.Mutex
	served, failed int
	old            int // complete and right, but replaced when the reply had ended
	from, reasons  map[string]int
	slowest        time.Duration
}

// ask sends reads of objects and of ranges from many clients at once, while the objects change, until the proxy has
// answered so many requests of the node.
func (b *liedTo) ask(t *testing.T, n *node, total int64, p *liar.Proxy) *outcome {
	t.Helper()
	c := &outcome{from: map[string]int{}, reasons: map[string]int{}}
	var next atomic.Int64
	var group sync.WaitGroup
	paced := make(chan struct{}, 1)
	for worker := range 16 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(18, uint64(worker)))
			ours := n.client(t)
			for p.Counts().Requests < total && !t.Failed() {
				if next.Add(1)%8 == 0 {
					select {
					case paced <- struct{}{}:
					default: // one change waits already
					}
				}
				key := b.keys[random.IntN(len(b.keys))]
				first, last := int64(0), int64(-1)
				// The sum of a block alone is not known, so that a part of content with two blocks cannot be compared.
				if size := int64(lengthOf(b.known, key)); size > 1 && size <= 1<<20 && random.IntN(3) == 0 {
					first = random.Int64N(size)
					last = first + random.Int64N(size-first)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				began := time.Now()
				a := get(ctx, ours, "models", key, first, last)
				if ctx.Err() != nil {
					t.Errorf("%s: no end after a minute: %v", key, a.err)
				}
				cancel()
				if what := c.count(b.known, key, a, first, last, time.Since(began)); what != "" {
					t.Errorf("%s [%d, %d]: %s", key, first, last, what)
				}
			}
		})
	}
	go func() {
		group.Wait()
		close(paced)
	}()
	i := 0
	for range paced { // objects change meanwhile, paced by the reads
		b.write(t, i%64, uint64(5000+i))
		i++
	}
	t.Logf("%d objects were replaced meanwhile", i)
	return c
}

// count counts a reply, and returns what is wrong with it or "".
func (c *outcome) count(known *versions, key string, a answer, first, last int64, took time.Duration) string {
	what := ""
	if a.err == nil {
		what = known.wrong(key, a, first, last)
	} else if r := minio.ToErrorResponse(a.err); r.StatusCode != 0 && (r.StatusCode < 500 || len(r.Message) < 20) {
		what = fmt.Sprintf("failed with %d %s %q, expected a failure of the server that says what happened", r.StatusCode,
			r.Code, r.Message)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.err != nil {
		c.failed++
		c.reasons[reasonOf(a.err)]++
		c.slowest = max(c.slowest, took)
		return what
	}
	c.served++
	c.from[a.from()]++
	if known.current(key) != strings.Trim(a.tag, `"`) {
		c.old++
	}
	return what
}

func lengthOf(v *versions, key string) int {
	data, _ := v.get(key, "")
	return len(data)
}

// reasonOf sorts errors into few kinds.
func reasonOf(err error) string {
	if r := minio.ToErrorResponse(err); r.StatusCode != 0 {
		return fmt.Sprint(r.StatusCode, " ", r.Code)
	}
	return "broken reply"
}
