// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// TestDiscovery: accounts learn of the door, by reading alone, and no key or bucket is hidden by it.
func TestDiscovery(t *testing.T) {
	const answer = `{"version":1,"enabled":true,"socket":"/run/secret.sock","store":"store-id"}`
	w := start(t, nil, func(o *Options) {
		o.Discovery = func() []byte {
			return []byte(answer)
		}
		o.Region = "eu-central-1"
	})
	w.people("alice")
	const path = "/.nebulaio/gpudirect"
	// signed for us-east-1, which a client signs for that does not know the region
	r := w.as("alice", http.StatusOK, http.MethodGet, path, "")
	if string(r.body) != answer || r.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%+v, %s", r.Response, r.body)
	}
	if e := <-w.events; e.Operation != "Discovery" || e.Status != http.StatusOK || e.Account != "alice" {
		t.Errorf("%+v", e)
	}
	if r := w.must(http.StatusOK, http.MethodHead, path, nil); len(r.body) != 0 {
		t.Errorf("HEAD: %s", r.body)
	}
	for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodDelete} {
		w.must(http.StatusMethodNotAllowed, method, path, nil)
	}
	secret := "new-secret-of-alice"
	if err := w.iam.Update(t.Context(), "alice", iam.Change{Secret: &secret}); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		key, secret string
		status      int
		says        string
	}{
		"nobody":          {"", "", http.StatusOK, "only to who signs"},
		"a stranger":      {"mallory", "guess", http.StatusForbidden, "InvalidAccessKeyId"},
		"a wrong secret":  {"alice", "guess", http.StatusForbidden, "SignatureDoesNotMatch"},
		"an old secret":   {"alice", "alice-secret", http.StatusForbidden, "SignatureDoesNotMatch"},
		"the next secret": {"alice", secret, http.StatusOK, "secret.sock"},
	} {
		r, err := w.try(x.key, x.secret, http.MethodGet, path, nil)
		if err != nil || r.StatusCode != x.status || !strings.Contains(string(r.body), x.says) {
			t.Errorf("%s: %v, %d %s", name, err, r.StatusCode, r.body)
		}
		if name != "the next secret" && (strings.Contains(string(r.body), "secret.sock") ||
			strings.Contains(string(r.body), "store-id")) {
			t.Errorf("%s learns what is told to accounts alone: %s", name, r.body)
		}
	}
	var old struct { // as clients before signatures read it
		Version     int
		Enabled     bool
		Reason, Fix string
	}
	if r, err := w.try("", "", http.MethodGet, path, nil); err != nil || json.Unmarshal(r.body, &old) != nil ||
		old.Version != 1 || old.Enabled || old.Reason == "" || old.Fix == "" {
		t.Errorf("an older client is told %s, %v", r.body, err)
	}
	if r, err := w.try("", "", http.MethodGet, path+"?X-Amz-Expires=60", nil); err != nil ||
		strings.Contains(string(r.body), "secret.sock") {
		t.Errorf("%v, %s", err, r.body)
	}
	if r, err := w.try("", "", http.MethodGet, "/.nebulaio/other", nil); err != nil || r.StatusCode < 400 {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestDiscoveryHidesNoKey: a key of the discovery's name is an object like any other.
func TestDiscoveryHidesNoKey(t *testing.T) {
	w := start(t, nil, func(o *Options) { o.Discovery = func() []byte { return nil } })
	w.must(http.StatusOK, http.MethodPut, "/bucket", nil)
	w.must(http.StatusOK, http.MethodPut, "/bucket/.nebulaio/gpudirect", []byte("an object"))
	if r := w.must(http.StatusOK, http.MethodGet, "/bucket/.nebulaio/gpudirect", nil); string(r.body) != "an object" {
		t.Errorf("%s", r.body)
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
