// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process"
	"github.com/nebulaio/nebulaio/test/holder"
)

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

func dumpTo(t *testing.T, h *holder.Process, to process.Place,
	change func(*process.DumpOptions)) (*process.Report, error) {
	t.Helper()
	o := process.DumpOptions{CRIU: holder.CRIU(t), System: newEngine(t), Log: &bytes.Buffer{}}
	if change != nil {
		change(&o)
	}
	rep, err := process.Dump(t.Context(), noGPU, h.PID, to, o)
	if err != nil {
		t.Logf("criu: %s", o.Log)
	}
	return rep, err
}

func restoreFrom(t *testing.T, from process.Place) (*process.Report, error) {
	t.Helper()
	o := process.RestoreOptions{CRIU: holder.CRIU(t), System: newEngine(t), Log: &bytes.Buffer{}}
	rep, err := process.Restore(t.Context(), noGPU, from, o)
	if err != nil {
		t.Logf("criu: %s", o.Log)
	}
	return rep, err
}

// A dumped process is ended, and goes on where it was after the restore: memory, open files and their offsets.
func TestDumpKillRestore(t *testing.T) {
	h := holder.Start(t, "")
	before := h.Ask()
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
	h.Reap()
	if h.Alive() {
		t.Error("the process still runs")
	}
	want := int64(holder.MiB(t))
	if m := rep.Image; rep.State != "ended" || m.Pages < want<<20 || m.Bytes < m.Pages || m.Size <= m.Bytes ||
		m.Files < 8 ||
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
	if back.PID != h.PID || back.State != device.ProcessRunning || !back.Image.Verified ||
		back.Image.Bytes != rep.Image.Bytes {
		t.Errorf("%+v", back)
	}
	if got := h.Ask(); got[0] != "2" || got[1] != before[1] || got[2] != "two_" {
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
	if got := h.Ask(); got[0] != "3" || got[2] != "tri_" {
		t.Errorf("after a dump that leaves it running: %q", got)
	}
	h.Kill()
	if _, err := restoreFrom(t, place(t, folder)); err != nil {
		t.Fatal(err)
	}
	if got := h.Ask(); got[0] != "3" || got[1] != before[1] || got[2] != "tri_" {
		t.Errorf("after the second restore: %q", got)
	}
}

// A flipped bit is refused before any process is made.
func TestDamagedImagesAreRefused(t *testing.T) {
	h := holder.Start(t, "")
	folder := t.TempDir()
	rep, err := dumpTo(t, h, place(t, folder), nil)
	if err != nil {
		t.Fatal(err)
	}
	h.Reap()
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
		if h.Alive() {
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
	h := holder.Start(t, "")
	empty := func(folder string) {
		t.Helper()
		if left, err := os.ReadDir(folder); err == nil && len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	goesOn := func(n string) {
		t.Helper()
		if got := h.Ask(); got[0] != n {
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
	t.Cleanup(func() { _ = exec.Command("umount", folder).Run() }) // if the test fails in between
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
	o := process.DumpOptions{CRIU: holder.CRIU(t), System: newEngine(t), Progress: func(n int64) {
		if n > 4<<20 {
			cancel(cause)
		}
	}}
	_, err = process.Dump(ctx, noGPU, h.PID, place(t, folder), o)
	if !errs.Is(err, errs.Cancelled) || !errors.Is(err, cause) || !says(err, "runs on as before") {
		t.Errorf("an interrupt: %v", err)
	}
	empty(folder)
	if n := h.Last()[0]; n == "2" {
		goesOn("3")
	} else {
		goesOn("2")
	}
	if _, err := dumpTo(t, h, place(t, "/dev/null/dump"), nil); err == nil {
		t.Error("a folder that cannot be")
	}
	missing := process.DumpOptions{CRIU: filepath.Join(folder, "criu"), System: newEngine(t)}
	if _, err := process.Dump(t.Context(), noGPU, h.PID, place(t, folder), missing); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(errs.FixOf(err), "apt install criu") {
		t.Errorf("no criu: %v", err)
	}
	h.Kill()
	if _, err := dumpTo(t, h, place(t, folder), nil); !errs.Is(err, errs.NotFound) {
		t.Errorf("a dead process: %v", err)
	}
	empty(folder)
}

// A dump that is killed leaves the process running and no image. The next dump removes what it has left.
func TestKilledDump(t *testing.T) {
	tool := holder.CRIU(t)
	folder := t.TempDir()
	if text := os.Getenv("NEBULAIO_TEST_DUMP_PID"); text != "" { // the process that is killed
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		o := process.DumpOptions{CRIU: tool, System: newEngine(t), Progress: func(n int64) {
			if n > 4<<20 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}}
		_, err = process.Dump(t.Context(), noGPU, n, place(t, os.Getenv("NEBULAIO_TEST_DUMP_FOLDER")), o)
		t.Fatalf("the dump was not killed: %v", err)
	}
	h := holder.Start(t, "")
	before := h.Ask()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledDump$")
	temporary, err := os.MkdirTemp("", "t") // a killed dump leaves criu's socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temporary)
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "NEBULAIO_TEST_DUMP_FOLDER="+folder,
		fmt.Sprintf("NEBULAIO_TEST_DUMP_PID=%d", h.PID))
	out, err := cmd.CombinedOutput()
	if state := cmd.ProcessState; state == nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v\n%s", err, out)
	}
	// criu has lost its streamer and lets the process run on.
	if got := h.Ask(); got[0] != "2" || got[1] != before[1] {
		t.Errorf("%q, before %q", got, before)
	}
	if _, err := os.Stat(filepath.Join(folder, process.ImageName)); err == nil {
		t.Error("there is an image")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := dumpTo(t, h, place(t, folder), nil); err != nil {
		t.Fatal(err)
	}
	h.Reap()
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 || left[0].Name() != process.ImageName {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := restoreFrom(t, place(t, folder)); err != nil {
		t.Fatal(err)
	}
	if got := h.Ask(); got[0] != "3" || got[1] != before[1] {
		t.Errorf("%q, before %q", got, before)
	}
}

// A restore that is interrupted, or that criu refuses, leaves no process.
func TestFailedRestores(t *testing.T) {
	h := holder.Start(t, "")
	folder := t.TempDir()
	if _, err := dumpTo(t, h, place(t, folder), nil); err != nil {
		t.Fatal(err)
	}
	h.Reap()
	o := process.RestoreOptions{CRIU: holder.CRIU(t), System: newEngine(t), Args: []string{"--no-such-option"}}
	if _, err := process.Restore(t.Context(), noGPU, place(t, folder), o); err == nil || !says(err, "no process is left") {
		t.Errorf("%v", err)
	}
	for i := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		o := process.RestoreOptions{CRIU: holder.CRIU(t), System: newEngine(t)}
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
		if !errs.Is(err, errs.Cancelled) || h.Alive() {
			t.Errorf("interrupt %d: %v", i, err)
		}
		cancel()
	}
	// A file that the process had open is gone: criu fails in the middle of the restore.
	if err := os.Rename(h.Log, h.Log+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreFrom(t, place(t, folder)); err == nil || h.Alive() || !says(err, "no process is left") {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.Rename(h.Log+".away", h.Log); err != nil {
		t.Fatal(err)
	}
	if _, err := restoreFrom(t, place(t, folder)); err != nil {
		t.Fatal(err)
	}
	if got := h.Ask(); got[0] != "1" {
		t.Errorf("%q", got)
	}
}

// A process that uses GPUs is suspended before the dump and resumed after the restore.
func TestDumpOfAGPUProcess(t *testing.T) {
	tool := holder.CRIU(t)
	g := fakegpu.Build(t, fakegpu.Options{})
	h := holder.Start(t, g.CUDA)
	copy(g.Process(h.PID, 0, held), "content")
	drv, err := open.Processes(g.Options(device.Auto))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drv.Close(); err != nil {
			t.Error(err)
		}
	})
	d := process.Driver{Processes: drv}
	state := func(want device.ProcessState) {
		t.Helper()
		if s, err := drv.State(h.PID); s != want || err != nil {
			t.Errorf("the process is %q, %v; expected %q", s, err, want)
		}
	}
	to := place(t, t.TempDir())
	o := process.DumpOptions{CRIU: tool, System: newEngine(t)}
	if _, err := process.Dump(t.Context(), noGPU, h.PID, to, o); !errs.Is(err, errs.Unsupported) ||
		!says(err, "no driver") {
		t.Errorf("without a driver: %v", err)
	}
	g.Fail("cuCheckpointProcessCheckpoint", 0, 1, fakegpu.NotSupported)
	if _, err := process.Dump(t.Context(), d, h.PID, to, o); !errs.Is(err, errs.Unsupported) {
		t.Errorf("a process that the driver cannot suspend: %v", err)
	}
	state(device.ProcessRunning)
	o.Args = []string{"--no-such-option"}
	if _, err := process.Dump(t.Context(), d, h.PID, to, o); !says(err, "runs on as before") {
		t.Errorf("criu fails: %v", err)
	}
	state(device.ProcessRunning)
	o.Args, o.LeaveRunning = nil, true
	rep, err := process.Dump(t.Context(), d, h.PID, to, o)
	if err != nil {
		t.Fatal(err)
	}
	state(device.ProcessRunning)
	if got := h.Ask(); got[0] != "1" || rep.GPUBytes != held {
		t.Errorf("%q, %+v", got, rep)
	}
	// A process that is suspended already stays so.
	if err := errors.Join(drv.Lock(h.PID, time.Second), drv.Checkpoint(h.PID)); err != nil {
		t.Fatal(err)
	}
	if rep, err = process.Dump(t.Context(), d, h.PID, to, o); err != nil || len(rep.Notes) != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	state(device.ProcessSuspended)
	if err := errors.Join(drv.Restore(h.PID, nil), drv.Unlock(h.PID)); err != nil {
		t.Fatal(err)
	}
	o.LeaveRunning = false
	if _, err := process.Dump(t.Context(), d, h.PID, to, o); err != nil {
		t.Fatal(err)
	}
	h.Reap()
	state(device.ProcessSuspended) // as the image has it
	back := process.RestoreOptions{CRIU: tool, System: newEngine(t)}
	if _, err := process.Restore(t.Context(), noGPU, to, back); !errs.Is(err, errs.Unsupported) || h.Alive() {
		t.Errorf("without a driver: %v", err)
	}
	g.Fail("cuCheckpointProcessRestore", 0, 1, fakegpu.OutOfMemory)
	if _, err := process.Restore(t.Context(), d, to, back); !errs.Is(err, errs.NoMemory) || h.Alive() ||
		!says(err, "no process is left") {
		t.Errorf("no GPU memory: %v", err)
	}
	rep, err = process.Restore(t.Context(), d, to, back)
	if err != nil || rep.GPUBytes != held {
		t.Fatalf("%+v, %v", rep, err)
	}
	state(device.ProcessRunning)
	if got := h.Ask(); got[0] != "2" {
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
		if _, err := process.ParsePlace(name, nebulaio.ClientOptions{}); !errs.Is(err, errs.Invalid) ||
			!says(err, "expected a folder") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
