// SPDX-License-Identifier: Apache-2.0

// Package server_test runs the real server as its users do, under hard conditions: kills under load, clients that
// vanish, and disks that fail.
package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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

	"github.com/nebulaio/nebulaio/test/built"
)

// binary is built once for all tests of the package.
var binary = sync.OnceValues(func() (string, error) {
	given, err := built.Command(programs)
	if err != nil {
		return "", err
	}
	// Another user starts the program, too, and may not enter the folder of the clone.
	own := filepath.Join(programs, "served")
	if os.Link(given, own) == nil {
		return own, nil
	}
	text, err := os.ReadFile(given)
	if err != nil {
		return "", err
	}
	return own, os.WriteFile(own, text, 0o755)
})

// programs is the folder of programs that tests build. TestMain makes and removes it.
var programs string

func TestMain(m *testing.M) {
	if role := os.Getenv("NEBULAIO_DOOR_CHILD"); role != "" {
		if err := doorChild(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var err error
	if programs, err = os.MkdirTemp("", "nebulaio-server-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

const user, password = "crash-user", "crash-password"

// server is one run of `nebulaio server`.
type server struct {
	cmd       *exec.Cmd
	data      string
	address   string // of S3
	console   string // its URL
	log       *tail
	exited    chan struct{}
	waitErr   error
	startedIn time.Duration
	dead      sync.Once
}

// tail keeps the end of a server's output, for the message of a failing test.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 64<<10 {
		l.text = append([]byte(nil), l.text[len(l.text)-32<<10:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// ready is the line that `nebulaio server --json` prints when it accepts requests.
type ready struct {
	Endpoint string `json:"endpoint"`
	Console  string `json:"console"`
}

// start starts a server on data and waits until it is ready.
func start(t *testing.T, data string, args ...string) *server {
	t.Helper()
	s, err := tryStart(t, data, args...)
	if err != nil {
		t.Fatalf("%v\nlog:\n%s", err, s.log)
	}
	return s
}

func tryStart(t *testing.T, data string, args ...string) (*server, error) {
	t.Helper()
	return tryStartAs(t, data, nil, args...)
}

// tryStartAs is tryStart as another user.
func tryStartAs(t *testing.T, data string, as *syscall.Credential, args ...string) (*server, error) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{data: data, log: &tail{}, exited: make(chan struct{})}
	s.cmd = exec.Command(path, append([]string{"server", "--data", data, "--address", "127.0.0.1:0", "--console-address",
		"127.0.0.1:0", "--json"}, args...)...)
	s.cmd.Env = append(os.Environ(), "NEBULAIO_ROOT_USER="+user, "NEBULAIO_ROOT_PASSWORD="+password)
	s.cmd.Stderr = s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: as}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	first, readErr := lines.ReadString('\n')
	s.startedIn = time.Since(began)
	go func() {
		_, _ = io.Copy(s.log, lines)
		s.waitErr = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(s.kill)
	if readErr != nil {
		<-s.exited
		return s, fmt.Errorf("the server said nothing: %v (%v)", readErr, s.waitErr)
	}
	var r ready
	if err := json.Unmarshal([]byte(first), &r); err != nil {
		return s, fmt.Errorf("the first line %q: %v", first, err)
	}
	s.address = strings.TrimPrefix(r.Endpoint, "http://")
	s.console = r.Console
	return s, nil
}

// kill ends the server with SIGKILL, the closest equivalent of a power cut for a process.
func (s *server) kill() {
	s.dead.Do(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
	})
}

// stop asks the server to end and checks how it ended.
func (s *server) stop(t *testing.T) {
	t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.exited
	if s.waitErr != nil {
		t.Fatalf("the server ended with %v\n%s", s.waitErr, s.log)
	}
	s.dead.Do(func() {})
}

func (s *server) client(t *testing.T) *minio.Core {
	t.Helper()
	c, err := minio.NewCore(s.address, &minio.Options{Creds: credentials.NewStaticV4(user, password, ""),
		Region: "us-east-1", MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs a command of the binary and returns its output and exit code.
func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "NEBULAIO_ROOT_USER="+user, "NEBULAIO_ROOT_PASSWORD="+password)
	out, err := cmd.CombinedOutput()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
