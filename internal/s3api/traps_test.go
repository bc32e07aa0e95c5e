// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
)

// TestStringsOfRequestsAreNotKept writes many keys of many lengths over a few
// connections: a string that was not cloned is overwritten by the next request.
func TestStringsOfRequestsAreNotKept(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	const workers, each = 8, 60
	var wg sync.WaitGroup
	for g := range workers {
		wg.Go(func() {
			for i := range each {
				key := fmt.Sprintf("%d/%s/%d", g, strings.Repeat(string(rune('a'+i%26)), i), i)
				r, err := w.try(rootKey, rootSecret, "PUT", "/bucket/"+key, []byte(key), "x-amz-meta-own", key, "Content-Type",
					"type/"+key, "x-amz-tagging", "tag="+strings.Repeat("v", i))
				if err != nil || r.StatusCode != 200 {
					t.Errorf("PUT %s: %v %v", key, r, err)
				}
			}
		})
	}
	wg.Wait()
	for g := range workers {
		for i := range each {
			key := fmt.Sprintf("%d/%s/%d", g, strings.Repeat(string(rune('a'+i%26)), i), i)
			info, err := w.store.Stat(t.Context(), object.Ref{Bucket: "bucket", Key: key})
			if err != nil {
				t.Fatalf("%s is gone: %v", key, err)
			}
			if info.Attributes[metaPrefix+"own"] != key || info.Attributes[attrType] != "type/"+key ||
				!strings.Contains(info.Attributes[attrTags], strings.Repeat("v", i)) {
				t.Fatalf("%s has the attributes %v", key, info.Attributes)
			}
		}
	}
	page, err := w.store.List(t.Context(), object.List{Bucket: "bucket"})
	if err != nil || len(page.Objects) != workers*each {
		t.Fatalf("%d keys, expected %d: %v", len(page.Objects), workers*each, err)
	}
}

func TestWhatIsNotDoneIsRefused(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	w.must(200, "PUT", "/bucket/key", []byte("hello"))
	for _, c := range []struct {
		method, path string
		headers      []string
	}{
		{"PUT", "/bucket/key", []string{"x-amz-write-offset-bytes", "5"}},
		{"PUT", "/bucket/new", []string{"x-amz-rename-source", "/bucket/key"}},
		{"PUT", "/bucket/new?renameObject", nil},
		{"PUT", "/bucket/new?renameObject=", nil},
		{"PUT", "/bucket/new?x-id=RenameObject", nil},
		{"GET", "/bucket?session", nil},
		{"GET", "/bucket?session=1", nil},
		{"GET", "/bucket?x-id=CreateSession", nil},
		{"GET", "/bucket/key", []string{"x-amz-s3session-token", "abc"}},
		{"PUT", "/bucket/key", []string{"x-amz-rdma-token", "0"}},
		{"GET", "/bucket/key", []string{"x-amz-rdma-token", "0"}},
		{"PUT", "/bucket/key", []string{"x-amz-server-side-encryption-customer-algorithm", "AES256"}},
		{"PUT", "/bucket/key", []string{"x-amz-server-side-encryption", "AES256"}},
		{"GET", "/bucket?somethingNew", nil},
		{"PUT", "/bucket/key?somethingNew", nil},
		{"PUT", "/bucket/key?somethingNew=1", nil},
		{"POST", "/bucket/key?somethingNew=1", nil},
		{"DELETE", "/bucket/key?somethingNew=1", nil},
		{"PUT", "/bucket/key?X-Amz-Write-Offset-Bytes=5", nil},
	} {
		r := w.do(c.method, c.path, []byte("WORLD"), c.headers...)
		if r.StatusCode != http.StatusNotImplemented || r.code() != "NotImplemented" {
			t.Errorf("%s %s %v: %d %s", c.method, c.path, c.headers, r.StatusCode, r.body)
		}
		rdma := len(c.headers) > 0 && c.headers[0] == "x-amz-rdma-token"
		if got := r.Header.Get("x-amz-rdma-reply"); rdma && got != "501" || !rdma && got != "" {
			t.Errorf("%s %s %v: x-amz-rdma-reply is %q", c.method, c.path, c.headers, got)
		}
	}
	if r := w.must(200, "GET", "/bucket/key", nil); string(r.body) != "hello" {
		t.Errorf("the object became %q", r.body)
	}
	w.must(404, "GET", "/bucket/new", nil)
}

func TestOrdinaryParametersPass(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket?x-id=CreateBucket", nil)
	w.must(200, "PUT", "/bucket/key?x-id=PutObject", []byte("hello"))
	for _, path := range []string{
		"/?x-id=ListBuckets",
		"/bucket?list-type=2&prefix=k&delimiter=%2F&max-keys=10&encoding-type=url&fetch-owner=true&start-after=a",
		"/bucket?location", "/bucket?location=", "/bucket?uploads", "/bucket?versions&key-marker=a", "/bucket?versioning",
		"/bucket?acl",
		"/bucket/key?x-id=GetObject&response-content-type=a%2Fb&response-cache-control=no", "/bucket/key?partNumber=1",
		"/bucket/key?versionId=null",
		"/bucket/key?tagging", "/bucket/key?cachebuster=1", "/bucket?list-type=2&unknown=1",
	} {
		if r := w.do("GET", path, nil); r.StatusCode/100 != 2 {
			t.Errorf("GET %s: %d %s", path, r.StatusCode, r.body)
		}
	}
}

// TestDocumentsAreBounded announces bodies that would have to be kept in memory.
func TestDocumentsAreBounded(t *testing.T) {
	w := start(t, nil, nil)
	for _, head := range []string{
		"PUT /bucket?policy HTTP/1.1\r\nContent-Length: 99999999999\r\n",
		"PUT /bucket HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
		"PUT /bucket/key?tagging HTTP/1.1\r\nContent-Length: 99999999999\r\n",
		"POST /bucket?delete HTTP/1.1\r\nContent-Length: 99999999999\r\n",
		"PUT /bucket/key HTTP/1.1\r\nX-Amz-Copy-Source: /bucket/other\r\nContent-Length: 99999999999\r\n",
		"POST /bucket/key?uploadId=1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
		"PATCH /create-user HTTP/1.1\r\nContent-Length: 99999999999\r\n",
	} {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, head+"Host: a\r\n\r\n"+strings.Repeat("x", 9000)); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.TCPConn).CloseWrite() // else what is left of the body is waited for; the server may have ended it before
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", head, err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 400 || !bytes.Contains(text, []byte("MaxMessageLengthExceeded")) {
			t.Errorf("%s: %d %s %v", head, resp.StatusCode, text, err)
		}
		_ = c.Close()
	}
}

func TestServerHeaderIsOurs(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	check := func(what string, h http.Header) {
		if got := h.Get("Server"); got != "NebulaIO" {
			t.Errorf("%s: Server is %q", what, got)
		}
	}
	for _, path := range []string{"/", "/bucket", "/missing", "/bucket/missing", "/bucket?session"} {
		check(path, w.do("GET", path, nil).Header)
	}
	for name, raw := range map[string]string{
		"no HTTP":            "nonsense\r\n\r\n",
		"too long a header":  "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n",
		"no such method":     "BREW / HTTP/1.1\r\nHost: a\r\n\r\n",
		"bad content length": "PUT /bucket/a HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
	} {
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, raw); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			check(name, resp.Header)
			if resp.StatusCode < 400 {
				t.Errorf("%s: status %d", name, resp.StatusCode)
			}
			_ = resp.Body.Close()
		}
		_ = c.Close()
	}
}

func TestConnectionsAreKeptAlive(t *testing.T) {
	w := start(t, nil, nil)
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for range 5 {
		if _, err := io.WriteString(c, "GET /bucket/key HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.Close {
			t.Fatalf("closed: %v %v", resp.Close, err)
		}
	}
}

// TestHostileKeys writes keys that are paths to others and names here.
func TestHostileKeys(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	keys := map[string]string{ // on the wire, in the store
		"a": "a", "a/": "a/", "a//b": "a//b", "../x": "../x", "..": "..", ".": ".", "a/../../x": "a/../../x", "./x": "./x",
		"a/./b": "a/./b",
		"/":     "/", "//": "//", "..%00": "..\x00", "%F0%9F%98%80": "😀", "a%20b%2Bc": "a b+c", "...": "...",
		strings.Repeat("k", 1024): strings.Repeat("k", 1024),
	}
	for wire, key := range keys {
		w.must(200, "PUT", "/bucket/"+wire, []byte(key))
		if info, err := w.store.Stat(t.Context(), object.Ref{Bucket: "bucket", Key: key}); err != nil ||
			info.Size != int64(len(key)) {
			t.Errorf("%q: %v", key, err)
		}
	}
	page, err := w.store.List(t.Context(), object.List{Bucket: "bucket"})
	if err != nil || len(page.Objects) != len(keys) {
		t.Errorf("%d keys, expected %d: %v", len(page.Objects), len(keys), err)
	}
	for wire, key := range keys {
		if r := w.must(200, "GET", "/bucket/"+wire, nil); string(r.body) != key {
			t.Errorf("%q holds %q", key, r.body)
		}
		w.must(204, "DELETE", "/bucket/"+wire, nil)
	}
	if r := w.do("PUT", "/bucket/"+strings.Repeat("k", 1025), nil); r.code() != "KeyTooLongError" {
		t.Errorf("1025 bytes: %d %s", r.StatusCode, r.body)
	}
	for _, method := range []string{"PUT", "GET", "HEAD"} {
		if r := w.do(method, "/bucket/%FF", nil); r.StatusCode != 400 || method != "HEAD" && r.code() != "InvalidURI" {
			t.Errorf("%s of a key that is no UTF-8: %d %s", method, r.StatusCode, r.body)
		}
	}
	w.must(204, "DELETE", "/bucket/%FF", nil)
	r, err := w.try("", "", "GET", "/bucket/%F", nil)
	if err != nil || r.StatusCode != 400 || r.code() != "InvalidURI" {
		t.Errorf("half an escape: %+v %v", r, err)
	}
}

// TestListingsCarryEveryKey lists keys that XML cannot say.
func TestListingsCarryEveryKey(t *testing.T) {
	w := start(t, nil, nil)
	w.must(200, "PUT", "/bucket", nil)
	for _, wire := range []string{"a%01", "b%01", "c%20%2B%2B"} {
		w.must(200, "PUT", "/bucket/"+wire, nil)
	}
	r := w.must(200, "GET", "/bucket?list-type=2&encoding-type=url&max-keys=1", nil)
	if !bytes.Contains(r.body, []byte("<Key>a%01</Key>")) ||
		!bytes.Contains(r.body, []byte("<EncodingType>url</EncodingType>")) {
		t.Errorf("%s", r.body)
	}
	_, rest, _ := strings.Cut(string(r.body), "<NextContinuationToken>")
	token, _, _ := strings.Cut(rest, "<")
	r = w.must(200, "GET", "/bucket?list-type=2&encoding-type=url&continuation-token="+token, nil)
	if bytes.Contains(r.body, []byte("<Key>a%01")) || !bytes.Contains(r.body, []byte("<Key>b%01</Key>")) ||
		!bytes.Contains(r.body, []byte("<Key>c+%2B%2B</Key>")) {
		t.Errorf("after %q: %s", token, r.body)
	}
}

func FuzzKeysSurviveTheRouter(f *testing.F) {
	for _, k := range []string{"a", "..", "../x\x00", "..\x00\x00/.", "//", "\x00", "/\x00", "a/../b"} {
		f.Add(k)
	}
	f.Fuzz(func(t *testing.T, key string) {
		hidden := hide(key)
		if got := reveal(hidden); got != key {
			t.Fatalf("%q became %q over %q", key, got, hidden)
		}
		for e := range strings.SplitSeq(hidden, "/") {
			if e == "." || e == ".." {
				t.Fatalf("%q still has %q", hidden, e)
			}
		}
		if got, err := keyOfToken(tokenOfKey(key)); err != nil || got != key {
			t.Fatalf("token of %q is of %q: %v", key, got, err)
		}
	})
}
