// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// TestEachUpstreamServes stores and reads an object at each server, also through the proxy, which keeps signatures
// valid.
func TestEachUpstreamServes(t *testing.T) {
	for _, kind := range []upstreams.Kind{upstreams.MinIO, upstreams.Versitygw, upstreams.Moto, upstreams.Ceph} {
		t.Run(string(kind), func(t *testing.T) {
			u := upstream(t, kind)
			bucket, data := newBucket(t, u), content(1, 300_000)
			p, err := liar.New(liar.Options{Upstream: u.Endpoint})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			through := client(t, p.Endpoint[len("http://"):], upstreams.Access, upstreams.Secret)
			tag := put(t, through, bucket, "a key/ü", data)
			for _, c := range []*minio.Core{direct(t, u), through} {
				o := minio.GetObjectOptions{}
				if err := o.SetRange(5, 99_999); err != nil {
					t.Fatal(err)
				}
				body, info, _, err := c.GetObject(t.Context(), bucket, "a key/ü", o)
				if err != nil {
					t.Fatal(err)
				}
				got, err := readAll(body)
				if err != nil || !bytes.Equal(got, data[5:100_000]) || info.ETag != tag {
					t.Errorf("%d bytes, ETag %s, expected %s: %v", len(got), info.ETag, tag, err)
				}
			}
			if c := p.Counts(); c.Bodies < 99_995 || c.Methods["PUT"] != 1 {
				t.Errorf("counted %+v", c)
			}
		})
	}
}

// TestCephHangsWithoutItsOSD shows the failure that deadlines are for: the gateway accepts a request and answers none.
func TestCephHangsWithoutItsOSD(t *testing.T) {
	u := upstream(t, upstreams.Ceph)
	bucket, c := newBucket(t, u), direct(t, u)
	put(t, c, bucket, "key", content(2, 1000))
	if err := u.KillOSD(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := c.StatObject(ctx, bucket, "key", minio.StatObjectOptions{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("HEAD without an OSD: %v, expected no answer", err)
	}
	if err := u.StartOSD(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StatObject(t.Context(), bucket, "key", minio.StatObjectOptions{}); err != nil {
		t.Errorf("HEAD after the OSD came back: %v", err)
	}
}
