// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// CheckPlace refuses a path that Create would refuse for any size. The directory
// may be missing or not a directory, the path may lie in a kernel file system, or
// its name may belong to something that is not a file. It creates nothing.
func CheckPlace(path string) error {
	target, _, err := replaced(path)
	if err != nil {
		return err
	}
	return placeable(path, target)
}

// placeable refuses a target in whose directory no file can be made.
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
		return nil // Create says more of it
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

// notBelow names the file on the way to a directory.
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

// kernelFS is the name of the kernel's file system that a directory lies in;
// empty for one that holds files of users.
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
