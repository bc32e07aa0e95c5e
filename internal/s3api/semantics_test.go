// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// TestSubResourcesOfOthersDoNotFallThrough asks for changes of sub-resources that
// S3 has elsewhere: the router passes them over, and would change the thing itself.
func TestSubResourcesOfOthersDoNotFallThrough(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("hello"))
	w.must(200, "PUT", "/empty", nil)
	for arg := range knownArgs {
		for _, form := range []string{arg, arg + "=", arg + "=1"} {
			for _, c := range []struct {
				method, path string
				at           level
			}{{"PUT", "/bucket/key", onObject}, {"DELETE", "/bucket/key", onObject}, {"DELETE", "/bucket%2Fkey", onObject},
				{"DELETE", "/empty", onBucket}, {"DELETE", "/empty/", onBucket}} {
				if _, sub := subResources[c.at][c.method][arg]; sub || arg == "x-id" || signed([]byte(arg)) ||
					arg == "AWSAccessKeyId" || arg == "Signature" || arg == "Expires" {
					continue
				}
				if r := w.do(c.method, c.path+"?"+form, []byte("WORLD")); r.StatusCode != 405 && r.StatusCode != 400 &&
					r.StatusCode != 501 {
					t.Errorf("%s %s?%s: %d %s", c.method, c.path, form, r.StatusCode, r.body)
				}
			}
		}
	}
	if r := w.must(200, "GET", "/bucket/key", nil); string(r.body) != "hello" {
		t.Errorf("the object became %q", r.body)
	}
	w.must(200, "GET", "/empty", nil)
	for _, c := range []struct{ method, path string }{
		{"DELETE", "/bucket/key?versionId="}, {"DELETE", "/bucket/key?versionId"}, {"PUT", "/bucket/key?versionId=null"},
		{"DELETE", "/empty?id=1"}, {"PUT", "/other?id=1"}, {"PUT", "/other?versions"},
	} {
		if r := w.do(c.method, c.path, nil); r.StatusCode != 400 && r.StatusCode != 405 {
			t.Errorf("%s %s: %d %s", c.method, c.path, r.StatusCode, r.body)
		}
	}
	w.must(404, "GET", "/other", nil)
	w.must(204, "DELETE", "/bucket/key?tagging&versionId=null", nil)
	w.must(204, "DELETE", "/bucket/key?tagging&versionId=", nil)
	w.must(204, "DELETE", "/bucket/key?versionId=null&x-id=DeleteObject", nil)
	w.must(404, "GET", "/bucket/key", nil)
}

// TestAVersionHidesNoSourceFromAPolicy copies what a policy denies, by the name of its version.
func TestAVersionHidesNoSourceFromAPolicy(t *testing.T) {
	w := start(t, nil, nil)
	for _, name := range []string{"alice", "bob"} {
		if err := w.iam.Add(t.Context(), iam.Account{AccessKey: name, Secret: "secret-of-" + name,
			Role: iam.RoleUserPlus}); err != nil {
			t.Fatal(err)
		}
	}
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/secret", []byte("secret"))
	w.must(200, "PUT", "/bucket/open", []byte("open"))
	const all = `{"Statement":[
		{"Effect":"Allow","Principal":{"AWS":["alice"]},"Action":"s3:*","Resource":["arn:aws:s3:::bucket","arn:aws:s3:::bucket/*"]},
		{"Effect":"Allow","Principal":{"AWS":["bob"]},"Action":"s3:GetObject","Resource":"arn:aws:s3:::bucket/*"},
		{"Effect":"Deny","Principal":"*","Action":["s3:GetObject","s3:GetObjectVersion"],"Resource":"arn:aws:s3:::bucket/secret"}]}`
	w.must(204, "PUT", "/bucket?policy", []byte(all))
	try := func(who, method, path, source string) *reply {
		t.Helper()
		r, err := w.try(who, "secret-of-"+who, method, path, nil, "x-amz-copy-source", source)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, who := range []string{"alice", "bob"} {
		if r, err := w.try(who, "secret-of-"+who, "PUT", "/of-"+who, nil); err != nil || r.StatusCode != 200 {
			t.Fatalf("%v %v", r, err)
		}
	}
	start, err := w.try("alice", "secret-of-alice", "POST", "/of-alice/parts?uploads", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, id, _ := strings.Cut(string(start.body), "<UploadId>")
	id, _, _ = strings.Cut(id, "<")
	for _, source := range []string{"/bucket/secret", "/bucket/secret?versionId=null", "bucket%2Fsecret?versionId=null"} {
		if r := try("alice", "PUT", "/of-alice/copy", source); r.StatusCode != 403 {
			t.Errorf("copy of %s: %d %s", source, r.StatusCode, r.body)
		}
		if r := try("alice", "PUT", "/of-alice/parts?partNumber=1&uploadId="+id, source); r.StatusCode != 403 {
			t.Errorf("copy of a part of %s: %d %s", source, r.StatusCode, r.body)
		}
	}
	// Who may read the current version may not read all of them.
	if r := try("bob", "PUT", "/of-bob/copy", "/bucket/open?versionId=null"); r.StatusCode != 403 {
		t.Errorf("copy of a version: %d %s", r.StatusCode, r.body)
	}
	if r := try("bob", "PUT", "/of-bob/copy", "/bucket/open"); r.StatusCode != 200 {
		t.Errorf("copy: %d %s", r.StatusCode, r.body)
	}
	for _, source := range []string{"/bucket/open", "/bucket/open?versionId=null"} {
		if r := try("alice", "PUT", "/of-alice/copy", source); r.StatusCode != 200 {
			t.Errorf("copy of %s: %d %s", source, r.StatusCode, r.body)
		}
	}
	w.must(200, "PUT", "/bucket/by-root", nil, "x-amz-copy-source", "/bucket/secret?versionId=null")
}

// TestEverybodyReadsOnlyTheVersionsThatWereGranted asks without a signature for
// versions of an object of which everybody may read the current one.
func TestEverybodyReadsOnlyTheVersionsThatWereGranted(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("old"))
	w.must(200, "PUT", "/bucket?versioning", []byte(
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"))
	w.must(200, "PUT", "/bucket/key", []byte("new"))
	grant := func(actions string) {
		w.must(204, "PUT", "/bucket?policy", []byte(`{"Statement":[{"Effect":"Allow","Principal":"*","Action":[`+actions+
			`],"Resource":"arn:aws:s3:::bucket/*"}]}`))
	}
	ask := func(status int, method, path string) {
		t.Helper()
		if r, err := w.try("", "", method, path, nil); err != nil || r.StatusCode != status {
			t.Errorf("%s %s: %d, expected %d: %s %v", method, path, r.StatusCode, status, r.body, err)
		}
	}
	grant(`"s3:GetObject","s3:DeleteObject"`)
	ask(200, "GET", "/bucket/key")
	ask(403, "GET", "/bucket/key?versionId=null")
	ask(403, "HEAD", "/bucket/key?versionId=null")
	ask(403, "DELETE", "/bucket/key?versionId=null")
	grant(`"s3:GetObject","s3:GetObjectVersion","s3:DeleteObject","s3:DeleteObjectVersion"`)
	ask(200, "GET", "/bucket/key?versionId=null")
	ask(200, "HEAD", "/bucket/key?versionId=null")
	ask(204, "DELETE", "/bucket/key?versionId=null")
}

// TestConditionsOfReadsTakeTheTimeThatWasTold gives back the Last-Modified of a reply.
func TestConditionsOfReadsTakeTheTimeThatWasTold(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for i := range 3 { // a time of whole seconds may come by chance
		w.must(200, "PUT", "/bucket/key", []byte(fmt.Sprint(i)))
		told := w.must(200, "HEAD", "/bucket/key", nil).Header.Get("Last-Modified")
		for _, method := range []string{"GET", "HEAD"} {
			w.must(304, method, "/bucket/key", nil, "If-Modified-Since", told)
			w.must(200, method, "/bucket/key", nil, "If-Unmodified-Since", told)
		}
		w.must(200, "PUT", "/bucket/copy", nil, "x-amz-copy-source", "/bucket/key", "x-amz-copy-source-if-unmodified-since",
			told)
	}
	w.must(200, "GET", "/bucket/key", nil, "If-Modified-Since", "Mon, 02 Jan 2006 15:04:05 GMT")
	w.must(412, "GET", "/bucket/key", nil, "If-Unmodified-Since", "Mon, 02 Jan 2006 15:04:05 GMT")
}

// TestConditionsOfACopyHoldForItsDestination has conditions that a PUT of the same object has.
func TestConditionsOfACopyHoldForItsDestination(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/from", []byte("new"))
	etag := w.must(200, "PUT", "/bucket/to", []byte("old")).Header.Get("ETag")
	const source, from = "x-amz-copy-source", "/bucket/from"
	w.must(412, "PUT", "/bucket/to", nil, source, from, "If-None-Match", "*")
	w.must(412, "PUT", "/bucket/to", nil, source, from, "If-Match", `"0123"`)
	w.must(404, "PUT", "/bucket/none", nil, source, from, "If-Match", `"0123"`)
	if r := w.must(200, "GET", "/bucket/to", nil); string(r.body) != "old" {
		t.Fatalf("it was overwritten: %q", r.body)
	}
	w.must(200, "PUT", "/bucket/to", nil, source, from, "If-Match", etag)
	w.must(200, "PUT", "/bucket/fresh", nil, source, from, "If-None-Match", "*")
}

// TestAnEmptyETagMatchesNothing sends what a client has that lost the ETag.
func TestAnEmptyETagMatchesNothing(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("old"))
	w.must(412, "PUT", "/bucket/key", []byte("new"), "If-Match", `""`)
	w.must(412, "DELETE", "/bucket/key", nil, "If-Match", `""`)
	w.must(412, "GET", "/bucket/key", nil, "If-Match", `""`)
	if r := w.must(200, "GET", "/bucket/key", nil); string(r.body) != "old" {
		t.Errorf("it became %q", r.body)
	}
}

func TestEmptyPartsHaveNoRange(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	_, id, _ := strings.Cut(string(w.must(200, "POST", "/bucket/key?uploads", nil).body), "<UploadId>")
	id, _, _ = strings.Cut(id, "<")
	etag := w.must(200, "PUT", "/bucket/key?partNumber=1&uploadId="+id, nil).Header.Get("ETag")
	w.must(200, "POST", "/bucket/key?uploadId="+id,
		[]byte(
			"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"+etag+"</ETag></Part></CompleteMultipartUpload>"))
	for _, method := range []string{"GET", "HEAD"} {
		if r := w.must(200, method, "/bucket/key?partNumber=1", nil); r.Header.Get("Content-Range") != "" ||
			r.Header.Get("x-amz-mp-parts-count") != "1" {
			t.Errorf("%s: %v", method, r.Header)
		}
	}
}

// poorListener has no descriptors left for its first connections.
type poorListener struct {
	net.Listener
	left atomic.Int64
}

func (l *poorListener) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAProcessWithoutDescriptorsWaitsForThem(t *testing.T) {
	w := start(t, nil, func(o *Options) {
		poor := &poorListener{Listener: o.Listeners[0]}
		poor.left.Store(3)
		o.Listeners[0] = poor
	})
	w.must(200, "PUT", "/bucket", nil)
	if _, err := w.store.Bucket(t.Context(), "bucket"); err != nil {
		t.Error(err)
	}
}

func TestTagsOfAHeaderAreBounded(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	tags := "t0=v"
	for i := 1; i < 10; i++ {
		tags += fmt.Sprintf("&t%d=v", i)
	}
	w.must(200, "PUT", "/bucket/key", nil, "x-amz-tagging", tags)
	w.must(400, "PUT", "/bucket/more", nil, "x-amz-tagging", tags+"&t10=v")
	w.must(400, "POST", "/bucket/more?uploads", nil, "x-amz-tagging", tags+"&t10=v")
	w.must(404, "GET", "/bucket/more", nil)
}

// TestAnnouncedBytesAreNotReceivedBytes announces what is never sent: whoever
// can reach the port could make the metrics say anything.
func TestAnnouncedBytesAreNotReceivedBytes(t *testing.T) {
	w := start(t, nil, nil)
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PUT /bucket/key HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000000000\r\n\r\n"+
		strings.Repeat("x", 128<<10)); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-w.events:
		if e.Status/100 != 4 || e.In != 0 {
			t.Errorf("%+v", e)
		}
	case <-time.After(30 * time.Second):
		t.Error("no event")
	}
}
