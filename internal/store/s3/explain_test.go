// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// A HEAD has no body that could tell a wrong secret from a missing right. The error has to.
func TestARefusedHeadTellsItsReason(t *testing.T) {
	for _, c := range []struct {
		name, code, fix string
		status          int
		change          func(o *Options)
		kind            errs.Kind
	}{
		{"a wrong secret", "SignatureDoesNotMatch", "check the secret key", http.StatusForbidden, nil, errs.Permission},
		{"an unknown key", "InvalidAccessKeyId", "check the access key", http.StatusForbidden, nil, errs.Permission},
		{"a missing right", "AccessDenied", "give this access key the right", http.StatusForbidden, nil, errs.Permission},
		{"another region", "AuthorizationHeaderMalformed", "region", http.StatusBadRequest, nil, errs.Invalid},
		{"no keys", "AccessDenied", "no keys were given: set NEBULAIO_ACCESS_KEY", http.StatusForbidden,
			func(o *Options) { o.AccessKey, o.SecretKey = "", "" }, errs.Permission},
	} {
		s := newServer(t)
		s.odd = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			refuse(w, c.status, c.code, "")
			return true
		}
		_, err := s.client(c.change).Head(bg, "b", "k", "")
		if !errs.Is(err, c.kind) || CodeOf(err) != c.code || !strings.Contains(errs.FixOf(err), c.fix) {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := strings.Join(s.requests(), "; "); got != "HEAD /b/k ; GET /b/k bytes=0-0" {
			t.Errorf("%s: sent %s", c.name, got)
		}
	}
}

// What only the HEAD is refused keeps its own words, and a missing object costs one request.
func TestAHeadThatAGetDoesNotExplain(t *testing.T) {
	s := newServer(t)
	s.put("b/k", noise(10, 1))
	s.odd = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/k") {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	if _, err := s.client(nil).Head(bg, "b", "k", ""); !errs.Is(err, errs.Permission) || CodeOf(err) != "AccessDenied" {
		t.Errorf("a HEAD alone is refused: %v", err)
	}
	before := len(s.requests())
	if _, err := s.client(nil).Head(bg, "b", "missing", ""); !errs.Is(err, errs.NotFound) ||
		len(s.requests()) != before+1 {
		t.Errorf("a missing object: %v, %d requests", err, len(s.requests())-before)
	}
}

func TestPlainHTTPOnAPortOfTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	c, err := New(Options{Endpoint: strings.Replace(s.URL, "https:", "http:", 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Head(bg, "b", "k", ""); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(errs.FixOf(err), "use https://") {
		t.Errorf("%v", err)
	}
}

// A web server that is none of S3 is named as the reason, and not the name of the object.
func TestAReplyThatIsNotOfS3(t *testing.T) {
	s := newServer(t)
	s.odd = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		http.NotFound(w, r)
		return true
	}
	_, head := s.client(nil).Head(bg, "b", "k", "")
	_, list := s.client(nil).List(bg, Listing{Bucket: "b"})
	for what, err := range map[string]error{"head": head, "list": list} {
		if !strings.Contains(errs.FixOf(err), "does not speak S3") {
			t.Errorf("%s: fix %q: %v", what, errs.FixOf(err), err)
		}
	}
}
