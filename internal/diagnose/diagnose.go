// SPDX-License-Identifier: Apache-2.0

// Package diagnose runs a command beside the meters of the machine and says what held the command back.
//
// While the command runs, a watch looks at its processes many times a second: what their threads wait for, and whether
// the network has taken their bytes. The meters of the machine add disks, links and GPUs. When the command has ended,
// package bottleneck judges all of it. The command's own input, output, signals and exit code stay as they are.
package diagnose

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/blocklatency"
	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/meters"
)

// Config says what to run and what to read meanwhile.
type Config struct {
	// Command is the program and its arguments.
	Command []string
	// Stdin, Stdout and Stderr are those of the command.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Meters reads the machine. Run reads it, and does not close it.
	Meters *meters.Collector
	// Activity reads how much of each GPU computes; nil without DCGM. Blocks counts latencies of block devices; nil where
	// the kernel does not let it. Run closes neither.
	Activity device.ActivityReader
	Blocks   *blocklatency.Recorder
	// Signals are passed on to the command. A nil channel passes none on.
	Signals <-chan os.Signal
	// Notes say what is not measured and why. The Result repeats these notes.
	Notes []string
}

// Result is the answer of Run.
type Result struct {
	Command []string `json:"command"`
	// ExitCode is the exit code of the command, or 128 plus the number of the signal that ended it, as shells count.
	ExitCode int     `json:"exit_code"`
	Signal   string  `json:"signal,omitempty"`
	Seconds  float64 `json:"seconds"`

	bottleneck.Verdict

	// Latencies has the latencies of all block devices of the machine while the command ran.
	Latencies []blocklatency.Histogram `json:"latencies,omitempty"`
	// Activity has the mean activity of each GPU while the command ran.
	Activity []device.GPUActivity `json:"activity,omitempty"`
	// Notes say what was not measured and why.
	Notes []string `json:"notes,omitempty"`
}

// Times between two looks at the command, and between two samples of the machine's meters.
const (
	leastPause  = 20 * time.Millisecond
	mostPause   = 200 * time.Millisecond
	samplePause = 500 * time.Millisecond
	// ownShare is the share of the time that looks may take, unless they would become too rare.
	ownShare = 0.03
)

// Run runs the command until it ends, and judges what held it back. The end of ctx does not end the command: a signal
// does, which Run passes on.
//
// Run fails with kind NotFound or Permission if the command cannot be started. An exit code other than 0 is no error.
func Run(ctx context.Context, c Config) (Result, error) {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return Result{}, errs.New(errs.Invalid, "diagnose", "", "no command given; expected a program and its arguments")
	}
	adopt(true)
	defer adopt(false)
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	before := procfs{"/proc"}.children(os.Getpid())
	c.Meters.Read(ctx) // the counters before the command
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return Result{}, startError(c.Command[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	o := &observer{Config: c, watch: newWatch("/proc", cmd.Process.Pid, os.Getpid())}
	for _, pid := range before {
		o.watch.others[pid] = true
	}
	waited := o.until(ctx, ended, cmd.Process)
	seconds := time.Since(start).Seconds()
	var exit *exec.ExitError
	if waited != nil && !errors.As(waited, &exit) {
		return Result{}, errs.Wrap("wait for", c.Command[0], waited)
	}
	r := Result{Command: c.Command, Seconds: seconds, Notes: slices.Clone(c.Notes)}
	r.ExitCode, r.Signal = exitCode(cmd.ProcessState)
	o.judge(&r, cmd.ProcessState)
	return r, nil
}

// adopt makes this process the parent of processes of the command whose own parent has ended, so that they are found.
// Kernels that cannot do this leave such processes out.
func adopt(on bool) {
	value := uintptr(0)
	if on {
		value = 1
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)
}

func startError(name string, err error) error {
	out := &errs.Error{Kind: errs.KindOf(err), Op: "run", Name: name, Err: errs.WithoutPath(err)}
	var failed *exec.Error
	if errors.As(err, &failed) {
		out.Err = failed.Err
	}
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		out.Kind, out.Fix = errs.NotFound, "check the name of the program, or give its path"
	case errors.Is(err, os.ErrPermission):
		out.Kind, out.Fix = errs.Permission, "check that the file may be executed"
	}
	return out
}

// exitCode returns the exit code as shells count it, and the name of the signal that ended the command.
func exitCode(s *os.ProcessState) (int, string) {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), unix.SignalName(status.Signal())
	}
	return s.ExitCode(), ""
}

// usable returns the number of processors that this process, and so the command, may use.
func usable() float64 {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil && set.Count() > 0 {
		return float64(set.Count())
	}
	return float64(runtime.NumCPU())
}
