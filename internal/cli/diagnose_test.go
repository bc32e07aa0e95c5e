// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/diagnose"
)

// The command's streams and exit code are its own, and the verdict is on stderr.
func TestDiagnoseLeavesTheCommandAsItIs(t *testing.T) {
	r := run(t, []string{"diagnose", "--", "sh", "-c", "cat; echo to stderr >&2; exit 7", "--json"},
		func(w *World) { w.Stdin = strings.NewReader("what comes in\n") })
	if r.code != 7 || r.out != "what comes in\n" || !strings.Contains(r.stderr, "to stderr\n") {
		t.Errorf("%d, %q, %q", r.code, r.out, r.stderr)
	}
	for _, part := range []string{"nebulaio: no clear verdict: ", "\n  gpu ", "\n  network ", "\n  storage ", "\n  cpu ",
		"\n  next      step 1 of 10, establish a baseline: ", "with exit code 7\n"} {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("no %q in %q", part, r.stderr)
		}
	}
}

func TestDiagnosePrintsJSON(t *testing.T) {
	r := run(t, []string{"diagnose", "--json", "--no-gpu", "sh", "-c", "echo text; kill -KILL $$"})
	if r.code != 137 || !strings.Contains(r.stderr, "text\n") || strings.Contains(r.stderr, "nebulaio:") {
		t.Errorf("%d, %q", r.code, r.stderr)
	}
	got := decode[diagnose.Result](t, r)
	if got.ExitCode != 137 || got.Signal != "SIGKILL" || len(got.Figures) != 4 || got.Step.Number != 1 ||
		got.Seconds <= 0 ||
		len(got.Command) != 3 {
		t.Errorf("%+v", got)
	}
}

func TestDiagnoseRefusesWhatItCannotRun(t *testing.T) {
	run(t, []string{"diagnose"}).want(t, 2, "no command given; expected -- COMMAND")
	run(t, []string{"diagnose", "--", ""}).want(t, 2, "no command given")
	run(t, []string{"diagnose", "--wrong", "--", "true"}).want(t, 2, "unknown flag --wrong")
	run(t, []string{"diagnose", "--", "no-such-program-anywhere"}).want(t, 3, "no-such-program-anywhere", "check the name")
}

// DCGM is asked where there are GPUs, and its absence is a note with a fix.
func TestDiagnoseNotesWhatItDoesNotMeasure(t *testing.T) {
	gpu := fakegpu.Build(t, fakegpu.Options{})
	gpu.Steer(fakegpu.Meters{})
	r := run(t, []string{"diagnose", "--json", "--", "true"}, func(w *World) {
		w.NVMLLibrary, w.DCGMLibrary = gpu.NVML, "/no/such/libdcgm.so"
	})
	got := decode[diagnose.Result](t, r)
	text := strings.Join(got.Notes, "\n")
	if r.code != 0 || !strings.Contains(text, "activity of GPUs: not measured: libdcgm was not found (fix: install") {
		t.Errorf("%d: %q", r.code, got.Notes)
	}
}

// A signal to nebulaio reaches the command, and nebulaio ends when the command does.
func TestDiagnosePassesSignalsOn(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), program, "diagnose", "--", "sh", "-c",
		`trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatal(line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil || string(rest) != "got it\n" {
		t.Errorf("%q, %v", rest, err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 ||
		!strings.Contains(said.String(), "exit code 5") {
		t.Errorf("%v: %s", err, said.String())
	}
}
