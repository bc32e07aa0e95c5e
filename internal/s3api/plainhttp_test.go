// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPlainHTTPOnTheTLSPortIsTold sends requests without TLS to a port of TLS.
func TestPlainHTTPOnTheTLSPortIsTold(t *testing.T) {
	other := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer other.Close()
	w := start(t, nil, func(o *Options) { o.TLS = &tls.Config{Certificates: other.TLS.Certificates} })
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
		req, err := http.NewRequest(method, "http://"+w.addr+"/bucket/key", strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.http.Do(req)
		if err != nil {
			t.Errorf("%s: %v", method, err)
			continue
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close() // it has been read
		if r.StatusCode != 400 || method != "HEAD" && (err != nil || !strings.Contains(string(body), "HTTPS server")) {
			t.Errorf("%s: %d %q %v", method, r.StatusCode, body, err)
		}
	}
	// What is neither HTTP nor TLS gets no answer in HTTP.
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("SSH-2.0-client\r\n")); err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(c); strings.Contains(string(text), "HTTP") { // the end may be a reset
		t.Errorf("%q", text)
	}
	// TLS goes on.
	w.scheme = "https"
	w.http.Transport = other.Client().Transport
	w.must(200, "PUT", "/bucket", nil)
}
