// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// readOnly is a read-only mount of the files' directory. A descriptor that was opened through the mount cannot be
// reopened for writing (/proc/self/fd), whoever has it. The mount lies over the directory in a mount namespace of its
// own, in which no process runs. So no other process sees the mount, and it ends with this process. The names in
// /proc/self/fd are the files' own, as libcufile needs, which reopens files by these names.
type readOnly struct {
	dir       *os.File // directory of the mount; nil if there is no mount
	namespace *os.File // keeps the namespace, and with it the files' names
	root      string   // the directory that is mounted
	err       error    // why there is no mount
}

// mount makes the read-only mount of dir. It needs CAP_SYS_ADMIN and Linux 5.12.
func (r *readOnly) mount(dir string) {
	const op = "mount read-only"
	r.root = dir
	done := make(chan error)
	go func() {
		// The thread gets a namespace of its own. It is never unlocked, so it ends with this goroutine.
		runtime.LockOSThread()
		done <- r.cover()
	}()
	err := <-done
	for _, sub := range []string{"tmp", "data"} {
		if err != nil {
			break
		}
		var here, there unix.Stat_t
		if err = unix.Stat(dir+"/"+sub, &here); err == nil {
			err = unix.Fstatat(int(r.dir.Fd()), sub, &there, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err == nil && (here.Dev != there.Dev || here.Ino != there.Ino) {
			err = errs.New(errs.Unsupported, op, dir, sub+" is a link or a mount of its own")
		}
	}
	if err != nil {
		r.close()
		r.dir = nil
		r.err = &errs.Error{Kind: errs.Unsupported, Op: op, Name: dir, Err: err,
			Fix: "give the server CAP_SYS_ADMIN and Linux 5.12, or run door clients as another user than the server"}
	}
}

// cover gives this thread a mount namespace and covers the directory with its read-only mount there.
func (r *readOnly) cover() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	namespace, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	r.namespace = namespace
	// Nothing that happens here reaches other namespaces.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, r.root, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	r.dir = os.NewFile(uintptr(fd), r.root)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return os.NewSyscallError("mount_setattr", err)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, r.root, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return os.NewSyscallError("move_mount", err)
	}
	return r.letGo()
}

// letGo detaches all mounts of the namespace except those that contain the directory: they would stay busy after an
// operator unmounts them.
func (r *readOnly) letGo() error {
	root, err := filepath.EvalSymlinks(r.root)
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

func (r *readOnly) close() {
	for _, f := range []*os.File{r.dir, r.namespace} {
		if f != nil {
			_ = f.Close() // nothing is written through it
		}
	}
}

// openToRead opens a name for a client, through the read-only mount if there is one.
func (f *Files) openToRead(name string, flags int) (*os.File, error) {
	if f.readOnly.dir != nil {
		if rel, ok := strings.CutPrefix(name, f.readOnly.root+"/"); ok {
			return openHere(int(f.readOnly.dir.Fd()), rel, name, unix.O_RDONLY|flags)
		}
	}
	return openHere(unix.AT_FDCWD, name, name, unix.O_RDONLY|flags)
}

// Reopenable returns nil if a descriptor from HandOut cannot be reopened for writing, or the reason why it can.
// Without a read-only mount, anybody with write permission on the file can reopen the descriptor for writing.
func (f *Files) Reopenable() error {
	switch {
	case f.readOnly.dir != nil:
		return nil
	case f.readOnly.err != nil:
		return f.readOnly.err
	}
	return errs.New(errs.Unsupported, "mount read-only", f.opts.Dir,
		"it was not asked for").WithFix("set gpudirect.read_only_mount to true")
}
