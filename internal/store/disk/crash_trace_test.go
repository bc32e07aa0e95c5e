// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/disk"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

// trace writes down the steps of the file system whose order durability hangs
// on. Of the metadata only the syncs of the log are Pebble's promise to us; the
// rest of its files is its own business.
type trace struct {
	mu      sync.Mutex
	on      bool
	several bool // files move at the same time, so that directories they share are synced in no order
	lines   []string
	behind  []string // done by nobody who is waited for: settling and removing
}

func (r *trace) done(s step) {
	switch s.op {
	case "read", "open", "open directory", "list", "lock", "preallocate":
		return
	}
	if strings.HasPrefix(s.path, "store/meta") && (s.op != "sync" || !strings.HasSuffix(s.path, ".log")) {
		return
	}
	if s.op == "sync" && strings.HasPrefix(s.path, "store/REACH.") && !strings.HasSuffix(s.path, ".new") {
		return // behind the scenes, at no certain moment
	}
	line := strings.TrimSpace(s.op + " " + s.path + " " + s.to)
	if strings.HasPrefix(s.path, "store/meta") {
		line = "sync the log"
	}
	content := len(filepath.Base(s.path)) == 16 // a data file, wherever it is
	tree := strings.HasPrefix(s.path, "store/data") && !content
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.on:
	case s.op == "link" || s.op == "remove" && content || tree:
		if !r.several || s.op != "sync" {
			r.behind = append(r.behind, line)
		}
	default:
		r.lines = append(r.lines, line)
	}
}

// take returns the lines since the last call.
func (r *trace) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := strings.Join(r.lines, "\n") + "\n"
	r.lines = nil
	return out
}

// TestOrderOfSteps compares the order in which requests write, sync and name
// files with testdata/*.golden: content before its name, both before the log,
// the log before the acknowledgement, and a new name before the old one goes.
func TestOrderOfSteps(t *testing.T) {
	ctx := context.Background()
	prepared := []action{scenario[0], put("o", "small", 100), put("o", "large", 1000), begin("place"),
		part("place", 1, 700), makeDirectory(), appendTo("log", 0, 1000)}
	for _, x := range []struct {
		name    string
		do      action
		several bool
	}{
		{"put-small", put("o", "k", 100), false},
		{"put-large", put("o", "k", 1000), false},
		{"overwrite-large", put("o", "large", 1001), true},
		{"begin-upload", begin("other"), false},
		{"put-part", part("place", 2, 700), false},
		{"complete-in-place", complete("place", 1), false},
		{"copy-large", copyTo("large", "copy", nil), false},
		{"delete-small", remove("o", "small", ""), false},
		{"append", appendTo("log", 1000, 500), false},
		{"rename", renameTo("log", "done"), false},
		{"delete-large", remove("o", "large", ""), false},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := &trace{several: x.several}
			fs := &stepFS{FS: vfs.NewMem(), done: r.done}
			open := func() *actor {
				s, err := disk.Open(ctx, crashOptions(fs))
				if err != nil {
					t.Fatal(err)
				}
				return newActor(s)
			}
			a := open()
			for _, p := range prepared {
				if err := p.do(ctx, a); err != nil {
					t.Fatalf("%s: %v", p.name, err)
				}
			}
			if err := a.s.Close(); err != nil { // which settles everything
				t.Fatal(err)
			}
			b := open()
			b.versions, b.uploads = a.versions, a.uploads
			r.on = true
			if err := x.do.do(ctx, b); err != nil {
				t.Fatal(err)
			}
			got := "before it is acknowledged:\n" + r.take()
			if err := b.s.Close(); err != nil {
				t.Fatal(err)
			}
			closing := r.take()
			if x.several {
				slices.Sort(r.behind)
			}
			got += "\nbehind the scenes:\n" + strings.Join(r.behind, "\n") + "\n\nwhen the store is closed:\n" + closing
			golden(t, x.name, got)
		})
	}
}

// TestOrderOfRecovery is TestOrderOfSteps of opening a store whose power went
// after a large object was acknowledged and before its file was in its place.
func TestOrderOfRecovery(t *testing.T) {
	ctx := context.Background()
	mem := vfs.NewCrashableMem()
	fs := &stepFS{FS: mem}
	var once sync.Once
	var left *vfs.MemFS
	fs.before = func(s step) error {
		if s.op == "link" {
			once.Do(func() { left = fs.crash(mem, 0, rand.New(rand.NewPCG(0, 0))) })
		}
		return nil
	}
	s, err := disk.Open(ctx, crashOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	a := newActor(s)
	for _, x := range []action{scenario[0], put("o", "large", 1000)} {
		if err := x.do(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r := &trace{on: true}
	if s, err = disk.Open(ctx, crashOptions(&stepFS{FS: left, done: r.done})); err != nil {
		t.Fatal(err)
	}
	got := r.take() + "\nfiles:\n" + strings.Join(r.behind, "\n") + "\n"
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	golden(t, "recover", got)
}

// golden compares text with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the order changed; if it is right, run with -update\n got:\n%s\nwant:\n%s", got, want)
	}
}
