// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	copies "github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/test/upstreams"
)

// wire is a TCP proxy with an address that stays while its server is killed and started again.
type wire struct {
	listener net.Listener
	backend  atomic.Value // address of the server; "" while it is down
	slow     atomic.Bool
	mu       sync.Mutex
	open     map[net.Conn]bool
}

func newWire(t *testing.T) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, open: map[net.Conn]bool{}}
	w.backend.Store("")
	t.Cleanup(func() { _ = l.Close(); w.down() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(c)
		}
	}()
	return w
}

// down cuts all connections, and refuses new ones.
func (w *wire) down() {
	w.backend.Store("")
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		_ = c.Close()
	}
}

func (w *wire) up(host string) { w.backend.Store(host) }

func (w *wire) keep(c net.Conn, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is {
		w.open[c] = true
	} else {
		delete(w.open, c)
	}
}

func (w *wire) serve(c net.Conn) {
	defer c.Close()
	to, _ := w.backend.Load().(string)
	if to == "" {
		return
	}
	s, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer s.Close()
	w.keep(c, true)
	defer w.keep(c, false)
	go func() { _, _ = io.Copy(s, c); _ = s.Close() }()
	buf := make([]byte, 256)
	for {
		n, err := s.Read(buf)
		if w.slow.Load() {
			time.Sleep(30 * time.Millisecond) // the network of the target is slow
		}
		if _, e := c.Write(buf[:n]); e != nil || err != nil {
			return
		}
	}
}

const replicationDocument = `<ReplicationConfiguration><Role>any</Role><Rule><ID>all</ID><Status>Enabled</Status>` +
	`<Priority>1</Priority><Filter><Prefix>k</Prefix></Filter><DeleteMarkerReplication><Status>Enabled</Status>` +
	`</DeleteMarkerReplication><Destination><Bucket>arn:nebulaio:replication::there:copies</Bucket></Destination></Rule>` +
	`</ReplicationConfiguration>`

func targetConfig(endpoint string) string {
	return "replication:\n  there:\n    endpoint: " + endpoint + "\n    access_key_env: TARGET_ACCESS_KEY\n" +
		"    secret_key_env: TARGET_SECRET_KEY\n"
}

// ask sends a request about a bucket to a node.
func ask(t *testing.T, host, method, bucket, what, text string) (string, error) {
	t.Helper()
	s, err := copies.NewServer(s3.Options{Endpoint: "http://" + host, AccessKey: user, SecretKey: password})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := s3.Request{Method: method, Bucket: bucket, Query: url.Values{what: {""}}}
	if text != "" {
		r.Text = []byte(text)
	}
	body, _, err := s.Admin().Ask(t.Context(), method, r, s3.MostSetting)
	return string(body), err
}

// TestReplicationToMinIO replicates to a MinIO behind a network that is cut and slow.
func TestReplicationToMinIO(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	w := newWire(t)
	c := direct(t, u)
	if err := c.MakeBucket(t.Context(), "copies", minio.MakeBucketOptions{Region: upstreams.Region}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.RemoveBucketWithOptions(context.WithoutCancel(t.Context()), "copies",
			minio.RemoveBucketOptions{ForceDelete: true})
	}()
	w.up(u.Host())
	replicate(t, w, c, []string{"TARGET_ACCESS_KEY=" + upstreams.Access, "TARGET_SECRET_KEY=" + upstreams.Secret},
		func() { w.up(u.Host()) }, w.down)
}

// TestReplicationToNebulaIO replicates to a NebulaIO server that is killed and started again.
func TestReplicationToNebulaIO(t *testing.T) {
	needsUpstreams(t)
	w, dir := newWire(t), tempDir(t)
	var there *node
	start := func() {
		there = startNode(t, dir, "")
		w.up(there.host)
	}
	start()
	if err := there.client(t).MakeBucket(t.Context(), "copies", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	replicate(t, w, client(t, w.listener.Addr().String(), user, password),
		[]string{"TARGET_ACCESS_KEY=" + user, "TARGET_SECRET_KEY=" + password},
		start, func() { there.kill(); w.down() })
	info, err := there.client(t).StatObject(t.Context(), "copies", "k-0", minio.StatObjectOptions{})
	if err != nil || info.ReplicationStatus != "REPLICA" {
		t.Errorf("the copy has the status %q (%v), expected REPLICA", info.ReplicationStatus, err)
	}
}

// replicate writes to a replicated bucket while the target is up, slow and down, and while the source is killed. In the
// end the target has every version once and in order.
func replicate(t *testing.T, w *wire, target *minio.Core, env []string, up, down func()) {
	if err := target.EnableVersioning(t.Context(), "copies"); err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	config := targetConfig("http://" + w.listener.Addr().String())
	n := startNode(t, dir, config, env...)
	c := n.client(t)
	if err := c.MakeBucket(t.Context(), "originals", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, n.host, http.MethodPut, "originals", "replication", replicationDocument); err == nil ||
		!strings.Contains(err.Error(), "Versioning must be") {
		t.Errorf("a bucket without versions gets %v", err)
	}
	if err := c.EnableVersioning(t.Context(), "originals"); err != nil {
		t.Fatal(err)
	}
	put(t, c, "originals", "k-before", []byte("was there before"))
	if _, err := ask(t, n.host, http.MethodPut, "originals", "replication", replicationDocument); err != nil {
		t.Fatal(err)
	}
	if doc, err := ask(t, n.host, http.MethodGet, "originals", "replication", ""); err != nil ||
		!strings.Contains(doc, "<ID>all</ID>") {
		t.Errorf("the configuration is %s (%v)", doc, err)
	}
	if _, err := ask(t, n.host, http.MethodPut, "originals", "replication",
		strings.Replace(replicationDocument, "::there:", "::nowhere:", 1)); err == nil ||
		!strings.Contains(err.Error(), "replication.nowhere") {
		t.Errorf("an unknown target gets %v", err)
	}
	r := &replicated{t: t}
	big := content(77, 11<<20)
	if _, err := c.Client.PutObject(t.Context(), "originals", "k-parts", bytes.NewReader(big), int64(len(big)),
		minio.PutObjectOptions{PartSize: 5 << 20, UserTags: map[string]string{"a": "b"},
			UserMetadata: map[string]string{"m": "n"}}); err != nil {
		t.Fatal(err)
	}
	put(t, c, "originals", "other", []byte("no rule matches this key"))
	r.write(c, 0)
	w.slow.Store(true)
	r.write(c, 1)
	down()
	r.write(c, 2) // no PUT waits for the target
	for _, key := range []string{"k-0", "k-1"} {
		if info, err := c.StatObject(t.Context(), "originals", key, minio.StatObjectOptions{}); err != nil ||
			info.ReplicationStatus != "PENDING" {
			t.Errorf("while the target is down, %s has the status %q (%v)", key, info.ReplicationStatus, err)
		}
	}
	n.kill()
	n = startNode(t, dir, config, env...)
	c = n.client(t)
	r.write(c, 3)
	w.slow.Store(false)
	up()
	r.write(c, 4)
	for range 3 { // kills while changes are on their way
		r.wait(c, 1+len(r.keys())/3)
		n.kill()
		n = startNode(t, dir, config, env...)
		c = n.client(t)
		r.write(c, 5)
		down()
		up()
	}
	for _, key := range r.keys() { // behind all delete markers, which have no status
		put(t, c, "originals", key, []byte("the last version"))
	}
	r.wait(c, 0)
	r.compare(c, target)
}

// replicated writes to a bucket and compares its copies.
type replicated struct {
	t *testing.T
}

func (r *replicated) keys() []string {
	var out []string
	for i := range 12 {
		out = append(out, fmt.Sprintf("k-%d", i))
	}
	return append(out, "k-parts")
}

// write adds versions and delete markers to every key, from several clients.
func (r *replicated) write(c *minio.Core, round int) {
	r.t.Helper()
	var group sync.WaitGroup
	for i, key := range r.keys() {
		group.Go(func() {
			for v := range 3 {
				// Some versions of a key have the same content.
				data := content(uint64(100*i+10*round+v/2), 100+i)
				if _, err := tryPut(r.t.Context(), c, "originals", key, data); err != nil {
					r.t.Errorf("put %s: %v", key, err)
				}
				if v == i%3 && key != "k-0" {
					if err := c.Client.RemoveObject(r.t.Context(), "originals", key, minio.RemoveObjectOptions{}); err != nil {
						r.t.Errorf("delete %s: %v", key, err)
					}
				}
			}
			if key == "k-0" || key == "k-1" {
				if _, err := tryPut(r.t.Context(), c, "originals", key, content(uint64(round), 50)); err != nil {
					r.t.Errorf("put %s: %v", key, err)
				}
			}
		})
	}
	group.Wait()
}

// wait waits until at most so many current versions are not replicated yet.
func (r *replicated) wait(c *minio.Core, most int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pending := 0
		for o := range c.Client.ListObjects(ctx, "originals", minio.ListObjectsOptions{WithVersions: true, Prefix: "k-"}) {
			if o.Err != nil || o.IsDeleteMarker || o.Key == "k-before" {
				continue
			}
			info, err := c.StatObject(ctx, "originals", o.Key, minio.StatObjectOptions{VersionID: o.VersionID})
			if err != nil || info.ReplicationStatus != "COMPLETED" {
				pending++
			}
			if pending > most {
				break
			}
		}
		if ctx.Err() == nil && pending <= most {
			return
		}
		select {
		case <-ctx.Done():
			r.t.Fatalf("%d versions or more are not replicated", pending)
		case <-tick.C:
		}
	}
}

// history returns the versions of all keys in order, without identifiers.
func (r *replicated) history(c *minio.Core, bucket string, ids bool) (out []string) {
	r.t.Helper()
	s, err := copies.NewServer(s3.Options{Endpoint: c.EndpointURL().String(), AccessKey: user, SecretKey: password})
	if err != nil {
		r.t.Fatal(err)
	}
	if ids {
		s, err = copies.NewServer(s3.Options{Endpoint: c.EndpointURL().String(), AccessKey: upstreams.Access,
			SecretKey: upstreams.Secret})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	defer s.Close()
	for keys := s.Keys(bucket, "", ""); ; {
		k, err := keys.Next(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		if k.Name == "" {
			return out
		}
		for i, e := range k.Entries {
			out = append(out, fmt.Sprintf("%s %d marker=%v %s %d", k.Name, i, e.Marker, e.ETag, e.Size))
		}
	}
}

// compare compares the versions of both servers.
func (r *replicated) compare(c, target *minio.Core) {
	r.t.Helper()
	minioTarget := strings.Contains(target.EndpointURL().Host, ":") && r.isMinIO(target)
	want := slices.DeleteFunc(r.history(c, "originals", false), func(s string) bool {
		return strings.HasPrefix(s, "other ") || strings.HasPrefix(s, "k-before ")
	})
	got := r.history(target, "copies", minioTarget)
	if !slices.Equal(want, got) {
		for i := range max(len(want), len(got)) {
			a, b := "", ""
			if i < len(want) {
				a = want[i]
			}
			if i < len(got) {
				b = got[i]
			}
			if a != b {
				r.t.Errorf("from version %d on: the source has %q, the target %q (%d and %d versions)", i, a, b, len(want),
					len(got))
				break
			}
		}
		return
	}
	r.t.Logf("the target has all %d versions and delete markers once and in order", len(want))
}

func (r *replicated) isMinIO(c *minio.Core) bool {
	resp, err := http.Get(c.EndpointURL().String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.Header.Get("Server") == "MinIO"
}
