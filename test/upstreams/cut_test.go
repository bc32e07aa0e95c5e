// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// TestAWholeReplyIsCut reads an object of which the upstream names only the MD5, and of which it sends a wrong bit. The
// client gets most of the bytes as they come, and then its connection breaks: a reply never ends as if it were right.
// The object has two extents, so that in a cluster it comes by two fetches.
func TestAWholeReplyIsCut(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket, data := newBucket(t, u), content(62, 70<<20)
	if _, err := direct(t, u).Client.PutObject(t.Context(), bucket, "big", bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{DisableMultipart: true}); err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{1, 2} {
		t.Run(fmt.Sprint(count, " nodes"), func(t *testing.T) {
			p := proxied(t, u, liar.Options{})
			nodes := startNodes(t, count, bucketAt{name: "models", endpoint: p.Endpoint, bucket: bucket})
			p.SetPlan(func(r *http.Request) liar.Fault {
				if r.Method == http.MethodGet {
					return liar.Flip
				}
				return liar.Honest
			})
			for i, n := range nodes {
				a := get(t.Context(), n.client(t), "models", "big", 0, -1)
				if !errors.Is(a.err, io.ErrUnexpectedEOF) || len(a.data) < 60<<20 || len(a.data) >= len(data) {
					t.Errorf("node %d: %d bytes of %d, %v; expected a reply that is cut", i, len(a.data), len(data), a.err)
				}
			}
			p.SetPlan(nil)
			for i, n := range nodes { // a node may have to drop wrong blocks first that it fetched for the other one
				for hit := false; !hit; {
					a := get(t.Context(), n.client(t), "models", "big", 0, -1)
					if a.err == nil && !bytes.Equal(a.data, data) {
						t.Fatalf("node %d: %d bytes that differ, served as %s", i, len(a.data), a.from())
					}
					hit = a.err == nil && a.from() == "hit" && a.header.Get("X-Nebulaio-Verified") == "md5"
				}
			}
		})
	}
}
