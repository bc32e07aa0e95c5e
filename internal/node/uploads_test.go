// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	signing "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestUploadsThatNobodyCompletesAreAborted serves with a short life of uploads, and waits for the metric.
func TestUploadsThatNobodyCompletesAreAborted(t *testing.T) {
	r := runServer(t, map[string]string{"data": filepath.Join(t.TempDir(), "store"), "uploads.expire": "1ms"})
	client, err := minio.NewCore(strings.TrimPrefix(r.Endpoint, "http://"),
		&minio.Options{Creds: signing.NewStaticV4(r.AccessKey, r.SecretKey, ""), Region: r.Region})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	id, err := client.NewMultipartUpload(t.Context(), "bucket", "left", minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutObjectPart(t.Context(), "bucket", "left", id, 1, strings.NewReader("part"), 4,
		minio.PutObjectPartOptions{}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; {
		left, err := client.ListMultipartUploads(t.Context(), "bucket", "", "", "", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(left.Uploads) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the upload is still there")
		}
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"aborted a multipart upload that nobody completed", `"key":"left"`, `"parts":1`,
		`"bytes":4`} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, r.log)
		}
	}
}

// counted is the value of a counter.
func counted(t *testing.T, m *metrics, name string) float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestExpiredUploadsAreCounted expires by hand, of a store that nobody else uses.
func TestExpiredUploadsAreCounted(t *testing.T) {
	c := settings(t, map[string]string{"data": filepath.Join(t.TempDir(), "store")})
	log := &logged{}
	s := &server{Options: Options{Config: c}, log: newLog(log, "info", "json", false),
		metrics: newMetrics("1", gauges{none, none})}
	st, err := openStore(t.Context(), c, events{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.CreateBucket(t.Context(), object.Bucket{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	id, err := st.CreateUpload(t.Context(), "b", "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.PutPart(t.Context(), object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: 1, Size: 7,
		Body: strings.NewReader("content")}); err != nil {
		t.Fatal(err)
	}
	s.expireUploads(t.Context(), st, time.Now().Add(-c.Uploads.Expire))
	if n := counted(t, s.metrics, "nebulaio_uploads_expired_total"); n != 0 || c.Uploads.Expire != 7*24*time.Hour {
		t.Errorf("%v uploads expired before their time of %v", n, c.Uploads.Expire)
	}
	s.expireUploads(t.Context(), st, time.Now().Add(time.Hour))
	if n, bytes := counted(t, s.metrics, "nebulaio_uploads_expired_total"),
		counted(t, s.metrics, "nebulaio_uploads_expired_bytes_total"); n != 1 || bytes != 7 {
		t.Errorf("%v uploads of %v bytes are counted, expected 1 of 7", n, bytes)
	}
}
