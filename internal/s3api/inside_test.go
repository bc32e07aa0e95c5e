// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
)

// secureOnly lets alice read only over TLS.
const secureOnly = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["alice"]},` +
	`"Action":"s3:GetObject","Resource":"arn:aws:s3:::bkt/*","Condition":{"Bool":{"aws:SecureTransport":"true"}}}]}`

func inner(t *testing.T, conf *tls.Config) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, nil, func(o *Options) { o.Inside, o.TLS = l, conf })
	w.addr = l.Addr().String()
	w.people("alice")
	w.must(http.StatusOK, http.MethodPut, "/bkt", nil)
	w.must(http.StatusOK, http.MethodPut, "/bkt/k", []byte("content"))
	w.must(http.StatusNoContent, http.MethodPut, "/bkt?policy", []byte(secureOnly))
	return w
}

func TestInnerRequestsAreAsPlainAsTheNetworks(t *testing.T) {
	inner(t, nil).as("alice", http.StatusForbidden, http.MethodGet, "/bkt/k", "")
}

func TestInnerRequestsAreAsSecureAsTheNetworks(t *testing.T) {
	// Nothing connects to the other listener, so no certificate is needed.
	w := inner(t, &tls.Config{MinVersion: tls.VersionTLS12})
	if r := w.as("alice", http.StatusOK, http.MethodGet, "/bkt/k", ""); string(r.body) != "content" {
		t.Errorf("%q", r.body)
	}
	if r := w.nobody(http.MethodGet, "/bkt/k", ""); r.StatusCode != http.StatusForbidden {
		t.Errorf("without a signature: %d", r.StatusCode)
	}
}
