// SPDX-License-Identifier: Apache-2.0

package dataset_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/bench/dataset"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestMadeFilesHoldWhatContentSaysAndAreRemoved(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	var done, total int64
	s, err := dataset.Open(t.Context(), dataset.Options{Paths: []string{a, b}, Files: 2, FileSize: 5<<20 + 100, Seed: 3,
		Progress: func(d, n int64) { done, total = max(done, d), n }})
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(4 * (5<<20 + 100)); s.Bytes() != want || done != want || total != want {
		t.Errorf("%d bytes, progress %d of %d", s.Bytes(), done, total)
	}
	var first []byte
	for g := range s.Groups {
		for f, file := range s.Groups[g].Files {
			got, err := os.ReadFile(file.Path())
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, file.Size())
			s.Content(g, f, 0, want)
			if !bytes.Equal(got, want) {
				t.Errorf("%s does not hold its content", file.Path())
			}
			if first == nil {
				first = got
			} else if bytes.Equal(first, got) {
				t.Error("two files hold the same")
			}
		}
	}
	if !s.Known {
		t.Error("the content is known")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left := append(entries(t, a), entries(t, b)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestKeptFilesAreFoundAgain(t *testing.T) {
	dir := t.TempDir()
	o := dataset.Options{Paths: []string{dir}, Files: 2, FileSize: 1 << 20, Seed: 9, Keep: true}
	s, err := dataset.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 100)
	s.Content(0, 1, 5000, want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(dir, "nebulaio-bench")
	o.Paths, o.Seed, o.Keep = []string{kept}, 1234, false
	if s, err = dataset.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 100)
	if s.Content(0, 1, 5000, got); !bytes.Equal(got, want) || !s.Known {
		t.Error("the content is not that of the kept seed")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(entries(t, kept)) != 3 {
		t.Errorf("files that were found were removed: %v", entries(t, kept))
	}
	o.Files = 3
	if _, err := dataset.Open(t.Context(), o); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(errs.FixOf(err), "--files 2 --size 1048576") {
		t.Errorf("another shape: %v", err)
	}
}

func TestFilesOfOthersAreReadAndNeverWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(path, bytes.Repeat([]byte{7}, 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	o := dataset.Options{Paths: []string{path}, Files: 1, FileSize: 4096}
	s, err := dataset.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Known || s.Bytes() != 10000 {
		t.Errorf("known %v, %d bytes", s.Known, s.Bytes())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	o.Empty = true
	if _, err := dataset.Open(t.Context(), o); !errs.Is(err, errs.Invalid) {
		t.Errorf("writing to it: %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) != 10000 || b[0] != 7 {
		t.Error("the file was changed")
	}
}

func TestWhatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := dataset.Options{Paths: []string{dir}, Files: 1, FileSize: 4096}
	with := func(f func(o *dataset.Options)) dataset.Options {
		o := good
		f(&o)
		return o
	}
	for name, c := range map[string]struct {
		o    dataset.Options
		kind errs.Kind
		word string
	}{
		"no path":       {with(func(o *dataset.Options) { o.Paths = nil }), errs.Invalid, "no path"},
		"twice":         {with(func(o *dataset.Options) { o.Paths = []string{dir, dir} }), errs.Invalid, "twice"},
		"by two names":  {with(func(o *dataset.Options) { o.Paths = []string{dir, dir + "/"} }), errs.Invalid, "twice"},
		"no such path":  {with(func(o *dataset.Options) { o.Paths = []string{dir + "/none"} }), errs.NotFound, dir + "/none"},
		"no file":       {with(func(o *dataset.Options) { o.Files = 0 }), errs.Invalid, "files=0"},
		"tiny":          {with(func(o *dataset.Options) { o.FileSize = 1 }), errs.Invalid, "size=1"},
		"empty file":    {with(func(o *dataset.Options) { o.Paths = []string{empty} }), errs.Invalid, "is empty"},
		"mixed":         {with(func(o *dataset.Options) { o.Paths = []string{file, dir} }), errs.Invalid, "mixed"},
		"far too large": {with(func(o *dataset.Options) { o.FileSize = 60 << 40 }), errs.IO, "are free"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dataset.Open(t.Context(), c.o)
			if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.word) {
				t.Errorf("got %v", err)
			}
		})
	}
	if left := entries(t, dir); len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCancelledWhileMaking(t *testing.T) {
	dir := t.TempDir()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := dataset.Open(ctx, dataset.Options{Paths: []string{dir}, Files: 1, FileSize: 64 << 20,
		Progress: func(int64, int64) { cancel(cause) }})
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if left := entries(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// mount gives a file system of its own, for conditions that others do not have.
func mount(t *testing.T, options string, flags uintptr) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func TestReadOnlyFileSystem(t *testing.T) {
	dir := mount(t, "size=64m", unix.MS_RDONLY)
	_, err := dataset.Open(t.Context(), dataset.Options{Paths: []string{dir}, Files: 1, FileSize: 1 << 20})
	if !errs.Is(err, errs.Permission) || !strings.Contains(err.Error(), "read-only") || errs.FixOf(err) == "" {
		t.Errorf("got %v", err)
	}
}

func TestFullFileSystem(t *testing.T) {
	dir := mount(t, "size=1m", 0)
	if _, err := dataset.Create(filepath.Join(dir, "f"), 8<<20); !errs.Is(err, errs.IO) ||
		!strings.Contains(errs.FixOf(err), "free space") {
		t.Errorf("got %v", err)
	}
}

func TestADirectoryThatMayNotBeWrittenTo(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("needs root to be someone else")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends as somebody else
		if err := unix.Setfsuid(65534); err != nil {
			done <- nil
			return
		}
		_, err := dataset.Open(context.Background(), dataset.Options{Paths: []string{dir}, Files: 1, FileSize: 1 << 20})
		done <- err
	}()
	if err := <-done; !errs.Is(err, errs.Permission) || errs.FixOf(err) == "" {
		t.Errorf("got %v", err)
	}
}

func TestALostNameIsNoticed(t *testing.T) {
	dir := t.TempDir()
	s, err := dataset.Open(t.Context(), dataset.Options{Paths: []string{dir}, Files: 1, FileSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if s.Missing() != "" {
		t.Error("nothing is missing yet")
	}
	path := s.Files()[0].Path()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if s.Missing() != path {
		t.Errorf("got %q", s.Missing())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestDropAndResident(t *testing.T) {
	s, err := dataset.Open(t.Context(), dataset.Options{Paths: []string{t.TempDir()}, Files: 1, FileSize: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f := s.Files()[0]
	if f.FS().Memory {
		t.Skip("files are in memory here")
	}
	if _, err := f.ReadAt(make([]byte, 4<<20), 0); err != nil {
		t.Fatal(err)
	}
	n, how := s.Resident()
	if n < 0 {
		t.Skip("the kernel does not tell")
	}
	if n != 4<<20 || how == "" {
		t.Errorf("resident %d by %q", n, how)
	}
	left, err := s.Drop()
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := s.Resident(); n != left || left == 4<<20 {
		t.Errorf("resident %d, %d left", n, left)
	}
}
