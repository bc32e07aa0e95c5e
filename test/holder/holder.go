// SPDX-License-Identifier: Apache-2.0

// Package holder starts a process that tests dump and restore. The process holds memory and open files, and tells on
// request what it has.
package holder

import (
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/process/criu"
	"github.com/nebulaio/nebulaio/test/effort"
)

//go:embed csrc/holder.c
var source []byte

// CRIU returns the path of a criu that works on this kernel, or skips the test and says why.
func CRIU(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("criu needs root")
	}
	at := os.Getenv("NEBULAIO_CRIU")
	if at == "" {
		at = built()
	}
	p, err := criu.Find(t.Context(), at)
	if err != nil {
		t.Skip(err)
	}
	if err := p.Check(t.Context()); err != nil {
		t.Skip(err)
	}
	return p.Path
}

// built returns the path of the criu that make test builds, or "". make test builds a criu for kernels on which the
// distribution's criu does not work. Tests run in the folder of their package. The checkout is the nearest folder above
// that has a go.mod.
func built() string {
	folder, err := os.Getwd()
	for err == nil && !exists(filepath.Join(folder, "go.mod")) && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
	}
	if path := filepath.Join(folder, "build/criu/criu"); err == nil && exists(path) {
		return path
	}
	return ""
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// MiB is the memory of the process in MiB: 32, or more in the slow suite, which sets NEBULAIO_TEST_DUMP_MIB.
func MiB(t *testing.T) int {
	t.Helper()
	return effort.Number(t, "NEBULAIO_TEST_DUMP_MIB", 32)
}

// Process is the running process: a child of the test, also after a restore by the test's own process.
type Process struct {
	PID int
	Log string // path of a file that the process holds open

	t   *testing.T
	cmd *exec.Cmd
}

// Start starts the process and waits until its memory is filled. If library is not empty, the process loads it. The
// process is ended when the test ends.
func Start(t *testing.T, library string) *Process {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("the process to dump needs a C compiler: %v", err)
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"holder.c": string(source), "data": "one_two_tri_four", "log": ""} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(cc, "-O1", "-Wall", "-o", at("holder"), at("holder.c"),
		"-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	args := []string{strconv.Itoa(MiB(t)), at("log"), at("data")}
	if library != "" {
		args = append(args, library)
	}
	p := &Process{t: t, Log: at("log"), cmd: exec.Command(at("holder"), args...)}
	p.cmd.Dir = "/"
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	changed := p.watch()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.PID = p.cmd.Process.Pid
	t.Cleanup(p.Kill)
	changed()
	return p
}

// watch returns a function that waits until the log has changed since watch was called.
func (p *Process) watch() func() {
	p.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(fd, p.Log, unix.IN_MODIFY); err != nil {
		p.t.Fatal(err)
	}
	return func() {
		p.t.Helper()
		defer unix.Close(fd)
		const patience = 120_000 // milliseconds
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, patience)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n == 0 {
				p.t.Fatalf("the process has written nothing for two minutes: %v", err)
			}
			return
		}
	}
}

// Ask makes the process append a line to its log, and returns the fields of the line. The fields are the number of
// requests, the sum of the memory, and the next 4 bytes of the data file.
func (p *Process) Ask() []string {
	p.t.Helper()
	changed := p.watch()
	if err := unix.Kill(p.PID, unix.SIGUSR1); err != nil {
		p.t.Fatal(err)
	}
	changed()
	return p.Last()
}

// Last returns the fields of the last line of the log.
func (p *Process) Last() []string {
	p.t.Helper()
	text, err := os.ReadFile(p.Log)
	if err != nil {
		p.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Fields(lines[len(lines)-1])
}

// Alive reports whether there is a process with the id.
func (p *Process) Alive() bool { return unix.Kill(p.PID, 0) == nil }

// Reap waits for the end of the process, so that its id is free.
func (p *Process) Reap() {
	if p.cmd != nil {
		_ = p.cmd.Wait() // it was killed
		p.cmd = nil
		return
	}
	for {
		if _, err := unix.Wait4(p.PID, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Kill ends the process and waits for its end.
func (p *Process) Kill() {
	if p.Alive() {
		_ = unix.Kill(p.PID, unix.SIGKILL) // it may have ended
		p.Reap()
	}
}
