// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
)

// identifiers are the parts of an error that differ between any two requests.
var identifiers = regexp.MustCompile(`<(RequestId|HostId)>[^<]*<`)

// takesFast reports whether the fast path serves a GET or HEAD.
func takesFast(t *testing.T, w *world, req *http.Request) bool {
	t.Helper()
	text, err := httputil.DumpRequestOut(req, true)
	if err != nil {
		t.Fatal(err)
	}
	var rctx fasthttp.RequestCtx
	if err := rctx.Request.Read(bufio.NewReader(bytes.NewReader(text))); err != nil {
		t.Fatal(err)
	}
	ctx := w.server.authorizer.app.AcquireCtx(&rctx)
	defer w.server.authorizer.app.ReleaseCtx(ctx)
	rctx.SetUserValue(requestKey, ctx)
	served, err := (fastPath{w.server}).get(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = rctx.Response.CloseBodyStream()
	return served
}

// gets holds a server with objects of all kinds. The function over, if not nil, returns the store over the store on
// disk.
func gets(t testing.TB, over func(*disk.Store) object.Store, change func(*Options)) *world {
	t.Helper()
	st, err := disk.Open(t.Context(), disk.Options{Dir: t.TempDir(), Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if over == nil {
		over = func(below *disk.Store) object.Store { return below }
	}
	w := start(t, over(st), change)
	for _, name := range []string{"bob", "eve"} {
		err := w.iam.Add(t.Context(), iam.Account{AccessKey: name, Secret: name + "ssecret", Role: iam.RoleUser})
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(path, body string, header ...string) { w.must(http.StatusOK, "PUT", path, []byte(body), header...) }
	put("/plain", "")
	put("/plain/small", "hello world")
	put("/plain/empty", "")
	put("/plain/large", strings.Repeat("large", 300_000))
	put("/plain/described", "hello", "Content-Type", "text/plain", "Content-Encoding", "br", "Content-Language", "la",
		"Content-Disposition", "inline", "Cache-Control", "no-cache", "Expires", "Thu, 01 Dec 2044 16:00:00 GMT",
		"x-amz-meta-Colour", "blue", "x-amz-meta-b", "2", "x-amz-website-redirect-location", "/x")
	put("/plain/tagged", "hello", "x-amz-tagging", "a=1&b=2")
	put("/plain/checked", "hello", "x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=")
	put("/versioned", "")
	put("/versioned?versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	put("/versioned/kept", "hello")
	put("/versioned/gone", "hello")
	w.must(http.StatusNoContent, "DELETE", "/versioned/gone", nil)
	put("/locked", "", "x-amz-bucket-object-lock-enabled", "true")
	put("/locked/held", "hello", "x-amz-object-lock-legal-hold", "ON", "x-amz-object-lock-mode", "GOVERNANCE",
		"x-amz-object-lock-retain-until-date", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	allow := func(bucket, keys, more string) {
		put("/"+bucket, "")
		put("/"+bucket+"/a", "hello")
		w.must(http.StatusNoContent, "PUT", "/"+bucket+"?policy", fmt.Appendf(nil, `{"Statement":[{"Effect":"Allow",`+
			`"Principal":{"AWS":["bob"]},"Action":"s3:GetObject","Resource":["arn:aws:s3:::%s/%s"]%s}]}`, bucket, keys, more))
	}
	allow("bobs", "*", "")
	allow("bobssome", "a*", "")
	allow("bobshere", "*", `,"Condition":{"IpAddress":{"aws:SourceIp":"127.0.0.1"}}`)
	put("/writers", "", "x-amz-object-ownership", "ObjectWriter")
	put("/writers/a", "hello")
	return w
}

// A GET or HEAD on the fast path has the same reply as one through versitygw.
func TestFastGetsAreOrdinaryGets(t *testing.T) {
	for _, method := range []string{"GET", "HEAD"} {
		t.Run(method, func(t *testing.T) { compareReads(t, method) })
	}
}

func compareReads(t *testing.T, method string) {
	t.Helper()
	w := gets(t, nil, nil)
	etag := w.must(http.StatusOK, "GET", "/plain/small", nil).Header.Get("ETag")
	bare, now := strings.Trim(etag, `"`), time.Now().UTC().Format(http.TimeFormat)
	operation := map[string]string{"GET": "GetObject", "HEAD": "HeadObject"}[method]
	const slow = "slow" // the fast path leaves the request to versitygw
	for name, c := range map[string]struct {
		path   string
		user   string
		way    string
		status int
		hash   string
		header []string
	}{
		"small":            {path: "/plain/small", status: 200},
		"empty":            {path: "/plain/empty", status: 200},
		"large":            {path: "/plain/large", status: 200},
		"described":        {path: "/plain/described", status: 200},
		"tagged":           {path: "/plain/tagged", status: 200},
		"kept":             {path: "/versioned/kept", status: 200},
		"named by an SDK":  {path: "/plain/small?x-id=" + operation, status: 200},
		"named wrongly":    {path: "/plain/small?x-id=PutObject", way: slow, status: 200},
		"unsigned payload": {path: "/plain/small", hash: unsignedPayload, status: 200},
		"another payload":  {path: "/plain/small", hash: strings.Repeat("0", 64), way: slow, status: 400},
		"delete marker":    {path: "/versioned/gone", status: 404},
		"held":             {path: "/locked/held", status: 200},
		"no such key":      {path: "/plain/nothing", status: 404},
		"no such bucket":   {path: "/nowhere/small", way: slow, status: 404},
		"checksums":        {path: "/plain/small", header: []string{"x-amz-checksum-mode", "ENABLED"}, status: 200},
		"own checksum":     {path: "/plain/checked", header: []string{"x-amz-checksum-mode", "ENABLED"}, status: 200},
		"checksum of a range": {path: "/plain/checked",
			header: []string{"x-amz-checksum-mode", "ENABLED", "Range", "bytes=1-2"}, status: 206},
		"bad checksum mode": {path: "/plain/small", header: []string{"x-amz-checksum-mode", "MAYBE"}, way: slow,
			status: 400},
		"range":            {path: "/plain/small", header: []string{"Range", "bytes=2-5"}, status: 206},
		"last bytes":       {path: "/plain/small", header: []string{"Range", "bytes=-3"}, status: 206},
		"from here on":     {path: "/plain/small", header: []string{"Range", "bytes=4-"}, status: 206},
		"beyond the end":   {path: "/plain/small", header: []string{"Range", "bytes=400-"}, status: 416},
		"two ranges":       {path: "/plain/small", header: []string{"Range", "bytes=0-1,3-4"}, status: 200},
		"no range":         {path: "/plain/small", header: []string{"Range", "lines=1-2"}, status: 200},
		"range of nothing": {path: "/plain/empty", header: []string{"Range", "bytes=0-0"}, status: 416},
		"match":            {path: "/plain/small", header: []string{"If-Match", etag}, status: 200},
		"other match":      {path: "/plain/small", header: []string{"If-Match", `"0123"`}, status: 412},
		"unchanged":        {path: "/plain/small", header: []string{"If-None-Match", etag}, status: 304},
		"changed":          {path: "/plain/small", header: []string{"If-None-Match", `"0123"`}, status: 200},
		"match in a range": {path: "/plain/small", header: []string{"If-Match", bare, "Range", "bytes=0-0"},
			status: 206},
		"since":                 {path: "/plain/small", header: []string{"If-Modified-Since", now}, way: slow, status: 304},
		"a version":             {path: "/plain/small?versionId=null", way: slow, status: 200},
		"another type":          {path: "/plain/small?response-content-type=a%2Fb", way: slow, status: 200},
		"not granted":           {path: "/plain/small", user: "bob", way: slow, status: 403},
		"not granted, no key":   {path: "/plain/nothing", user: "bob", way: slow, status: 403},
		"granted":               {path: "/bobs/a", user: "bob", status: 200},
		"granted to another":    {path: "/bobs/a", user: "eve", way: slow, status: 403},
		"granted some":          {path: "/bobssome/a", user: "bob", way: slow, status: 200},
		"granted here":          {path: "/bobshere/a", user: "bob", way: slow, status: 200},
		"an object with an ACL": {path: "/writers/a", status: 200},
		"ACLs, another account": {path: "/writers/a", user: "bob", way: slow, status: 403},
		"its tags":              {path: "/plain/tagged?tagging", way: slow, status: 200},
		"refused for its origin": {path: "/plain/small", header: []string{"Origin", "http://a.example"}, way: slow,
			status: 200},
	} {
		if c.hash == "" {
			c.hash = emptySHA256
		}
		get := func(header ...string) (*http.Request, string) {
			key, secret := rootKey, rootSecret
			if c.user != "" {
				key, secret = c.user, c.user+"ssecret"
			}
			req := w.request(method, c.path, nil, append(header, c.header...)...)
			sign(t, req, key, secret, c.hash)
			r := w.sent(req)
			if r.StatusCode != c.status {
				t.Errorf("%s: status %d, expected %d: %s", name, r.StatusCode, c.status, r.body)
			}
			if r.Header.Get("X-Amz-Request-Id") == "" {
				t.Errorf("%s: the reply has no request identifier", name)
			}
			return req, about(r) + r.Header.Get("Last-Modified") + " " + r.Header.Get("Content-Length") + "\n" +
				identifiers.ReplaceAllString(string(r.body), "<$1><")
		}
		req, ours := get()
		_, theirs := get("X-Not-Plain", "1")
		if ours != theirs {
			t.Errorf("%s: the fast path replies\n%.2000s\nand versitygw\n%.2000s", name, ours, theirs)
		}
		if fast := takesFast(t, w, req); fast != (c.way != slow) {
			t.Errorf("%s: taken by the fast path: %v", name, fast)
		}
	}
}

// What was allowed is asked again after a change of the rules, and a wrong signature never reads.
func TestFastGetsFollowTheRules(t *testing.T) {
	w := gets(t, nil, nil)
	get := func(secret string) int {
		req := w.request("GET", "/bobs/a", nil)
		sign(t, req, "bob", secret, emptySHA256)
		r := w.sent(req)
		head := w.request("HEAD", "/bobs/a", nil)
		sign(t, head, "bob", secret, emptySHA256)
		if h := w.sent(head); h.StatusCode != r.StatusCode {
			t.Errorf("status %d of HEAD and %d of GET", h.StatusCode, r.StatusCode)
		}
		return r.StatusCode
	}
	if a, b := get("bobssecret"), get("guessed"); a != http.StatusOK || b != http.StatusForbidden {
		t.Errorf("status %d with the secret and %d with another one, expected 200 and 403", a, b)
	}
	w.must(http.StatusNoContent, "DELETE", "/bobs?policy", nil)
	if got := get("bobssecret"); got != http.StatusForbidden {
		t.Errorf("status %d after the policy was removed, expected 403", got)
	}
}

// BenchmarkGet reads an object of 4 KiB over one connection, on the fast path and through versitygw.
func BenchmarkGet(b *testing.B) { benchmarkReads(b, "GET") }

// BenchmarkHead is like BenchmarkGet for HEAD.
func BenchmarkHead(b *testing.B) { benchmarkReads(b, "HEAD") }

func benchmarkReads(b *testing.B, method string) {
	for name, header := range map[string][]string{"fast": nil, "versitygw": {"X-Not-Plain", "1"}} {
		b.Run(name, func(b *testing.B) {
			w := start(b, nil, func(o *Options) { o.Observe = nil })
			w.must(http.StatusOK, "PUT", "/plain", nil)
			w.must(http.StatusOK, "PUT", "/plain/small", bytes.Repeat([]byte("x"), 4096))
			req := w.request(method, "/plain/small", nil, header...)
			sign(b, req, rootKey, rootSecret, emptySHA256)
			text, err := httputil.DumpRequestOut(req, false)
			if err != nil {
				b.Fatal(err)
			}
			c, err := net.Dial("tcp", w.addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			r := bufio.NewReader(c)
			for b.Loop() {
				if _, err := c.Write(text); err != nil {
					b.Fatal(err)
				}
				got, err := http.ReadResponse(r, req)
				if err != nil || got.StatusCode != http.StatusOK {
					b.Fatal(got, err)
				}
				if _, err := io.Copy(io.Discard, got.Body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
