// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// The gate never lets more in than its limit, loses no turn to those who give up, and ends empty.
func TestGate(t *testing.T) {
	g := newGate(4)
	var inside, most atomic.Int64
	var group sync.WaitGroup
	for n := range 64 {
		group.Go(func() {
			for k := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if (n+k)%3 == 0 {
					go cancel() // gives up at some moment, or just too late
				}
				if err := g.enter(ctx); err != nil {
					if !errs.Is(err, errs.Cancelled) {
						t.Error(err)
					}
					cancel()
					continue
				}
				if now := inside.Add(1); now > most.Load() {
					most.Store(now)
				}
				inside.Add(-1)
				g.leave()
				cancel()
			}
		})
	}
	group.Wait()
	if most.Load() > 4 || g.active != 0 || len(g.waiting) != 0 {
		t.Errorf("at most %d, active %d, waiting %d", most.Load(), g.active, len(g.waiting))
	}
}

// The limit of the rate spreads bytes, lets the first ones through at once and ends with its context.
func TestLimiter(t *testing.T) {
	var none *limiter
	if err := none.wait(t.Context(), 1<<40); err != nil {
		t.Error(err)
	}
	l := newLimiter(1 << 10)
	ctx, cancel := context.WithCancel(t.Context())
	if err := l.wait(ctx, 1<<20); err != nil {
		t.Error(err)
	}
	if ahead := time.Until(l.next); ahead < 900*time.Second || ahead > 1024*time.Second {
		t.Errorf("the next byte goes in %v", ahead) // 1 MiB at 1 KiB a second
	}
	cancel()
	if err := l.wait(ctx, 1); !errs.Is(err, errs.Cancelled) {
		t.Error(err)
	}
}

// The state of an upload is found again for the same source and destination alone, and anything else in its file is
// taken as no state.
func TestState(t *testing.T) {
	client, err := s3.New(s3.Options{Endpoint: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	dir, id := filepath.Join(t.TempDir(), "states"), object.Identity{Origin: "file", Key: "/f", ETag: "1-2-3", Size: 9}
	dst := Remote{Client: client, Bucket: "b", Key: "k"}
	open := func(id object.Identity, dst Remote) *state {
		t.Helper()
		s, err := openState(dir, id, dst)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open(id, dst)
	if err := s.write("upload", true, leastPart); err != nil || !s.kept() {
		t.Fatal(err)
	}
	if second := open(id, dst); second.kept() || second.ID != "" {
		t.Error("two copies share one state")
	}
	s.close()
	if s = open(id, dst); s.ID != "upload" || !s.Sums || s.Part != leastPart {
		t.Errorf("%+v", s)
	}
	other, key := id, dst
	other.ETag, key.Key = "1-2-4", "k2"
	for _, s := range []*state{open(other, dst), open(id, key)} {
		if s.ID != "" {
			t.Errorf("%+v is of another copy", s)
		}
		s.close()
	}
	path := s.path
	s.close()
	for _, text := range []string{"", "{", `{"id":"x","part":1}`, `{"id":"x","part":-8388608}`, "[]", "\x00\xff"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s := open(id, dst); s.ID != "" {
			t.Errorf("%q gives %+v", text, s)
		} else {
			s.close()
		}
	}
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}
