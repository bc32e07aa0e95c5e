// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"
)

// World provides what a command needs besides files and devices: arguments, streams, environment, clock and signals.
// A test uses its own World to run a whole command inside the test's process.
type World struct {
	// Args are the arguments after the program's name.
	Args []string

	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// StdoutWidth returns the width in columns of the terminal behind Stdout. If StdoutWidth is nil or returns 0,
	// Stdout is no terminal.
	StdoutWidth func() int
	// StderrIsTerminal reports whether a line on Stderr can be redrawn in place.
	StderrIsTerminal bool

	// TerminalWidth returns the current width in columns of the terminal behind Stderr. If TerminalWidth is nil or
	// returns 0, the width is unknown.
	TerminalWidth func() int

	// Env returns the value of an environment variable, or "" if it is not set.
	Env func(name string) string
	// Environ lists all environment variables as NAME=VALUE, for warnings about unknown variables. If Environ is nil,
	// no command warns about unknown variables.
	Environ func() []string
	// Now returns the time for progress lines. Reports use the clock of the transfer engine instead of Now.
	Now func() time.Time

	// Notify delivers interrupts to the channel c until the returned function is called. After the returned function
	// was called, an interrupt ends the process at once.
	Notify func(c chan<- os.Signal) (stop func())

	// NotifyReload delivers SIGHUP to the channel c until the returned function is called. If NotifyReload is nil,
	// SIGHUP does not reload the TLS certificate.
	NotifyReload func(c chan<- os.Signal) (stop func())

	// NotifyAll delivers the signals that people and programs send to a command to the channel c until the returned
	// function is called. If NotifyAll is nil, diagnose passes no signals on.
	NotifyAll func(c chan<- os.Signal) (stop func())

	// Command returns a command that runs this program with the given arguments until ctx ends. If Command is nil, no
	// process can be started.
	Command func(ctx context.Context, args ...string) *exec.Cmd

	// CUDALibrary, NVMLLibrary, CuFileLibrary and DCGMLibrary, if not empty, replace the usual names of the libraries.
	// Tests set them.
	CUDALibrary, NVMLLibrary, CuFileLibrary, DCGMLibrary string

	// Progress, if not nil, receives the progress in bytes of a load, generate or inspect --checksum. Progress is
	// called once with done 0 before the first byte, and then repeatedly.
	Progress func(done, total int64)
}

// Process returns a World with the real arguments, streams, environment, clock and signals of this process.
func Process() World {
	return World{
		Args:   os.Args[1:],
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,

		StdoutWidth:      func() int { return widthOf(os.Stdout) },
		StderrIsTerminal: term.IsTerminal(int(os.Stderr.Fd())),
		TerminalWidth:    func() int { return widthOf(os.Stderr) },

		Env:     os.Getenv,
		Environ: os.Environ,
		Now:     time.Now,
		Notify: func(c chan<- os.Signal) func() {
			signal.Notify(c, os.Interrupt, syscall.SIGTERM)
			return func() { signal.Stop(c) }
		},
		NotifyReload: func(c chan<- os.Signal) func() {
			signal.Notify(c, syscall.SIGHUP)
			return func() { signal.Stop(c) }
		},
		NotifyAll: func(c chan<- os.Signal) func() {
			signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
			return func() { signal.Stop(c) }
		},
		Command: ownProcess(),
	}
}

// widthOf returns the width in columns of the terminal behind f, or 0 if f is not a terminal.
func widthOf(f *os.File) int {
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// ownProcess returns a function that starts this program again, or nil if the
// path of the program is unknown.
func ownProcess() func(context.Context, ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return func(ctx context.Context, args ...string) *exec.Cmd { return exec.CommandContext(ctx, self, args...) }
}
