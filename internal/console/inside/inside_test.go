// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// serve runs a handler on a listener until the test ends.
func serve(t *testing.T, h http.HandlerFunc) *Caller {
	t.Helper()
	l := Listen()
	srv := &http.Server{Handler: h} //nolint:gosec // a test
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return NewCaller(l, "us-east-1")
}

var alice = As{Account: iam.Account{AccessKey: "alice", Secret: "alice-secret"},
	From: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 1234}}

func TestARequestHasTheUsersSignatureAndAddress(t *testing.T) {
	var got *http.Request
	var body string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got, body = r, string(b)
		_, _ = io.WriteString(w, "<Reply><A>1</A></Reply>")
	})
	var out struct{ A int }
	if _, err := c.XML(t.Context(), alice, Request{Method: http.MethodPut, Bucket: "b", Key: "a//../c d+%2F",
		Query: url.Values{"x": {"1 2"}}, Body: strings.NewReader("content"), Size: 7}, &out); err != nil || out.A != 1 {
		t.Fatalf("%v %+v", err, out)
	}
	if got.RequestURI != "/b/a//../c%20d%2B%252F?x=1%202" || body != "content" {
		t.Errorf("%s %q", got.RequestURI, body)
	}
	if got.RemoteAddr != "203.0.113.7:1234" {
		t.Errorf("the client is %s", got.RemoteAddr)
	}
	if sig := got.Header.Get("Authorization"); !strings.HasPrefix(sig, "AWS4-HMAC-SHA256 Credential=alice/") {
		t.Errorf("signed %q", sig)
	}
}

func TestARefusalIsAFault(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
	})
	for _, method := range []string{http.MethodGet, http.MethodPost} { // with and without a status that tells
		_, err := c.XML(t.Context(), alice, Request{Method: method, Bucket: "b"}, nil)
		var f *s3.Fault
		if !errors.As(err, &f) || f.Code != "AccessDenied" {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestAClosedListenerRefuses(t *testing.T) {
	l := Listen()
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Dial(nil); !errs.Is(err, errs.Closed) {
		t.Errorf("%v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestAReplyOfAnySizeIsBounded(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		line := strings.Repeat(" ", 1<<20)
		for range maxDocument>>20 + 2 {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	})
	if _, err := c.XML(t.Context(), alice, Request{Method: http.MethodGet, Bucket: "b"}, &struct{}{}); !errs.Is(err,
		errs.Unsupported) {
		t.Errorf("%v", err)
	}
}
