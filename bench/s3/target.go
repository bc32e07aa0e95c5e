// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// rootKeys are the keys of every target. They are no secret, because each target listens on loopback and only during
// a run.
var rootKeys = credentials{"benchbench", "benchbenchbench"}

// bucket is the bucket in which the rows store their objects, on every target.
const bucket = "bench"

// target is one measured server in its own process.
type target struct {
	name string
	dir  string // directory of its data, with its log beside it
	host string
	argv func(t *target, console string) []string
	env  []string
	cmd  *exec.Cmd
	log  *os.File
	died chan struct{} // closed when the process has ended
}

// targets returns the targets in the order of the tables. The arguments are paths of the programs; an empty path
// leaves its targets out. before is an older build of nebulaio.
func targets(self, nebulaio, versitygw, minio, before string) []*target {
	var all []*target
	bare := func(name string, args ...string) {
		all = append(all, &target{name: name, argv: func(t *target, _ string) []string {
			return append([]string{self, "bare", "--address", t.host, "--data", t.dir}, args...)
		}})
	}
	bare("bare")
	bare("bare+fdatasync", "--sync")
	bare("bare+md5+sync", "--sync", "--sync-dir", "--md5")
	if versitygw != "" {
		all = append(all, &target{name: "versitygw",
			env: []string{"ROOT_ACCESS_KEY=" + rootKeys.access, "ROOT_SECRET_KEY=" + rootKeys.secret},
			argv: func(t *target, _ string) []string {
				return []string{versitygw, "--port", t.host, "--keep-alive", "--quiet", "posix", t.dir}
			}})
	}
	if minio != "" {
		all = append(all, &target{name: "minio",
			env: []string{"MINIO_ROOT_USER=" + rootKeys.access, "MINIO_ROOT_PASSWORD=" + rootKeys.secret, "MINIO_UPDATE=off",
				"MINIO_BROWSER=off"},
			argv: func(t *target, console string) []string {
				return []string{minio, "server", "--quiet", "--address", t.host, "--console-address", console, t.dir}
			}})
	}
	for _, mode := range []struct{ name, env, program string }{
		{"nebulaio", "", nebulaio}, {"nebulaio always", "NEBULAIO_VERIFY_READS=always", nebulaio},
		{"nebulaio crc64", "NEBULAIO_ETAG=crc64nvme", nebulaio}, {tlsName, "NEBULAIO_TLS_GENERATE=true", nebulaio},
		{sseName, "NEBULAIO_VERIFY_READS=always", nebulaio},
		{beforeName, "", before}, {beforeAgainName, "", before},
	} {
		if mode.program == "" {
			continue
		}
		env := []string{"NEBULAIO_ROOT_USER=" + rootKeys.access, "NEBULAIO_ROOT_PASSWORD=" + rootKeys.secret}
		if mode.env != "" {
			env = append(env, mode.env)
		}
		all = append(all, &target{name: mode.name, env: env, argv: func(t *target, console string) []string {
			return []string{mode.program, "server", "--data", t.dir, "--address", t.host, "--console-address", console}
		}})
	}
	return all
}

// start runs the target on a free loopback port with its data under work. It returns when the target has answered a
// signed request.
func (t *target) start(work string) error {
	if t.dir == "" {
		t.dir = filepath.Join(work, strings.NewReplacer(" ", "-", "+", "-").Replace(t.name))
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	if err := t.masterKey(); err != nil {
		return err
	}
	host, err := freeAddress()
	if err != nil {
		return err
	}
	console, err := freeAddress()
	if err != nil {
		return err
	}
	t.host = host
	argv := t.argv(t, console)
	if t.log, err = os.OpenFile(t.dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return err
	}
	t.cmd = exec.Command(argv[0], argv[1:]...)
	t.cmd.Env = append(os.Environ(), t.env...)
	t.cmd.Stdout, t.cmd.Stderr = t.log, t.log
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := t.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	died := make(chan struct{})
	t.died = died
	go func() { _ = t.cmd.Wait(); close(died) }()
	return t.answer(60 * time.Second)
}

// answer waits until the target answers a signed request.
func (t *target) answer(limit time.Duration) error {
	s := t.stream()
	defer s.close()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var last error
	for end := time.Now().Add(limit); time.Now().Before(end); <-tick.C {
		select {
		case <-t.died:
			return t.failed("ended before it answered")
		default:
		}
		if last = s.do(t.probe(), nil); last == nil {
			return nil
		}
	}
	return t.failed(fmt.Sprintf("has not answered within %s: %v", limit, last))
}

func (t *target) failed(why string) error {
	text, _ := os.ReadFile(t.dir + ".log")
	return fmt.Errorf("%s %s; the end of its log:\n%s", t.name, why, text[max(0, len(text)-2000):])
}

// stop sends sig to the process and waits until the process has ended.
func (t *target) stop(sig syscall.Signal) {
	if t.cmd == nil {
		return
	}
	_ = t.cmd.Process.Signal(sig)
	select {
	case <-t.died:
	case <-time.After(30 * time.Second):
		_ = t.cmd.Process.Kill()
		<-t.died
	}
	t.log.Close()
	t.cmd = nil
}

// sign prepares a request for a key of the bucket. An empty key means the bucket itself.
func (t *target) sign(method, key string, query url.Values, body []byte, want int, size int64,
	header ...string) request {
	path := "/" + bucket
	if key != "" {
		path += "/" + key
	}
	return prepare(method, t.host, presign(rootKeys, time.Now(), method, t.host, path, query), body, want, size, header...)
}

// probe returns a cheap request that every ready server refuses in the same way: for an object that does not exist.
func (t *target) probe() request {
	path := "/nebulaio-bench-no-such-bucket/none"
	return prepare(http.MethodHead, t.host, presign(rootKeys, time.Now(), http.MethodHead, t.host, path, nil), nil,
		http.StatusNotFound, -1)
}

// cpu returns the CPU time of the server in seconds, in user and system mode, as counted by the kernel.
func (t *target) cpu() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", t.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return parseStat(text)
}

// parseStat reads utime and stime out of /proc/PID/stat. Linux counts them in
// hundredths of a second for programs, whatever its own tick is.
func parseStat(text []byte) (float64, error) {
	_, rest, ok := bytes.Cut(text, []byte(") ")) // the name in front may hold anything but this, for our targets
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, errors.New("/proc/PID/stat has another form than expected")
	}
	var sum float64
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseFloat(string(f), 64)
		if err != nil {
			return 0, err
		}
		sum += ticks / 100
	}
	return sum, nil
}

// peakMemory returns the largest resident memory of the server so far, in bytes.
func (t *target) peakMemory() int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// freeAddress returns a loopback address with a port on which nobody listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
