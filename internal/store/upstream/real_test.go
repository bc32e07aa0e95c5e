// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// TestAgainstNamedUpstream runs the flow of an application on the server that NEBULAIO_TEST_UPSTREAM describes: a JSON
// object with Endpoint, AccessKey, SecretKey and Bucket. Without the variable, our own server is the upstream.
func TestAgainstNamedUpstream(t *testing.T) {
	var at struct{ Endpoint, AccessKey, SecretKey, Bucket string }
	if doc := os.Getenv("NEBULAIO_TEST_UPSTREAM"); doc != "" {
		if err := json.Unmarshal([]byte(doc), &at); err != nil {
			t.Fatal(err)
		}
		maker, err := s3.NewSender(s3.SenderOptions{Endpoint: at.Endpoint,
			Credentials: s3.Static(s3.Credentials{AccessKey: at.AccessKey, SecretKey: at.SecretKey})})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := maker.Send(t.Context(), &s3.Request{Method: http.MethodPut, Bucket: at.Bucket}); err == nil {
			r.Body.Close()
		} else {
			t.Logf("make bucket: %v", err)
		}
	} else {
		var store object.Store
		at.Endpoint, store = serve(t)
		at.AccessKey, at.SecretKey, at.Bucket = access, secret, "bucket"
		if err := store.CreateBucket(t.Context(), object.Bucket{Name: at.Bucket}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := upstream.New(upstream.Options{Endpoint: at.Endpoint, Bucket: at.Bucket, Prefix: "flow/",
		Credentials: s3.Static(s3.Credentials{AccessKey: at.AccessKey, SecretKey: at.SecretKey})})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := b.Probe(ctx); err != nil {
		t.Fatalf("probe: %v", err)
	}
	for a, f := range b.Capabilities().Findings {
		t.Logf("%-24s %5v %s", a, f.Proven, f.Detail)
	}
	s := b.Through("local", nil)
	flow(ctx, t, b, s)
	page, err := s.List(ctx, object.List{Bucket: "local", Prefix: upstream.ProbePrefix})
	if err != nil || len(page.Objects) > 0 {
		t.Errorf("the probe left %d objects (error %v)", len(page.Objects), err)
	}
}

// flow writes, reads, lists, copies and deletes.
func flow(ctx context.Context, t *testing.T, b *upstream.Bucket, s *upstream.Through) {
	t.Helper()
	ok := func(err error, what string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	data := storetest.Bytes(1, 3<<20)
	attrs := map[string]string{object.AttrType: "text/plain", object.AttrMeta + "who": "me", object.AttrCache: "no-cache"}
	put := func(key string, size int64, c object.Condition) (object.Info, error) {
		return s.Put(ctx, object.Put{Bucket: "local", Key: key, Size: size, Body: bytes.NewReader(data), Attributes: attrs,
			Condition: c})
	}
	i, err := put("dir/a b+ü.bin", int64(len(data)), object.Condition{})
	ok(err, "put")
	a, err := b.Stat(ctx, i.Key, "", "")
	ok(err, "stat")
	if a.Identity.ETag != i.ETag || a.Identity.Size != i.Size {
		t.Errorf("stat says %+v, put said %+v", a.Identity, i)
	}
	for k, v := range attrs {
		if a.Attributes[k] != v {
			t.Errorf("attribute %s is %q, expected %q", k, a.Attributes[k], v)
		}
	}
	if again, err := b.Stat(ctx, i.Key, "", i.ETag); err != nil || !again.NotModified && again.Identity != a.Identity {
		t.Errorf("stat with the ETag: %+v, error %v", again, err)
	}
	r, err := b.Fetch(ctx, a.Identity, 1<<20, 1<<20)
	ok(err, "fetch")
	got, err := io.ReadAll(r)
	ok(err, "read")
	r.Close()
	if !bytes.Equal(got, data[1<<20:2<<20]) {
		t.Error("fetch returned other bytes")
	}
	o, r, err := b.Open(ctx, i.Key, "", 5, -1)
	ok(err, "open")
	got, err = io.ReadAll(r)
	ok(err, "read what was opened")
	r.Close()
	if o.Identity != a.Identity || !bytes.Equal(got, data[5:]) {
		t.Errorf("open says %+v and returned %d bytes", o.Identity, len(got))
	}
	refused := errors.New("refused by the test")
	_, err = s.Put(ctx, object.Put{Bucket: "local", Key: "refused", Size: int64(len(data)), Body: bytes.NewReader(data),
		Finish: func(object.Written) (map[string]string, error) { return nil, refused }})
	if err != refused { //nolint:errorlint // the contract says unchanged
		t.Errorf("put with Finish that refuses: %v", err)
	}
	if _, err := b.Stat(ctx, "refused", "", ""); !errors.Is(err, object.ErrNoSuchKey) {
		t.Errorf("a refused put left something: %v", err)
	}
	caps := b.Capabilities()
	_, err = put(i.Key, int64(len(data)), object.Condition{IfNoneMatch: "*"})
	if want := caps.Has(upstream.PutIfNoneMatch); want != errors.Is(err, object.ErrPrecondition) || err == nil {
		t.Errorf("put if none match, proven %v: %v", want, err)
	}
	_, err = put(i.Key, int64(len(data)), object.Condition{IfMatch: i.ETag})
	if caps.Has(upstream.PutIfMatch) != (err == nil) {
		t.Errorf("put if match, proven %v: %v", caps.Has(upstream.PutIfMatch), err)
	}
	_, err = put("unknown size", -1, object.Condition{})
	ok(err, "put of unknown size")
	c, err := s.Copy(ctx, object.Copy{From: object.Ref{Bucket: "local", Key: i.Key},
		FromCondition: object.Condition{IfMatch: i.ETag},
		Bucket:        "local", Key: "dir/copy", Attributes: map[string]string{object.AttrType: "x/y"}})
	ok(err, "copy")
	if st, err := s.Stat(ctx, object.Ref{Bucket: "local", Key: "dir/copy"}); err != nil || st.Size != i.Size ||
		st.ETag != c.ETag ||
		st.Attributes[object.AttrType] != "x/y" {
		t.Errorf("the copy: %+v, error %v", st, err)
	}
	multipart(ctx, t, s)
	page, err := s.List(ctx, object.List{Bucket: "local", Delimiter: "/"})
	ok(err, "list")
	if len(page.Prefixes) != 1 || page.Prefixes[0] != "dir/" || len(page.Objects) != 2 {
		t.Errorf("list: %+v", page)
	}
	page, err = s.List(ctx, object.List{Bucket: "local", Limit: 1, After: "dir/a b+ü.bin"})
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != "dir/copy" || !page.Truncated {
		t.Errorf("list of one: %+v, error %v", page, err)
	}
	done, failures := s.DeleteMany(ctx, "local", []object.Deletion{{Ref: object.Ref{Bucket: "local", Key: i.Key}},
		{Ref: object.Ref{Bucket: "local", Key: "dir/copy"}}, {Ref: object.Ref{Bucket: "local", Key: "unknown size"}}})
	ok(errors.Join(failures...), "delete many")
	if len(done) != 3 {
		t.Errorf("delete many: %+v", done)
	}
	_, err = s.Delete(ctx, object.Deletion{Ref: object.Ref{Bucket: "local", Key: "parts"}})
	ok(err, "delete")
	if _, err := b.Fetch(ctx, a.Identity, 0, 1); !errors.Is(err, upstream.ErrChanged) {
		t.Errorf("fetch of what was deleted: %v", err)
	}
}

// multipart writes an object in two parts.
func multipart(ctx context.Context, t *testing.T, s *upstream.Through) {
	t.Helper()
	for _, algorithm := range []string{"", "CRC32", "CRC64NVME"} {
		attrs := map[string]string{object.AttrType: "a/b"}
		if algorithm != "" {
			attrs[object.AttrSumAlgo], attrs[object.AttrSumType] = algorithm, "FULL_OBJECT"
		}
		id, err := s.CreateUpload(ctx, "local", "parts", attrs)
		if err != nil {
			t.Fatalf("create: %v", err)
		}
		data := [][]byte{storetest.Bytes(2, 5<<20), storetest.Bytes(3, 1000)}
		sums := []string{crc32Of(data[0]), crc32Of(data[1])}
		done := object.Complete{Bucket: "local", Key: "parts", Upload: id, MinPart: 5 << 20,
			Finish: func(parts []object.PartInfo) (map[string]string, error) {
				if algorithm == "CRC32" {
					for i := range parts {
						if parts[i].Attributes[object.AttrSum] != sums[i] {
							t.Errorf("part %d has the checksum %q, expected %q", i, parts[i].Attributes[object.AttrSum], sums[i])
						}
					}
					return map[string]string{object.AttrSum: crc32Of(bytes.Join(data, nil))}, nil
				}
				return nil, nil
			}}
		for i, d := range data {
			p, err := s.PutPart(ctx, object.PutPart{Bucket: "local", Key: "parts", Upload: id, Number: i + 1,
				Size: int64(len(d)),
				Body: bytes.NewReader(d), Finish: func(object.Written) (map[string]string, error) {
					if algorithm != "CRC32" {
						return nil, nil
					}
					return map[string]string{object.AttrSum: sums[i]}, nil
				}})
			if err != nil {
				t.Fatalf("part %d with %q: %v", i+1, algorithm, err)
			}
			done.Parts = append(done.Parts, object.CompletedPart{Number: i + 1, ETag: p.ETag})
		}
		if _, err := s.CompleteUpload(ctx, done); err != nil {
			t.Fatalf("complete with %q: %v", algorithm, err)
		}
		info, got, err := storetest.Read(ctx, s, object.Ref{Bucket: "local", Key: "parts"})
		if err != nil || !bytes.Equal(got, bytes.Join(data, nil)) {
			t.Fatalf("read of %d bytes after %q: error %v", len(got), algorithm, err)
		}
		t.Logf("parts with %q: NoCRC64 %v, %d parts, checksum %s %s", algorithm, info.NoCRC64, len(info.Parts),
			info.Attributes[object.AttrSumAlgo], info.Attributes[object.AttrSumType])
	}
}
