// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// A condition such as "only where there is none" is broken by one's own first
// try, when its reply is lost: that is a success.
func TestOwnFirstTryBreaksNoCondition(t *testing.T) {
	data := noise(600_000, 17)
	only := Put{Bucket: "b", Key: "k", IfNoneMatch: "*"}
	// In one request.
	s := newServer(t)
	var lost atomic.Bool
	s.odd = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !lost.CompareAndSwap(false, true) {
			return false
		}
		s.take(httptest.NewRecorder(), r, "b/k", "", "")
		reset(w, "", nil)
		return true
	}
	if i, err := putBytes(s.client(nil), only, data); err != nil || !lost.Load() || i.ETag == "" {
		t.Errorf("%+v: %v", i, err)
	}
	if _, err := putBytes(s.client(nil), only, data); CodeOf(err) != "PreconditionFailed" {
		t.Errorf("the same object of somebody else: %v", err)
	}
	// In parts, by a server that looks at the condition before the upload.
	s = newServer(t)
	s.dead = true
	s.odd = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if _, ok := s.get("b/k"); !ok || r.Method != http.MethodPost || r.URL.Query().Has("uploads") {
			return false
		}
		refuse(w, 412, "PreconditionFailed", "")
		return true
	}
	if u, err := upload(t, s.client(nil), only, data, 300_000); err != nil || u.Info().Size != int64(len(data)) {
		t.Errorf("%v", err)
	}
}

// A completion that nobody answers is tried as often as any other request, and
// its error says that nothing is known.
func TestCompletionThatIsNeverAnswered(t *testing.T) {
	s := newServer(t)
	var asked atomic.Int64
	s.odd = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Query().Has("uploads") {
			return false
		}
		asked.Add(1)
		io.Copy(io.Discard, r.Body)
		reset(w, "", nil)
		return true
	}
	_, err := upload(t, s.client(func(o *Options) { o.Retries = 3 }), Put{Bucket: "b", Key: "k"}, noise(100_000, 16),
		60_000)
	if !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "may have been written") ||
		!strings.Contains(errs.FixOf(err), "stat") {
		t.Error(err)
	}
	if asked.Load() > 8 { // net/http repeats some by itself
		t.Errorf("asked %d times, expected 4 or a few more", asked.Load())
	}
}

// Content, signatures and session tokens go to the endpoint and its parts alone.
func TestRedirectToAStranger(t *testing.T) {
	s := newServer(t)
	s.put("b/k", []byte("hello"))
	var stranger atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { stranger.Add(1) }))
	defer other.Close()
	s.odd = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Location", strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+r.URL.Path)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	}
	c := s.client(func(o *Options) { o.SessionToken = "a-token" })
	if _, err := c.Head(bg, "b", "k", ""); !errs.Is(err, errs.Permission) || !strings.Contains(err.Error(), "localhost") ||
		errs.FixOf(err) == "" {
		t.Error(err)
	}
	if _, err := putBytes(c, Put{Bucket: "b", Key: "k"}, []byte("x")); !errs.Is(err, errs.Permission) ||
		stranger.Load() != 0 {
		t.Errorf("the stranger was asked %d times: %v", stranger.Load(), err)
	}
	for host, ours := range map[string]bool{"s3.amazonaws.com": true, "b.s3.eu-west-9.amazonaws.com": true,
		"amazonaws.com.evil.example": false, "evilamazonaws.com": false, "": false} {
		a, err := New(Options{Endpoint: "https://s3.eu-west-1.amazonaws.com"})
		if err != nil {
			t.Fatal(err)
		}
		if a.ours(host) != ours {
			t.Errorf("%q: %v", host, !ours)
		}
	}
}

func TestWhatCannotStandInAHeader(t *testing.T) {
	s := newServer(t)
	for _, p := range []Put{
		{Metadata: map[string]string{"a": "b\nc"}}, {Metadata: map[string]string{"k y": "v"}},
		{Metadata: map[string]string{"ü": "v"}}, {Metadata: map[string]string{"": "v"}},
		{ContentType: "a\r\nb"}, {IfMatch: "\x00"},
	} {
		p.Bucket, p.Key = "b", "k"
		if _, err := s.client(nil).NewUpload(p); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if _, err := putBytes(s.client(nil), Put{Bucket: "b", Key: "k", ContentType: "text/plain; charset=utf-8",
		Metadata: map[string]string{"who": "me\tor you"}}, []byte("x")); err != nil || len(s.requests()) != 1 {
		t.Errorf("%v after %q", err, s.requests())
	}
}

func TestGetTellsWhatItCost(t *testing.T) {
	s := newServer(t)
	data := noise(50_000, 3)
	s.put("b/k", data)
	s.odd = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 2 {
			return false
		}
		refuse(w, 503, "SlowDown", "")
		return true
	}
	got, o, err := s.client(nil).Get(bg, "b", "k", "", 1<<20)
	if err != nil || !bytes.Equal(got, data) || o.Traffic().Requests != 3 || o.Traffic().Retries != 2 {
		t.Errorf("%+v: %v", o.Traffic(), err)
	}
}
