// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process"
	"github.com/nebulaio/nebulaio/internal/process/criu"
)

// workingCRIU returns a criu that works on this kernel, or skips the test and says why.
func workingCRIU(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("criu needs root")
	}
	at := os.Getenv("NEBULAIO_CRIU")
	if at == "" {
		// make test builds a criu for kernels that are newer than the distribution's.
		if built, err := filepath.Abs("../../build/criu/criu"); err == nil {
			if _, err := os.Stat(built); err == nil {
				at = built
			}
		}
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

// holder is a process that can be asked for its memory and its open files.
type holder struct {
	t    *testing.T
	cmd  *exec.Cmd
	pid  int
	log  string
	seen int // lines of the log
}

// megabytes returns the memory of the process that the tests dump: 32 MiB, or more in the slow suite.
func megabytes(t *testing.T) string {
	t.Helper()
	if text := os.Getenv("NEBULAIO_DUMP_MIB"); text != "" {
		if _, err := strconv.Atoi(text); err != nil {
			t.Fatalf("NEBULAIO_DUMP_MIB is %q, expected a number", text)
		}
		return text
	}
	return "32"
}

func startHolder(t *testing.T) *holder {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("the process to dump needs a C compiler: %v", err)
	}
	dir := t.TempDir()
	program, data := filepath.Join(dir, "holder"), filepath.Join(dir, "data")
	if out, err := exec.Command(cc, "-O1", "-Wall", "-o", program, "testdata/holder.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(data, []byte("one_two_tri_four"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &holder{t: t, log: filepath.Join(dir, "log")}
	if err := os.WriteFile(h.log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.cmd = exec.Command(program, megabytes(t), h.log, data)
	h.cmd.Dir = "/"
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	changed := h.watch()
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.pid = h.cmd.Process.Pid
	t.Cleanup(func() { h.kill() })
	changed()
	return h
}

// watch returns a function that waits until the log has changed since watch was called.
func (h *holder) watch() func() {
	h.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(fd, h.log, unix.IN_MODIFY); err != nil {
		h.t.Fatal(err)
	}
	return func() {
		h.t.Helper()
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n == 0 {
				h.t.Fatalf("the process has written nothing for a minute: %v", err)
			}
			return
		}
	}
}

// ask makes the process append a line to its log, and returns the line.
func (h *holder) ask() []string {
	h.t.Helper()
	changed := h.watch()
	if err := unix.Kill(h.pid, unix.SIGUSR1); err != nil {
		h.t.Fatal(err)
	}
	changed()
	return h.last()
}

// last returns the fields of the last line of the log.
func (h *holder) last() []string {
	h.t.Helper()
	text, err := os.ReadFile(h.log)
	if err != nil {
		h.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Fields(lines[len(lines)-1])
}

// reap waits for the process, which is a child of the test: started by it, or restored.
func (h *holder) reap() {
	if h.cmd != nil {
		_ = h.cmd.Wait() // it was killed
		h.cmd = nil
		return
	}
	for {
		if _, err := unix.Wait4(h.pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// kill ends the process and waits for its end.
func (h *holder) kill() {
	if h.alive() {
		_ = unix.Kill(h.pid, unix.SIGKILL) // it may have ended
		h.reap()
	}
}

func (h *holder) alive() bool { return unix.Kill(h.pid, 0) == nil }

func newEngine(t *testing.T) *nebulaio.System {
	t.Helper()
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: nebulaio.DevicesOff})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
	return sys
}

func place(t *testing.T, name string) process.Place {
	t.Helper()
	p, err := process.ParsePlace(name, nebulaio.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// noGPU is a machine without a driver.
var noGPU = process.Driver{Why: errs.New(errs.Unsupported, "use CUDA", "", "no driver")}

func dumpTo(t *testing.T, h *holder, to process.Place, change func(*process.DumpOptions)) (*process.Report, error) {
	t.Helper()
	o := process.DumpOptions{CRIU: workingCRIU(t), System: newEngine(t), Log: &bytes.Buffer{}}
	if change != nil {
		change(&o)
	}
	rep, err := process.Dump(t.Context(), noGPU, h.pid, to, o)
	if err != nil {
		t.Logf("criu: %s", o.Log)
	}
	return rep, err
}

func restoreFrom(t *testing.T, from process.Place) (*process.Report, error) {
	t.Helper()
	o := process.RestoreOptions{CRIU: workingCRIU(t), System: newEngine(t), Log: &bytes.Buffer{}}
	rep, err := process.Restore(t.Context(), noGPU, from, o)
	if err != nil {
		t.Logf("criu: %s", o.Log)
	}
	return rep, err
}

// A dumped process is ended, and goes on where it was after the restore: memory, open files and their offsets.
func TestDumpKillRestore(t *testing.T) {
	h := startHolder(t)
	before := h.ask()
	if before[0] != "1" || before[2] != "one_" {
		t.Fatalf("%q", before)
	}
	folder := filepath.Join(t.TempDir(), "a", "dump")
	var last int64
	rep, err := dumpTo(t, h, place(t, folder), func(o *process.DumpOptions) {
		o.Progress = func(n int64) { last = max(last, n) }
	})
	if err != nil {
		t.Fatal(err)
	}
	h.reap()
	if h.alive() {
		t.Error("the process still runs")
	}
	want, err := strconv.ParseInt(megabytes(t), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if m := rep.Image; rep.State != "ended" || m.Pages < want<<20 || m.Bytes < m.Pages || m.Size <= m.Bytes || m.Files < 8 ||
		m.Path != filepath.Join(folder, process.ImageName) || last == 0 {
		t.Errorf("%+v %+v", rep, rep.Image)
	}
	var routed int64
	for _, n := range rep.Image.Routes {
		routed += n
	}
	if routed != rep.Image.Size {
		t.Errorf("the engine wrote %v, expected %d bytes", rep.Image.Routes, rep.Image.Size)
	}
	if info, err := os.Stat(rep.Image.Path); err != nil || info.Size() != rep.Image.Size || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	back, err := restoreFrom(t, place(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	if back.PID != h.pid || back.State != device.ProcessRunning || !back.Image.Verified || back.Image.Bytes != rep.Image.Bytes {
		t.Errorf("%+v", back)
	}
	if got := h.ask(); got[0] != "2" || got[1] != before[1] || got[2] != "two_" {
		t.Errorf("after the restore: %q, before the dump: %q", got, before)
	}
	// The id is in use now.
	if _, err := restoreFrom(t, place(t, folder)); !errs.Is(err, errs.Invalid) || !says(err, "in use") {
		t.Errorf("restored twice: %v", err)
	}
	// The old image is replaced by a second dump.
	if _, err := dumpTo(t, h, place(t, folder), func(o *process.DumpOptions) { o.LeaveRunning = true }); err != nil {
		t.Fatal(err)
	}
	if got := h.ask(); got[0] != "3" || got[2] != "tri_" {
		t.Errorf("after a dump that leaves it running: %q", got)
	}
	h.kill()
	if _, err := restoreFrom(t, place(t, folder)); err != nil {
		t.Fatal(err)
	}
	if got := h.ask(); got[0] != "3" || got[1] != before[1] || got[2] != "tri_" {
		t.Errorf("after the second restore: %q", got)
	}
}

// A flipped bit is refused before any process is made.
func TestDamagedImagesAreRefused(t *testing.T) {
	h := startHolder(t)
	folder := t.TempDir()
	rep, err := dumpTo(t, h, place(t, folder), nil)
	if err != nil {
		t.Fatal(err)
	}
	h.reap()
	flip := func(at int64) {
		t.Helper()
		f, err := os.OpenFile(rep.Image.Path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, at); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		b[0] ^= 1
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []int64{3, 40, rep.Image.Size / 2, rep.Image.Size - 100, rep.Image.Size - 4} {
		flip(at)
		if _, err := restoreFrom(t, place(t, folder)); !errs.Is(err, errs.Corrupt) {
			t.Errorf("byte %d: %v", at, err)
		}
		if h.alive() {
			t.Fatal("a process was made")
		}
		flip(at)
	}
	if err := os.Truncate(rep.Image.Path, rep.Image.Size-10); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreFrom(t, place(t, folder)); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a part: %v", err)
	}
	if _, err := restoreFrom(t, place(t, t.TempDir())); !errs.Is(err, errs.NotFound) || !says(err, "no image") {
		t.Errorf("an empty folder: %v", err)
	}
}

// A dump that fails leaves the process running and no image.
func TestFailedDumps(t *testing.T) {
	h := startHolder(t)
	empty := func(folder string) {
		t.Helper()
		if left, err := os.ReadDir(folder); err == nil && len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	goesOn := func(n string) {
		t.Helper()
		if got := h.ask(); got[0] != n {
			t.Errorf("%q, expected line %s", got, n)
		}
	}
	folder := t.TempDir()
	// criu refuses an option.
	_, err := dumpTo(t, h, place(t, folder), func(o *process.DumpOptions) { o.Args = []string{"--no-such-option"} })
	if err == nil || !says(err, "runs on as before") {
		t.Errorf("%v", err)
	}
	empty(folder)
	goesOn("1")
	// The disk is full in the middle of the dump.
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", folder).Run(); err != nil {
		t.Logf("no tmpfs can be mounted: %v", err)
	} else {
		_, err = dumpTo(t, h, place(t, folder), nil)
		if !errors.Is(err, syscall.ENOSPC) || !says(err, "runs on as before, and there is no image") {
			t.Errorf("a full disk: %v", err)
		}
		empty(folder)
		if err := exec.Command("umount", folder).Run(); err != nil {
			t.Error(err)
		}
		goesOn("2")
	}
	// An interrupt in the middle of the dump.
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("SIGINT")
	o := process.DumpOptions{CRIU: workingCRIU(t), System: newEngine(t), Progress: func(n int64) {
		if n > 4<<20 {
			cancel(cause)
		}
	}}
	_, err = process.Dump(ctx, noGPU, h.pid, place(t, folder), o)
	if !errs.Is(err, errs.Cancelled) || !errors.Is(err, cause) || !says(err, "runs on as before") {
		t.Errorf("an interrupt: %v", err)
	}
	empty(folder)
	if n := h.last()[0]; n == "2" {
		goesOn("3")
	} else {
		goesOn("2")
	}
	if _, err := dumpTo(t, h, place(t, "/dev/null/dump"), nil); err == nil {
		t.Error("a folder that cannot be")
	}
	missing := process.DumpOptions{CRIU: filepath.Join(folder, "criu"), System: newEngine(t)}
	if _, err := process.Dump(t.Context(), noGPU, h.pid, place(t, folder), missing); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(errs.FixOf(err), "apt install criu") {
		t.Errorf("no criu: %v", err)
	}
	h.kill()
	if _, err := dumpTo(t, h, place(t, folder), nil); !errs.Is(err, errs.NotFound) {
		t.Errorf("a dead process: %v", err)
	}
	empty(folder)
}

// A restore that is interrupted, or that criu refuses, leaves no process.
func TestFailedRestores(t *testing.T) {
	h := startHolder(t)
	folder := t.TempDir()
	if _, err := dumpTo(t, h, place(t, folder), nil); err != nil {
		t.Fatal(err)
	}
	h.reap()
	o := process.RestoreOptions{CRIU: workingCRIU(t), System: newEngine(t), Args: []string{"--no-such-option"}}
	if _, err := process.Restore(t.Context(), noGPU, place(t, folder), o); err == nil || !says(err, "no process is left") {
		t.Errorf("%v", err)
	}
	for i := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		o := process.RestoreOptions{CRIU: workingCRIU(t), System: newEngine(t)}
		if i == 0 {
			o.Progress = func(int64, int64) { cancel() }
		} else {
			o.Say = func(s string) {
				if strings.HasPrefix(s, "restoring") {
					time.AfterFunc(time.Millisecond, cancel)
				}
			}
		}
		_, err := process.Restore(ctx, noGPU, place(t, folder), o)
		if !errs.Is(err, errs.Cancelled) || h.alive() {
			t.Errorf("interrupt %d: %v", i, err)
		}
		cancel()
	}
	// A file that the process had open is gone: criu fails in the middle of the restore.
	if err := os.Rename(h.log, h.log+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreFrom(t, place(t, folder)); err == nil || h.alive() || !says(err, "no process is left") {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.Rename(h.log+".away", h.log); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreFrom(t, place(t, folder)); err != nil {
		t.Fatal(err)
	}
	if got := h.ask(); got[0] != "1" {
		t.Errorf("%q", got)
	}
}

func TestPlaces(t *testing.T) {
	for name, want := range map[string]string{"dir": "dir/process.nebulaio", "/a/": "/a/process.nebulaio",
		"s3://b/k": "s3://b/k", "s3://b/p/": "s3://b/p/process.nebulaio", "s3://b": "s3://b/process.nebulaio"} {
		if got := place(t, name).String(); got != want {
			t.Errorf("%s: %s, expected %s", name, got, want)
		}
	}
	for _, name := range []string{"", "gs://a/b", "s3://", "s3:///x"} {
		if _, err := process.ParsePlace(name, nebulaio.ClientOptions{}); !errs.Is(err, errs.Invalid) || !says(err, "expected a folder") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
