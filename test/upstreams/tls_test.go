// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// TestUpstreamsOverTLS puts a node in front of a server of ours that speaks TLS with a certificate of its own. The
// test addresses the bucket by its path and by its host name. A node that does not trust the certificate reads nothing.
func TestUpstreamsOverTLS(t *testing.T) {
	needsUpstreams(t)
	const domain, bucket = "s3.test", "models"
	dir := tempDir(t)
	far := startNode(t, dir, fmt.Sprintf("tls:\n  generate: true\n  hosts: [127.0.0.1, %s, '*.%s']\ndomains: [%s]\n",
		domain, domain, domain))
	ca := filepath.Join(dir, "data", "tls", "cert.pem")
	theirs := secure(t, far.host, ca)
	if err := theirs.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	proxy := newTunnel(t, far.host)
	list := []bucketAt{
		{name: "in-path", endpoint: "https://" + far.host, bucket: bucket, more: map[string]string{"ca_file": ca}},
		{name: "in-host", endpoint: "https://" + domain, bucket: bucket,
			more: map[string]string{"ca_file": ca, "addressing_style": "virtual"}},
		{name: "stranger", endpoint: "https://" + far.host, bucket: bucket},
	}
	near := startNode(t, tempDir(t), configuration(list, ""), "UPSTREAM_ACCESS_KEY="+user, "UPSTREAM_SECRET_KEY="+password,
		"HTTPS_PROXY="+proxy.URL, "NO_PROXY=")
	c := near.client(t)
	for i, name := range []string{"in-path", "in-host"} {
		data := content(uint64(700+i), 3<<20)
		put(t, c, name, "a key/ü", data)
		got, _, _, err := theirs.GetObject(t.Context(), bucket, "a key/ü", minio.GetObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if read, err := readAll(got); err != nil || string(read) != string(data) {
			t.Errorf("%s: %d bytes at the upstream, %v", name, len(read), err)
		}
		get(t.Context(), c, name, "a key/ü", 0, -1).expect(t, name, data, "hit")
	}
	put(t, theirs, bucket, "unread", []byte("not in the cache"))
	if got := get(t.Context(), c, "stranger", "unread", 0, -1); got.err == nil ||
		!strings.Contains(got.err.Error(), "certificate") {
		t.Errorf("a server with an unknown certificate: %v", got.err)
	}
	if hosts := proxy.hosts(); !slices.Contains(hosts, bucket+"."+domain+":443") ||
		slices.ContainsFunc(hosts, func(h string) bool { return !strings.HasPrefix(h, bucket+".") }) {
		t.Errorf("the node asked for the hosts %q", hosts)
	}
}

// secure returns a client that trusts the certificate in a file.
func secure(t *testing.T, host, ca string) *minio.Core {
	t.Helper()
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c, err := minio.NewCore(host, &minio.Options{Creds: credentials.NewStaticV4(user, password, ""), Secure: true,
		Region: upstreams.Region, MaxRetries: 1, BucketLookup: minio.BucketLookupPath,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tunnel is a proxy that leads every host name to one server, in place of DNS.
type tunnel struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
}

func newTunnel(t *testing.T, to string) *tunnel {
	t.Helper()
	p := &tunnel{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "expected CONNECT", http.StatusMethodNotAllowed)
			return
		}
		p.mu.Lock()
		p.asked = append(p.asked, r.Host)
		p.mu.Unlock()
		far, err := net.Dial("tcp", to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer far.Close()
		w.WriteHeader(http.StatusOK)
		near, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer near.Close()
		go func() {
			_, _ = io.Copy(far, buffered) // ends with one of the two connections
			far.Close()
		}()
		_, _ = io.Copy(near, far)
	}))
	t.Cleanup(p.Close)
	return p
}

// hosts returns the hosts that were asked for.
func (p *tunnel) hosts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}
