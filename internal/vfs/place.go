// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// CheckPlace returns an error if Create would fail for path with a file of any size. Reasons for an error are a
// missing directory, a kernel file system such as procfs, or a path that is not a regular file. CheckPlace creates
// nothing.
func CheckPlace(path string) error {
	target, _, err := replaced(path)
	if err != nil {
		return err
	}
	return placeable(path, target)
}

// placeable returns an error if no file can be created in the directory of target.
func placeable(path, target string) error {
	const op = "write"
	dir := filepath.Dir(target)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return notBelow(path, dir)
	case errors.Is(err, os.ErrNotExist):
		return &errs.Error{Kind: errs.NotFound, Op: op, Name: path, Msg: "there is no directory " + dir, Err: unix.ENOENT,
			Fix: "make the directory first"}
	case err != nil:
		return nil // Create returns a better error
	case !info.IsDir():
		return notBelow(path, dir)
	}
	if name := kernelFS(dir); name != "" {
		return errs.New(errs.Unsupported, op, path,
			dir+" lies in "+name+", a file system of the kernel, in which nobody can make files").
			WithFix("save to a directory of a disk")
	}
	return nil
}

// notBelow returns the error for a path below a file, and names this file.
func notBelow(path, dir string) error {
	file := dir
	for up := dir; ; up = filepath.Dir(up) {
		if info, err := os.Stat(up); err == nil && !info.IsDir() {
			file = up
			break
		}
		if up == filepath.Dir(up) {
			break
		}
	}
	return errs.New(errs.Invalid, "write", path, file+" is no directory").WithFix("give a name in a directory")
}

// kernelFS returns the name of the kernel file system of a directory, or "" if users can create files there.
func kernelFS(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	return map[int64]string{
		unix.PROC_SUPER_MAGIC:    "procfs",
		unix.SYSFS_MAGIC:         "sysfs",
		unix.CGROUP_SUPER_MAGIC:  "cgroupfs",
		unix.CGROUP2_SUPER_MAGIC: "cgroupfs",
		unix.DEBUGFS_MAGIC:       "debugfs",
		unix.TRACEFS_MAGIC:       "tracefs",
		unix.SECURITYFS_MAGIC:    "securityfs",
		unix.BPF_FS_MAGIC:        "bpffs",
	}[int64(st.Type)]
}
