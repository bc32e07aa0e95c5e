// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/units"
)

// interrupter sends a signal to a command from its progress.
type interrupter struct {
	signals chan<- os.Signal
	stopped chan struct{} // closed once the command has been cancelled
	once    sync.Once
}

// interruptWhen sends s when progress first meets the condition, and returns
// to the command only when its context has ended.
func interruptWhen(s os.Signal, when func(done int64) bool) func(*World) {
	i := &interrupter{stopped: make(chan struct{})}
	return func(w *World) {
		w.Notify = func(c chan<- os.Signal) func() {
			i.signals = c
			return func() { i.once.Do(func() { close(i.stopped) }) }
		}
		w.Progress = func(done, _ int64) {
			select {
			case <-i.stopped:
				return
			default:
			}
			if when(done) {
				i.signals <- s
				<-i.stopped
			}
		}
	}
}

func atStart(int64) bool       { return true }
func underWay(done int64) bool { return done > 0 }

func TestInterruptLoad(t *testing.T) {
	path := sparseModel(t, 64*units.MiB)
	args := []string{"load", path, "--device", "host"}
	run(t, args, interruptWhen(os.Interrupt, atStart)).want(t, 130, "nebulaio: load "+path+": transfer to host after ",
		": interrupted by SIGINT\n")

	many := append(args, "--repeat", "1000000")
	r := run(t, many, interruptWhen(os.Interrupt, underWay))
	r.want(t, 130, " of 1000000 of "+path+": ", "interrupted by SIGINT\n")

	r = run(t, append(many, "--json"), interruptWhen(syscall.SIGTERM, underWay))
	r.want(t, 130, "interrupted by SIGTERM\n")
	if e := decode[errorJSON](t, r).Error; e.Kind != "cancelled" ||
		!strings.HasSuffix(e.Message, "interrupted by SIGTERM") {
		t.Errorf("%+v", e)
	}

	r = run(t, many, interruptWhen(os.Interrupt, underWay), terminal)
	if last := r.stderr[strings.LastIndexByte(r.stderr, '\r')+1:]; r.code != 130 ||
		!strings.HasPrefix(last, "nebulaio: load ") {
		t.Errorf("exit code %d; the message is not on a line of its own: %q", r.code, r.stderr)
	}
}

func TestInterruptGenerate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "big.safetensors")
	r := run(t, []string{"generate", "--shapes", "qwen3-0.6b", "--out", path}, interruptWhen(os.Interrupt, underWay))
	r.want(t, 130, path, "interrupted by SIGINT")
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestTruncatedDuringLoad cuts the file after its header was read: before the
// first byte, and while bytes move.
func TestTruncatedDuringLoad(t *testing.T) {
	cutWhen := func(path string, when func(done, total int64) bool) func(*World) {
		return func(w *World) {
			w.Progress = func(done, total int64) {
				if when(done, total) {
					if err := os.Truncate(path, total/2); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
	for _, route := range []string{"auto", "buffered", "direct"} {
		path := sparseModel(t, 64*units.MiB)
		r := run(t, []string{"load", path, "--device", "host", "--route", route}, cutWhen(path, func(int64, int64) bool {
			return true
		}))
		if r.code == 9 && route == "direct" {
			t.Log("no direct reads here: " + r.stderr)
			continue
		}
		r.want(t, 6, "read "+path+": ", "33554432", "67112960", "\n  fix: ")
	}

	// Small reads by one thread take longer than the progress interval. Where
	// a load is faster all the same, the next one is tried.
	path := sparseModel(t, units.GiB)
	r := run(t, []string{"load", path, "--device", "host", "--route", "buffered", "--workers", "1", "--max-transfer-size",
		"64KiB", "--repeat", "100"},
		cutWhen(path, func(done, total int64) bool { return done > 0 && done < total }))
	r.want(t, 6, "read "+path+": ", "\n  fix: ")
}

// TestBinary runs the built program as a user does.
func TestBinary(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"version"}, 0},
		{[]string{"load", tinyModel(t), "--device", "host"}, 0},
		{[]string{"load", "--nope"}, 2},
		{[]string{"load", "/no/such/model"}, 3},
		{[]string{"inspect", writeFile(t, "bad.safetensors", []byte("short"))}, 5},
	} {
		cmd := exec.Command(program, c.args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != c.code {
			t.Errorf("%v: exit code %d, want %d\n%s", c.args, code, c.code, out)
		}
	}
}

// TestInterruptBinary sends real signals to the built program in the middle of
// its loads.
func TestInterruptBinary(t *testing.T) {
	path := sparseModel(t, 256*units.MiB)
	for s, name := range map[syscall.Signal]string{syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM"} {
		var stderr bytes.Buffer
		cmd := exec.Command(program, "load", path, "--device", "host", "--repeat", "100000")
		cmd.Stderr = &stderr
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(stdout)
		first, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(first, "load 1 of 100000: 256.00 MiB to host in ") {
			t.Errorf("first line %q: %v", first, err)
		}
		if err := cmd.Process.Signal(s); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait() // the exit code tells
		if code := cmd.ProcessState.ExitCode(); code != 130 {
			t.Errorf("exit code %d, want 130", code)
		}
		last := stderr.String()
		last = last[strings.LastIndexByte(strings.TrimSuffix(last, "\n"), '\n')+1:]
		if !strings.HasPrefix(last, "nebulaio: load ") || !strings.HasSuffix(last, "interrupted by "+name+"\n") {
			t.Errorf("stderr %q", stderr.String())
		}
	}
}

// TestInterruptWhileWaitingForInput: nobody types the secret, and Ctrl-C ends
// the command all the same.
func TestInterruptWhileWaitingForInput(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	args := []string{"user", "add", "alice", "--secret", "-", "--data", filepath.Join(t.TempDir(), "none")}
	run(t, args, func(world *World) {
		world.Stdin = r
		world.Notify = func(c chan<- os.Signal) func() {
			c <- os.Interrupt
			return func() {}
		}
	}).want(t, 130, "interrupted by SIGINT")
}
