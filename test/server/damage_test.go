// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"
)

// dataFile finds the one data file of this size.
func dataFile(t *testing.T, data string, size int64) string {
	t.Helper()
	var found []string
	_ = filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Size() == size {
			found = append(found, path)
		}
		return nil
	})
	if len(found) == 0 {
		t.Fatalf("no file of %d bytes under %s", size, data)
	}
	return found[0]
}

// TestDamage checks that reads find a flipped byte and a deleted file, that scrub names them, and that other objects
// are not affected.
func TestDamage(t *testing.T) {
	s := start(t, t.TempDir())
	c := bucketOn(t, s, "damage")
	rnd := rand.New(rand.NewPCG(1, 2))
	flipped, deleted, good := content(rnd, 3<<20+1), content(rnd, 2<<20+2), content(rnd, 1<<20+3)
	mustPut(t, c, "damage", "flipped", flipped)
	mustPut(t, c, "damage", "deleted", deleted)
	mustPut(t, c, "damage", "good", good)
	s.stop(t)

	path := dataFile(t, s.data, int64(len(flipped)))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{^flipped[2<<20+5]}, 2<<20+5); err != nil {
		t.Fatal(err)
	}
	f.Close()
	gone := dataFile(t, s.data, int64(len(deleted)))
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}

	s = start(t, s.data)
	c = s.client(t)
	body, _, _, err := c.GetObject(t.Context(), "damage", "flipped", minio.GetObjectOptions{})
	if err != nil {
		t.Fatalf("the headers go out before the third block is read: %v", err)
	}
	got, err := io.ReadAll(body)
	body.Close()
	if err == nil || len(got) > 2<<20 || !bytes.Equal(got, flipped[:len(got)]) {
		t.Errorf("%d bytes and %v of a damaged object, expected an error and nothing of the damaged block", len(got), err)
	}
	_, _, _, err = c.GetObject(t.Context(), "damage", "deleted", minio.GetObjectOptions{})
	if r := minio.ToErrorResponse(err); r.StatusCode != http.StatusInternalServerError {
		t.Errorf("the object whose file is gone: %v, expected status 500", err)
	}
	mustServe(t, c, "damage", "good", good)
	mustPut(t, c, "damage", "new", good)
	mustServe(t, c, "damage", "new", good)
	for _, want := range []string{"flipped", filepath.Base(path), "deleted", filepath.Base(gone)} {
		if log := s.log.String(); !strings.Contains(log, want) {
			t.Errorf("the log does not name %s:\n%s", want, log)
		}
	}
	resp, err := http.Get(s.console + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if !bytes.Contains(metrics, []byte("damage")) {
		t.Errorf("/metrics does not speak of damage")
	}

	// The same command asks the running server, and the store itself when there is none.
	for range 2 {
		out, code := run(t, "store", "scrub", "--data", s.data)
		if code != 5 || !strings.Contains(out, "flipped") || !strings.Contains(out, "deleted") ||
			strings.Contains(out, "damage/good") {
			t.Errorf("store scrub: exit code %d, expected 5 and the two damaged objects:\n%s", code, out)
		}
		select {
		case <-s.exited:
		default:
			s.stop(t)
		}
	}
	if out, code := run(t, "store", "check", "--data", s.data); code != 5 || !strings.Contains(out, "deleted") {
		t.Errorf("store check: exit code %d, expected 5 and the object whose file is gone:\n%s", code, out)
	}
}

// tmpfs mounts a small file system, which needs root.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skip("mounting a file system needs root")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestFullDisk checks that writes beyond the free space fail with a clear error, that existing objects stay readable,
// and that writes succeed again when there is room.
func TestFullDisk(t *testing.T) {
	dir := tmpfs(t, "256m")
	s := start(t, filepath.Join(dir, "data"))
	c := bucketOn(t, s, "full")
	kept := bytes.Repeat([]byte("kept"), 100_000)
	mustPut(t, c, "full", "kept", kept)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 150<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRefuse(t, c, "full", "big", make([]byte, 200<<20), "200 MiB on a disk with 100 free")
	mustServe(t, c, "full", "kept", kept)
	if left := unfinished(t, s.data); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// To the last byte, with small objects that go to the metadata.
	if err := os.WriteFile(ballast, make([]byte, 254<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	refused := 0
	for i := range 64 {
		b := bytes.Repeat([]byte{byte(i)}, 8<<10)
		_, err := c.Client.PutObject(t.Context(), "full", "small", bytes.NewReader(b), int64(len(b)),
			minio.PutObjectOptions{})
		if err != nil {
			refused++
			if r := minio.ToErrorResponse(err); r.StatusCode < 400 {
				t.Fatalf("a small object on a full disk: %v, expected an S3 error", err)
			}
		}
	}
	if refused == 0 {
		t.Error("no small object was refused on a disk without a byte left")
	}
	mustServe(t, c, "full", "kept", kept)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	mustPut(t, c, "full", "after", kept)
	mustServe(t, c, "full", "after", kept)
	s.stop(t)
	if out, code := run(t, "store", "check", "--data", s.data); code != 0 {
		t.Fatalf("store check: %d\n%s", code, out)
	}
}

// TestReadOnlyDisk checks that writes are refused, reads succeed and the server keeps running.
func TestReadOnlyDisk(t *testing.T) {
	dir := tmpfs(t, "128m")
	s := start(t, filepath.Join(dir, "data"))
	c := bucketOn(t, s, "frozen")
	kept := bytes.Repeat([]byte("kept"), 100_000)
	mustPut(t, c, "frozen", "kept", kept)
	mustPut(t, c, "frozen", "small", []byte("small"))
	// A descriptor that is open for writing keeps a file system from being
	// remounted, so only the folders for new content become unwritable.
	for _, name := range []string{"tmp"} {
		path := filepath.Join(s.data, name)
		if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
		if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	}
	mustRefuse(t, c, "frozen", "new", kept, "a write to a read-only folder")
	mustServe(t, c, "frozen", "kept", kept)
	mustServe(t, c, "frozen", "small", []byte("small"))
	if err := unix.Unmount(filepath.Join(s.data, "tmp"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	mustPut(t, c, "frozen", "new", kept)
	s.stop(t)
}
