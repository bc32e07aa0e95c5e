// SPDX-License-Identifier: Apache-2.0

package meters_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/meters"
	"github.com/nebulaio/nebulaio/internal/meters/fakemachine"
)

// console serves metrics whose counters are n times one unit.
func console(n *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		v := n.Load()
		fmt.Fprintf(w, "# HELP nebulaio_s3_requests_total x\n# TYPE nebulaio_s3_requests_total counter\n"+
			"nebulaio_s3_requests_total{code=\"200\",operation=\"GetObject\"} %d\n"+
			"nebulaio_s3_requests_total{code=\"503\",operation=\"GetObject\"} %d\n"+
			"nebulaio_s3_sent_bytes_total{operation=\"GetObject\"} %d\nnebulaio_s3_received_bytes_total{operation=\"PutObject\"} %d\n"+
			"nebulaio_s3_requests_in_flight 3\nnebulaio_gpudirect_connections 2\n"+
			"nebulaio_gpudirect_reported_bytes_total{device=\"cuda:0\",direction=\"read\",route=\"direct\",stage=\"total\"} %d\n"+
			"nebulaio_gpudirect_reported_bytes_total{device=\"cuda:0\",direction=\"read\",route=\"direct\",stage=\"copy\"} 77\n",
			100*v, 10*v, v<<20, v<<10, v<<21)
	})
}

func TestTheMetricsOfAServer(t *testing.T) {
	var n atomic.Int64
	n.Store(1)
	srv := httptest.NewServer(console(&n))
	defer srv.Close()
	m := fakemachine.New(t)
	c := open(t, m, meters.Options{Server: meters.ServerOptions{Address: srv.URL + "/"}})
	c.Read(t.Context())
	n.Store(3)
	m.Pass(2*time.Second, 0, 0, 0, 0)
	m.Write()
	s := c.Read(t.Context()).Server
	if s == nil || s.Address != srv.URL || s.Requests != 330 || s.RequestRate != 110 || s.FailRate != 10 ||
		s.SendRate != 1<<20 ||
		s.ReceiveRate != 1<<10 || s.InFlight != 3 || s.DoorClients != 2 || s.DoorRates["direct"] != 1<<21 {
		t.Errorf("%+v", s)
	}
}

func TestAServerOverTLS(t *testing.T) {
	var n atomic.Int64
	srv := httptest.NewTLSServer(console(&n))
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c := open(t, fakemachine.New(t), meters.Options{Server: meters.ServerOptions{Address: srv.URL, CAFile: ca}})
	if s := c.Read(t.Context()); s.Server == nil {
		t.Errorf("missing %+v", s.Missing)
	}
	c = open(t, fakemachine.New(t), meters.Options{Server: meters.ServerOptions{Address: srv.URL}})
	if s := c.Read(t.Context()); s.Server != nil || !missing(s, "server", "certificate") {
		t.Errorf("an unknown certificate was accepted: %+v, %+v", s.Server, s.Missing)
	}
}

func missing(s *meters.Sample, meter, text string) bool {
	for _, m := range s.Missing {
		if m.Meter == meter && strings.Contains(m.Reason, text) {
			return true
		}
	}
	return false
}

func TestServersThatDoNotAnswer(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			fmt.Fprint(w, "minio_up 1\n")
		}
	}))
	defer other.Close()
	away := httptest.NewServer(http.RedirectHandler(other.URL+"/metrics", http.StatusFound))
	defer away.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, c := range map[string]struct{ url, want string }{
		"another program": {other.URL, "not from a NebulaIO server"},
		"redirects":       {away.URL, "status 302"},
		"nobody":          {gone.URL, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, fakemachine.New(t), meters.Options{Server: meters.ServerOptions{Address: c.url}})
			if s := m.Read(t.Context()); s.Server != nil || !missing(s, "server", c.want) {
				t.Errorf("%+v, %+v", s.Server, s.Missing)
			}
			m = open(t, fakemachine.New(t), meters.Options{Server: meters.ServerOptions{Address: c.url, Quiet: true}})
			if s := m.Read(t.Context()); s.Server != nil || len(s.Missing) > 0 {
				t.Errorf("a server that was only looked for is missed: %+v", s.Missing)
			}
		})
	}
}

func TestAddressesOfServers(t *testing.T) {
	for _, url := range []string{"127.0.0.1:9001", "ftp://x", "http://", "http://u:p@x", "http://x/metrics",
		"http://x?y=1", "::"} {
		if _, err := meters.Open(meters.Options{Server: meters.ServerOptions{Address: url}}); !errs.Is(err, errs.Invalid) ||
			!strings.Contains(err.Error(), "expected a URL such as http://127.0.0.1:9001") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := meters.Open(meters.Options{Server: meters.ServerOptions{Address: "https://x",
		CAFile: "/no/such"}}); !errs.Is(err, errs.NotFound) {
		t.Errorf("got %v", err)
	}
	bad := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(bad, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := meters.Open(meters.Options{Server: meters.ServerOptions{Address: "https://x",
		CAFile: bad}}); !errs.Is(err, errs.Corrupt) {
		t.Errorf("got %v", err)
	}
}
