// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio/internal/node"
)

// patience bounds what would otherwise wait for ever; nothing is measured by it.
const patience = 2 * time.Minute

// process is a server in a process of its own.
type process struct {
	node.Started
	t   *testing.T
	cmd *exec.Cmd
	log *lockedBuffer
}

// lockedBuffer is written by a process and read by a test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// command makes the server's process with free ports and no settings from
// the environment of the test.
func serverCommand(dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, append([]string{"server", "--json", "--data", dir, "--address", "127.0.0.1:0",
		"--console-address", "127.0.0.1:0"}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	return cmd
}

// startServer starts a server and waits until it says that it is ready.
func startServer(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: serverCommand(dir, env, args...), log: &lockedBuffer{}}
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &p.Started)
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		t.Fatalf("the server did not start: %v\n%s\n%s", err, line, p.log)
	}
	return p
}

// stop sends a signal and returns the exit code.
func (p *process) stop(s os.Signal) int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	return p.wait()
}

func (p *process) wait() int {
	p.t.Helper()
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	err := p.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// client is an S3 client with the given keys.
func (p *process) client(access, secret string) *minio.Client {
	p.t.Helper()
	u, err := url.Parse(p.Endpoint)
	if err != nil {
		p.t.Fatal(err)
	}
	o := &minio.Options{Creds: credentials.NewStaticV4(access, secret, ""), Secure: u.Scheme == "https", Region: p.Region,
		Transport: p.transport()}
	c, err := minio.New(u.Host, o)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// transport trusts the certificate that the server made.
func (p *process) transport() *http.Transport {
	tr := &http.Transport{}
	if p.CA != "" {
		ca, err := os.ReadFile(p.CA)
		if err != nil {
			p.t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		tr.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	p.t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// page asks the console.
func (p *process) page(path string) (int, string) {
	p.t.Helper()
	c := &http.Client{Transport: p.transport(), Timeout: patience}
	resp, err := c.Get(p.Console + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// until asks again and again until what it asks for is so.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func put(t *testing.T, c *minio.Client, bucket, key string, content []byte) {
	t.Helper()
	if _, err := c.PutObject(t.Context(), bucket, key, bytes.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{}); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

func wantObject(t *testing.T, c *minio.Client, bucket, key string, content []byte) {
	t.Helper()
	o, err := c.GetObject(t.Context(), bucket, key, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	got, err := io.ReadAll(o)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%s: %d bytes, expected %d: %v", key, len(got), len(content), err)
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func TestServerKeepsWhatItAcknowledgedOverAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	p := startServer(t, dir, nil)
	if p.AccessKey != "minioadmin" || p.SecretKey != "minioadmin" || p.PID != p.cmd.Process.Pid || p.Version == "" {
		t.Errorf("%+v", p.Started)
	}
	c := p.client(p.AccessKey, p.SecretKey)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	small, large := pattern(1000), pattern(3<<20)
	put(t, c, "bucket", "small", small)
	put(t, c, "bucket", "large", large)
	run(t, []string{"user", "add", "alice", "--role", "admin", "--secret", "-", "--data", dir},
		stdin("alice's own secret?\n")).want(t, 2, "not printable ASCII")
	run(t, []string{"user", "add", "alice", "--role", "admin", "--secret", "-", "--data", dir},
		stdin("alice-secret\n")).want(t, 0, "added     alice")
	if code := p.stop(syscall.SIGKILL); code != -1 {
		t.Errorf("exit code %d", code)
	}

	p = startServer(t, dir, nil)
	c = p.client("alice", "alice-secret")
	wantObject(t, c, "bucket", "small", small)
	wantObject(t, c, "bucket", "large", large)
	if code, text := p.page("/readyz"); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if _, text := p.page("/metrics"); !strings.Contains(text,
		`nebulaio_s3_requests_total{code="200",operation="GetObject"}`) ||
		!strings.Contains(text, "nebulaio_store_objects 2") {
		t.Errorf("metrics lack something:\n%s", text)
	}
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
	if _, err := os.Lstat(filepath.Join(dir, "admin.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("admin.sock is left: %v", err)
	}
	// Without a server the same commands open the store.
	run(t, []string{"user", "list", "--data", dir, "--json"}).want(t, 0, `"alice"`)
}

func stdin(text string) func(*World) {
	return func(w *World) { w.Stdin = strings.NewReader(text) }
}

// slowPut begins to write an object and waits until it is worked on; more writes
// the rest, or nothing more, and returns how it ended.
func slowPut(t *testing.T, p *process, key string, content []byte) (more func(whole bool) error) {
	t.Helper()
	c := p.client(p.AccessKey, p.SecretKey)
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := c.PutObject(context.Background(), "bucket", key, r, int64(len(content)),
			minio.PutObjectOptions{DisableMultipart: true, SendContentMd5: false})
		_ = r.CloseWithError(errors.New("the request is over"))
		ended <- err
	}()
	half := len(content) / 2
	if _, err := w.Write(content[:half]); err != nil {
		t.Fatal(err)
	}
	until(t, "the request to be worked on", func() bool {
		_, text := p.page("/metrics")
		return strings.Contains(text, "nebulaio_s3_requests_in_flight 1")
	})
	return func(whole bool) error {
		if whole {
			_, _ = w.Write(content[half:]) // fails where the request is over, which says why
		}
		_ = w.Close()
		return <-ended
	}
}

func TestServerDrains(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	p := startServer(t, dir, nil)
	c := p.client(p.AccessKey, p.SecretKey)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	content := pattern(8 << 20)
	more := slowPut(t, p, "slow", content)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "the server to drain", func() bool {
		code, text := p.page("/readyz")
		return code == 503 && strings.Contains(text, "draining")
	})
	until(t, "the listener to be closed", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.Endpoint, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if err := more(true); err != nil {
		t.Errorf("a request under way was cut off: %v", err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
	p = startServer(t, dir, nil)
	wantObject(t, p.client(p.AccessKey, p.SecretKey), "bucket", "slow", content)
}

func TestServerCutsOffWhatTakesTooLong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	p := startServer(t, dir, nil, "--drain-timeout", "300ms")
	c := p.client(p.AccessKey, p.SecretKey)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	more := slowPut(t, p, "never", pattern(8<<20))
	if code := p.stop(os.Interrupt); code != 0 || !strings.Contains(p.log.String(), "cut off") {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
	if err := more(false); err == nil {
		t.Error("half an object was acknowledged")
	}
	p = startServer(t, dir, nil)
	c = p.client(p.AccessKey, p.SecretKey)
	if _, err := c.StatObject(t.Context(), "bucket", "never",
		minio.StatObjectOptions{}); minio.ToErrorResponse(err).Code != "NoSuchKey" {
		t.Errorf("half an object is visible: %v", err)
	}
	// A second signal does not wait.
	more = slowPut(t, p, "never", pattern(8<<20))
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "the server to drain", func() bool { return strings.Contains(p.log.String(), "draining") })
	p.stop(syscall.SIGTERM)
	if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGTERM {
		t.Errorf("the second signal did not end it: %v", p.cmd.ProcessState)
	}
	_ = more(false)
}

// TestServerForgetsAClientThatVanishes: what a client sent before it went away is neither
// visible nor left on disk, and nothing of the process is held for it.
func TestServerForgetsAClientThatVanishes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	p := startServer(t, dir, nil)
	c := p.client(p.AccessKey, p.SecretKey)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := slowPut(t, p, "gone", pattern(8<<20))(false); err == nil {
			t.Error("half an object was acknowledged")
		}
		until(t, "the request to be forgotten", func() bool {
			_, text := p.page("/metrics")
			return strings.Contains(text, "nebulaio_s3_requests_in_flight 0")
		})
	}
	if _, err := c.StatObject(t.Context(), "bucket", "gone",
		minio.StatObjectOptions{}); minio.ToErrorResponse(err).Code != "NoSuchKey" {
		t.Errorf("half an object is visible: %v", err)
	}
	for _, sub := range []string{"tmp", "data"} {
		err := filepath.WalkDir(filepath.Join(dir, sub), func(path string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				info, err := e.Info()
				t.Errorf("%s is left behind: %v, %v", path, info, err)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestServerSpeaksTLS(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	env := []string{"NEBULAIO_TLS_GENERATE=true", "NEBULAIO_ROOT_USER=someone", "NEBULAIO_ROOT_PASSWORD=something-else"}
	p := startServer(t, dir, env)
	if !strings.HasPrefix(p.Endpoint, "https://") || !strings.HasPrefix(p.Console, "https://") || p.SecretKey != "" ||
		p.Fingerprint == "" {
		t.Fatalf("%+v", p.Started)
	}
	c := p.client("someone", "something-else")
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	content := pattern(2 << 20)
	put(t, c, "bucket", "key", content)
	wantObject(t, c, "bucket", "key", content)
	if code, text := p.page("/readyz"); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	if strings.Contains(p.log.String(), "something-else") {
		t.Error("the secret is in the log")
	}
	first := p.Fingerprint
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
	if p = startServer(t, dir, env); p.Fingerprint != first {
		t.Error("the certificate was made anew")
	}
}

// TestServerWithIdleConnections: idle connections take memory in proportion to
// limits.header_bytes, others are served beside them, and all are given back.
func TestServerWithIdleConnections(t *testing.T) {
	const many = 2000
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur < many+500 {
		t.Skipf("%d files may be open here, %d are needed: %v", l.Cur, many+500, err)
	}
	p := startServer(t, filepath.Join(t.TempDir(), "store"), nil)
	before := p.resident()
	address := strings.TrimPrefix(p.Endpoint, "http://")
	conns := make([]net.Conn, 0, many)
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range many {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("after %d connections: %v", len(conns), err)
		}
		conns = append(conns, c)
		// One request each: kept-alive connections hold more than fresh ones.
		if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusForbidden {
			t.Fatalf("after %d connections: %v %v", len(conns), resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	c := p.client(p.AccessKey, p.SecretKey)
	if err := c.MakeBucket(t.Context(), "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	put(t, c, "bucket", "key", pattern(100))
	if _, text := p.page("/metrics"); !strings.Contains(text, "nebulaio_s3_connections 200") {
		t.Error("the connections are not counted")
	}
	if grown := p.resident() - before; grown > many*96<<10 {
		t.Errorf("%d connections take %d KiB each", many, grown/many>>10)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	conns = nil
	until(t, "the connections to be given back", func() bool {
		_, text := p.page("/metrics")
		return strings.Contains(text, "nebulaio_s3_connections 0") || strings.Contains(text, "nebulaio_s3_connections 1\n")
	})
}

// resident is the server's own memory in bytes, without the pages of its program, which the kernel maps and drops.
func (p *process) resident() int64 {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID))
	if err != nil {
		p.t.Fatal(err)
	}
	var total, pages, shared int64
	if _, err := fmt.Sscan(string(text), &total, &pages, &shared); err != nil {
		p.t.Fatal(err)
	}
	return (pages - shared) * int64(os.Getpagesize())
}

func TestServerRefusesToStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	p := startServer(t, dir, nil)
	taken := strings.TrimPrefix(p.Endpoint, "http://")
	metadataGone := filepath.Join(t.TempDir(), "store")
	q := startServer(t, metadataGone, nil)
	if code := q.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if err := os.RemoveAll(filepath.Join(metadataGone, "meta")); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	for _, c := range []struct {
		name string
		code int
		cmd  *exec.Cmd
		want []string
	}{
		{"locked", 2, serverCommand(dir, nil), []string{dir, fmt.Sprint(p.PID)}},
		{"address in use", 6, serverCommand(fresh, nil, "--address", taken), []string{"listen on " + taken, "fix: "}},
		{"well-known keys", 2, serverCommand(fresh, nil, "--address", "0.0.0.0:0"),
			[]string{"minioadmin", "NEBULAIO_ROOT_USER"}},
		{"no metadata", 5, serverCommand(metadataGone, nil), []string{"the metadata is gone", "fix: "}},
		{"bad flag", 2, serverCommand(fresh, nil, "--etag", "sha1"), []string{"--etag", `"sha1"`, "md5 or crc64nvme"}},
		{"bad variable", 2, serverCommand(fresh, []string{"NEBULAIO_LIMITS_IDLE=soon"}),
			[]string{"NEBULAIO_LIMITS_IDLE", `"soon"`}},
		{"bad file", 2, serverCommand(fresh, nil, "--config", writeFile(t, "bad.yaml", []byte("adress: x\n"))),
			[]string{"bad.yaml:1", `"adress"`, "did you mean address?"}},
		{"no file", 3, serverCommand(fresh, nil, "--config", "missing.yaml"), []string{"missing.yaml"}},
		{"too little memory", 2, serverCommand(fresh, nil, "--memory-limit", "64MiB"), []string{"64MiB", "128MiB"}},
		{"no certificate", 3, serverCommand(fresh, nil, "--tls-cert", "missing.pem", "--tls-key", "missing.key"),
			[]string{"missing.pem"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, stderr bytes.Buffer
			c.cmd.Stdout, c.cmd.Stderr = &out, &stderr
			err := c.cmd.Run()
			if code := c.cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d (%v), expected %d\n%s", code, err, c.code, &stderr)
			}
			for _, s := range c.want {
				if !strings.Contains(stderr.String(), s) {
					t.Errorf("no %q in %s", s, &stderr)
				}
			}
			var e errorJSON
			if err := json.Unmarshal(out.Bytes(), &e); err != nil || e.Error.Message == "" {
				t.Errorf("%v: %s", err, &out)
			}
			if n := strings.Count(out.String(), "\n"); n != 1 || !strings.HasSuffix(out.String(), "\n") {
				t.Errorf("%d lines, expected one event on one line: %s", n, &out)
			}
		})
	}
}
