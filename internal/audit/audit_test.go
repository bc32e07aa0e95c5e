// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, o Options) *Log {
	t.Helper()
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func write(t *testing.T, l *Log, lines ...string) {
	t.Helper()
	for _, s := range lines {
		if err := l.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRotationKeepsTheNewestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "a.log")
	o := Options{Path: path, MaxSize: 10, Keep: 2}
	l := open(t, o)
	for i := range 7 {
		write(t, l, fmt.Sprintf("line %d", i)) // 7 bytes with the line break: one line a file
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(nil); err == nil {
		t.Error("a closed log was written")
	}
	l = open(t, o) // the numbers go on
	write(t, l, "line 7")
	names, _ := filepath.Glob(path + "*")
	if want := []string{path, path + ".6", path + ".7"}; !slices.Equal(names, want) {
		t.Fatalf("files %q, expected %q", names, want)
	}
	for name, want := range map[string]string{path: "line 7\n", path + ".7": "line 6\n", path + ".6": "line 5\n"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, expected %q", name, got, err, want)
		}
	}
}

func TestALineThatWasCutOffIsEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	if err := os.WriteFile(path, []byte("whole\nhal"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := open(t, Options{Path: path, MaxSize: 1 << 20, Keep: 1})
	write(t, l, "next")
	if got, _ := os.ReadFile(path); string(got) != "whole\nhal\nnext\n" {
		t.Errorf("%q", got)
	}
}

func TestAFileThatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(Options{Path: dir, MaxSize: 1, Keep: 1}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory as the file: %v", err)
	}
}

// receiver is a webhook that fails as often as it is told.
type receiver struct {
	mu    sync.Mutex
	fails int
	got   []string
	more  chan struct{}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	b, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails > 0 {
		r.fails--
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	r.got = append(r.got, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")...)
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// until runs a sender until the webhook has so many lines.
func until(t *testing.T, s *Sender, r *receiver, n int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	for {
		r.mu.Lock()
		got := len(r.got)
		r.mu.Unlock()
		if got >= n {
			break
		}
		<-r.more
	}
	// The position is recorded after the reply: wait for it, so that no line is sent again.
	for lines, _ := s.Sent(); lines < int64(n); lines, _ = s.Sent() {
		runtime.Gosched()
	}
	stop()
	<-done
}

func TestTheSenderSendsEachLineInOrder(t *testing.T) {
	r := &receiver{fails: 3, more: make(chan struct{}, 1)}
	srv := httptest.NewServer(r)
	defer srv.Close()
	path := filepath.Join(t.TempDir(), "a.log")
	o := Options{Path: path, MaxSize: 100, Keep: 1000}
	l := open(t, o)
	var want []string
	add := func(n int) {
		for range n {
			want = append(want, fmt.Sprintf("line %03d", len(want)))
			write(t, l, want[len(want)-1])
		}
	}
	for round := range 3 { // each with a new sender, as after a restart
		add(100)
		s, err := NewSender(l, Webhook{URL: srv.URL, Retry: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		until(t, s, r, 100)
		if round == 0 {
			if _, failures := s.Sent(); failures != 3 {
				t.Errorf("%d failures, expected 3", failures)
			}
		}
		r.mu.Lock()
		if !slices.Equal(r.got, want[len(want)-100:]) {
			t.Fatalf("round %d: the webhook got %q", round, r.got)
		}
		r.got = nil
		r.mu.Unlock()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, o)
	}
}

func TestRemovedFilesAreReported(t *testing.T) {
	r := &receiver{more: make(chan struct{}, 1)}
	srv := httptest.NewServer(r)
	defer srv.Close()
	var dropped []string
	path := filepath.Join(t.TempDir(), "a.log")
	l := open(t, Options{Path: path, MaxSize: 10, Keep: 2, Dropped: func(p string) { dropped = append(dropped, p) }})
	s, err := NewSender(l, Webhook{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		write(t, l, fmt.Sprintf("line %d", i))
	}
	if want := []string{path + ".1", path + ".2", path + ".3"}; !slices.Equal(dropped, want) {
		t.Errorf("dropped %q, expected %q", dropped, want)
	}
	until(t, s, r, 3)
	if want := []string{"line 3", "line 4", "line 5"}; !slices.Equal(r.got, want) {
		t.Errorf("the webhook got %q, expected %q", r.got, want)
	}
}

func TestLongLinesAndUnfinishedLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	long := strings.Repeat("x", 200<<10)
	if err := os.WriteFile(path, []byte("a\n"+long+"\nunfinished"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := lines(f, 0, 100)
	if err != nil || !bytes.Equal(got, []byte("a\n"+long+"\n")) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got, err = lines(f, 2, 1); err != nil || len(got) != len(long)+1 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
