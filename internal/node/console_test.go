// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	door "github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/ktls"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

func none() float64 { return 0 }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if got := w.Header().Get("Server"); got != "NebulaIO" {
		t.Errorf("%s: Server is %q", path, got)
	}
	return w.Code, w.Body.String()
}

func TestReadinessFollowsTheState(t *testing.T) {
	var broken error
	c := &console{store: func() error { return broken }, version: "1<2", metrics: newMetrics("1", gauges{none, none})}
	h := c.handler()
	for _, step := range []struct {
		s      state
		broken error
		code   int
		text   string
	}{
		{starting, nil, 503, `"state":"starting"`},
		{ready, nil, 200, `"ready":true`},
		{ready, errors.New("the disk is gone"), 503, `"reason":"the disk is gone"`},
		{draining, nil, 503, `"state":"draining"`},
		{failed, nil, 503, `"state":"failed"`},
	} {
		broken = step.broken
		c.set(step.s)
		if code, text := get(t, h, "/readyz"); code != step.code || !strings.Contains(text, step.text) {
			t.Errorf("%s: %d %s", step.s, code, text)
		}
		if code, _ := get(t, h, "/healthz"); code != 200 {
			t.Errorf("%s: healthz says %d", step.s, code)
		}
	}
	if code, text := get(t, h, "/"); code != 200 || !strings.Contains(text, "1&lt;2") {
		t.Errorf("%d %s", code, text)
	}
	for _, path := range []string{"/debug/pprof/", "/bucket", "/healthz/x"} {
		if code, _ := get(t, h, path); code != 404 {
			t.Errorf("%s: %d", path, code)
		}
	}
	c.pprof = true
	if code, _ := get(t, c.handler(), "/debug/pprof/"); code != 200 {
		t.Errorf("pprof was asked for: %d", code)
	}
}

func TestEverySeriesIsThereFromTheStart(t *testing.T) {
	m := newMetrics("9.9", gauges{connections: func() float64 { return 3 }, inflight: func() float64 { return 2 }})
	c := &console{store: func() error { return nil }, metrics: m}
	c.set(ready)
	_, text := get(t, c.handler(), "/metrics")
	for _, want := range []string{
		`nebulaio_s3_requests_total{code="200",operation="PutObject"} 0`,
		`nebulaio_s3_request_duration_seconds_bucket{operation="GetObject",le="0.005"} 0`,
		`nebulaio_s3_sent_bytes_total{operation="GetObject"} 0`, `nebulaio_store_damage_total{what="checksum"} 0`,
		`nebulaio_scrubs_total{result="damage"} 0`,
		`nebulaio_build_info{version="9.9"} 1`, "nebulaio_ready 1", "nebulaio_s3_connections 3",
		"nebulaio_s3_requests_in_flight 2", "nebulaio_store_failed 0",
		"go_goroutines", "process_open_fds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	m.observe("PutObject", 200, 10, 0, time.Millisecond)
	m.observe("PutObject", 503, 0, 5, time.Second)
	m.observe("MadeUp", 200, 1, 1, 0)
	m.observe("GetObject", 12345, 0, 0, 0)
	m.damaged(object.Damage{What: "checksum"})
	m.damaged(object.Damage{What: "surprise"})
	_, text = get(t, c.handler(), "/metrics")
	for _, want := range []string{
		`nebulaio_s3_requests_total{code="200",operation="PutObject"} 1`,
		`nebulaio_s3_requests_total{code="503",operation="PutObject"} 1`,
		`nebulaio_s3_received_bytes_total{operation="PutObject"} 10`,
		`nebulaio_s3_requests_total{code="200",operation="Other"} 1`,
		`nebulaio_s3_requests_total{code="0",operation="GetObject"} 1`,
		`nebulaio_s3_request_duration_seconds_count{operation="PutObject"} 2`,
		`nebulaio_store_damage_total{what="checksum"} 1`, `nebulaio_store_damage_total{what="other"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if strings.Contains(text, "MadeUp") {
		t.Error("a client can make labels")
	}
}

// allMetrics returns the metrics of a server with a store, a door and a cluster.
func allMetrics(t *testing.T) *metrics {
	t.Helper()
	m := newMetrics("1", gauges{none, none})
	if err := m.watch(func(context.Context) (Stats, error) { return Stats{}, nil }); err != nil {
		t.Fatal(err)
	}
	if err := m.watchDoor(func() (door.Stats, bool) {
		return door.Stats{Moved: []door.Moved{{Route: "direct"}}}, true
	}); err != nil {
		t.Fatal(err)
	}
	if err := m.watchTLS(&ktls.Counts{}); err != nil {
		t.Fatal(err)
	}
	if err := m.watchCluster(func() Cluster { return Cluster{Enabled: true, Status: &cluster.Status{}} }); err != nil {
		t.Fatal(err)
	}
	if err := m.watchCache(func() (cache.Stats, bool) {
		return cache.Stats{Buckets: []cache.BucketStats{{Name: "models"}}}, true
	}); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTheListOfMetricsIsDocumented: docs/server.md names every metric of ours
// with what it means.
func TestTheListOfMetricsIsDocumented(t *testing.T) {
	m := allMetrics(t)
	doc, err := os.ReadFile("../../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := m.describe()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) < 10 {
		t.Errorf("%d metrics", len(families))
	}
	for name, help := range families {
		if line := fmt.Sprintf("| `%s` | %s |\n", name, help); !strings.Contains(string(doc), line) {
			t.Errorf("docs/server.md lacks %s", line)
		}
	}
}

func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	base, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limit(base, 1)
	conns := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			conns <- c
		}
	}()
	for range 2 {
		c, err := net.Dial("tcp", base.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-conns
	select {
	case <-conns:
		t.Fatal("a second connection was accepted beside the first")
	default:
	}
	_ = first.Close()
	_ = first.Close() // gives its place back once
	second := <-conns
	defer second.Close()
	_ = l.Close() // while Accept waits for a place
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestWhoMayUseTheWellKnownKeys(t *testing.T) {
	load := func(address string, vars map[string]string) *config.Config {
		c, err := config.Load(config.Inputs{Flags: map[string]string{"address": address},
			Env: func(n string) string { return vars[n] }})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	set := map[string]string{"NEBULAIO_ROOT_USER": "someone", "NEBULAIO_ROOT_PASSWORD": "something-else"}
	same := map[string]string{"NEBULAIO_ROOT_USER": "minioadmin", "NEBULAIO_ROOT_PASSWORD": "minioadmin"}
	for _, c := range []struct {
		address string
		vars    map[string]string
		ok      bool
	}{
		{"127.0.0.1:9000", nil, true}, {"127.9.9.9:9000", nil, true}, {"[::1]:9000", nil, true},
		{"localhost:9000", nil, true},
		{"0.0.0.0:9000", nil, false}, {":9000", nil, false}, {"[::]:9000", nil, false}, {"10.0.0.1:9000", nil, false},
		{"store.example:9000", nil, false},
		{"0.0.0.0:9000", set, true}, {"0.0.0.0:9000", same, false}, {"127.0.0.1:9000", same, true},
		{"0.0.0.0:9000", map[string]string{"NEBULAIO_ALLOW_DEFAULT_CREDENTIALS": "true"}, true},
	} {
		k, err := rootCredentials(load(c.address, c.vars))
		if (err == nil) != c.ok || err != nil && (!errs.Is(err, errs.Invalid) || errs.FixOf(err) == "") {
			t.Errorf("%s %v: %v", c.address, c.vars, err)
		}
		if wellKnown := c.vars["NEBULAIO_ROOT_USER"] != "someone"; k.wellKnown != wellKnown {
			t.Errorf("%s %v: well known is %v", c.address, c.vars, k.wellKnown)
		}
	}
}

// TestWhatWasCheckedCanBeServed: a configuration takes the keys that accounts take, and no others.
func TestWhatWasCheckedCanBeServed(t *testing.T) {
	const good, secret = "someone", "something-else"
	for _, k := range [][2]string{
		{good, secret}, {"ab", secret}, {"abc", secret}, {"a!b", secret}, {"a b", secret}, {"a/b", secret}, {"a=b", secret},
		{"Az9._@+-", secret}, {"ünï", secret},
		{strings.Repeat("a", 128), secret}, {strings.Repeat("a", 129), secret},
		{good, "1234567"}, {good, "12345678"}, {good, "with a space"}, {good, "sécrétsécrét"}, {good, "tab\ttabtab"},
		{good, "!~/+=,:\"'$"},
		{good, strings.Repeat("a", 129)}, {good, strings.Repeat("a", 256)}, {good, strings.Repeat("a", 257)},
	} {
		vars := map[string]string{"NEBULAIO_ROOT_USER": k[0], "NEBULAIO_ROOT_PASSWORD": k[1]}
		_, loaded := config.Load(config.Inputs{Env: func(n string) string { return vars[n] }})
		served := iam.Account{AccessKey: k[0], Secret: k[1], Role: iam.RoleAdmin}.Validate()
		if (loaded == nil) != (served == nil) {
			t.Errorf("%q %q: the configuration says %v, the account %v", k[0], k[1], loaded, served)
		}
	}
}

func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := notify(path, "READY=1"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := l.Read(buf); err != nil || string(buf[:n]) != "READY=1" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if err := notify("", "READY=1"); err != nil {
		t.Error(err)
	}
	if err := notify(path+"-gone", "READY=1"); err == nil {
		t.Error("nobody heard and there was no error")
	}
}

func TestTheLogNamesWhoSpeaks(t *testing.T) {
	var b strings.Builder
	component(newLog(&b, "info", "auto", false), "store").Info("x", "key", "v")
	if !strings.Contains(b.String(), `"component":"store"`) {
		t.Error(b.String())
	}
	b.Reset()
	l := component(newLog(&b, "warn", "auto", true), "store")
	l.Info("not shown")
	l.Warn("shown")
	if got := b.String(); !strings.Contains(got, "msg=shown component=store") || strings.Contains(got, "not shown") {
		t.Error(got)
	}
	newLog(io.Discard, "debug", "text", false).Debug("x")
}

// A request for objects that comes to the console is told where S3 is, in words that a client of S3 shows.
func TestConsoleNamesTheS3Address(t *testing.T) {
	r := runServer(t, map[string]string{"data": t.TempDir()})
	u, err := url.Parse(r.Console)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s3.New(s3.Options{Endpoint: u.String(), AccessKey: r.AccessKey, SecretKey: r.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, head := c.Head(t.Context(), "bucket", "key", "")
	_, _, read := c.ReadAll(t.Context(), "bucket", "key", "", 100)
	_, list := c.List(t.Context(), s3.Listing{Bucket: "bucket"})
	for what, err := range map[string]error{"head": head, "get": read, "list": list} {
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), r.Endpoint) ||
			!strings.Contains(errs.FixOf(err), "9000") {
			t.Errorf("%s: kind %v, fix %q: %v", what, errs.KindOf(err), errs.FixOf(err), err)
		}
	}
	reply, err := http.Get(r.Console + "/bucket/key")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if text, _ := io.ReadAll(reply.Body); reply.StatusCode != http.StatusNotFound ||
		!strings.Contains(string(text), r.Endpoint) {
		t.Errorf("%d %s", reply.StatusCode, text)
	}
}
