// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// eachKind runs a test for each kind of upstream.
func eachKind(t *testing.T, f func(*testing.T, *upstreams.Upstream)) {
	for _, kind := range []upstreams.Kind{upstreams.MinIO, upstreams.Versitygw, upstreams.Moto, upstreams.Ceph} {
		t.Run(string(kind), func(t *testing.T) { f(t, upstream(t, kind)) })
	}
}

// TestReadsAndWrites checks that a bucket of each upstream is read through the cache, and that changes on either side
// are seen on the other.
func TestReadsAndWrites(t *testing.T) {
	eachKind(t, func(t *testing.T, u *upstreams.Upstream) {
		bucket := newBucket(t, u)
		n := startNode(t, tempDir(t), configuration([]bucketAt{{name: "models", endpoint: u.Endpoint, bucket: bucket}}, ""))
		ours, theirs, ctx := n.client(t), direct(t, u), t.Context()

		one, two := content(10, 3<<20+17), content(11, 3<<20+17)
		tag := put(t, theirs, bucket, "dir/a b+ü", one)
		a := get(ctx, ours, "models", "dir/a b+ü", 0, -1)
		a.expect(t, "first read", one, "upstream")
		if a.tag != tag {
			t.Errorf("the ETag is %s, expected %s", a.tag, tag)
		}
		get(ctx, ours, "models", "dir/a b+ü", 0, -1).expect(t, "second read", one, "hit")
		get(ctx, ours, "models", "dir/a b+ü", 1<<20-3, 2<<20+5).expect(t, "range", one[1<<20-3:2<<20+6], "hit")

		put(t, theirs, bucket, "dir/a b+ü", two)
		get(ctx, ours, "models", "dir/a b+ü", 0, -1).expect(t, "read after a change upstream", two, "upstream")
		put(t, ours, "models", "dir/a b+ü", one)
		get(ctx, theirs, bucket, "dir/a b+ü", 0, -1).expect(t, "what was written through", one)
		get(ctx, ours, "models", "dir/a b+ü", 0, -1).expect(t, "read after a write", one)

		for i := range 5 {
			if _, err := tryPut(ctx, ours, "models", fmt.Sprintf("list/%d", i), content(uint64(i), i*1000)); err != nil {
				t.Errorf("PUT of %d bytes: %v", i*1000, err)
			}
		}
		var keys []string
		for o := range ours.Client.ListObjects(ctx, "models", minio.ListObjectsOptions{Prefix: "list/", Recursive: true}) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			keys = append(keys, o.Key)
		}
		if fmt.Sprint(keys) != "[list/0 list/1 list/2 list/3 list/4]" {
			t.Errorf("listed %v", keys)
		}
		for i := range 5 {
			get(ctx, ours, "models", fmt.Sprintf("list/%d", i), 0, -1).expect(t, "small object", content(uint64(i), i*1000))
		}
		if err := theirs.RemoveObject(ctx, bucket, "list/0", minio.RemoveObjectOptions{}); err != nil {
			t.Fatal(err)
		}
		if a := get(ctx, ours, "models", "list/0", 0, -1); minio.ToErrorResponse(a.err).StatusCode != http.StatusNotFound {
			t.Errorf("read after a deletion upstream: %d bytes, %v", len(a.data), a.err)
		}
		if err := ours.RemoveObject(ctx, "models", "list/1", minio.RemoveObjectOptions{}); err != nil {
			t.Error(err)
		}
		if a := get(ctx, theirs, bucket, "list/1", 0, -1); minio.ToErrorResponse(a.err).StatusCode != http.StatusNotFound {
			t.Errorf("read after a deletion of ours: %d bytes, %v", len(a.data), a.err)
		}
		multipart(t, ours, theirs, bucket)
		n.stop(t)
		n.verify(t)
	})
}

// multipart uploads an object in parts through the node and reads it on both sides.
func multipart(t *testing.T, ours, theirs *minio.Core, bucket string) {
	t.Helper()
	data := content(20, 12<<20)
	_, err := ours.Client.PutObject(t.Context(), "models", "parts", bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{PartSize: 5 << 20, NumThreads: 2})
	if err != nil {
		t.Errorf("upload in parts: %v", err)
		return
	}
	get(t.Context(), theirs, bucket, "parts", 0, -1).expect(t, "parts, upstream", data)
	get(t.Context(), ours, "models", "parts", 0, -1).expect(t, "parts", data)
	get(t.Context(), ours, "models", "parts", 0, -1).expect(t, "parts again", data, "hit")
}

// TestCachedReadsGoOnWithoutTheOSD kills Ceph's OSD: the gateway hangs, cached objects are served as stale, and other
// reads and writes fail before the client gives up.
func TestCachedReadsGoOnWithoutTheOSD(t *testing.T) {
	u := upstream(t, upstreams.Ceph)
	bucket := newBucket(t, u)
	n := startNode(t, tempDir(t), configuration([]bucketAt{{name: "models", endpoint: u.Endpoint, bucket: bucket,
		more: map[string]string{"first_byte": "1s"}}}, ""))
	ours, data := n.client(t), content(30, 5<<20)
	put(t, direct(t, u), bucket, "cached", data)
	put(t, direct(t, u), bucket, "not-cached", data)
	get(t.Context(), ours, "models", "cached", 0, -1).expect(t, "first read", data, "upstream")
	if err := u.KillOSD(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range sizeOf(t, "NEBULAIO_UPSTREAMS_SILENT", 2) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		get(ctx, ours, "models", "cached", 0, -1).expect(t, fmt.Sprint("stale read ", i), data, "stale")
		get(ctx, ours, "models", "cached", 100, 199).expect(t, "stale range", data[100:200], "stale")
		if a := get(ctx, ours, "models", "not-cached", 0, -1); a.err == nil || ctx.Err() != nil {
			t.Errorf("read without the OSD: %d bytes, %v, expected an error of the node within the deadline", len(a.data), a.err)
		} else if i == 0 {
			t.Logf("a read without the OSD fails with: %v", a.err)
		}
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		if _, err := tryPut(ctx, ours, "models", "new", data[:1000]); err == nil || ctx.Err() != nil {
			t.Errorf("write without the OSD: %v, expected an error of the node within the deadline", err)
			cancel()
			break
		} else if i == 0 {
			t.Logf("a write without the OSD fails with: %v", err)
		}
		cancel()
	}
	n.saysWhatFails(t)
	if err := u.StartOSD(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The breaker lets a probe pass now and then.
	eventually(t, "a read after the OSD came back", func() error {
		a := get(t.Context(), ours, "models", "not-cached", 0, -1)
		if a.err == nil && !bytes.Equal(a.data, data) {
			t.Fatal("the content differs")
		}
		return a.err
	})
	get(t.Context(), ours, "models", "cached", 0, -1).expect(t, "fresh read", data, "hit")
}

// saysWhatFails checks that /readyz shows a ready node whose upstream does not answer, since when and why.
func (n *node) saysWhatFails(t *testing.T) {
	t.Helper()
	resp, err := http.Get(n.console + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	text, err := readAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Ready     bool
		Upstreams []struct {
			Bucket, Phase string
			Failures      int
			Since         time.Time
			LastError     string `json:"last_error"`
		}
	}
	if err := json.Unmarshal(text, &said); err != nil || len(said.Upstreams) != 1 {
		t.Fatalf("/readyz says %s: %v", text, err)
	}
	if up := said.Upstreams[0]; !said.Ready || up.Phase == "closed" || up.Failures < 5 || up.Since.IsZero() ||
		!strings.Contains(up.LastError, "deadline") {
		t.Errorf("/readyz says %s, expected a ready server and an open breaker", text)
	}
	t.Logf("/readyz says %s", text)
}

// eventually repeats f until it succeeds, at most for a minute.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// proxied starts a proxy before an upstream.
func proxied(t *testing.T, u *upstreams.Upstream, o liar.Options) *liar.Proxy {
	t.Helper()
	o.Upstream = u.Endpoint
	p, err := liar.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
