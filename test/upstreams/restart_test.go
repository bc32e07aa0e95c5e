// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// fleet is many objects in one bucket, each of which the cache keeps in a file of its own.
type fleet struct {
	u      *upstreams.Upstream
	bucket string
	count  int
}

func (f fleet) key(i int) string { return fmt.Sprintf("%03d/%06d", i%100, i) }

// data returns the content of an object. The cache keeps content of more than 4 KiB in a file.
func (f fleet) data(i int) []byte { return content(uint64(i), 4097+i%3000) }

// fill stores all objects at the upstream, and reads each of them once through the node.
func (f fleet) fill(t *testing.T, n *node) {
	t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	for range 16 {
		theirs, ours := direct(t, f.u), n.client(t)
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < f.count && !t.Failed(); i = int(next.Add(1)) - 1 {
				data := f.data(i)
				if _, err := tryPut(t.Context(), theirs, f.bucket, f.key(i), data); err != nil {
					t.Error(err)
					return
				}
				get(t.Context(), ours, "models", f.key(i), 0, -1).expect(t, f.key(i), data)
			}
		})
	}
	group.Wait()
}

// warm reads some objects, which must be hits.
func (f fleet) warm(t *testing.T, n *node, what string) {
	t.Helper()
	ours := n.client(t)
	random := rand.New(rand.NewPCG(18, 80))
	for range min(f.count, 500) {
		i := random.IntN(f.count)
		get(t.Context(), ours, "models", f.key(i), 0, -1).expect(t, f.key(i)+" "+what, f.data(i), "hit")
	}
}

// TestRestartIsWarm: a node that starts with many cached objects, each with a file of its own, serves them from its
// cache at once: after a clean end, after a kill, and with the metadata of the cache out of the page cache.
func TestRestartIsWarm(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	f := fleet{u: u, bucket: newBucket(t, u), count: sizeOf(t, "NEBULAIO_UPSTREAMS_OBJECTS", 1000)}
	dir := tempDir(t)
	config := configuration([]bucketAt{{name: "models", endpoint: u.Endpoint, bucket: f.bucket}}, "")
	n := startNode(t, dir, config)
	f.fill(t, n)
	ends := []struct {
		what string
		end  func()
	}{
		{"a clean end", func() { n.stop(t) }},
		{"a kill", func() { n.kill() }},
		{"a clean end, with cold metadata", func() { n.stop(t); cool(t, filepath.Join(dir, "data")) }},
	}
	for _, e := range ends {
		e.end()
		began := time.Now()
		n = startNode(t, dir, config)
		took := time.Since(began)
		entries := n.metric(t, "entries")
		t.Logf("after %s, a node with %.0f cached objects is ready %.2f s after its start", e.what, entries, took.Seconds())
		if entries < float64(f.count) {
			t.Errorf("after %s: %.0f of %d objects are cached", e.what, entries, f.count)
		}
		f.warm(t, n, "after "+e.what)
	}
	n.stop(t)
	t.Logf("cache verify: %s", n.verify(t))
	files := 0
	_ = filepath.WalkDir(filepath.Join(dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && len(d.Name()) == 16 {
			files++
		}
		return nil
	})
	t.Logf("%d files of cached content", files)
	if files < f.count {
		t.Errorf("the cache has %d files, expected one for each of %d objects", files, f.count)
	}
}

// cool removes the files of the databases below dir from the page cache.
func cool(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Base(filepath.Dir(path)) != "meta" {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		return unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
	if err != nil {
		t.Fatal(err)
	}
}
