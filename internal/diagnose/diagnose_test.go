// SPDX-License-Identifier: Apache-2.0

package diagnose_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/open"
	"github.com/nebulaio/nebulaio/internal/diagnose"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/meters"
	"github.com/nebulaio/nebulaio/test/effort"
)

// machine is this machine, with a fake GPU.
type machine struct {
	meters *meters.Collector
	state  string // of the fake GPU
}

func newMachine(t *testing.T) machine {
	t.Helper()
	gpu := fakegpu.Build(t, fakegpu.Options{})
	gpu.Steer(fakegpu.Meters{})
	gauge, err := open.Gauge(open.Options{NVMLLibraries: []string{gpu.NVML}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := meters.Open(meters.Options{GPUs: gauge})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := gauge.Close(); err != nil {
			t.Error(err)
		}
	})
	return machine{c, filepath.Join(filepath.Dir(gpu.NVML), "state")}
}

// madeUpCommand returns this program as a made-up command.
func madeUpCommand(t *testing.T, name, seconds string, args ...string) []string {
	t.Helper()
	t.Setenv(madeUp, name)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // a second of sleep at the end would be part of the command
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{self, seconds}, args...)
}

// run diagnoses a command and expects that it succeeds.
func (m machine) run(t *testing.T, command ...string) diagnose.Result {
	t.Helper()
	var out bytes.Buffer
	r, err := diagnose.Run(t.Context(), diagnose.Config{Command: command, Stdout: &out, Stderr: &out, Meters: m.meters})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 0 {
		t.Fatalf("exit code %d of %q: %s", r.ExitCode, command, out.String())
	}
	return r
}

// runs returns how many times each made-up command runs: once, or NEBULAIO_TEST_DIAGNOSE_RUNS times.
func runs(t *testing.T) int {
	t.Helper()
	return effort.Number(t, "NEBULAIO_TEST_DIAGNOSE_RUNS", 1)
}

// Each of the made-up commands has its verdict in every run.
func TestMadeUpCommandsHaveTheirVerdict(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)       // the detector is a load of its own
	const short, long = "1.3", "8" // seconds; torch takes a while to start
	for _, c := range []struct {
		name  string
		bound bottleneck.Bound
		step  int
		make  func(t *testing.T, m machine) []string
	}{
		{"compute", bottleneck.Compute, 3, func(t *testing.T, m machine) []string {
			return madeUpCommand(t, "compute", short, m.state)
		}},
		{"copy", bottleneck.Copy, 5, func(t *testing.T, m machine) []string {
			return madeUpCommand(t, "copy", short, m.state)
		}},
		{"storage", bottleneck.Storage, 5, func(t *testing.T, _ machine) []string {
			return madeUpCommand(t, "storage", short, coldFile(t))
		}},
		{"cpu", bottleneck.CPU, 5, func(t *testing.T, _ machine) []string {
			return madeUpCommand(t, "cpu", short)
		}},
		{"gloo ranks over a limited network namespace", bottleneck.Communication, 4, func(t *testing.T, _ machine) []string {
			return append(limitedNetwork(t), torchPython(t), filepath.Join("testdata", "gloo.py"), long)
		}},
		{"ranks over a limited network namespace", bottleneck.Communication, 4, func(t *testing.T, _ machine) []string {
			return append(limitedNetwork(t), madeUpCommand(t, "ranks", short)...)
		}},
		{"nothing", bottleneck.Nothing, 2, func(t *testing.T, _ machine) []string {
			return madeUpCommand(t, "nothing", short)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			command := c.make(t, m)
			for n := range runs(t) {
				r := m.run(t, command...)
				if r.Bound != c.bound || r.Step.Number != c.step || len(r.Figures) != 4 || len(r.Next) == 0 || r.Seconds <= 0 {
					t.Errorf("run %d: %s (%s), step %d: %s\n%s", n+1, r.Bound, r.Cause, r.Step.Number, r.Why, lines(r))
				} else {
					t.Logf("run %d: %s: %s", n+1, r.Bound, r.Why)
				}
			}
		})
	}
}

func lines(r diagnose.Result) string {
	var b strings.Builder
	for _, f := range r.Figures {
		fmt.Fprintf(&b, "  %s %.2f %s\n", f.Name, f.Share, f.Text)
	}
	return b.String()
}

// coldFile returns a file that can be read past the page cache. It skips the test with the reason if there is none.
func coldFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "samples")
	if err := os.WriteFile(name, make([]byte, fileBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		t.Skip("the file system of the temporary folder does not read past the page cache; set TMPDIR to a disk")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Fsync(fd); err != nil {
		t.Fatal(err)
	}
	return name
}

// limitedNetwork returns the beginning of a command that runs in its own network namespace, whose only interface
// carries 80 Mbit/s. It skips the test with the reason where this is not allowed.
func limitedNetwork(t *testing.T) []string {
	t.Helper()
	const limit = "ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 80mbit burst 64kb latency 400ms"
	var why string
	for _, how := range [][]string{{"--net"}, {"--user", "--map-root-user", "--net"}} {
		args := append(append([]string{}, how...), "sh", "-c", limit)
		out, err := exec.CommandContext(t.Context(), "unshare", args...).CombinedOutput()
		if err == nil {
			return append(append([]string{"unshare"}, how...), "sh", "-c", limit+` && exec "$@"`, "sh")
		}
		why = fmt.Sprintf("%v: %s", err, out)
	}
	t.Skipf("this machine does not let the test limit a network namespace: %s", why)
	return nil
}

// torchPython returns a Python with torch. It skips the test if there is none.
func torchPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("NEBULAIO_TEST_TORCH_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c",
		"import torch.distributed as d; assert d.is_gloo_available()").
		CombinedOutput(); err != nil {
		t.Skipf("%s has no torch with gloo: %v: %.200s (set NEBULAIO_TEST_TORCH_PYTHON)", python, err, out)
	}
	return python
}

func TestTheExitCodeIsTheCommands(t *testing.T) {
	m := newMachine(t)
	r, err := diagnose.Run(t.Context(), diagnose.Config{Command: madeUpCommand(t, "end", "60", "7"), Meters: m.meters})
	if err != nil || r.ExitCode != 7 || r.Signal != "" || r.Bound != bottleneck.Unclear || r.Step.Number != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// notify is the output of a command that tells when it is ready for signals.
type notify struct{ ready chan struct{} }

func (n notify) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("ready")) {
		close(n.ready)
	}
	return len(p), nil
}

// A signal reaches the command, also after the context has ended, and the signal that ends the command is reported.
func TestSignalsArePassedOn(t *testing.T) {
	m := newMachine(t)
	signals := make(chan os.Signal, 1)
	out := notify{make(chan struct{})}
	go func() {
		<-out.ready
		signals <- syscall.SIGUSR1
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := diagnose.Run(ctx, diagnose.Config{Command: madeUpCommand(t, "end", "60", "signal"), Stdout: out,
		Meters: m.meters, Signals: signals, Notes: []string{"a note"}})
	if err != nil || r.ExitCode != 128+int(syscall.SIGTERM) || r.Signal != "SIGTERM" || len(r.Notes) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestACommandThatCannotStartIsRefused(t *testing.T) {
	m := newMachine(t)
	file := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command []string
		kind    errs.Kind
		part    string
	}{
		{nil, errs.Invalid, "no command given"},
		{[]string{""}, errs.Invalid, "no command given"},
		{[]string{"no-such-program-anywhere"}, errs.NotFound, "no-such-program-anywhere"},
		{[]string{"/no/such/program"}, errs.NotFound, "/no/such/program"},
		{[]string{file}, errs.Permission, file},
	} {
		_, err := diagnose.Run(t.Context(), diagnose.Config{Command: c.command, Meters: m.meters})
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%q: %v, expected kind %v", c.command, err, c.kind)
		}
	}
}

// activity is a fake DCGM.
type activity struct {
	values []device.GPUActivity
	err    error
}

func (a activity) Activity() ([]device.GPUActivity, error) { return a.values, a.err }
func (a activity) Close() error                            { return nil }

// Kernels that occupy a GPU without using its multiprocessors are seen by DCGM alone.
func TestTheActivityOfGPUsCounts(t *testing.T) {
	m := newMachine(t)
	command := madeUpCommand(t, "compute", "1.2", m.state)
	run := func(a activity) diagnose.Result {
		r, err := diagnose.Run(t.Context(), diagnose.Config{Command: command, Meters: m.meters, Activity: a})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	few := device.GPUActivity{Index: 0, SM: 0.1, Tensor: -1, Memory: 0.2, NVLinkSent: 3e9}
	r := run(activity{values: []device.GPUActivity{few}})
	if len(r.Activity) != 1 || r.Activity[0].SM < 0.0999 || r.Activity[0].SM > 0.1001 || r.Activity[0].Tensor >= 0 ||
		!strings.Contains(r.Why, "10 % of the multiprocessors") {
		t.Errorf("%+v: %s", r.Activity, r.Why)
	}
	r = run(activity{err: errs.New(errs.Unsupported, "use DCGM", "libdcgm.so.4", "the host engine is gone")})
	if r.Bound != bottleneck.Compute || len(r.Notes) != 1 ||
		r.Notes[0] != "activity of GPUs: not measured: the host engine is gone" {
		t.Errorf("%s, %q", r.Bound, r.Notes)
	}
}
