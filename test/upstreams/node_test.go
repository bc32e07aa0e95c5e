// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// Keys of the nodes under test.
const user, password = "node-user", "node-password"

// bucketAt is an upstream bucket in the configuration of a node.
type bucketAt struct {
	name     string // at the node
	endpoint string
	bucket   string            // at the upstream; empty means name
	more     map[string]string // further settings, such as validate
}

// configuration returns a configuration file with upstream buckets. more is appended.
func configuration(list []bucketAt, more string) string {
	var b strings.Builder
	b.WriteString("upstream:\n")
	for _, u := range list {
		at := u.bucket
		if at == "" {
			at = u.name
		}
		fmt.Fprintf(&b, "  %s:\n    endpoint: %s\n    bucket: %s\n    access_key_env: UPSTREAM_ACCESS_KEY\n"+
			"    secret_key_env: UPSTREAM_SECRET_KEY\n", u.name, u.endpoint, at)
		for name, value := range u.more {
			fmt.Fprintf(&b, "    %s: %s\n", name, value)
		}
	}
	return b.String() + more
}

// node is one run of `nebulaio server`.
type node struct {
	dir      string // configuration and data
	host     string
	console  string
	cmd      *exec.Cmd
	out      *lastLines
	exited   chan struct{}
	waitErr  error
	stopOnce sync.Once
}

// lastLines keeps the end of a server's output, for the message of a failing test.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text = append(l.text, p...); len(l.text) > 32<<10 {
		l.text = append([]byte(nil), l.text[len(l.text)-16<<10:]...)
	}
	return len(p), nil
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// startNode starts a server with its data in dir and waits until the server is ready. env is added to its environment.
func startNode(t *testing.T, dir, config string, env ...string) *node {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	n := &node{dir: dir, out: &lastLines{}, exited: make(chan struct{})}
	n.cmd = exec.Command(path, "server", "--config", file, "--data", filepath.Join(dir, "data"), "--address",
		"127.0.0.1:0", "--console-address", "127.0.0.1:0", "--json")
	n.cmd.Env = append(nodeEnv(), env...)
	n.cmd.Stderr = n.out
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	first, readErr := lines.ReadString('\n')
	go func() {
		_, _ = io.Copy(n.out, lines)
		n.waitErr = n.cmd.Wait()
		close(n.exited)
	}()
	t.Cleanup(n.kill)
	var said struct {
		Endpoint string `json:"endpoint"`
		Console  string `json:"console"`
	}
	if readErr != nil || json.Unmarshal([]byte(first), &said) != nil || said.Endpoint == "" {
		n.kill()
		t.Fatalf("the server said %q (%v), and on stderr:\n%s", first, readErr, n.out)
	}
	n.host = said.Endpoint[strings.Index(said.Endpoint, "://")+len("://"):]
	n.console = said.Console
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", last(n.out.String(), 4000))
		}
	})
	return n
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

func nodeEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, enable) })
	return append(env, "NEBULAIO_ROOT_USER="+user, "NEBULAIO_ROOT_PASSWORD="+password,
		"UPSTREAM_ACCESS_KEY="+upstreams.Access, "UPSTREAM_SECRET_KEY="+upstreams.Secret)
}

// kill ends the server with SIGKILL.
func (n *node) kill() {
	n.stopOnce.Do(func() {
		_ = n.cmd.Process.Kill()
		<-n.exited
	})
}

// stop asks the server to end and checks how it ended.
func (n *node) stop(t *testing.T) {
	t.Helper()
	n.stopOnce.Do(func() {
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
		<-n.exited
		if n.waitErr != nil {
			t.Errorf("the server ended with %v\n%s", n.waitErr, n.out)
		}
	})
}

func (n *node) client(t *testing.T) *minio.Core { t.Helper(); return client(t, n.host, user, password) }

// metric returns a number of the node's cache, such as "evictions_total". It is 0 if the node does not answer.
func (n *node) metric(t *testing.T, name string) float64 {
	t.Helper()
	resp, err := http.Get(n.console + "/metrics")
	if err != nil {
		return 0
	}
	text, _ := readAll(resp.Body)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "nebulaio_cache_"+name+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Errorf("the metric %s: %v", name, err)
			}
			return value
		}
	}
	return 0
}

// command runs a command of the program on the data of the node and returns its output and exit code.
func (n *node) command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	return command(t, nodeEnv(), args...)
}

// verify runs `nebulaio cache verify` on the stopped node and fails the test if the command finds fault. It returns
// what the command says.
func (n *node) verify(t *testing.T) string {
	t.Helper()
	out, code := n.command(t, "cache", "verify", "--config", filepath.Join(n.dir, "config.yaml"), "--data",
		filepath.Join(n.dir, "data"))
	if code != 0 {
		t.Errorf("nebulaio cache verify ended with %d:\n%s", code, last(out, 4000))
	}
	return strings.Join(strings.Fields(out), " ")
}

func command(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// answer is a whole reply to GET.
type answer struct {
	data   []byte
	tag    string
	header http.Header
	err    error // of the request or of its body; then data is what came until then
}

// from returns x-nebulaio-cache of the reply.
func (a answer) from() string { return a.header.Get("X-Nebulaio-Cache") }

// get reads an object, or the range [first, last] if last is not negative.
func get(ctx context.Context, c *minio.Core, bucket, key string, first, last int64) answer {
	o := minio.GetObjectOptions{}
	if last >= 0 {
		if err := o.SetRange(first, last); err != nil {
			return answer{err: err}
		}
	}
	body, info, header, err := c.GetObject(ctx, bucket, key, o)
	if err != nil {
		return answer{header: header, err: err}
	}
	data, err := readAll(body)
	return answer{data, info.ETag, header, err}
}

// expect checks a whole reply.
func (a answer) expect(t *testing.T, what string, data []byte, from ...string) {
	t.Helper()
	if a.err != nil {
		t.Errorf("%s: %v", what, a.err)
		return
	}
	if !bytes.Equal(a.data, data) {
		t.Errorf("%s: %d bytes that differ from the %d expected ones", what, len(a.data), len(data))
	}
	for _, f := range from {
		if a.from() == f {
			return
		}
	}
	if len(from) > 0 {
		t.Errorf("%s: x-nebulaio-cache is %q, expected %q; headers %v", what, a.from(), from, a.header)
	}
}
