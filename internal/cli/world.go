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

// World is all that a command touches outside of files and devices, so that a
// test runs a whole command inside its own process.
type World struct {
	// Args are the arguments after the program's name.
	Args []string

	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// StdoutWidth is how many columns the terminal behind Stdout has; nil or 0: it is none.
	StdoutWidth func() int
	// StderrIsTerminal says that a line on Stderr can be rewritten in place.
	StderrIsTerminal bool

	// TerminalWidth is how many columns that terminal has at the moment; nil or 0: not known.
	TerminalWidth func() int

	// Env looks up an environment variable; not set reads as empty.
	Env func(name string) string
	// Environ lists all variables as NAME=VALUE, to warn of unknown ones; nil: nothing is warned of.
	Environ func() []string
	// Now is the clock of progress lines. Reports are timed by the engine.
	Now func() time.Time

	// Notify delivers interrupts to c until stop is called; afterwards an
	// interrupt ends the process at once.
	Notify func(c chan<- os.Signal) (stop func())

	// NotifyReload delivers SIGHUP to c until stop is called; nil where nobody asks for that.
	NotifyReload func(c chan<- os.Signal) (stop func())

	// Command makes a process of this same program with those arguments, which
	// ends with ctx; nil where there is none to start.
	Command func(ctx context.Context, args ...string) *exec.Cmd

	// CUDALibrary, NVMLLibrary and CuFileLibrary replace the usual library
	// names; for tests.
	CUDALibrary, NVMLLibrary, CuFileLibrary string

	// Progress, where not nil, also sees the progress of every load, generate
	// and inspect --checksum: once with done 0 before the first byte, then as it goes.
	Progress func(done, total int64)
}

// Process is the world of this process.
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
		Command: ownProcess(),
	}
}

// widthOf is how many columns the terminal behind f has; 0 where f is none.
func widthOf(f *os.File) int {
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// ownProcess starts this program again; nil where the system does not tell
// where it is.
func ownProcess() func(context.Context, ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return func(ctx context.Context, args ...string) *exec.Cmd { return exec.CommandContext(ctx, self, args...) }
}
