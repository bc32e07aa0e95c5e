// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/doctor"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

// asProgram makes the test binary the program, with libraries of the test.
const asProgram = "NEBULAIO_CLI_TEST_IS_PROGRAM"

func child() int {
	w := Process()
	w.CUDALibrary, w.NVMLLibrary, w.CuFileLibrary = os.Getenv("NEBULAIO_CLI_TEST_CUDA"),
		os.Getenv("NEBULAIO_CLI_TEST_NVML"), os.Getenv("NEBULAIO_CLI_TEST_CUFILE")
	return Main(w)
}

// withGPU gives a command, and the processes it starts, the fake libraries.
func withGPU(g *fakegpu.GPU, cufile string) func(*World) {
	return func(w *World) {
		w.CUDALibrary, w.NVMLLibrary, w.CuFileLibrary = g.CUDA, g.NVML, cufile
		w.Command = func(ctx context.Context, args ...string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, os.Args[0], args...)
			cmd.Env = append(os.Environ(), asProgram+"=1", "NEBULAIO_CLI_TEST_CUDA="+g.CUDA, "NEBULAIO_CLI_TEST_NVML="+g.NVML,
				"NEBULAIO_CLI_TEST_CUFILE="+cufile)
			return cmd
		}
	}
}

func proofOf(t *testing.T, r result) (p *facts.Proof, level doctor.Level) {
	t.Helper()
	var v struct {
		Proof    *facts.Proof
		Findings []doctor.Finding
	}
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Proof == nil {
		t.Fatalf("%v\n%s%s", err, r.out, r.stderr)
	}
	for _, f := range v.Findings {
		if f.ID == "proof.path" {
			level = f.Level
		}
	}
	return v.Proof, level
}

func TestDoctorProvesThePath(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	path := filepath.Join(t.TempDir(), "f.bin")
	if err := os.WriteFile(path, make([]byte, 3<<20+5), 0o600); err != nil {
		t.Fatal(err)
	}
	for route, want := range map[int]doctor.Level{fakegpu.P2P: doctor.Pass, fakegpu.NVFS: doctor.Pass,
		fakegpu.Posix: doctor.Info, fakegpu.Mixed: doctor.Warn} {
		c := g.BuildCuFile(fakegpu.CuFileOptions{Route: route})
		p, level := proofOf(t, run(t, []string{"doctor", path, "--json", "--gpu", "1"}, withGPU(g, c.Path)))
		if !p.Done || p.Error != "" || p.Log != "" || p.Counters.Reads.Total != 16 || p.Counters.ReadBytes != 16<<20 ||
			p.Version != "1.15.1" || p.GPU != 1 || level != want {
			t.Errorf("route %d: %s, %+v", route, level, p)
		}
	}
	c := g.BuildCuFile(fakegpu.CuFileOptions{})
	if r := run(t, []string{"doctor", path}, withGPU(g, c.Path)); !strings.Contains(r.out,
		"\nproof     cuFile read 16 x 1.00 MiB: compat (posix 16, p2p 0, nvfs 0)\n") {
		t.Errorf("%s%s", r.out, r.stderr)
	}
	only := g.BuildCuFile(fakegpu.CuFileOptions{CompatOnly: true})
	if r := run(t, []string{"doctor", path}, withGPU(g, only.Path)); !strings.Contains(r.out,
		"\nproof     cuFile read 16 x 1.00 MiB: compat (posix 16, p2p 0, nvfs 0; counted by nebulaio: only compatibility "+
			"mode is possible here)\n") {
		t.Errorf("%s%s", r.out, r.stderr)
	}
	if r := run(t, []string{"doctor", filepath.Dir(path)}, withGPU(g, c.Path)); !strings.Contains(r.out,
		"\nproof     cuFile read 16 x 1.00 MiB: compat") {
		t.Errorf("a directory:\n%s%s", r.out, r.stderr)
	}
	p, level := proofOf(t, run(t, []string{"doctor", path, "--json", "--no-prove"}, withGPU(g, c.Path)))
	if p.Skipped != "--no-prove was given" || level != doctor.Skip {
		t.Errorf("%s, %+v", level, p)
	}
	out := filepath.Join(t.TempDir(), "c.tar")
	run(t, []string{"doctor", "capture", out, path}, withGPU(g, c.Path)).want(t, 0, "captured")
	if p, _ := proofOf(t, run(t, []string{"doctor", "--root", out, "--json"})); p.Route != "compat" {
		t.Errorf("the capture has %+v", p)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
	g.CheckFreed()
}

func TestDoctorSaysWhyTheProofFailed(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	path := filepath.Join(t.TempDir(), "f.bin")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	try := func(cufile string) (*facts.Proof, doctor.Level) {
		return proofOf(t, run(t, []string{"doctor", path, "--json"}, withGPU(g, cufile)))
	}
	p, level := try(g.BuildCuFile(fakegpu.CuFileOptions{Register: 5027}).Path)
	if p.Done || level != doctor.Unknown || !strings.Contains(p.Error, "CU_FILE_HANDLE_NOT_REGISTERED (5027)") ||
		strings.Contains(p.Error, "fix:") || !strings.Contains(p.Fix, "/run/udev") ||
		p.Log != "cufio-udev:65 udev property not found: ID_FS_USAGE" {
		t.Errorf("%s, %+v", level, p)
	}
	if p, level = try(g.BuildCuFile(fakegpu.CuFileOptions{Crash: true}).Path); level != doctor.Unknown ||
		!strings.Contains(p.Error, "SIGABRT") {
		t.Errorf("a crash: %s, %+v", level, p)
	}
	if p, level = try(g.BuildCuFile(fakegpu.CuFileOptions{
		Without: []string{"cuFileGetStatsL3"}}).Path); level != doctor.Unknown || !p.Done || p.Route != "unknown" ||
		!strings.Contains(p.Error, "cuFileGetStatsL3 is missing") {
		t.Errorf("an older library: %s, %+v", level, p)
	}
	if p, level = try(filepath.Join(t.TempDir(), "libcufile.so.0")); level != doctor.Skip || p.Done ||
		!strings.Contains(p.Skipped, "libcufile.so.0") || !strings.Contains(p.Fix, "install") {
		t.Errorf("no libcufile: %s, %+v", level, p)
	}
	if p, level = try(g.BuildCuFile(fakegpu.CuFileOptions{
		Without: []string{"cuFileRead"}}).Path); level != doctor.Unknown || !strings.Contains(p.Error, "missing cuFileRead") {
		t.Errorf("a stub: %s, %+v", level, p)
	}
}

func TestDoctorProveIsHiddenAndAnswersInJSON(t *testing.T) {
	if r := run(t, []string{"doctor", "--help"}); strings.Contains(r.out, "prove FILE") ||
		!strings.Contains(r.out, "--no-prove") {
		t.Error(r.out)
	}
	run(t, []string{"doctor", "prove"}).want(t, 2, "no path given")
	g := fakegpu.Build(t, fakegpu.Options{})
	c := g.BuildCuFile(fakegpu.CuFileOptions{})
	for _, path := range []string{"/nowhere/at/all", os.DevNull} {
		r := run(t, []string{"doctor", "prove", "--gpu", "0", path}, withGPU(g, c.Path))
		if p := decode[facts.Proof](t, r); r.code != 0 || p.Done || !strings.Contains(p.Error, path) {
			t.Errorf("exit code %d, %+v", r.code, p)
		}
	}
	if p := decode[facts.Proof](t, run(t, []string{"doctor", "prove", "--gpu", "9", "/tmp"},
		withGPU(g, c.Path))); !strings.Contains(p.Error, "cuda:9") {
		t.Errorf("%+v", p)
	}
	c.CheckFreed()
	g.CheckFreed()
}

// TestDoctorIsInterruptedWhileItProves: the process that reads ends with it.
func TestDoctorIsInterruptedWhileItProves(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	c := g.BuildCuFile(fakegpu.CuFileOptions{})
	path := filepath.Join(t.TempDir(), "f.bin")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	signals := make(chan chan<- os.Signal, 1)
	var reading *exec.Cmd
	r := run(t, []string{"doctor", path}, withGPU(g, c.Path), func(w *World) {
		w.Notify = func(c chan<- os.Signal) func() { signals <- c; return func() {} }
		w.Command = func(ctx context.Context, _ ...string) *exec.Cmd {
			(<-signals) <- os.Interrupt
			reading = exec.CommandContext(ctx, "sleep", "1000")
			return reading
		}
	})
	r.want(t, 130, "interrupted by SIGINT")
	if reading == nil || reading.Process != nil && reading.ProcessState == nil {
		t.Error("the process that reads was not waited for")
	}
}
