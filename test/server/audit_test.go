// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const auditBucket = "bucket"

// replies records the identifiers of the requests whose reply has arrived.
type replies struct {
	mu     sync.Mutex
	ids    map[string]string // method and path, by identifier
	enough int               // number of replies that somebody waits for
	there  chan struct{}     // closed at that number
}

func (r *replies) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil {
		r.mu.Lock()
		r.ids[resp.Header.Get("X-Amz-Request-Id")] = req.Method + " " + req.URL.Path
		if r.there != nil && len(r.ids) >= r.enough {
			close(r.there)
			r.there = nil
		}
		r.mu.Unlock()
	}
	return resp, err
}

// more returns a channel that is closed when n more replies have arrived.
func (r *replies) more(n int) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := make(chan struct{})
	r.enough, r.there = len(r.ids)+n, there
	return there
}

func (s *server) clientWith(t *testing.T, transport http.RoundTripper) *minio.Core {
	t.Helper()
	c, err := minio.NewCore(s.address, &minio.Options{Creds: credentials.NewStaticV4(user, password, ""),
		Region: "us-east-1", MaxRetries: 1, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// auditLines returns the identifiers of all lines of an audit log with its rotated files.
func auditLines(t *testing.T, path string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	names, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sent") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
			var r map[string]any
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: line %q: %v", name, line, err)
			}
			id, _ := r["request_id"].(string)
			if all[id] != nil && id != "" {
				t.Errorf("request %s has two lines", id)
			}
			all[id] = r
		}
	}
	return all
}

// TestAuditLogUnderKill kills the server under load. Every request whose reply arrived has its line.
func TestAuditLogUnderKill(t *testing.T) {
	data := t.TempDir()
	path := filepath.Join(data, "logs", "audit.log")
	seen := &replies{ids: map[string]string{}}
	for round := range 3 {
		s := start(t, data, "--audit-file", path, "--audit-max-size", "64KiB", "--audit-keep", "1000")
		c := s.clientWith(t, seen)
		if round == 0 {
			if err := c.MakeBucket(t.Context(), auditBucket, minio.MakeBucketOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		enough := seen.more(150 + 60*round)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for w := range 6 {
			wg.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Sprintf("%d-%d", w, i%20)
					_, err := c.PutObject(t.Context(), auditBucket, key, strings.NewReader(key), int64(len(key)), "", "",
						minio.PutObjectOptions{})
					if err == nil && i%3 == 0 {
						var body io.ReadCloser
						if body, _, _, err = c.GetObject(t.Context(), auditBucket, key, minio.GetObjectOptions{}); err == nil {
							_, _ = io.Copy(io.Discard, body)
							_ = body.Close()
						}
					}
					// a refused request has a line too
					_, _, _, _ = c.GetObject(t.Context(), auditBucket, "missing", minio.GetObjectOptions{})
					select {
					case <-stop:
						return
					default:
					}
					if err != nil {
						return
					}
				}
			})
		}
		select {
		case <-enough:
		case <-s.exited:
			t.Fatalf("the server ended: %s", s.log)
		}
		s.kill()
		close(stop)
		wg.Wait()
	}
	lines := auditLines(t, path)
	for id, what := range seen.ids {
		r := lines[id]
		if r == nil {
			t.Errorf("%s (request %s) was answered and has no line", what, id)
			continue
		}
		if r["source"] != "s3" || r["account"] != user || r["operation"] == "Unknown" || r["status"] == nil {
			t.Errorf("%s: %v", what, r)
		}
	}
	rotated, _ := filepath.Glob(path + ".*")
	t.Logf("%d replies, %d lines, %d rotated files", len(seen.ids), len(lines), len(rotated))
	if len(rotated) == 0 {
		t.Error("the log was not rotated")
	}
}

// hook is a webhook that can be down.
type hook struct {
	mu    sync.Mutex
	down  bool
	lines []string
	grown chan struct{}
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down || r.Header.Get("Authorization") != "Bearer x" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	for in := bufio.NewScanner(r.Body); in.Scan(); {
		h.lines = append(h.lines, in.Text())
	}
	select {
	case h.grown <- struct{}{}:
	default:
	}
}

// TestAuditWebhook sends the audit log to a receiver that is down at first, across a kill of the server.
func TestAuditWebhook(t *testing.T) {
	t.Setenv("AUDIT_TOKEN", "Bearer x")
	h := &hook{down: true, grown: make(chan struct{}, 1)}
	receiver := httptest.NewServer(h)
	defer receiver.Close()
	data := t.TempDir()
	args := []string{"--audit-webhook", receiver.URL, "--audit-webhook-token-env", "AUDIT_TOKEN"}
	seen := &replies{ids: map[string]string{}}
	s := start(t, data, args...)
	c := s.clientWith(t, seen)
	if err := c.MakeBucket(t.Context(), auditBucket, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := c.PutObject(t.Context(), auditBucket, fmt.Sprint(i), bytes.NewReader(nil), 0, "", "",
			minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.kill()
	h.mu.Lock()
	h.down = false
	h.mu.Unlock()
	s = start(t, data, args...)
	for {
		<-h.grown
		h.mu.Lock()
		text := strings.Join(h.lines, "\n")
		h.mu.Unlock()
		missing := 0
		for id := range seen.ids {
			if !strings.Contains(text, id) {
				missing++
			}
		}
		if missing == 0 {
			break
		}
	}
	s.stop(t)
	// A wrong setting is refused at the start, with its key and value.
	for _, wrong := range [][]string{{"--audit-webhook", "ftp://x"}, {"--audit-max-size", "1"}, {"--audit-keep", "0"},
		{"--audit-webhook", receiver.URL, "--audit-webhook-token-env", "NOT_SET_HERE"},
		{"--audit-file", "/proc/nothing/a.log"}} {
		out, code := run(t, append([]string{"server", "--data", t.TempDir(), "--address", "127.0.0.1:0", "--console-address",
			"127.0.0.1:0"}, wrong...)...)
		if code == 0 || !strings.Contains(out, wrong[len(wrong)-1]) {
			t.Errorf("%q: exit code %d, and the message does not have the value: %s", wrong, code, out)
		}
	}
}
