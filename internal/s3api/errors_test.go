// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

// broken is a store that fails.
type broken struct {
	object.Store
	put, open error
	body      error // after half of the bytes
}

func (b *broken) Put(ctx context.Context, p object.Put) (object.Info, error) {
	if b.put != nil {
		return object.Info{}, object.Fail("put", p.Key, b.put, "as the test wants it")
	}
	return b.Store.Put(ctx, p)
}

func (b *broken) Open(ctx context.Context, ref object.Ref) (object.Content, error) {
	if b.open != nil {
		return nil, object.Fail("open", ref.Key, b.open, "as the test wants it")
	}
	c, err := b.Store.Open(ctx, ref)
	return brokenContent{c, b}, err
}

type brokenContent struct {
	object.Content
	b *broken
}

func (c brokenContent) Section(r object.Range) (object.Body, error) {
	body, err := c.Content.Section(r)
	return &brokenBody{body, c.b, r.N / 2}, err
}

type brokenBody struct {
	object.Body
	b    *broken
	left int64
}

func (b *brokenBody) WriteTo(w io.Writer) (int64, error) {
	n, err := io.CopyN(w, b.Body, b.left)
	if err == nil {
		err = object.Fail("read", "", b.b.body, "as the test wants it")
	}
	return n, err
}

func TestFailuresOfTheStoreInS3sWords(t *testing.T) {
	b := &broken{Store: model.New()}
	w := start(t, b, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("hello"))
	for _, c := range []struct {
		err    error
		status int
		code   string
		logged bool
	}{
		{object.ErrNoSpace, 507, "InsufficientStorage", true},
		{object.ErrReadOnly, 405, "MethodNotAllowed", true},
		{object.ErrBusy, 503, "SlowDown", true},
		{object.ErrClosed, 503, "ServiceUnavailable", false},
		{object.ErrDamaged, 500, "InternalError", true},
		{errors.New("something else"), 500, "InternalError", true},
		{object.ErrIncompleteBody, 400, "IncompleteBody", false},
		{object.ErrTooLarge, 400, "EntityTooLarge", false},
		{object.ErrPrecondition, 412, "PreconditionFailed", false},
		{object.ErrNoSuchKey, 404, "NoSuchKey", false},
		{object.ErrNoSuchBucket, 404, "NoSuchBucket", false},
	} {
		before := len(w.log.String())
		b.put = c.err
		r := w.do("PUT", "/bucket/other", []byte("x"))
		if r.StatusCode != c.status || r.code() != c.code {
			t.Errorf("PUT, %v: %d %s, expected %d %s", c.err, r.StatusCode, r.code(), c.status, c.code)
		}
		if strings.Contains(string(r.body), "as the test wants it") {
			t.Errorf("%v is told to the client: %s", c.err, r.body)
		}
		if logged := strings.Contains(w.log.String()[before:], "as the test wants it"); logged != c.logged {
			t.Errorf("%v: logged is %v", c.err, logged)
		}
	}
	b.put, b.open = nil, object.ErrDamaged
	if r := w.do("GET", "/bucket/key", nil); r.StatusCode != 500 || r.code() != "InternalError" ||
		r.Header.Get("Content-Range") != "" {
		t.Errorf("GET of damaged content: %d %s", r.StatusCode, r.body)
	}
	if !strings.Contains(w.log.String(), "damaged content") || !strings.Contains(w.log.String(), "key=key") {
		t.Errorf("the log does not name it: %s", w.log.String())
	}
}

func TestDamageInMidReplyClosesTheConnection(t *testing.T) {
	b := &broken{Store: model.New(), body: object.ErrDamaged}
	w := start(t, b, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", make([]byte, 1<<20))
	for len(w.events) > 0 {
		<-w.events
	}
	r, err := w.try(rootKey, rootSecret, "GET", "/bucket/key", nil)
	if err == nil {
		t.Errorf("a whole reply of %d bytes", len(r.body))
	}
	if e := <-w.events; !errors.Is(e.Err, object.ErrDamaged) || e.Out != 1<<19 || e.Status != 200 {
		t.Errorf("%+v", e)
	}
	if !strings.Contains(w.log.String(), "in the middle of a reply") {
		t.Errorf("not logged: %q", w.log.String())
	}
	w.must(200, "HEAD", "/bucket/key", nil) // and the server lives on
}

func TestBucketsGetTheirKindOfETag(t *testing.T) {
	w := start(t, nil, func(o *Options) {
		o.ETag = func(bucket string) object.ETagKind {
			if strings.HasPrefix(bucket, "fast-") {
				return object.ETagCRC64
			}
			return object.ETagMD5
		}
	})
	for bucket, md5 := range map[string]bool{"slow-one": true, "fast-one": false} {
		w.must(200, "PUT", "/"+bucket, nil)
		r := w.must(200, "PUT", "/"+bucket+"/key", []byte("hello"))
		if got := r.Header.Get("ETag") == `"5d41402abc4b2a76b9719d911017c592"`; got != md5 {
			t.Errorf("%s: ETag %s", bucket, r.Header.Get("ETag"))
		}
		w.must(200, "GET", "/"+bucket+"/key", nil, "If-Match", r.Header.Get("ETag"))
		w.must(304, "GET", "/"+bucket+"/key", nil, "If-None-Match", r.Header.Get("ETag"))
	}
}

// TestDefaultRetentionIsTheObjects writes into a bucket with a default: the
// retention counts from the write and stays with the version.
func TestDefaultRetentionIsTheObjects(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil, "x-amz-bucket-object-lock-enabled", "true")
	conf := `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Days>3</Days></DefaultRetention></Rule></ObjectLockConfiguration>`
	sum := md5Base64(conf)
	w.must(200, "PUT", "/bucket?object-lock", []byte(conf), "Content-MD5", sum)
	r := w.must(200, "PUT", "/bucket/key", []byte("x"))
	version := r.Header.Get("x-amz-version-id")
	h := w.must(200, "HEAD", "/bucket/key", nil).Header
	if h.Get("x-amz-object-lock-mode") != "COMPLIANCE" || h.Get("x-amz-object-lock-retain-until-date") == "" {
		t.Errorf("%v", h)
	}
	if r := w.do("DELETE", fmt.Sprintf("/bucket/key?versionId=%s", version), nil); r.StatusCode != 403 {
		t.Errorf("the version could be deleted: %d", r.StatusCode)
	}
}
