// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// TestStorageClasses writes objects in another storage class through a node and at the upstream, and looks at them from
// both sides. versitygw keeps no storage class, and Ceph has none besides STANDARD here: it refuses them.
func TestStorageClasses(t *testing.T) {
	classes := map[upstreams.Kind]string{upstreams.MinIO: "REDUCED_REDUNDANCY", upstreams.Moto: "STANDARD_IA",
		upstreams.Versitygw: "STANDARD_IA", upstreams.Ceph: "STANDARD_IA"}
	eachKind(t, func(t *testing.T, u *upstreams.Upstream) {
		bucket, class := newBucket(t, u), classes[u.Kind]
		n := startNode(t, tempDir(t), configuration([]bucketAt{{name: "models", endpoint: u.Endpoint, bucket: bucket}}, ""))
		ours, theirs := n.client(t), direct(t, u)
		write := func(c *minio.Core, at, key string) error {
			data := content(95, 70_000)
			_, err := c.Client.PutObject(t.Context(), at, key, bytes.NewReader(data), int64(len(data)),
				minio.PutObjectOptions{DisableMultipart: true, StorageClass: class})
			return err
		}
		direct, through := write(theirs, bucket, "theirs"), write(ours, "models", "ours")
		if (direct == nil) != (through == nil) {
			t.Fatalf("a PUT with the class %s: %v at the upstream, %v through the node", class, direct, through)
		}
		if direct != nil {
			if a, b := minio.ToErrorResponse(direct), minio.ToErrorResponse(through); a.Code != b.Code {
				t.Errorf("the upstream refuses with %s, the node with %s", a.Code, b.Code)
			}
			return
		}
		for _, key := range []string{"ours", "theirs"} {
			want := classAt(t, theirs, bucket, key)
			for what, got := range map[string]string{"HEAD": classAt(t, ours, "models", key),
				"GET":                    get(t.Context(), ours, "models", key, 0, -1).header.Get("X-Amz-Storage-Class"),
				"GET of a cached object": get(t.Context(), ours, "models", key, 0, -1).header.Get("X-Amz-Storage-Class"),
				"listing":                listedClass(t, ours, "models", key)} {
				if got != want && !(got == "STANDARD" && want == "") {
					t.Errorf("%s of %s has the class %q, expected %q as at the upstream", what, key, got, want)
				}
			}
			if listed := listedClass(t, theirs, bucket, key); want == class && listed != class {
				t.Logf("the upstream lists %s with the class %q", key, listed)
			}
			if want != class && u.Kind != upstreams.Versitygw {
				t.Errorf("%s has the class %q at the upstream, expected %q", key, want, class)
			}
		}
	})
}

// classAt returns the storage class in the reply to a HEAD.
func classAt(t *testing.T, c *minio.Core, bucket, key string) string {
	t.Helper()
	info, err := c.StatObject(t.Context(), bucket, key, minio.StatObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info.Metadata.Get("X-Amz-Storage-Class")
}

// listedClass returns the storage class of a key in a listing.
func listedClass(t *testing.T, c *minio.Core, bucket, key string) string {
	t.Helper()
	for o := range c.Client.ListObjects(t.Context(), bucket, minio.ListObjectsOptions{Prefix: key, Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if o.Key == key {
			return o.StorageClass
		}
	}
	t.Errorf("%s is not listed", key)
	return ""
}
