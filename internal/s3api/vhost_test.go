// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

func TestBucketsOfHosts(t *testing.T) {
	domains := []string{"example.com", "s3.example.com", "s3.internal"}
	for host, want := range map[string]string{
		"example.com": "", "s3.example.com": "", "s3.example.com:9000": "", "127.0.0.1:9000": "", "[::1]:9000": "", "": "",
		"bucket.s3.example.com": "bucket", "bucket.s3.example.com:9000": "bucket", "BUCKET.S3.Example.COM": "bucket",
		"bucket.s3.example.com.": "bucket",
		"a.b.s3.example.com":     "a.b", "s3x.example.com": "s3x", "b.s3.internal:1": "b", "evils3.internal": "",
		".s3.internal": "", "s3.internal.evil": "",
		"s3.example.com.s3.example.com": "s3.example.com",
	} {
		if got := bucketOfHost(host, domains); got != want {
			t.Errorf("%q: bucket %q, expected %q", host, got, want)
		}
	}
}

// viaLoopback is a transport that reaches every host at the server's address.
func viaLoopback(w *world) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, w.addr)
	}}
}

// TestVirtualHosts uses minio-go with a host name per bucket: all operations, presigned URLs, and forms.
func TestVirtualHosts(t *testing.T) {
	w := start(t, nil, func(o *Options) { o.Domains = []string{"s3.example.com", "objects.internal"} })
	transport := viaLoopback(w)
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: transport}
	for _, domain := range []string{"s3.example.com", "objects.internal"} {
		client, err := minio.New(domain+":9000", &minio.Options{
			Creds: credentials.NewStaticV4(rootKey, rootSecret, ""), Region: testRegion, BucketLookup: minio.BucketLookupDNS,
			Transport: transport,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		for _, bucket := range []string{"plain-" + domain[:2], "dots.in.name." + domain[:2]} {
			if err := client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{}); err != nil {
				t.Fatalf("%s: %v", bucket, err)
			}
			for _, key := range []string{"a", "dir/b c+d", "ü/..", "x//y", ".nebulaio/gpudirect", bucket + "/" + bucket} {
				if _, err := client.PutObject(ctx, bucket, key, strings.NewReader(key), int64(len(key)),
					minio.PutObjectOptions{}); err != nil {
					t.Fatalf("%s/%s: %v", bucket, key, err)
				}
				o, err := client.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(o); err != nil || string(text) != key {
					t.Errorf("%s/%s: %q %v", bucket, key, text, err)
				}
				u, err := client.PresignedGetObject(ctx, bucket, key, time.Minute, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := web.Get(u.String())
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if !strings.HasPrefix(u.Host, bucket+".") || resp.StatusCode != 200 || string(text) != key {
					t.Errorf("%s: %d %s", u, resp.StatusCode, text)
				}
				// By path it is the same object.
				if r := w.must(200, "GET", "/"+bucket+"/"+escapeV4(key), nil); string(r.body) != key {
					t.Errorf("%s/%s by path: %q", bucket, key, r.body)
				}
			}
			n := 0
			for o := range client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true}) {
				if o.Err != nil {
					t.Fatal(o.Err)
				}
				n++
			}
			if n != 6 {
				t.Errorf("%s lists %d objects", bucket, n)
			}
			core := minio.Core{Client: client}
			id, err := core.NewMultipartUpload(ctx, bucket, "parts", minio.PutObjectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			part, err := core.PutObjectPart(ctx, bucket, "parts", id, 1, strings.NewReader("x"), 1, minio.PutObjectPartOptions{})
			if err != nil {
				t.Fatal(err)
			}
			done, err := core.CompleteMultipartUpload(ctx, bucket, "parts", id,
				[]minio.CompletePart{{PartNumber: 1, ETag: part.ETag}}, minio.PutObjectOptions{})
			if err != nil || done.Location != "http://"+bucket+"."+domain+":9000/parts" {
				t.Errorf("completed at %q: %v", done.Location, err)
			}
			policy := minio.NewPostPolicy()
			_ = policy.SetBucket(bucket)
			_ = policy.SetKey("form")
			_ = policy.SetExpires(time.Now().Add(time.Minute))
			u, fields, err := client.PresignedPostPolicy(ctx, policy)
			if err != nil {
				t.Fatal(err)
			}
			resp := post(t, web, u.String(), fields, "content")
			if resp.StatusCode != 204 || resp.Header.Get("Location") != "http://"+bucket+"."+domain+":9000/form" {
				t.Errorf("form: %d, at %q: %s", resp.StatusCode, resp.Header.Get("Location"), resp.body)
			}
		}
	}
}

// post uploads a form.
func post(t *testing.T, client *http.Client, url string, fields map[string]string, content string) *reply {
	t.Helper()
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for k, v := range fields {
		if err := m.WriteField(k, v); err != nil {
			t.Fatal(err)
		}
	}
	f, err := m.CreateFormFile("file", "name")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(f, content) // to memory
	_ = m.Close()
	resp, err := client.Post(url, m.FormDataContentType(), &b)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return &reply{resp, text}
}

// formPolicy is the base64 of a form's policy.
func formPolicy(t *testing.T, expires time.Time, conditions ...any) string {
	t.Helper()
	doc, err := json.Marshal(map[string]any{"expiration": expires.UTC().Format(time.RFC3339), "conditions": conditions})
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(doc)
}
