// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/process"
	"github.com/nebulaio/nebulaio/internal/process/target"
)

const pid = 4242

// proc is a /proc with one process.
type proc struct {
	maps, environ, status, meminfo string
	fds                            []string
}

// usual is a process that uses CUDA.
func usual() proc {
	return proc{
		maps: "7f0000000000-7f0000010000 r-xp 00000000 08:01 99  /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05\n",
		status: "Name:\tpython\nState:\tS (sleeping)\nTracerPid:\t0\nUid:\t1000\t1000\t1000\t1000\nVmRSS:\t  2048 kB\n" +
			"Threads:\t7\n",
		meminfo: "MemTotal:       33554432 kB\nMemAvailable:   16777216 kB\n",
		fds:     []string{"/dev/null", "/dev/nvidiactl", "/dev/nvidia0"},
	}
}

// tree writes the files of a process.
func (p proc) tree(t *testing.T) target.Tree {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "proc", fmt.Sprint(pid))
	if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o700); err != nil {
		t.Fatal(err)
	}
	stat := fmt.Sprintf("%d (py) thon) S 1 %d %d 0 -1 0 0 0 0 0 0 0 0 0 20 0 7 0 123456 0 0\n", pid, pid, pid)
	for name, text := range map[string]string{"status": p.status, "stat": stat, "cmdline": "python\x00train.py\x00",
		"maps":    p.maps,
		"environ": p.environ, "mem": "", "../meminfo": p.meminfo} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range p.fds {
		if err := os.Symlink(name, filepath.Join(dir, "fd", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	return target.Tree{Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys"), Run: root}
}

// rig is a fake driver that knows the process, with memory on one GPU.
type rig struct {
	t    *testing.T
	g    *fakegpu.GPU
	d    process.Driver
	tree target.Tree
}

const held = 3 << 20

func newRig(t *testing.T, o fakegpu.Options, p proc) *rig {
	t.Helper()
	if o.Release == "" {
		o.Release = "580.95.05"
	}
	g := fakegpu.Build(t, o)
	copy(g.Process(pid, 0, held), "content")
	d, err := open.Processes(g.Options(device.Auto))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		g.CheckFreed()
	})
	return &rig{t: t, g: g, d: process.Driver{Processes: d}, tree: p.tree(t)}
}

func (r *rig) state(want device.ProcessState) {
	r.t.Helper()
	if s, err := r.d.State(pid); s != want || err != nil {
		r.t.Errorf("the process is %q, %v; expected %q", s, err, want)
	}
}

func (r *rig) content() {
	r.t.Helper()
	if b := r.g.ProcessMemory(pid, 0); !bytes.HasPrefix(b, []byte("content")) {
		r.t.Errorf("the memory has %q", b[:8])
	}
}

func (r *rig) suspend(ctx context.Context, o process.SuspendOptions) (*process.Report, error) {
	o.Tree = r.tree
	return process.Suspend(ctx, r.d, pid, o)
}

func (r *rig) resume(ctx context.Context, o process.ResumeOptions) (*process.Report, error) {
	o.Tree = r.tree
	return process.Resume(ctx, r.d, pid, o)
}

func says(err error, texts ...string) bool {
	for _, s := range texts {
		if err == nil || !strings.Contains(err.Error(), s) {
			return false
		}
	}
	return true
}

func TestSuspendFreesTheGPUAndResumeBringsItBack(t *testing.T) {
	r := newRig(t, fakegpu.Options{}, usual())
	var said []string
	var mu sync.Mutex
	rep, err := r.suspend(t.Context(), process.SuspendOptions{Say: func(s string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, s)
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.state(device.ProcessSuspended)
	if rep.State != device.ProcessSuspended || rep.GPUBytes != held || rep.Name != "python" ||
		rep.ResidentBefore != 2<<20 ||
		rep.GPUsBefore[0].Bytes != held || rep.GPUsAfter[0].Bytes != 0 || rep.Driver == "" || len(rep.Obstacles) != 0 ||
		len(rep.Steps) != 2 || rep.Steps[0].Step != "lock" || rep.Steps[1].Step != "checkpoint" || len(said) != 2 {
		t.Errorf("%+v, %q", rep, said)
	}
	if _, err := r.suspend(t.Context(), process.SuspendOptions{}); !errs.Is(err, errs.Invalid) ||
		!says(err, "suspended already") ||
		!strings.Contains(errs.FixOf(err), "process resume 4242") {
		t.Errorf("suspended twice: %v", err)
	}
	rep, err = r.resume(t.Context(), process.ResumeOptions{})
	if err != nil || rep.State != device.ProcessRunning || rep.GPUBytes != held || len(rep.Steps) != 2 {
		t.Fatalf("%+v, %v", rep, err)
	}
	r.state(device.ProcessRunning)
	r.content()
	if _, err := r.resume(t.Context(), process.ResumeOptions{}); !errs.Is(err, errs.Invalid) ||
		!says(err, "not suspended") {
		t.Errorf("resumed twice: %v", err)
	}
}

func TestALockedProcessIsUnlocked(t *testing.T) {
	r := newRig(t, fakegpu.Options{}, usual())
	if err := r.d.Lock(pid, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := r.suspend(t.Context(), process.SuspendOptions{}); !errs.Is(err, errs.Invalid) || !says(err, "locked") {
		t.Errorf("%v", err)
	}
	if rep, err := r.resume(t.Context(), process.ResumeOptions{}); err != nil || len(rep.Steps) != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	r.state(device.ProcessRunning)
}

// What stands in the way is said before anything is touched, and --force overrides it.
func TestObstacles(t *testing.T) {
	mps := t.TempDir()
	if err := os.WriteFile(filepath.Join(mps, "control"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shared := func(name string) func(*proc) {
		return func(p *proc) { p.maps += "7f1000000000-7f1000200000 rw-s 00000000 00:19 5  " + name + "\n" }
	}
	for what, c := range map[string]struct {
		change func(*proc)
		kind   errs.Kind
		blocks bool
	}{
		"ipc":  {shared("/dev/shm/cuda.shm.0.1092.1 (deleted)"), errs.Unsupported, true},
		"nccl": {shared("/dev/shm/nccl-AbCdEf"), errs.Unsupported, true},
		"mps":  {func(p *proc) { p.environ = "A=1\x00CUDA_MPS_PIPE_DIRECTORY=" + mps + "\x00" }, errs.Unsupported, true},
		"traced": {func(p *proc) { p.status = strings.Replace(p.status, "TracerPid:\t0", "TracerPid:\t9", 1) },
			errs.Unsupported, true},
		"memory":  {func(p *proc) { p.meminfo = "MemAvailable: 2048 kB\n" }, errs.NoMemory, true},
		"managed": {shared("/dev/nvidia-uvm"), 0, false},
	} {
		t.Run(what, func(t *testing.T) {
			p := usual()
			c.change(&p)
			r := newRig(t, fakegpu.Options{}, p)
			status, err := process.Look(t.Context(), r.d, pid, r.tree)
			if err != nil || status.State != device.ProcessRunning || status.RestoreThread != pid+1 {
				t.Fatalf("%+v, %v", status, err)
			}
			if what != "memory" && (len(status.Obstacles) != 1 || status.Obstacles[0].What != what ||
				status.Obstacles[0].Blocks != c.blocks) {
				t.Errorf("%+v", status.Obstacles)
			}
			if c.blocks {
				_, err := r.suspend(t.Context(), process.SuspendOptions{})
				if !errs.Is(err, c.kind) || !says(err, "nothing was changed") || !strings.Contains(errs.FixOf(err), "--force") {
					t.Errorf("%v", err)
				}
				r.state(device.ProcessRunning)
			}
			rep, err := r.suspend(t.Context(), process.SuspendOptions{Force: true})
			if err != nil || len(rep.Obstacles) != 1 || rep.Obstacles[0].What != what {
				t.Errorf("%+v, %v", rep, err)
			}
			r.state(device.ProcessSuspended)
		})
	}
}

// Newer drivers suspend processes that share GPU memory.
func TestSharedMemoryWithANewDriver(t *testing.T) {
	p := usual()
	p.maps += "7f1000000000-7f1000200000 rw-s 00000000 00:19 5  /dev/shm/cuda.shm.0.1092.1\n"
	r := newRig(t, fakegpu.Options{Release: "610.4"}, p)
	rep, err := r.suspend(t.Context(), process.SuspendOptions{})
	if err != nil || len(rep.Obstacles) != 1 || rep.Obstacles[0].What != "ipc" || rep.Obstacles[0].Blocks {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestSeveralGPUsAreNoted(t *testing.T) {
	r := newRig(t, fakegpu.Options{Devices: 2}, usual())
	r.g.Process(pid, 1, 4096)
	rep, err := r.suspend(t.Context(), process.SuspendOptions{})
	if err != nil || len(rep.Obstacles) != 1 || rep.Obstacles[0].What != "several-gpus" || rep.GPUBytes != held+4096 {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, fakegpu.Options{}, usual())
	for _, c := range []struct {
		pid  int
		kind errs.Kind
		text string
	}{{77, errs.NotFound, "no such process"}, {0, errs.Invalid, "process id"}, {-3, errs.Invalid, "process id"},
		{os.Getpid(), errs.Invalid, "this command itself"}} {
		for op, f := range map[string]func() error{
			"suspend": func() error {
				_, err := process.Suspend(t.Context(), r.d, c.pid, process.SuspendOptions{Tree: r.tree})
				return err
			},
			"resume": func() error {
				_, err := process.Resume(t.Context(), r.d, c.pid, process.ResumeOptions{Tree: r.tree})
				return err
			},
			"status": func() error { _, err := process.Look(t.Context(), r.d, c.pid, r.tree); return err },
		} {
			if err := f(); !errs.Is(err, c.kind) || !says(err, c.text) {
				t.Errorf("%s %d: %v", op, c.pid, err)
			}
		}
	}
	zombie := usual()
	zombie.status = "Name:\tpython\nState:\tZ (zombie)\n"
	if _, err := process.Suspend(t.Context(), r.d, pid, process.SuspendOptions{Tree: zombie.tree(t)}); !errs.Is(err,
		errs.NotFound) {
		t.Errorf("a zombie: %v", err)
	}
	plain := usual()
	plain.maps, plain.fds = "", nil
	tree := plain.tree(t)
	if _, err := process.Suspend(t.Context(), r.d, pid, process.SuspendOptions{Tree: tree}); !errs.Is(err,
		errs.Unsupported) ||
		!says(err, "does not use CUDA") {
		t.Errorf("not CUDA: %v", err)
	}
	if s, err := process.Look(t.Context(), r.d, pid, tree); err != nil || s.State != "" ||
		!strings.Contains(s.Why, "not use CUDA") {
		t.Errorf("not CUDA: %+v, %v", s, err)
	}
	none := process.Driver{Why: errs.New(errs.Unsupported, "use CUDA", "", "no driver")}
	if _, err := process.Suspend(t.Context(), none, pid, process.SuspendOptions{Tree: r.tree}); !errs.Is(err,
		errs.Unsupported) ||
		!says(err, "no driver") {
		t.Errorf("no driver: %v", err)
	}
	if s, err := process.Look(t.Context(), none, pid, r.tree); err != nil || !strings.Contains(s.Why, "no driver") ||
		!s.CUDA {
		t.Errorf("no driver: %+v, %v", s, err)
	}
	r.g.Fail("cuCheckpointProcessGetState", 0, 1, fakegpu.InvalidValue)
	if _, err := r.suspend(t.Context(), process.SuspendOptions{}); !errs.Is(err, errs.Device) ||
		!says(err, "4242 (python)") {
		t.Errorf("unknown to the driver: %v", err)
	}
	r.state(device.ProcessRunning)
}

// Each call that fails leaves the process as it was, or the error says in which state it is.
func TestFailuresOfSuspend(t *testing.T) {
	const lock, checkpoint, restore, unlock, get = "cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint",
		"cuCheckpointProcessRestore", "cuCheckpointProcessUnlock", "cuCheckpointProcessGetState"
	for name, c := range map[string]struct {
		fail  func(g *fakegpu.GPU)
		kind  errs.Kind
		texts []string
		fix   string
		state device.ProcessState
	}{
		"lock": {fakegpu.FailingCall(lock, 0, fakegpu.NotSupported), errs.Unsupported,
			[]string{lock, "runs on as before"}, "IPC", device.ProcessRunning},
		"checkpoint": {fakegpu.FailingCall(checkpoint, 0, fakegpu.NotSupported), errs.Unsupported,
			[]string{checkpoint, "runs on as before"}, "IPC", device.ProcessRunning},
		"out of memory": {fakegpu.FailingCall(checkpoint, 0, fakegpu.OutOfMemory), errs.NoMemory,
			[]string{"OUT_OF_MEMORY", "runs on as before"}, "", device.ProcessRunning},
		"unlock too": {func(g *fakegpu.GPU) {
			g.Fail(checkpoint, 0, 1, fakegpu.InvalidValue)
			g.Fail(unlock, 0, 1, fakegpu.InvalidValue)
		}, errs.Device, []string{"could not be put back: it is locked", unlock}, "process resume 4242", device.ProcessLocked},
		"broken": {func(g *fakegpu.GPU) {
			g.Breaks(pid)
			g.Fail(checkpoint, 0, 1, fakegpu.LaunchFailed)
		}, errs.Device, []string{"could not be put back", "state failed"}, "end the process", device.ProcessFailed},
		"state unknown": {func(g *fakegpu.GPU) {
			g.Fail(checkpoint, 0, 1, fakegpu.LaunchFailed)
			g.Fail(get, 1, 2, fakegpu.InvalidValue)
		}, errs.Device, []string{"does not know its state"}, "end the process", device.ProcessLocked},
		"busy": {func(g *fakegpu.GPU) { g.Busy(pid, 5) }, errs.Device, []string{"did not end within 1s", "runs on as before"},
			"--timeout", device.ProcessRunning},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fakegpu.Options{}, usual())
			c.fail(r.g)
			_, err := r.suspend(t.Context(), process.SuspendOptions{Timeout: time.Second})
			if !errs.Is(err, c.kind) || !says(err, c.texts...) || !strings.Contains(errs.FixOf(err), c.fix) {
				t.Errorf("%v", err)
			}
			r.state(c.state)
			if c.state != device.ProcessFailed {
				r.content()
			}
			if c.state == device.ProcessFailed {
				if _, err := r.suspend(t.Context(), process.SuspendOptions{}); !errs.Is(err, errs.Device) ||
					!says(err, "given it up") {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

func TestFailuresOfResume(t *testing.T) {
	for name, c := range map[string]struct {
		fail  func(g *fakegpu.GPU)
		texts []string
		fix   string
		state device.ProcessState
	}{
		"restore": {fakegpu.FailingCall("cuCheckpointProcessRestore", 0, fakegpu.OutOfMemory),
			[]string{"OUT_OF_MEMORY", "suspended as before"}, "nvidia-smi", device.ProcessSuspended},
		"unlock": {fakegpu.FailingCall("cuCheckpointProcessUnlock", 0, fakegpu.LaunchFailed),
			[]string{"it is locked"}, "process resume 4242", device.ProcessLocked},
		"broken": {func(g *fakegpu.GPU) {
			g.Breaks(pid)
			g.Fail("cuCheckpointProcessRestore", 0, 1, fakegpu.LaunchFailed)
		}, []string{"state failed"}, "end the process", device.ProcessFailed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fakegpu.Options{}, usual())
			if _, err := r.suspend(t.Context(), process.SuspendOptions{}); err != nil {
				t.Fatal(err)
			}
			c.fail(r.g)
			_, err := r.resume(t.Context(), process.ResumeOptions{})
			if err == nil || !says(err, c.texts...) || !strings.Contains(errs.FixOf(err), c.fix) {
				t.Errorf("%v", err)
			}
			r.state(c.state)
			if c.state == device.ProcessFailed {
				return
			}
			if _, err := r.resume(t.Context(), process.ResumeOptions{}); err != nil {
				t.Errorf("again: %v", err)
			}
			r.state(device.ProcessRunning)
			r.content()
		})
	}
}

// An interrupt during a call of the driver takes effect after it, and the process is put back.
func TestInterrupts(t *testing.T) {
	for _, c := range []struct {
		held, text string
		resume     bool
		state      device.ProcessState
	}{
		{"cuCheckpointProcessLock", "runs on as before", false, device.ProcessRunning},
		{"cuCheckpointProcessCheckpoint", "runs on as before", false, device.ProcessRunning},
		{"cuCheckpointProcessRestore", "suspended as before", true, device.ProcessSuspended},
	} {
		t.Run(c.held, func(t *testing.T) {
			r := newRig(t, fakegpu.Options{}, usual())
			if c.resume {
				if _, err := r.suspend(t.Context(), process.SuspendOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("SIGINT")
			r.g.HoldCall(c.held)
			done := make(chan error)
			go func() {
				var err error
				if c.resume {
					_, err = r.resume(ctx, process.ResumeOptions{})
				} else {
					_, err = r.suspend(ctx, process.SuspendOptions{})
				}
				done <- err
			}()
			r.g.AwaitHeld()
			cancel(cause)
			r.g.ReleaseCall()
			if err := <-done; !errs.Is(err, errs.Cancelled) || !errors.Is(err, cause) || !says(err, c.text) {
				t.Errorf("%v", err)
			}
			r.state(c.state)
		})
	}
	r := newRig(t, fakegpu.Options{}, usual())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.suspend(ctx, process.SuspendOptions{}); !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v", err)
	}
	r.state(device.ProcessRunning)
}

// In a container, NVML knows the process by another id, or tells no memory.
func TestMemoryThatIsNotTold(t *testing.T) {
	r := newRig(t, fakegpu.Options{}, usual())
	r.g.HideMemory()
	rep, err := r.suspend(t.Context(), process.SuspendOptions{})
	if err != nil || rep.GPUBytes != held || rep.GPUsBefore[0].Bytes != -1 {
		t.Errorf("%+v, %v", rep, err)
	}
	small := usual()
	small.meminfo = "MemAvailable: 2048 kB\n"
	r = newRig(t, fakegpu.Options{}, small)
	r.g.HideMemory()
	rep, err = r.suspend(t.Context(), process.SuspendOptions{})
	if err != nil || len(rep.Obstacles) != 1 || rep.Obstacles[0].Blocks {
		t.Errorf("%+v, %v", rep, err)
	}
	r = newRig(t, fakegpu.Options{NVMLInit: 9}, usual())
	rep, err = r.suspend(t.Context(), process.SuspendOptions{})
	if err != nil || rep.GPUsBefore != nil || len(rep.Notes) != 2 {
		t.Errorf("%+v, %v", rep, err)
	}
}

func newSystem(t *testing.T, g *fakegpu.GPU) *boot.System {
	t.Helper()
	sys, err := boot.New(boot.Options{Devices: g.Options(device.Require)})
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

// With a driver of CUDA 13.4, the GPU memory goes to a file and comes back from it.
func TestSuspendToAFile(t *testing.T) {
	r := newRig(t, fakegpu.Options{DriverVersion: 13040, Devices: 2}, usual())
	second := r.g.Process(pid, 1, 1<<20+512)
	for i := range second {
		second[i] = byte(i * 7)
	}
	want := bytes.Clone(second)
	sys := newSystem(t, r.g)
	file := filepath.Join(t.TempDir(), "gpu.safetensors")
	rep, err := r.suspend(t.Context(), process.SuspendOptions{To: file, System: sys})
	if err != nil {
		t.Fatal(err)
	}
	r.state(device.ProcessSuspended)
	if rep.Storage != file || rep.GPUBytes != held+1<<20+512 {
		t.Errorf("%+v", rep)
	}
	if _, err := r.resume(t.Context(), process.ResumeOptions{}); !says(err, "suspended as before") {
		t.Errorf("without its file: %v", err)
	}
	// A flipped bit is found, and the process stays suspended.
	flip := func(at int64) {
		t.Helper()
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 16
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	flip(held)
	if _, err := r.resume(t.Context(), process.ResumeOptions{From: file, System: sys}); !errs.Is(err, errs.Corrupt) ||
		!says(err, "suspended as before") {
		t.Errorf("a flipped bit: %v", err)
	}
	r.state(device.ProcessSuspended)
	flip(held)
	if rep, err = r.resume(t.Context(), process.ResumeOptions{From: file, System: sys}); err != nil ||
		rep.Storage != file {
		t.Fatalf("%+v, %v", rep, err)
	}
	r.state(device.ProcessRunning)
	r.content()
	if !bytes.Equal(r.g.ProcessMemory(pid, 1), want) {
		t.Error("the second GPU has other content")
	}
}

func TestFailuresOfSuspendToAFile(t *testing.T) {
	full := "/dev/full/x"
	for name, c := range map[string]struct {
		to    string
		fail  func(g *fakegpu.GPU)
		texts []string
		state device.ProcessState
	}{
		"no place": {full, func(*fakegpu.GPU) {}, []string{"runs on as before"}, device.ProcessRunning},
		"map": {"", fakegpu.FailingCall("cuCheckpointProcessCheckpoint", 0, fakegpu.InvalidValue),
			[]string{"runs on as before"}, device.ProcessRunning},
		"copy": {"", fakegpu.FailingCopy(2, fakegpu.LaunchTimeout, false),
			[]string{"LAUNCH_TIMEOUT", "runs on as before"}, device.ProcessRunning},
		"no rescue": {"", func(g *fakegpu.GPU) { g.Fail("cuMemcpyDtoHAsync_v2", 1, 100, fakegpu.LaunchFailed) },
			[]string{"is lost"}, device.ProcessSuspended},
		"completion": {"", fakegpu.FailingCall("cuCheckpointOperationComplete", 0, fakegpu.LaunchFailed),
			[]string{"could not be put back"}, device.ProcessLocked},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, fakegpu.Options{DriverVersion: 13040}, usual())
			sys := newSystem(t, r.g)
			to := c.to
			if to == "" {
				to = filepath.Join(t.TempDir(), "gpu.safetensors")
			}
			c.fail(r.g)
			_, err := r.suspend(t.Context(), process.SuspendOptions{To: to, System: sys})
			if !says(err, c.texts...) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(to); err == nil && name != "completion" {
				t.Error("a file is left")
			}
			r.state(c.state)
			if c.state == device.ProcessRunning {
				r.content()
			}
		})
	}
	old := newRig(t, fakegpu.Options{}, usual())
	if _, err := old.suspend(t.Context(), process.SuspendOptions{To: full}); !errs.Is(err, errs.Unsupported) ||
		!says(err, "13.4") {
		t.Errorf("an old driver: %v", err)
	}
	old.state(device.ProcessRunning)
}

// The file of another process is refused before the GPU is touched.
func TestResumeFromAnotherProcess(t *testing.T) {
	r := newRig(t, fakegpu.Options{DriverVersion: 13040}, usual())
	sys := newSystem(t, r.g)
	file := filepath.Join(t.TempDir(), "gpu.safetensors")
	if _, err := r.suspend(t.Context(), process.SuspendOptions{To: file, System: sys}); err != nil {
		t.Fatal(err)
	}
	other := usual().tree(t)
	stat := filepath.Join(other.Proc, fmt.Sprint(pid), "stat")
	text, err := os.ReadFile(stat)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stat, bytes.Replace(text, []byte("123456"), []byte("123457"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := process.Resume(t.Context(), r.d, pid,
		process.ResumeOptions{From: file, System: sys, Tree: other}); !errs.Is(err, errs.Invalid) ||
		!says(err, "another process") {
		t.Errorf("%v", err)
	}
	r.state(device.ProcessSuspended)
	if _, err := r.resume(t.Context(), process.ResumeOptions{From: file, System: sys}); err != nil {
		t.Error(err)
	}
	r.content()
}
