// SPDX-License-Identifier: Apache-2.0

// Package upstreams starts other projects' S3 servers on loopback, as upstreams for tests: MinIO, versitygw, moto and
// Ceph's RADOS gateway. Each start installs or builds what is missing.
package upstreams

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/test/built"
)

// Kind names one of the servers.
type Kind string

// The servers that Start knows.
const (
	MinIO     Kind = "minio"
	Versitygw Kind = "versitygw"
	Moto      Kind = "moto"
	Ceph      Kind = "ceph"
)

// ErrMissing says that a server cannot be had on this machine, because its packages need root.
var ErrMissing = errors.New("cannot be had on this machine")

// Keys of every upstream. The keys are no secret, because each upstream listens on loopback and only during a test.
const (
	Access = "upstreamtest"
	Secret = "upstream-test-secret"
	Region = "us-east-1"
)

// Upstream is a running S3 server. Stop ends it.
type Upstream struct {
	Kind     Kind
	Endpoint string // http://127.0.0.1:PORT
	Dir      string // directory of its data and logs

	cmd   *exec.Cmd
	log   string
	died  chan struct{} // closed when the process has ended
	stdin io.WriteCloser
	lines chan string // what Ceph's script prints
	once  sync.Once
}

// Root returns the top directory of the checkout that holds the working directory. Outside of a checkout, Root returns
// the working directory, and what is looked for there is reported as missing.
func Root() string {
	root, err := built.Root()
	if err != nil {
		return "."
	}
	return root
}

// Start starts a server with its data below dir and returns when the server answers. The error wraps ErrMissing if the
// server's packages cannot be installed here. The caller stops the server.
func Start(ctx context.Context, kind Kind, dir string) (*Upstream, error) {
	var u *Upstream
	var err error
	for attempt := range 3 {
		u, err = start(ctx, kind, filepath.Join(dir, fmt.Sprintf("%s-%d", kind, attempt)))
		if !errors.Is(err, errEnded) {
			break // else another process may have taken a port that was free
		}
	}
	return u, err
}

// errEnded says that the process of a server has ended before it answered.
var errEnded = errors.New("the server ended before it answered")

// start starts a server once.
func start(ctx context.Context, kind Kind, data string) (*Upstream, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	u := &Upstream{Kind: kind, Dir: data, Endpoint: "http://127.0.0.1:" + ports[0], log: data + ".log",
		died: make(chan struct{})}
	argv, env, err := commandOf(ctx, kind, data, ports)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	if err := u.run(argv, env); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	if err := u.ready(ctx, 180*time.Second); err != nil {
		text, _ := os.ReadFile(u.log)
		u.Stop()
		return nil, fmt.Errorf("%s: %w; the end of its log:\n%s", kind, err, text[max(0, len(text)-3000):])
	}
	return u, nil
}

// run starts the process. Ceph's script also has a standard input, by which it takes commands and by which it ends.
func (u *Upstream) run(argv, env []string) error {
	log, err := os.OpenFile(u.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	u.cmd = exec.Command(argv[0], argv[1:]...)
	u.cmd.Env = append(os.Environ(), env...)
	u.cmd.Stdout, u.cmd.Stderr = log, log
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if u.Kind == Ceph {
		u.cmd.Stdout = nil
		out, err := u.cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if u.stdin, err = u.cmd.StdinPipe(); err != nil {
			return err
		}
		u.lines = make(chan string, 16)
		go func() {
			defer close(u.lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				u.lines <- s.Text()
			}
		}()
	}
	// Pdeathsig follows the thread that started the process: without the lock the runtime could end that thread.
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := u.cmd.Start()
		started <- err
		if err == nil {
			_ = u.cmd.Wait()
			close(u.died)
		}
		runtime.UnlockOSThread()
	}()
	return <-started
}

// ready waits until the server answers a request without an error of its own.
func (u *Upstream) ready(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if u.Kind == Ceph {
		if err := u.expect(ctx, "ready"); err != nil {
			return err
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.Endpoint+"/", nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode < 500 {
				return nil
			}
		}
		select {
		case <-u.died:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("the server has not answered: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// expect waits for a line of Ceph's script.
func (u *Upstream) expect(ctx context.Context, want string) error {
	select {
	case line, ok := <-u.lines:
		if !ok {
			return fmt.Errorf("ceph.sh said nothing, expected %q: %w", want, errEnded)
		}
		if line != want {
			return fmt.Errorf("ceph.sh said %q, expected %q", line, want)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %q of ceph.sh: %w", want, ctx.Err())
	}
}

// KillOSD kills Ceph's only OSD with SIGKILL. The gateway then accepts requests and does not answer them.
func (u *Upstream) KillOSD(ctx context.Context) error { return u.order(ctx, "kill-osd", "killed") }

// StartOSD starts Ceph's OSD again and returns when the monitor sees it.
func (u *Upstream) StartOSD(ctx context.Context) error { return u.order(ctx, "start-osd", "started") }

func (u *Upstream) order(ctx context.Context, command, answer string) error {
	if u.Kind != Ceph {
		return fmt.Errorf("%s has no OSD: only %s has one", u.Kind, Ceph)
	}
	if _, err := io.WriteString(u.stdin, command+"\n"); err != nil {
		return err
	}
	return u.expect(ctx, answer)
}

// Host returns the address of the server without the scheme.
func (u *Upstream) Host() string { return strings.TrimPrefix(u.Endpoint, "http://") }

// Log returns the end of the server's log.
func (u *Upstream) Log() string {
	text, _ := os.ReadFile(u.log)
	return string(text[max(0, len(text)-4000):])
}

// Stop ends the server and waits for its end. Later calls do nothing.
func (u *Upstream) Stop() {
	u.once.Do(func() {
		if u.cmd == nil || u.cmd.Process == nil {
			return
		}
		if u.stdin != nil {
			_ = u.stdin.Close()
		}
		_ = u.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-u.died:
		case <-time.After(20 * time.Second):
			_ = u.cmd.Process.Kill()
			<-u.died
		}
	})
}

// freePorts returns n loopback ports on which nobody listens.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after all are chosen, so that they differ
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
