// SPDX-License-Identifier: Apache-2.0

// Package lend opens files of a store for clients of the door, which get the descriptors.
//
// A client must not be able to write to a file of a store. A descriptor that was opened for reading can be reopened for
// writing through /proc/self/fd, by root and by the owner of the file. So lend opens files through a read-only mount,
// if the process may make one. A client must not be able to stop the server, either. If a
// client takes a lease on a file of which it has a descriptor, an open of the file waits. So lend opens files without
// waiting.
package lend

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Directory opens the files of one directory for clients. All methods are safe for concurrent use.
//
// The read-only mount lies over the directory in a mount namespace of its own, in which no process runs. So no other
// process sees the mount, and it ends with this process. The names in /proc/self/fd are the files' own, as libcufile
// needs, which reopens files by these names.
type Directory struct {
	dir       *os.File // directory of the mount; nil if there is no mount
	namespace *os.File // keeps the namespace, and with it the files' names
	root      string   // the directory that is mounted
	err       error    // why there is no mount
}

// New returns the Directory with this path, without a read-only mount.
func New(root string) *Directory {
	return &Directory{root: root, err: errs.New(errs.Unsupported, "mount read-only", root, "it was not asked for").
		WithFix("set gpudirect.read_only_mount to true")}
}

// Mount returns the Directory with this path, and makes its read-only mount. The files are in the directories that subs
// names. A mount needs CAP_SYS_ADMIN and Linux 5.12; if there is none, Reopenable returns the reason.
func Mount(root string, subs ...string) *Directory {
	const op = "mount read-only"
	d := &Directory{root: root}
	done := make(chan error)
	go func() {
		// The thread gets a namespace of its own. It is never unlocked, so it ends with this goroutine.
		runtime.LockOSThread()
		done <- d.cover()
	}()
	err := <-done
	for _, sub := range subs {
		if err != nil {
			break
		}
		var here, there unix.Stat_t
		if err = unix.Stat(root+"/"+sub, &here); err == nil {
			err = unix.Fstatat(int(d.dir.Fd()), sub, &there, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err == nil && (here.Dev != there.Dev || here.Ino != there.Ino) {
			err = errs.New(errs.Unsupported, op, root, sub+" is a link or a mount of its own")
		}
	}
	if err != nil {
		d.Close()
		d.dir, d.namespace = nil, nil
		d.err = &errs.Error{Kind: errs.Unsupported, Op: op, Name: root, Err: err,
			Fix: "give the server CAP_SYS_ADMIN and Linux 5.12, or run door clients as another user than the server"}
	}
	return d
}

// cover gives this thread a mount namespace and covers the directory with its read-only mount there.
func (d *Directory) cover() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	namespace, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	d.namespace = namespace
	// Nothing that happens here reaches other namespaces.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, d.root, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	d.dir = os.NewFile(uintptr(fd), d.root)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return os.NewSyscallError("mount_setattr", err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, d.root, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return os.NewSyscallError("move_mount", err)
	}
	return d.letGo()
}

// letGo detaches all mounts of the namespace except those that contain the directory: they would stay busy after an
// operator unmounts them.
func (d *Directory) letGo() error {
	root, err := filepath.EvalSymlinks(d.root)
	if err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		fields := strings.Fields(lines[i])
		if len(fields) < 5 {
			continue
		}
		at := mountName.Replace(fields[4])
		if at == "/" || root == at || strings.HasPrefix(root, at+"/") {
			continue
		}
		_ = unix.Unmount(at, unix.MNT_DETACH) // a locked mount stays, as it would in any container
	}
	return nil
}

// mountName undoes the kernel's escapes in the names of /proc/self/mountinfo.
var mountName = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Close ends the mount. Descriptors that were opened through it stay valid.
func (d *Directory) Close() {
	for _, f := range []*os.File{d.dir, d.namespace} {
		if f != nil {
			_ = f.Close() // nothing is written through it
		}
	}
}

// Open opens a file of the directory for reading, through the read-only mount if there is one. The parameter name is
// the path of the file, and flags may have O_DIRECT. Open removes the write permission of group and others from the
// file. Open fails with ErrBusy if somebody keeps a lease on the file. The caller closes the file.
func (d *Directory) Open(name string, flags int) (*os.File, error) {
	if d.dir != nil {
		if rel, ok := strings.CutPrefix(name, d.root+"/"); ok {
			return open(int(d.dir.Fd()), rel, name, unix.O_RDONLY|flags)
		}
	}
	return open(unix.AT_FDCWD, name, name, unix.O_RDONLY|flags)
}

// Reopenable returns nil if a descriptor from Open cannot be reopened for writing, or the reason why it can. Without a
// read-only mount, anybody with write permission on the file can reopen the descriptor for writing.
func (d *Directory) Reopenable() error { return d.err }
