// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Record runs a command under ptrace and returns its changes below root, in the order in which the kernel made them.
// The command's standard output becomes marks in the trace. If the kernel does not allow ptrace, the error is
// ErrRefused.
func Record(cmd *exec.Cmd, root string) (*Trace, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	type result struct {
		t   *Trace
		err error
	}
	done := make(chan result)
	go func() {
		// All ptrace calls have to come from the thread that is the tracer. The thread ends with the goroutine.
		runtime.LockOSThread()
		r := &recorder{root: root, threads: map[int]*thread{}, files: map[uint64]int{}}
		err := r.run(cmd)
		done <- result{&r.trace, err}
	}()
	x := <-done
	return x.t, x.err
}

// thread is a thread of the traced program, with the system call in which it is.
type thread struct {
	regs  unix.PtraceRegs // when it entered
	paths [2]string       // names in the arguments
	data  []byte
	fresh bool // openat: the name did not exist before
	since int  // number of changes before the call
}

type recorder struct {
	root    string
	trace   Trace
	threads map[int]*thread
	files   map[uint64]int // node of each inode
}

func (r *recorder) run(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	out, err := os.CreateTemp("", "powercut")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout = out // marks are read from the calls of write
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return err
	}
	main := cmd.Process.Pid
	var ws unix.WaitStatus
	if _, err := unix.Wait4(main, &ws, unix.WALL, nil); err != nil {
		return err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
		unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(main, options); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if _, err := r.node(r.root, true); err != nil { // the root is node 0
		return err
	}
	r.threads[main] = &thread{}
	if err := unix.PtraceSyscall(main, 0); err != nil {
		return err
	}
	return r.follow(main)
}

// follow handles the stops of all threads until the last has ended.
func (r *recorder) follow(main int) error {
	var status unix.WaitStatus
	for len(r.threads) > 0 {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		if err == unix.EINTR {
			continue
		}
		if err == unix.ECHILD {
			break
		}
		if err != nil {
			return err
		}
		if ws.Exited() || ws.Signaled() {
			if delete(r.threads, tid); tid == main {
				status = ws
			}
			continue
		}
		if !ws.Stopped() {
			continue
		}
		t := r.threads[tid]
		if t == nil {
			t = &thread{}
			r.threads[tid] = t
		}
		pass := 0
		switch sig := ws.StopSignal(); {
		case sig == unix.SIGTRAP|0x80:
			if err := r.call(tid, t); err != nil && err != unix.ESRCH {
				return err
			}
		case sig == unix.SIGTRAP || sig == unix.SIGSTOP: // of ptrace itself: a new thread, an exec
		default:
			pass = int(sig)
		}
		if err := unix.PtraceSyscall(tid, pass); err != nil && err != unix.ESRCH {
			return err
		}
	}
	if status.ExitStatus() != 0 {
		return fmt.Errorf("the traced program ended with status %d, signal %v", status.ExitStatus(), status.Signal())
	}
	return nil
}

// call handles the entry to a system call, or its end.
func (r *recorder) call(tid int, t *thread) error {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	// The kernel sets the result to ENOSYS at the entry. A call that really ends with ENOSYS looks like an entry, and is
	// entered twice, which does no harm.
	if int64(regs.Rax) == -int64(unix.ENOSYS) {
		*t = thread{regs: regs, since: len(r.trace.Ops)}
		return r.enter(tid, t)
	}
	if n := int64(regs.Rax); n >= 0 || n < -4095 {
		return r.leave(tid, t, n)
	}
	return nil
}

// enter reads the arguments of a system call, which may change during the call.
func (r *recorder) enter(tid int, t *thread) (err error) {
	a := &t.regs
	switch a.Orig_rax {
	case unix.SYS_OPENAT:
		if t.paths[0], err = r.at(tid, a.Rdi, a.Rsi); err == nil {
			_, e := os.Lstat(t.paths[0])
			t.fresh = e != nil
		}
	case unix.SYS_OPEN, unix.SYS_CREAT:
		if t.paths[0], err = r.at(tid, cwd, a.Rdi); err == nil {
			_, e := os.Lstat(t.paths[0])
			t.fresh = e != nil
		}
	case unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_MKDIR:
		t.paths[0], err = r.at(tid, cwd, a.Rdi)
	case unix.SYS_UNLINKAT, unix.SYS_MKDIRAT:
		t.paths[0], err = r.at(tid, a.Rdi, a.Rsi)
	case unix.SYS_RENAME:
		if t.paths[0], err = r.at(tid, cwd, a.Rdi); err == nil {
			t.paths[1], err = r.at(tid, cwd, a.Rsi)
		}
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		if t.paths[0], err = r.at(tid, a.Rdi, a.Rsi); err == nil {
			t.paths[1], err = r.at(tid, a.Rdx, a.R10)
		}
	case unix.SYS_LINK, unix.SYS_SYMLINK:
		t.paths[0], err = r.at(tid, cwd, a.Rsi)
		err = r.unrecorded(a.Orig_rax, t.paths[0], err)
	case unix.SYS_SYMLINKAT:
		t.paths[0], err = r.at(tid, a.Rsi, a.Rdx)
		err = r.unrecorded(a.Orig_rax, t.paths[0], err)
	case unix.SYS_LINKAT:
		t.paths[0], err = r.at(tid, a.Rdx, a.R10)
		err = r.unrecorded(a.Orig_rax, t.paths[0], err)
	case unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_SENDFILE:
		p, _ := r.path(tid, a.Rdi)
		err = r.unrecorded(a.Orig_rax, p, nil)
	case unix.SYS_COPY_FILE_RANGE, unix.SYS_SPLICE:
		p, _ := r.path(tid, a.Rdx)
		err = r.unrecorded(a.Orig_rax, p, nil)
	case unix.SYS_WRITE, unix.SYS_PWRITE64:
		if p, e := r.path(tid, a.Rdi); e == nil && (r.below(p) || a.Rdi == 1) {
			t.data, err = peek(tid, a.Rsi, int(a.Rdx))
		}
	}
	return err
}

// unrecorded returns an error for a change below the root that the recorder does not know.
func (r *recorder) unrecorded(call uint64, path string, err error) error {
	if err == nil && r.below(path) {
		err = fmt.Errorf("the program changes %s with system call %d, which is not recorded", path, call)
	}
	return err
}

// cwd stands for the current directory in place of a descriptor.
const cwd = uint64(0xffffff9c)

// path returns the path of an open descriptor.
func (r *recorder) path(tid int, fd uint64) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd)))
}

// at returns the absolute path of a name that is relative to a descriptor.
func (r *recorder) at(tid int, fd, address uint64) (string, error) {
	b, err := peek(tid, address, unix.PathMax)
	if err != nil {
		return "", err
	}
	name := string(b[:max(0, bytes.IndexByte(b, 0))])
	if filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	from := fmt.Sprintf("/proc/%d/cwd", tid)
	if int32(fd) != unix.AT_FDCWD {
		from = fmt.Sprintf("/proc/%d/fd/%d", tid, int32(fd))
	}
	dir, err := os.Readlink(from)
	return filepath.Join(dir, name), err
}

// peek reads memory of the program, up to the end of its last readable page.
func peek(tid int, address uint64, n int) ([]byte, error) {
	buf := make([]byte, n)
	have := 0
	for have < n {
		step := min(n-have, 4096-int((address+uint64(have))%4096))
		if n-have > 1<<16 {
			step = min(n-have, 1<<16-int((address+uint64(have))%4096))
		}
		got, err := unix.ProcessVMReadv(tid, []unix.Iovec{{Base: &buf[have], Len: uint64(step)}},
			[]unix.RemoteIovec{{Base: uintptr(address) + uintptr(have), Len: step}}, 0)
		if err != nil || got <= 0 {
			if n == unix.PathMax && have > 0 {
				break
			}
			return nil, fmt.Errorf("read %d bytes at 0x%x of the program: %w", n, address, err)
		}
		have += got
		if n == unix.PathMax && bytes.IndexByte(buf[:have], 0) >= 0 {
			break
		}
	}
	return buf[:have], nil
}

// below reports whether a path is that of a file below the root.
func (r *recorder) below(path string) bool {
	return path == r.root || strings.HasPrefix(path, r.root+"/")
}

// rel returns a path relative to the root.
func (r *recorder) rel(path string) string {
	rel, _ := filepath.Rel(r.root, path)
	return rel
}

// node returns the number of the file behind a path, and makes one for a file that is new.
func (r *recorder) node(path string, fresh bool) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, err
	}
	n, ok := r.files[st.Ino]
	if !ok || fresh {
		n = r.trace.add(st.Ino, st.Mode&unix.S_IFMT == unix.S_IFDIR)
		r.files[st.Ino] = n
	}
	return n, nil
}
