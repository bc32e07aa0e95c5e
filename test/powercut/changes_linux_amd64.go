// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leave records a system call that has succeeded with the result n.
func (r *recorder) leave(tid int, t *thread, n int64) error {
	a := &t.regs
	fd := fmt.Sprintf("/proc/%d/fd/%d", tid, int32(a.Rdi))
	known := func() (int, bool, error) { // the file of the first argument
		p, err := os.Readlink(fd)
		if err != nil || !r.below(strings.TrimSuffix(p, " (deleted)")) {
			return 0, false, nil
		}
		node, err := r.node(fd, false)
		return node, true, err
	}
	op := Op{}
	switch a.Orig_rax {
	case unix.SYS_OPENAT, unix.SYS_OPEN, unix.SYS_CREAT:
		if !r.below(t.paths[0]) {
			return nil
		}
		node, err := r.node("/proc/"+strconv.Itoa(tid)+"/fd/"+strconv.FormatInt(n, 10), t.fresh)
		if err != nil {
			return err
		}
		switch {
		case t.fresh:
			op = Op{Kind: Create, Path: r.rel(t.paths[0]), Node: node}
		case a.Orig_rax == unix.SYS_OPENAT && a.Rdx&unix.O_TRUNC != 0, a.Orig_rax == unix.SYS_OPEN && a.Rsi&unix.O_TRUNC != 0,
			a.Orig_rax == unix.SYS_CREAT:
			op = Op{Kind: Truncate, Node: node}
		default:
			return nil
		}
	case unix.SYS_MKDIR, unix.SYS_MKDIRAT:
		if !r.below(t.paths[0]) {
			return nil
		}
		node, err := r.node(t.paths[0], true)
		if err != nil {
			return err
		}
		op = Op{Kind: Create, Path: r.rel(t.paths[0]), Node: node}
	case unix.SYS_UNLINK, unix.SYS_UNLINKAT, unix.SYS_RMDIR:
		if !r.below(t.paths[0]) {
			return nil
		}
		op = Op{Kind: Remove, Path: r.rel(t.paths[0])}
	case unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2:
		if !r.below(t.paths[0]) || !r.below(t.paths[1]) {
			return nil
		}
		op = Op{Kind: Rename, Path: r.rel(t.paths[0]), To: r.rel(t.paths[1])}
	default:
		if a.Orig_rax == unix.SYS_WRITE && a.Rdi == 1 {
			op = Op{Kind: Mark, Path: strings.TrimSpace(string(t.data[:min(int(n), len(t.data))]))}
			break
		}
		var err error
		if op, err = r.content(tid, t, n, known); err != nil || op.Kind == "" {
			return err
		}
	}
	r.trace.Ops = append(r.trace.Ops, op)
	return nil
}

// content records a change of a file's content, or a sync.
func (r *recorder) content(tid int, t *thread, n int64, known func() (int, bool, error)) (Op, error) {
	a := &t.regs
	switch a.Orig_rax {
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
		unix.SYS_SYNCFS:
	case unix.SYS_UTIMENSAT:
		return r.times(tid, t)
	default:
		return Op{}, nil
	}
	node, ok, err := known()
	if err != nil || !ok {
		return Op{}, err
	}
	op := Op{Node: node}
	switch a.Orig_rax {
	case unix.SYS_WRITE:
		at, err := r.position(tid, a.Rdi)
		if err != nil {
			return Op{}, err
		}
		op.Kind, op.Off, op.Data = Write, at-n, t.data[:n]
	case unix.SYS_PWRITE64:
		op.Kind, op.Off, op.Data = Write, int64(a.R10), t.data[:n]
	case unix.SYS_FTRUNCATE:
		op.Kind, op.Off = Truncate, int64(a.Rsi)
	case unix.SYS_FALLOCATE:
		op.Kind, op.Off = Extend, int64(a.Rdx+a.R10)
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		op.Kind, op.Off = Sync, int64(t.since)
	case unix.SYS_SYNCFS:
		op.Kind, op.Off = SyncAll, int64(t.since)
	}
	return op, nil
}

// times records that the time of a file was set.
func (r *recorder) times(tid int, t *thread) (Op, error) {
	a := &t.regs
	path, err := r.at(tid, a.Rdi, a.Rsi)
	if err != nil || !r.below(path) {
		return Op{}, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Op{}, nil
	}
	return Op{Kind: Times, Node: r.files[st.Ino], Off: st.Mtim.Nano()}, nil
}

// position returns the offset of a descriptor after a write.
func (r *recorder) position(tid int, fd uint64) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", tid, int32(fd)))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strconv.ParseInt(strings.TrimSpace(strings.TrimPrefix(first, "pos:")), 10, 64)
}
