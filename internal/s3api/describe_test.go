// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

// drafted writes an object through a draft, described by the Authorizer.
func (w *world) drafted(bucket, key string, data []byte, about object.Description) object.Info {
	w.t.Helper()
	ctx := w.t.Context()
	as, err := w.server.Authorizer().Describe(ctx, bucket, about)
	if err != nil {
		w.t.Fatal(err)
	}
	d, err := w.store.(object.Handles).NewDraft(ctx, object.Draft{Bucket: bucket, Key: key, Size: int64(len(data)),
		Attributes: as,
		Judge:      w.server.Authorizer().JudgeWrite()})
	if errs.Is(err, errs.Unsupported) {
		w.t.Skip(err)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := d.Open(false)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		w.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		w.t.Fatal(err)
	}
	i, err := d.Commit(ctx, storetest.Seal(data))
	if err != nil {
		w.t.Fatal(err)
	}
	return i
}

func TestWhatAnotherDoorWroteIsAnObject(t *testing.T) {
	w := start(t, model.NewIn(storetest.Dir(t)), nil)
	w.must(200, "PUT", "/bucket", nil)
	data := storetest.Bytes(1, 6<<20)
	i := w.drafted("bucket", "dir/key", data, object.Description{ContentType: "application/x-test",
		Metadata: map[string]string{"Color": " blue "}})
	etag := `"` + i.ETag + `"`
	sum := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, i.CRC64))
	if !strings.HasSuffix(i.ETag, "-1") {
		t.Errorf("ETag %s could be taken for an MD5", i.ETag)
	}
	for _, method := range []string{"GET", "HEAD"} {
		r := w.must(200, method, "/bucket/dir/key", nil, "x-amz-checksum-mode", "ENABLED")
		for name, want := range map[string]string{
			"ETag": etag, "Content-Type": "application/x-test", "X-Amz-Meta-Color": "blue",
			"Content-Length":           fmt.Sprint(len(data)),
			"X-Amz-Checksum-Crc64nvme": sum, "X-Amz-Checksum-Type": "FULL_OBJECT",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, expected %q", method, name, got, want)
			}
		}
		if method == "GET" && !bytes.Equal(r.body, data) {
			t.Error("GET gives other bytes")
		}
	}
	if r := w.must(206, "GET", "/bucket/dir/key", nil, "Range", "bytes=1048570-1048590"); !bytes.Equal(r.body,
		data[1048570:1048591]) {
		t.Error("a range gives other bytes")
	}
	w.must(304, "GET", "/bucket/dir/key", nil, "If-None-Match", etag)
	w.must(412, "PUT", "/bucket/dir/key", []byte("x"), "If-None-Match", "*")
	w.must(200, "PUT", "/bucket/copy", nil, "x-amz-copy-source", "/bucket/dir/key")
	if r := w.must(200, "GET", "/bucket/copy", nil); !bytes.Equal(r.body, data) ||
		r.Header.Get("X-Amz-Meta-Color") != "blue" {
		t.Error("a copy is another object")
	}
	if r := w.must(200, "GET", "/bucket?list-type=2&prefix=dir/", nil); !strings.Contains(string(r.body),
		"<Key>dir/key</Key>") || !strings.Contains(string(r.body), i.ETag) {
		t.Errorf("%s", r.body)
	}
	r := w.must(200, "GET", "/bucket/dir/key?attributes", nil, "x-amz-object-attributes", "Checksum,ObjectSize,ETag")
	if !strings.Contains(string(r.body), sum) {
		t.Errorf("%s", r.body)
	}
	r = w.must(200, "POST", "/bucket/joined?uploads", nil)
	id := between(string(r.body), "<UploadId>", "</UploadId>")
	part := func(n int, more ...string) string {
		r := w.must(200, "PUT", fmt.Sprintf("/bucket/joined?partNumber=%d&uploadId=%s", n, id), nil,
			append(more, "x-amz-copy-source", "/bucket/dir/key")...)
		return fmt.Sprintf("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", n,
			between(string(r.body), "<ETag>", "</ETag>"))
	}
	parts := part(1) + part(2, "x-amz-copy-source-range", "bytes=5-99")
	w.must(200, "POST", "/bucket/joined?uploadId="+id,
		[]byte("<CompleteMultipartUpload>"+parts+"</CompleteMultipartUpload>"))
	if r := w.must(200, "GET", "/bucket/joined", nil); !bytes.Equal(r.body, append(bytes.Clone(data), data[5:100]...)) {
		t.Error("an object that was joined of it has other bytes")
	}
}

func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

func TestAnotherDoorMakesVersionsAndKeepsThemAsLong(t *testing.T) {
	w := start(t, model.NewIn(storetest.Dir(t)), nil)
	w.must(200, "PUT", "/bucket", nil, "x-amz-bucket-object-lock-enabled", "true")
	conf := `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>`
	w.must(200, "PUT", "/bucket?object-lock", []byte(conf), "Content-MD5", md5Base64(conf))
	w.must(200, "PUT", "/bucket/key", []byte("first"))
	i := w.drafted("bucket", "key", []byte("second"), object.Description{})
	r := w.must(200, "HEAD", "/bucket/key", nil)
	if r.Header.Get("x-amz-version-id") != i.Version || r.Header.Get("x-amz-object-lock-mode") != "COMPLIANCE" ||
		r.Header.Get("x-amz-object-lock-retain-until-date") == "" {
		t.Errorf("%v", r.Header)
	}
	if got := r.Header.Get("Content-Type"); got != w.must(200, "HEAD", "/bucket/key?versionId="+w.oldest("bucket"),
		nil).Header.Get("Content-Type") {
		t.Errorf("without a content type it is %q, another one than a PUT gives", got)
	}
	w.must(403, "DELETE", "/bucket/key?versionId="+i.Version, nil)
	if r := w.must(200, "GET", "/bucket?versions", nil); strings.Count(string(r.body), "<VersionId>") != 2 {
		t.Errorf("%s", r.body)
	}
}

// oldest is the last version of a listing.
func (w *world) oldest(bucket string) string {
	w.t.Helper()
	r := w.must(200, "GET", "/"+bucket+"?versions", nil)
	at := strings.LastIndex(string(r.body), "<VersionId>")
	return between(string(r.body[at:]), "<VersionId>", "</VersionId>")
}

// TestDescriptionsAreThoseOfAPut compares attributes with those of an object that was put with the same headers.
func TestDescriptionsAreThoseOfAPut(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for _, d := range []object.Description{
		{}, {ContentType: "text/plain; charset=utf-8"}, {Metadata: map[string]string{"A": "1", "b-c": " x y ", "empty": ""}},
		{ContentType: " a/b ", Metadata: map[string]string{"k": strings.Repeat("v", 2047)}},
	} {
		headers := []string{}
		if d.ContentType != "" {
			headers = append(headers, "Content-Type", d.ContentType)
		}
		for k, v := range d.Metadata {
			headers = append(headers, "x-amz-meta-"+k, v)
		}
		w.must(200, "PUT", "/bucket/key", []byte("x"), headers...)
		i, err := w.store.Stat(t.Context(), object.Ref{Bucket: "bucket", Key: "key"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.server.Authorizer().Describe(t.Context(), "bucket", d)
		if err != nil || !maps.Equal(got, i.Attributes) {
			t.Errorf("%v gives %v, %v; a PUT gives %v", d, got, err, i.Attributes)
		}
	}
}

func TestDescriptionsThatHTTPCannotCarry(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for _, d := range []object.Description{
		{ContentType: "a\r\nx-evil: 1"}, {ContentType: strings.Repeat("a", 2000)}, {Metadata: map[string]string{"a b": "1"}},
		{Metadata: map[string]string{"": "1"}},
		{Metadata: map[string]string{"a": "1\nb: 2"}}, {Metadata: map[string]string{"a": "1", "A": "2"}},
		{Metadata: map[string]string{"a": strings.Repeat("v", 2048)}},
		{Metadata: map[string]string{"é": "1"}}, {Metadata: map[string]string{"a": "\x7f"}},
	} {
		if _, err := w.server.Authorizer().Describe(t.Context(), "bucket", d); !errs.Is(err, errs.Invalid) {
			t.Errorf("%.80q: %v", d, err)
		}
	}
	if _, err := w.server.Authorizer().Describe(t.Context(), "none", object.Description{}); !errors.Is(err,
		object.ErrNoSuchBucket) {
		t.Errorf("no bucket: %v", err)
	}
}
