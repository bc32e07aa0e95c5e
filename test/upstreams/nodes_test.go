// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// addresses returns n free addresses on loopback, on which nobody listens over TCP or UDP.
func addresses(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after all are chosen, so that they differ
		all = append(all, l.Addr().String())
	}
	return all
}

// startNodes starts a cluster of nodes with one upstream bucket each and waits until each sees all.
func startNodes(t *testing.T, count int, b bucketAt) []*node {
	t.Helper()
	dir := tempDir(t)
	key := filepath.Join(dir, "cluster.key")
	if out, code := command(t, nodeEnv(), "cluster", "key", "--out", key); code != 0 {
		t.Fatalf("nebulaio cluster key: %s", out)
	}
	at := addresses(t, 2*count)
	var nodes []*node
	for i := range count {
		more := fmt.Sprintf("cluster:\n  name: node-%d\n  address: %s\n  gossip_address: %s\n  key_file: %s\n  seeds: [%s]\n",
			i, at[2*i], at[2*i+1], key, "'"+at[1]+"'")
		nodes = append(nodes, startNode(t, tempDir(t), configuration([]bucketAt{b}, more)))
	}
	for _, n := range nodes {
		eventually(t, "the nodes find each other", func() error { return n.sees(t, count) })
	}
	return nodes
}

// sees returns an error unless the node sees the given number of live members.
func (n *node) sees(t *testing.T, count int) error {
	t.Helper()
	out, code := n.command(t, "cluster", "status", "--json", "--data", filepath.Join(n.dir, "data"))
	if code != 0 {
		return fmt.Errorf("nebulaio cluster status ended with %d: %s", code, out)
	}
	var said struct {
		Status struct {
			Members []struct {
				State string `json:"state"`
			} `json:"members"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	alive := 0
	for _, m := range said.Status.Members {
		if m.State == "alive" || m.State == "self" {
			alive++
		}
	}
	if alive != count {
		return fmt.Errorf("%d members are alive, expected %d: %s", alive, count, out)
	}
	return nil
}

// TestThreeNodesReadOneObject: three nodes read one object at once, and the upstream sends it about once.
func TestThreeNodesReadOneObject(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket, size := newBucket(t, u), sizeOf(t, "NEBULAIO_UPSTREAMS_MIB", 192)<<20
	data := content(60, size)
	upload(t, u, bucket, "big", data)
	var sent sends
	p := proxied(t, u, liar.Options{Passed: sent.note})
	nodes := startNodes(t, 3, bucketAt{name: "models", endpoint: p.Endpoint, bucket: bucket})
	before := p.Counts().Bodies
	readAtOnce(t, nodes, data, nil)
	defer sent.show(t)
	times := float64(p.Counts().Bodies-before) / float64(size)
	t.Logf("three nodes read %d MiB at once: the upstream sent %.4f times the object", size>>20, times)
	if times > 1.02 {
		t.Errorf("the upstream sent %.4f times the object, expected at most 1.02", times)
	}
	for i, n := range nodes {
		get(t.Context(), n.client(t), "models", "big", 0, -1).expect(t, fmt.Sprint("read again at node ", i), data, "hit")
		n.stop(t)
		n.verify(t)
	}
}

// TestANodeDiesWhileThreeRead kills one of three nodes in the middle: the readers of the others get every byte.
func TestANodeDiesWhileThreeRead(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket, size := newBucket(t, u), sizeOf(t, "NEBULAIO_UPSTREAMS_MIB", 192)<<20
	data := content(61, size)
	upload(t, u, bucket, "big", data)
	var passed atomic.Int64
	var sent sends
	middle := make(chan struct{})
	var once sync.Once
	p := proxied(t, u, liar.Options{Passed: func(r *http.Request, n int64) {
		sent.note(r, n)
		if r.Method == http.MethodGet && passed.Add(64<<10) > int64(size)/3 {
			once.Do(func() { close(middle) })
		}
	}})
	nodes := startNodes(t, 3, bucketAt{name: "models", endpoint: p.Endpoint, bucket: bucket})
	go func() {
		<-middle
		nodes[2].kill()
	}()
	readAtOnce(t, nodes, data, nodes[2])
	defer sent.show(t)
	t.Logf("one of three nodes killed in the middle: the upstream sent %.4f times the object",
		float64(p.Counts().Bodies)/float64(size))
	for _, n := range nodes[:2] {
		n.stop(t)
		n.verify(t)
	}
}

// sends records how many bytes of which range the upstream has sent, by request.
type sends struct {
	mu  sync.Mutex
	all map[*http.Request]int64
}

// note records the bytes of a reply so far.
func (s *sends) note(r *http.Request, n int64) {
	if r.Method != http.MethodGet {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*http.Request]int64{}
	}
	s.all[r] = n
}

// show logs the blocks that were sent more than once.
func (s *sends) show(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	times := map[int64]int{}
	for r, n := range s.all {
		var first, last int64
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
		for at := first; at < first+n; at += 1 << 20 {
			times[at>>20]++
		}
	}
	for r, n := range s.all {
		var first, last int64
		_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
		again := 0
		for at := first; at < first+n; at += 1 << 20 {
			if times[at>>20] > 1 {
				again++
			}
		}
		if again > 0 {
			t.Logf("%s: %d bytes of %d were sent, %d MiB of them more than once", r.Header.Get("Range"), n, last-first+1, again)
		}
	}
}

// readAtOnce reads the object at all nodes at once and compares. The reader of the node that dies may fail.
func readAtOnce(t *testing.T, nodes []*node, data []byte, dies *node) {
	t.Helper()
	var group sync.WaitGroup
	start := make(chan struct{})
	for i, n := range nodes {
		c := n.client(t)
		group.Go(func() {
			<-start
			a := get(t.Context(), c, "models", "big", 0, -1)
			if a.err != nil && n != dies {
				t.Errorf("node %d: %v after %d bytes", i, a.err, len(a.data))
			}
			if !bytes.Equal(a.data, data[:len(a.data)]) || a.err == nil && len(a.data) != len(data) {
				t.Errorf("node %d: %d bytes that differ", i, len(a.data))
			}
		})
	}
	close(start)
	group.Wait()
}

// upload stores a large object in parts.
func upload(t *testing.T, u *upstreams.Upstream, bucket, key string, data []byte) {
	t.Helper()
	_, err := direct(t, u).Client.PutObject(t.Context(), bucket, key, bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{PartSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
}
