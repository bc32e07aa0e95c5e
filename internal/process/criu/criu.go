// SPDX-License-Identifier: Apache-2.0

// Package criu runs the program criu, which dumps and restores processes. Package criu speaks criu's image streamer
// protocol: the images go from criu through pipes to the caller, and back, without files in between.
package criu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Program is an installed criu.
type Program struct {
	Path    string
	Version string // such as "4.1.1"
}

// Find returns the criu at a path, or the one in PATH if the path is empty. If there is none, the error is of kind
// Unsupported and says how to install it.
func Find(ctx context.Context, path string) (*Program, error) {
	name := path
	if name == "" {
		name = "criu"
	}
	at, err := exec.LookPath(name)
	if err != nil {
		// criu lies where the PATH of users often does not lead.
		for _, dir := range []string{"/usr/sbin", "/usr/local/sbin"} {
			if at, err = exec.LookPath(filepath.Join(dir, name)); path != "" || err == nil {
				break
			}
		}
	}
	if err != nil {
		return nil, errs.New(errs.Unsupported, "run", name, "the program criu is not installed").
			WithFix("install it: apt install criu, dnf install criu, or see https://criu.org; or name it with --criu")
	}
	out, err := exec.CommandContext(ctx, at, "--version").CombinedOutput()
	if err != nil {
		return nil, &errs.Error{Kind: errs.Unsupported, Op: "run", Name: at + " --version", Msg: firstLine(out), Err: err,
			Fix: "reinstall criu"}
	}
	p := &Program{Path: at, Version: parseVersion(string(out))}
	if p.Version == "" {
		return nil, errs.New(errs.Unsupported, "run", at+" --version", fmt.Sprintf("printed %.60q, expected a version",
			firstLine(out))).WithFix("name the program criu with --criu")
	}
	return p, nil
}

func firstLine(out []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// parseVersion reads "Version: 4.1.1".
func parseVersion(text string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "Version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Check asks criu whether this kernel has what it needs. The error of Check is of kind Unsupported and has criu's own
// messages.
func (p *Program) Check(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, p.Path, "check").CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return errs.Wrap("check", p.Path, context.Cause(ctx))
	}
	return errs.New(errs.Unsupported, "check", fmt.Sprintf("criu %s (%s)", p.Version, p.Path),
		"it does not work on this kernel: "+errorsOf(out, err)).
		WithFix("install a newer criu, which knows this kernel, and name it with --criu; " +
			"in a container, run as root with all capabilities")
}

// mostErrors is the number of lines of criu's log that an error quotes.
const mostErrors = 4

// errorsOf returns the messages in criu's log, or the error of the program if there are none.
func errorsOf(log []byte, err error) string {
	var all []string
	for line := range strings.Lines(string(log)) {
		at := strings.Index(line, "Error (")
		if at < 0 {
			continue
		}
		_, text, ok := strings.Cut(line[at:], "): ")
		if !ok {
			text = line[at:]
		}
		// criu complains about a limit that it may not raise, and works without.
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "rlimit:") {
			continue
		}
		if !slices.Contains(all, text) && len(all) < mostErrors {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return err.Error()
	}
	return strings.Join(all, "; ")
}

// Allowed refuses early what criu would refuse: a user without the right to dump and restore processes. The error is of
// kind Permission.
func Allowed(op, name string, args []string) error {
	if os.Geteuid() == 0 || slices.Contains(args, "--unprivileged") {
		return nil
	}
	return errs.New(errs.Permission, op, name, "criu needs root").
		WithFix("run the command as root, or give criu's own option after --: -- --unprivileged")
}

// DumpOptions describe a dump.
type DumpOptions struct {
	PID int
	// LeaveRunning lets the process run on after the dump. Otherwise it is stopped (SIGSTOP), so that the caller can
	// end it when the images are durable, or continue it.
	LeaveRunning bool
	Args         []string // further options of criu
	// Log receives criu's log, also after an error.
	Log *bytes.Buffer
}

// Dump dumps a process and its children to out. If Dump fails, or if ctx ends, the process runs on. The images are
// complete if Dump returns nil.
func (p *Program) Dump(ctx context.Context, o DumpOptions, out Output) error {
	name := strconv.Itoa(o.PID)
	if err := Allowed("dump process", name, o.Args); err != nil {
		return err
	}
	state := "--leave-stopped"
	if o.LeaveRunning {
		state = "--leave-running"
	}
	args := append([]string{"dump", "--tree", name, state}, o.Args...)
	err := p.stream(ctx, args, captureSocket, o.Log, func(s *streamer) { s.capture(out) }, nil)
	return errs.Wrap("dump process", name, err)
}

// RestoreOptions describe a restore.
type RestoreOptions struct {
	Args []string // further options of criu
	Log  *bytes.Buffer
}

// Restore makes the processes whose images in has, and returns the id of their root. The restored processes are not
// children of this one. If Restore fails before criu has made them, no process is left. If Restore returns an error and
// a pid, for example because ctx ended too late, the caller ends the process.
func (p *Program) Restore(ctx context.Context, o RestoreOptions, in Input) (pid int, err error) {
	if err := Allowed("restore a process with", p.Path, o.Args); err != nil {
		return 0, err
	}
	args := append([]string{"restore", "--restore-detached", "--pidfile", "pid"}, o.Args...)
	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err = p.stream(ctx, args, serveSocket, o.Log, func(s *streamer) { s.serve(serving, in) }, func(dir string) error {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	return pid, errs.Wrap("restore a process with", "criu", err)
}

// stream runs criu with a folder that has nothing but the socket of the image streamer. after reads what criu has left
// in the folder.
func (p *Program) stream(ctx context.Context, args []string, socket string, log *bytes.Buffer, serve func(*streamer),
	after func(dir string) error) (err error) {
	if ctx.Err() != nil {
		return &errs.Error{Kind: errs.Cancelled, Err: context.Cause(ctx)}
	}
	dir, err := os.MkdirTemp(shortFolder(), "nebulaio-criu-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := listen(dir, socket)
	if err != nil {
		return err
	}
	// The work folder has criu's log and pid file, and the images' folder the socket.
	cmd := exec.Command(p.Path, append(args, "--stream", "--images-dir", dir, "--work-dir", dir, "--log-file", "log")...)
	cmd.Dir = dir
	// An interrupt from the terminal must not end criu in the middle of its work.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(s)
	}()
	// criu that loses its streamer puts the process back. Killed, it would leave its code in the process.
	stop := context.AfterFunc(ctx, func() { s.fail(&errs.Error{Kind: errs.Cancelled, Err: context.Cause(ctx)}) })
	said, err := cmd.CombinedOutput()
	stop()
	streamed := s.finish(served)
	text, readErr := os.ReadFile(filepath.Join(dir, "log"))
	text = append(text, said...)
	if log != nil {
		log.Write(text)
	}
	switch {
	case err != nil && streamed != nil:
		return streamed // the cause; criu only saw a broken pipe
	case err != nil:
		return errs.New(errs.Other, "run", fmt.Sprintf("criu %s", p.Version), errorsOf(text, err)).WithFix(fixFor(text))
	case after != nil:
		if err := after(dir); err != nil {
			return errors.Join(err, streamed, readErr)
		}
	}
	return streamed
}

// longestFolder is the longest path of a folder for the streamer's socket: the path of a socket has at most 107 bytes.
const longestFolder = 60

// shortFolder returns the folder for temporary files, or /tmp if the path of a socket would be too long in it.
func shortFolder() string {
	if dir := os.TempDir(); len(dir) <= longestFolder {
		return dir
	}
	return "/tmp"
}

// fixFor returns what to do about errors that many users meet.
func fixFor(log []byte) string {
	for _, f := range []struct{ text, fix string }{
		{"--shell-job", "the process belongs to a terminal: give --shell-job"},
		{"tcp-established", "the process has TCP connections: give --tcp-established"},
		{"file locks are not", "the process holds file locks: give --file-locks"},
		{"--file-locks", "the process holds file locks: give --file-locks"},
		{"--ext-unix-sk", "the process is connected by a Unix socket: give -- --ext-unix-sk"},
		{"vdso", "this criu does not know this kernel: install a newer criu and name it with --criu"},
	} {
		if bytes.Contains(log, []byte(f.text)) {
			return f.fix
		}
	}
	return "run the command with --log FILE and read criu's log; options of criu can be given after --"
}
