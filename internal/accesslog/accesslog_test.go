// SPDX-License-Identifier: Apache-2.0

package accesslog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// bucket keeps the objects that a Log writes.
type bucket struct {
	mu      sync.Mutex
	objects map[string]string
	err     error
}

func (b *bucket) put(_ context.Context, t Target, key string, body []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if b.objects == nil {
		b.objects = map[string]string{}
	}
	b.objects[t.Bucket+"/"+key] = string(body)
	return nil
}

func TestLinesBecomeObjects(t *testing.T) {
	dir, b := t.TempDir(), &bucket{}
	var dropped int
	o := Options{Dir: dir, Interval: time.Hour, Put: b.put, Dropped: func(_ Target, n int, _ error) { dropped += n },
		Now: func() time.Time { return time.Date(2026, 11, 17, 1, 2, 3, 0, time.UTC) }}
	open := func() *Log {
		l, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	plain := Target{Source: "s", Owner: "o", Region: "r", Bucket: "t", Prefix: "p/"}
	parted := plain
	parted.Source, parted.Partitioned = "s2", true
	for i := range 3 {
		for _, to := range []Target{plain, parted} {
			if err := l.Add(to, []byte(fmt.Sprint("line ", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The process ends here without Close: a new one delivers the lines.
	l = open()
	if err := l.Flush(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for key, body := range b.objects {
		keys = append(keys, key[:len(key)-16])
		if body != "line 0\nline 1\nline 2\n" {
			t.Errorf("%s: %q", key, body)
		}
	}
	text := strings.Join(keys, " ")
	if len(keys) != 2 || !strings.Contains(text, "t/p/2026-11-17-01-02-03-") ||
		!strings.Contains(text, "t/p/o/r/s2/2026/11/17/2026-11-17-01-02-03-") {
		t.Errorf("keys %q", keys)
	}
	// A target that fails for a while gets its lines later, and one that is gone loses them.
	b.err = errors.New("busy")
	if err := l.Add(plain, []byte("late")); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(t.Context(), "other"); err != nil {
		t.Errorf("flush of a source without lines: %v", err)
	}
	if err := l.Flush(t.Context(), "s"); err == nil {
		t.Error("the failure was not told")
	}
	b.err = nil
	if err := l.Flush(t.Context(), ""); err != nil || len(b.objects) != 3 {
		t.Errorf("%d objects, %v", len(b.objects), err)
	}
	b.err = fmt.Errorf("%w: no such bucket", ErrGone)
	_ = l.Add(plain, []byte("gone"))
	if err := l.Flush(t.Context(), ""); err != nil || dropped != 1 {
		t.Errorf("%d lines dropped, %v", dropped, err)
	}
	b.err = fmt.Errorf("%w: a policy", ErrDenied)
	_ = l.Add(plain, []byte("denied"))
	if err := l.Flush(t.Context(), ""); err != nil || dropped != 2 {
		t.Errorf("%d lines dropped, %v", dropped, err)
	}
	b.err = nil
	if err := l.Flush(t.Context(), ""); err != nil || len(b.objects) != 3 {
		t.Errorf("%d objects after the lines were dropped, %v", len(b.objects), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestALargeFileIsDeliveredEarly(t *testing.T) {
	b := &bucket{}
	l, err := Open(Options{Dir: t.TempDir(), Interval: time.Hour, MaxSize: 10, Put: b.put})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	for n := 0; n == 0; {
		if err := l.Add(Target{Source: "s", Bucket: "t"}, []byte("0123456789")); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		n = len(b.objects)
		b.mu.Unlock()
	}
	stop()
	<-done
}
