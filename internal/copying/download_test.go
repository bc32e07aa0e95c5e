// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
)

func newCopier(t *testing.T, o Options) *Copier {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// names returns what a directory holds, our own files too.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Every checksum that a server may keep is compared, on each way that a content can take: a large file, a stream and a
// small file of a folder. What differs gets no name and leaves nothing behind.
func TestChecksumsOfServers(t *testing.T) {
	for _, kind := range []string{"crc64nvme", "crc32c", "crc32", "md5", ""} {
		verified := kind
		if kind == "" {
			verified = "length+etag"
		}
		t.Run(verified, func(t *testing.T) {
			s := newServer(t)
			s.kind = kind
			data := noise(5*block+77, 1)
			s.objects["big"] = data
			c, dir := newCopier(t, Options{}), t.TempDir()
			path := filepath.Join(dir, "f")
			r, err := c.Download(t.Context(), s.remote("big"), path)
			if got, _ := os.ReadFile(path); err != nil || r.Verified != verified || !bytes.Equal(got, data) {
				t.Errorf("%+v, %v", r, err)
			}
			var out bytes.Buffer
			if r, err := c.WriteTo(t.Context(), s.remote("big"), &out); err != nil || r.Verified != verified ||
				!bytes.Equal(out.Bytes(), data) {
				t.Errorf("stream: %+v, %v", r, err)
			}
			if kind == "" {
				return // nothing can be compared
			}
			wrong := newServer(t)
			wrong.kind, wrong.objects = kind, s.objects
			wrong.shown = func(b []byte) []byte { b[3*block+5] ^= 1; return b }
			empty := t.TempDir()
			_, err = c.Download(t.Context(), wrong.remote("big"), filepath.Join(empty, "f"))
			if !errs.Is(err, errs.Corrupt) || len(names(t, empty)) > 0 {
				t.Errorf("damaged: %v, left %q", err, names(t, empty))
			}
			out.Reset()
			_, err = c.WriteTo(t.Context(), wrong.remote("big"), &out)
			if !errs.Is(err, errs.Corrupt) || out.Len() >= len(data) {
				t.Errorf("damaged stream: %v after %d of %d bytes", err, out.Len(), len(data))
			}
		})
	}
}

// A request that hangs at the end is sent a second time, and the file is whole without the first one.
func TestSlowRequestIsSentTwice(t *testing.T) {
	s := newServer(t)
	s.kind = "crc64nvme"
	data := noise(20*block, 2)
	s.objects["k"] = data
	release := make(chan struct{})
	defer close(release)
	hung := false
	s.odd = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		s.mu.Lock()
		first := !hung && strings.HasPrefix(r.Header.Get("Range"), "bytes=8388608-")
		hung = hung || first
		s.mu.Unlock()
		if first {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		return first
	}
	path := filepath.Join(t.TempDir(), "f")
	r, err := newCopier(t, Options{Concurrency: 4}).Download(t.Context(), s.remote("k"), path)
	if got, _ := os.ReadFile(path); err != nil || r.Hedged < 1 || !bytes.Equal(got, data) {
		t.Errorf("%+v, %v", r, err)
	}
}

// If the disk refuses a block that two requests had asked for, the copy ends with the disk's error.
func TestWriteErrorOfAHedgedPiece(t *testing.T) {
	s := newServer(t)
	s.objects["k"] = noise(2*block, 3)
	c := newCopier(t, Options{})
	src, err := c.openObject(t.Context(), s.remote("k"))
	if err != nil {
		t.Fatal(err)
	}
	to, err := openTarget(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.dir.Close()
	dr, err := to.openDraft()
	if err != nil {
		t.Fatal(err)
	}
	d := &download{c: c, src: src, size: 2 * block, f: src.facts(), d: dr, have: make([]bool, 2), left: 2,
		sums: newWholeSums(src.facts(), 2*block, c.join), done: make(chan struct{})}
	dr.close() // every write fails from now on
	p := &piece{end: 2, left: 2}
	var group sync.WaitGroup
	failed := make([]error, 2)
	for i := range failed {
		group.Go(func() { failed[i] = d.request(t.Context(), p) })
	}
	group.Wait()
	for i, err := range failed {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

// A server that asks for fewer requests gets them, and everything is copied.
func TestServerAsksToSlowDown(t *testing.T) {
	s := newServer(t)
	s.kind = "crc32c"
	data := noise(40*block, 4)
	s.objects["k"] = data
	s.odd = func(w http.ResponseWriter, _ *http.Request, number int) bool {
		if number > 3 {
			return false
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write([]byte("<Error><Code>SlowDown</Code><Message>reduce your request rate</Message></Error>"))
		return true
	}
	c := newCopier(t, Options{Concurrency: 16})
	path := filepath.Join(t.TempDir(), "f")
	from := s.remote("k")
	r, err := c.Download(t.Context(), from, path)
	if got, _ := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%+v, %v", r, err)
	}
	if from.Client.Slowed() != 3 || c.Progress().ConcurrencyLimit >= 16 {
		t.Errorf("slowed %d, limit %d", from.Client.Slowed(), c.Progress().ConcurrencyLimit)
	}
}

// An object that is replaced in mid-copy gives an error, and its file keeps what it had.
func TestReplacedObject(t *testing.T) {
	s := newServer(t)
	s.objects["k"] = noise(12*block, 5)
	s.odd = func(w http.ResponseWriter, r *http.Request, number int) bool {
		if number < 3 {
			return false
		}
		w.Header().Set("ETag", `"another"`)
		if m := r.Header.Get("If-Match"); m != "" && m != `"another"` {
			w.WriteHeader(http.StatusPreconditionFailed)
			return true
		}
		give(w, r, noise(12*block, 6))
		return true
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := newCopier(t, Options{Concurrency: 12}).Download(t.Context(), s.remote("k"), path)
	if got, _ := os.ReadFile(path); err == nil || string(got) != "old" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Targets that cannot be written are refused before anything is read.
func TestTargetsThatAreRefused(t *testing.T) {
	c, dir := newCopier(t, Options{}), t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	busy, err := openTarget(filepath.Join(dir, "busy"))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.dir.Close()
	held, err := busy.openDraft()
	if err != nil {
		t.Fatal(err)
	}
	defer held.close()
	for name, row := range map[string]struct {
		to   string
		kind errs.Kind
		says string
	}{
		"itself":        {file, errs.Invalid, "same file"},
		"itself linked": {link, errs.Invalid, "same file"},
		"a directory":   {dir, errs.Invalid, "is a directory"},
		"no directory":  {filepath.Join(dir, "none", "f"), errs.NotFound, "make the directory first"},
		"in use":        {filepath.Join(dir, "busy"), errs.Invalid, "another copy writes this file"},
		"a device":      {"/dev/null", errs.Invalid, "not a regular file"},
	} {
		_, err := c.CopyFile(t.Context(), file, row.to)
		if !errs.Is(err, row.kind) || !strings.Contains(err.Error()+errs.FixOf(err), row.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A folder with small objects compares each, and a damaged one gets no file.
func TestSmallObjectsAreCompared(t *testing.T) {
	for _, kind := range []string{"crc64nvme", "crc32c", "crc32", "md5"} {
		s := newServer(t)
		s.kind = kind
		data := noise(1000, 8)
		s.objects["good"], s.objects["bad"] = data, data
		c := newCopier(t, Options{})
		for _, key := range []string{"good", "bad"} {
			if key == "bad" {
				s.mu.Lock()
				s.shown = func(b []byte) []byte { b[500]++; return b }
				s.mu.Unlock()
			}
			got, info, free, err := c.getSmall(t.Context(), s.remote(key), place.Entry{Name: key, Size: 1000})
			if err != nil {
				t.Fatal(err)
			}
			how, err := compareSmall(info, got)
			if key == "good" && (err != nil || how != kind) || key == "bad" && !errs.Is(err, errs.Corrupt) {
				t.Errorf("%s, %s: %q, %v", kind, key, how, err)
			}
			free()
		}
	}
}
