// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
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

// TestNothingWrongIsServedOrKept sends reads through a node whose upstream lies in every way. Each complete reply must
// be right. Objects are small and have sums at the upstream, so that a flipped bit can be known, too.
func TestNothingWrongIsServedOrKept(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket := newBucket(t, u)
	known := &versions{all: map[string]map[string][]byte{}, now: map[string]string{}}
	p := proxied(t, u, liar.Options{Delay: 5 * time.Millisecond, Content: func(path string) ([]byte, bool) {
		return known.get(strings.TrimPrefix(path, "/"+bucket+"/"), "")
	}})
	n := startNode(t, tempDir(t), configuration([]bucketAt{{name: "models", endpoint: p.Endpoint, bucket: bucket,
		more: map[string]string{"first_byte": "250ms"}}}, "cache:\n  capacity: 8MiB\n"))
	var keys []string
	write := func(i int, seed uint64) {
		key := fmt.Sprintf("key-%02d", i)
		data := content(seed, []int{0, 1, 100, 4096, 70_001, 300_000, 1 << 20, 900_000}[i%8])
		known.mu.Lock() // the proxy must not see the object between its replacement and its entry here
		defer known.mu.Unlock()
		tag := putSummed(t, u, bucket, key, data)
		if known.all[key] == nil {
			known.all[key] = map[string][]byte{}
			keys = append(keys, key)
		}
		known.all[key][tag], known.now[key] = data, tag
	}
	for i := range 64 {
		write(i, uint64(1000+i))
	}
	// Hangs cost the whole deadline, so that they are rare.
	quick := liar.Without(liar.HangHeader, liar.HangBody)
	some := liar.Random(18, 0.3, append(append(append(quick, quick...), quick...), liar.HangHeader, liar.HangBody)...)
	calm := liar.Random(19, 0.02, liar.All()...)
	var number atomic.Int64
	p.SetPlan(func(r *http.Request) liar.Fault { // storms and calms, so that a breaker opens and closes
		if number.Add(1)/500%2 == 0 {
			return calm(r)
		}
		return some(r)
	})

	total := int64(sizeOf(t, "NEBULAIO_UPSTREAMS_LIES", 4000))
	var next, served, failed atomic.Int64
	var mu sync.Mutex
	from, reasons := map[string]int{}, map[string]int{}
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(18, uint64(worker)))
			ours := n.client(t)
			for next.Add(1) <= total {
				key := keys[random.IntN(len(keys))]
				first, last := int64(0), int64(-1)
				if size := int64(lengthOf(known, key)); size > 1 && random.IntN(3) == 0 {
					first = random.Int64N(size)
					last = first + random.Int64N(size-first)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				a := get(ctx, ours, "models", key, first, last)
				if ctx.Err() != nil {
					t.Errorf("%s: no end after a minute: %v", key, a.err)
				}
				cancel()
				if a.err != nil {
					failed.Add(1)
					mu.Lock()
					reasons[reasonOf(a.err)]++
					mu.Unlock()
					continue
				}
				served.Add(1)
				mu.Lock()
				from[a.from()]++
				mu.Unlock()
				if what := known.wrong(key, a, first, last); what != "" {
					t.Errorf("%s [%d, %d]: %s", key, first, last, what)
				}
			}
		})
	}
	for i := range int(total / 25) { // objects change meanwhile
		for next.Load() < int64(i)*25 {
			time.Sleep(time.Millisecond) // paces the changes by the requests
		}
		write(i%64, uint64(5000+i))
	}
	group.Wait()
	c := p.Counts()
	t.Logf("%d requests: %d served %v, %d failed %v; the proxy answered %d requests: %v", total, served.Load(), from,
		failed.Load(), reasons, c.Requests, c.Faults)
	if served.Load() < total/5 || len(c.Faults) < len(liar.All())/2 {
		t.Error("too little was served, or too few faults were met, for this test to show anything")
	}
	p.SetPlan(nil)
	ours := n.client(t)
	for _, key := range slices.Sorted(maps.Keys(known.now)) {
		want, _ := known.get(key, "")
		for range 2 {
			eventually(t, "honest read of "+key, func() error {
				a := get(t.Context(), ours, "models", key, 0, -1)
				if a.err == nil {
					if what := known.wrong(key, a, 0, -1); what != "" {
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
	n.stop(t)
	n.verify(t)
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
