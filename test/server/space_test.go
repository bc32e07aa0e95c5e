// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/test/effort"
)

// readiness is the reply of /readyz.
type readiness struct {
	Ready, Reads, Writes bool
	State, Reason        string
}

func readyz(t *testing.T, s *server, query string) (int, readiness) {
	t.Helper()
	resp, err := http.Get(s.console + "/readyz" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var r readiness
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, r
}

// metric reads a metric without labels.
func metric(t *testing.T, s *server, name string) string {
	t.Helper()
	resp, err := http.Get(s.console + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("there is no metric %s", name)
	return ""
}

// fill uses up all space of a file system, up to the last block.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []int{1 << 20, 4 << 10} {
		piece := bytes.Repeat([]byte{1}, n)
		for {
			if _, err := f.Write(piece); errors.Is(err, unix.ENOSPC) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// refused checks that a request failed with an S3 error of this status.
func refused(t *testing.T, what string, err error, status int) {
	t.Helper()
	if r := minio.ToErrorResponse(err); r.StatusCode != status {
		t.Errorf("%s: %v (status %d), expected status %d", what, err, r.StatusCode, status)
	}
}

// cannotWrite checks that a server serves reads, refuses changes with this status, and reports its state everywhere.
func cannotWrite(t *testing.T, s *server, c *minio.Core, kept []byte, status int, state string) {
	t.Helper()
	mustServe(t, c, "full", "kept", kept)
	mustServe(t, c, "full", "small", []byte("small"))
	if r, err := c.ListObjectsV2("full", "", "", "", "", 10); err != nil || len(r.Contents) != 2 {
		t.Errorf("the listing: %v, %v", r.Contents, err)
	}
	_, err := c.Client.PutObject(t.Context(), "full", "new", strings.NewReader("new"), 3, minio.PutObjectOptions{})
	refused(t, "a PUT", err, status)
	_, err = c.Client.PutObject(t.Context(), "full", "big", bytes.NewReader(kept), int64(len(kept)),
		minio.PutObjectOptions{DisableMultipart: true})
	refused(t, "a large PUT", err, status)
	_, err = c.NewMultipartUpload(t.Context(), "full", "upload", minio.PutObjectOptions{})
	refused(t, "a new upload", err, status)
	refused(t, "a new bucket", c.MakeBucket(t.Context(), "another", minio.MakeBucketOptions{}), status)
	code, r := readyz(t, s, "")
	if code != http.StatusServiceUnavailable || r.Ready || !r.Reads || r.Writes || r.State != state || r.Reason == "" {
		t.Errorf("/readyz: %d %+v, expected 503, reads, no writes, state %s and a reason", code, r, state)
	}
	if code, r := readyz(t, s, "?for=reads"); code != http.StatusOK || !r.Reads {
		t.Errorf("/readyz?for=reads: %d %+v, expected 200", code, r)
	}
	for name, want := range map[string]string{"nebulaio_ready": "0", "nebulaio_store_writable": "0"} {
		if got := metric(t, s, name); got != want {
			t.Errorf("%s is %s, expected %s", name, got, want)
		}
	}
	until(t, "the log says it", func() bool { return strings.Contains(s.log.String(), "the store takes no new content") })
}

// statsSay checks the output of `store stats` for a store that cannot be written.
func statsSay(t *testing.T, s *server) {
	t.Helper()
	if out, code := run(t, "store", "stats", "--data", s.data); code != 0 ||
		!strings.Contains(out, "accepts no new content") {
		t.Errorf("store stats: exit code %d\n%s", code, out)
	}
}

// canWrite waits until a server accepts changes again.
func canWrite(t *testing.T, s *server, c *minio.Core) {
	t.Helper()
	until(t, "the server is ready again", func() bool {
		code, r := readyz(t, s, "")
		return code == http.StatusOK && r.Ready && r.Writes
	})
	mustPut(t, c, "full", "after", []byte("after"))
	mustServe(t, c, "full", "after", []byte("after"))
	if got := metric(t, s, "nebulaio_store_writable"); got != "1" {
		t.Errorf("nebulaio_store_writable is %s, expected 1", got)
	}
}

// stocked starts a server in a directory. The bucket "full" has the objects "kept", whose content is returned, and
// "small".
func stocked(t *testing.T, dir string) (s *server, c *minio.Core, kept []byte) {
	t.Helper()
	s = start(t, filepath.Join(dir, "data"))
	c = bucketOn(t, s, "full")
	kept = bytes.Repeat([]byte("kept"), 100_000)
	mustPut(t, c, "full", "kept", kept)
	mustPut(t, c, "full", "small", []byte("small"))
	return s, c, kept
}

// sound stops a server and checks its store.
func sound(t *testing.T, s *server) {
	t.Helper()
	s.stop(t)
	if out, code := run(t, "store", "check", "--data", s.data); code != 0 {
		t.Fatalf("store check: %d\n%s", code, out)
	}
}

// TestStartsOnAFullDisk kills a server on a disk without a free byte. The server must start again, serve reads, and
// delete objects with the space of its ballast file. When there is room, it must accept changes by itself.
func TestStartsOnAFullDisk(t *testing.T) {
	effort.Slow(t)
	for _, c := range []struct {
		name    string
		ballast bool
	}{{"with the ballast", true}, {"without it", false}} {
		t.Run(c.name, func(t *testing.T) {
			dir := tmpfs(t, "192m")
			s, client, kept := stocked(t, dir)
			mustPut(t, client, "full", "victim", kept)
			s.kill()
			if !c.ballast {
				if err := os.Remove(filepath.Join(s.data, "BALLAST")); err != nil {
					t.Fatal(err)
				}
			}
			stuff := filepath.Join(dir, "stuff")
			fill(t, stuff)

			s = start(t, s.data)
			client = s.client(t)
			if c.ballast {
				if err := client.RemoveObject(t.Context(), "full", "victim", minio.RemoveObjectOptions{}); err != nil {
					t.Fatalf("a deletion on a full disk: %v", err)
				}
			} else {
				refused(t, "a deletion without any space", client.RemoveObject(t.Context(), "full", "victim",
					minio.RemoveObjectOptions{}), http.StatusInsufficientStorage)
				if out, code := run(t, "store", "check", "--data", s.data); code == 0 {
					t.Errorf("a check of a store that a server has open: %s", out)
				}
			}
			if !c.ballast { // the listing below expects two objects
				s.kill()
				s = start(t, s.data)
				client = s.client(t)
				if err := os.Remove(stuff); err != nil {
					t.Fatal(err)
				}
				until(t, "the deletion is taken", func() bool {
					return client.RemoveObject(t.Context(), "full", "victim", minio.RemoveObjectOptions{}) == nil
				})
				s.kill()
				if err := os.Remove(filepath.Join(s.data, "BALLAST")); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
				fill(t, stuff)
				s = start(t, s.data)
				client = s.client(t)
			}
			cannotWrite(t, s, client, kept, http.StatusInsufficientStorage, "full")
			statsSay(t, s)
			s.kill()
			s = start(t, s.data) // once more, from what that left
			client = s.client(t)
			cannotWrite(t, s, client, kept, http.StatusInsufficientStorage, "full")
			if err := os.Remove(stuff); err != nil {
				t.Fatal(err)
			}
			canWrite(t, s, client)
			sound(t, s)
		})
	}
}

// TestStartsOnAReadOnlyDisk checks that a server on a read-only file system serves reads, and accepts changes when
// the file system becomes writable.
func TestStartsOnAReadOnlyDisk(t *testing.T) {
	dir := tmpfs(t, "192m")
	s, _, kept := stocked(t, dir)
	s.kill()
	remount(t, dir, unix.MS_RDONLY)
	s = start(t, s.data, "--gpudirect-enabled")
	c := s.client(t)
	cannotWrite(t, s, c, kept, http.StatusMethodNotAllowed, "read-only")
	statsSay(t, s)
	refused(t, "a deletion", c.RemoveObject(t.Context(), "full", "kept", minio.RemoveObjectOptions{}),
		http.StatusMethodNotAllowed)
	if out, code := run(t, "store", "check", "--data", s.data); code != 0 {
		t.Errorf("store check beside a server that only reads: %d\n%s", code, out)
	}
	remount(t, dir, 0)
	canWrite(t, s, c)
	until(t, "the server that became writable can be administered", func() bool {
		out, code := run(t, "store", "stats", "--data", s.data)
		return code == 0 && !strings.Contains(out, "takes no")
	})
	sound(t, s)
}

func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// TestStartsInAReadOnlyDirectory checks that a user who may only read a store's directory can serve it.
func TestStartsInAReadOnlyDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user is needed, and root to become it")
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nebulaio-readonly-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, _, kept := stocked(t, dir)
	s.kill()
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.Chmod(path, 0o755)
		case d.Type().IsRegular():
			return os.Chmod(path, 0o644)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s, err = tryStartAs(t, s.data, &syscall.Credential{Uid: 65534, Gid: 65534})
	if err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	cannotWrite(t, s, s.client(t), kept, http.StatusMethodNotAllowed, "read-only")
	s.stop(t)
}

// TestNoInodesLeft checks that a disk without free inodes counts as full.
func TestNoInodesLeft(t *testing.T) {
	dir := tmpfs(t, "192m,nr_inodes=200")
	s, _, kept := stocked(t, dir)
	s.kill()
	stuff := filepath.Join(dir, "stuff")
	if err := os.Mkdir(stuff, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(stuff, fmt.Sprint(i)), nil, 0o600); errors.Is(err, unix.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	s = start(t, s.data)
	c := s.client(t)
	mustServe(t, c, "full", "kept", kept)
	mustServe(t, c, "full", "small", []byte("small"))
	_, err := c.Client.PutObject(t.Context(), "full", "big", bytes.NewReader(kept), int64(len(kept)),
		minio.PutObjectOptions{DisableMultipart: true})
	refused(t, "a large PUT", err, http.StatusInsufficientStorage)
	if err := os.RemoveAll(stuff); err != nil {
		t.Fatal(err)
	}
	canWrite(t, s, c)
	mustPut(t, c, "full", "big", kept)
	sound(t, s)
}

// TestDiskThatFillsUpWhileServed lets other programs fill the disk to the last block. Deletions must succeed with the
// space of the ballast file, and the server must stop and start. When there is room, all requests must succeed again.
func TestDiskThatFillsUpWhileServed(t *testing.T) {
	dir := tmpfs(t, "192m")
	s, c, kept := stocked(t, dir)
	for i := range 200 {
		mustPut(t, c, "full", fmt.Sprint("victim/", i), bytes.Repeat([]byte{byte(i)}, 8<<10))
	}
	upload, err := c.NewMultipartUpload(t.Context(), "full", "upload", minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stuff := filepath.Join(dir, "stuff")
	fill(t, stuff)
	_, err = c.PutObjectPart(t.Context(), "full", "upload", upload, 1, bytes.NewReader(kept), int64(len(kept)),
		minio.PutObjectPartOptions{})
	refused(t, "a part", err, http.StatusInsufficientStorage)
	for i := range 200 {
		if err := c.RemoveObject(t.Context(), "full", fmt.Sprint("victim/", i), minio.RemoveObjectOptions{}); err != nil {
			t.Fatalf("deletion %d on a full disk: %v", i, err)
		}
	}
	if err := c.AbortMultipartUpload(t.Context(), "full", "upload", upload); err != nil {
		t.Errorf("the end of an upload on a full disk: %v", err)
	}
	fill(t, stuff) // also what the ballast and the deletions gave back
	cannotWrite(t, s, c, kept, http.StatusInsufficientStorage, "full")
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.exited     // with an error where the log found no space; nothing is lost
	fill(t, stuff) // also what the end of the log gave back
	s = start(t, s.data)
	c = s.client(t)
	// Whether it takes new content depends on how much of the old log the start gave back.
	mustServe(t, c, "full", "kept", kept)
	mustServe(t, c, "full", "small", []byte("small"))
	if err := os.Remove(stuff); err != nil {
		t.Fatal(err)
	}
	canWrite(t, s, c)
	sound(t, s)
}
