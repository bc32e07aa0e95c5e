// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/test/effort"
)

// programPages is the memory in bytes that the server is taken to need for the pages of its program. A kernel with free
// memory maps more of them, up to the whole program in huge pages, and drops them again when memory is short.
const programPages = 42 << 20

// resident returns the server's memory in bytes: its own, and at most programPages of mapped files.
func (s *server) resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	size := func(name string) int64 {
		_, rest, ok := strings.Cut(string(text), "\n"+name+":")
		line, _, _ := strings.Cut(rest, "\n")
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
		if !ok || err != nil {
			t.Fatalf("the kernel says %q of %s of the server, expected a size in kB", line, name)
		}
		return kib << 10
	}
	return size("RssAnon") + size("RssShmem") + min(size("RssFile"), programPages)
}

func (s *server) descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range all {
		// Data files are kept open on purpose; sockets and temporary files are not.
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", s.cmd.Process.Pid, fd.Name())); err == nil &&
			(strings.HasPrefix(to, "socket:") || strings.Contains(to, "/tmp/")) {
			n++
		}
	}
	return n
}

// goroutines reads the number of goroutines from the server's metrics.
func (s *server) goroutines(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(metric(t, s, "go_goroutines"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// until waits for a condition that the server reaches by itself.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after a minute it does not hold that %s", what)
		}
	}
}

// unfinished lists the files in the store's folder for unfinished content.
func unfinished(t *testing.T, data string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Base(filepath.Dir(path)) == "tmp" {
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func mustPut(t *testing.T, c *minio.Core, bucket, key string, b []byte) {
	t.Helper()
	if _, err := c.Client.PutObject(t.Context(), bucket, key, bytes.NewReader(b), int64(len(b)),
		minio.PutObjectOptions{DisableMultipart: true}); err != nil {
		t.Fatalf("put %s/%s: %v", bucket, key, err)
	}
}

// mustRefuse writes an object for which the server has no place, and expects an S3 error.
func mustRefuse(t *testing.T, c *minio.Core, bucket, key string, body []byte, what string) {
	t.Helper()
	_, err := c.Client.PutObject(t.Context(), bucket, key, bytes.NewReader(body), int64(len(body)),
		minio.PutObjectOptions{DisableMultipart: true})
	r := minio.ToErrorResponse(err)
	if r.StatusCode < 400 {
		t.Fatalf("%s: %v, expected an S3 error", what, err)
	}
	t.Logf("the refusal: %d %s: %s", r.StatusCode, r.Code, r.Message)
}

func mustServe(t *testing.T, c *minio.Core, bucket, key string, want []byte) {
	t.Helper()
	body, _, _, err := c.GetObject(t.Context(), bucket, key, minio.GetObjectOptions{})
	if err != nil {
		t.Fatalf("get %s/%s: %v", bucket, key, err)
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("get %s/%s: %d bytes (%v), expected the %d that were written", bucket, key, len(got), err, len(want))
	}
}

func bucketOn(t *testing.T, s *server, name string) *minio.Core {
	t.Helper()
	c := s.client(t)
	if err := c.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestIdleConnections checks that two thousand idle connections cost little memory, and none once they are closed.
func TestIdleConnections(t *testing.T) {
	effort.Slow(t)
	t.Parallel() // most of its time it waits for the server to end idle goroutines
	const count = 2000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < count+200 {
		limit.Cur = min(limit.Max, count+200)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < count+200 {
			t.Skipf("only %d descriptors are allowed (%v)", limit.Cur, err)
		}
	}
	s := start(t, t.TempDir())
	c := bucketOn(t, s, "idle")
	mustPut(t, c, "idle", "a", []byte("hello"))
	before, fds, routines := s.resident(t), s.descriptors(t), s.goroutines(t)
	var conns []net.Conn
	for i := range count {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, conn)
		if i%2 == 0 { // half of them begin a request and stop
			if _, err := io.WriteString(conn, "GET /idle/a HTTP/1.1\r\nHost: "+s.address+"\r\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustServe(t, c, "idle", "a", []byte("hello"))
	if grown := s.resident(t) - before; grown > 256<<20 {
		t.Errorf("%d idle connections cost %d MiB, expected at most 256", count, grown>>20)
	}
	for _, conn := range conns {
		conn.Close()
	}
	until(t, "descriptors and goroutines are back", func() bool {
		return s.descriptors(t) <= fds+4 &&
			s.goroutines(t) <= routines+20
	})
	s.stop(t)
}

// presign returns the request line and headers of a presigned request.
func presign(t *testing.T, c *minio.Core, method, bucket, key string, length int64) (string, *url.URL) {
	t.Helper()
	u, err := c.Presign(t.Context(), method, bucket, key, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, u.RequestURI(), u.Host)
	if length >= 0 {
		head += fmt.Sprintf("Content-Length: %d\r\n", length)
	}
	return head + "\r\n", u
}

// TestClientsThatVanish checks that an interrupted PUT leaves no object, no temporary file, no descriptor and no
// goroutine.
func TestClientsThatVanish(t *testing.T) {
	s := start(t, t.TempDir())
	c := bucketOn(t, s, "vanish")
	mustPut(t, c, "vanish", "kept", []byte("kept"))
	fds, routines := s.descriptors(t), s.goroutines(t)
	piece := make([]byte, 3<<20)
	for i := range 40 {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		head, _ := presign(t, c, http.MethodPut, "vanish", "kept", 64<<20)
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(piece[:1+i*len(piece)/40]); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_ = conn.(*net.TCPConn).SetLinger(0) // reset instead of an orderly end
		}
		conn.Close()
	}
	until(t, "nothing of the cut-off requests is left", func() bool {
		return len(unfinished(t, s.data)) == 0 && s.descriptors(t) <= fds+4 && s.goroutines(t) <= routines+20
	})
	mustServe(t, c, "vanish", "kept", []byte("kept"))
	s.stop(t)
	if out, code := run(t, "store", "check", "--data", s.data); code != 0 {
		t.Fatalf("store check: %d\n%s", code, out)
	}
}

// TestSlowClients checks that clients that stop reading or write slowly delay only their own requests.
func TestSlowClients(t *testing.T) {
	s := start(t, t.TempDir())
	c := bucketOn(t, s, "slow")
	big := bytes.Repeat([]byte("0123456789abcdef"), 2<<20) // 32 MiB
	mustPut(t, c, "slow", "big", big)
	mustPut(t, c, "slow", "small", []byte("small"))
	before, fds := s.resident(t), s.descriptors(t)
	var conns []net.Conn
	for i := range 60 {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		if i%2 == 0 {
			head, _ := presign(t, c, http.MethodGet, "slow", "big", -1)
			_, err = io.WriteString(conn, head)
			if err == nil {
				_, err = io.ReadFull(conn, make([]byte, 64))
			}
		} else {
			head, _ := presign(t, c, http.MethodPut, "slow", "trickle", 32<<20)
			_, err = io.WriteString(conn, head+"x")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	mustServe(t, c, "slow", "small", []byte("small"))
	mustServe(t, c, "slow", "big", big)
	if grown := s.resident(t) - before; grown > 256<<20 {
		t.Errorf("30 slow readers and 30 slow writers cost %d MiB, expected at most 256", grown>>20)
	}
	for _, conn := range conns {
		conn.Close()
	}
	until(t, "nothing of the slow requests is left", func() bool {
		return len(unfinished(t, s.data)) == 0 &&
			s.descriptors(t) <= fds+4
	})
	if _, err := c.StatObject(context.Background(), "slow", "trickle",
		minio.StatObjectOptions{}); minio.ToErrorResponse(err).StatusCode != http.StatusNotFound {
		t.Errorf("the object of the writers that never ended: %v, expected none", err)
	}
	s.stop(t)
}
