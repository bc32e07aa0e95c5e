// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"
	"testing"

	"github.com/valyala/fasthttp"
)

// TestDiscovery: who may not sign learns of the door, by reading alone, and no key or bucket is hidden by it.
func TestDiscovery(t *testing.T) {
	const answer = `{"version":1,"enabled":false}`
	w := start(t, nil, func(o *Options) { o.Discovery = func() []byte { return []byte(answer) } })
	r, err := w.try("", "", http.MethodGet, "/.nebulaio/gpudirect", nil)
	if err != nil || r.StatusCode != http.StatusOK || string(r.body) != answer || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v, %+v, %s", err, r.Response, r.body)
	}
	if r, err := w.try("", "", http.MethodHead, "/.nebulaio/gpudirect", nil); err != nil || r.StatusCode != http.StatusOK || len(r.body) != 0 {
		t.Errorf("HEAD: %v, %+v", err, r)
	}
	for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodDelete} {
		if r, err := w.try("", "", method, "/.nebulaio/gpudirect", nil); err != nil || r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %v, %+v", method, err, r)
		}
	}
	if e := <-w.events; e.Operation != "Discovery" || e.Status != http.StatusOK {
		t.Errorf("%+v", e)
	}
	w.must(http.StatusOK, http.MethodPut, "/bucket", nil)
	w.must(http.StatusOK, http.MethodPut, "/bucket/.nebulaio/gpudirect", []byte("an object"))
	if r := w.must(http.StatusOK, http.MethodGet, "/bucket/.nebulaio/gpudirect", nil); string(r.body) != "an object" {
		t.Errorf("%s", r.body)
	}
	if r, err := w.try("", "", http.MethodGet, "/.nebulaio/other", nil); err != nil || r.StatusCode < 400 {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestDiscoveryLeavesKeysOfBucketsAlone: under a bucket's own host name, with a port or without, the path is a key.
func TestDiscoveryLeavesKeysOfBucketsAlone(t *testing.T) {
	s := &Server{opts: Options{Domains: []string{"s3.example.com"}, Discovery: func() []byte { return nil }}}
	for host, want := range map[string]bool{
		"s3.example.com": true, "s3.example.com:9000": true, "127.0.0.1:9000": true,
		"bucket.s3.example.com": false, "bucket.s3.example.com:9000": false, "a.b.s3.example.com:9000": false,
	} {
		var rctx fasthttp.RequestCtx
		rctx.Request.SetRequestURI("/.nebulaio/gpudirect")
		rctx.Request.Header.SetHost(host)
		s.rewriteHost(&rctx)
		if got := s.discovers(&rctx); got != want {
			t.Errorf("%s: %v, expected %v", host, got, want)
		}
	}
}

// TestNoDiscovery: without an answer the path is nothing.
func TestNoDiscovery(t *testing.T) {
	w := start(t, nil, nil)
	if r, err := w.try("", "", http.MethodGet, "/.nebulaio/gpudirect", nil); err != nil || r.StatusCode < 400 {
		t.Errorf("%v, %+v", err, r)
	}
}
