// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// readOnly is a read-only clone of the mount that the files lie on. It is mounted nowhere. A descriptor that was opened through
// it cannot be opened again for writing (/proc/self/fd), whoever has it. Its name in /proc/self/fd begins at the clone, and
// nobody finds the file by it: libcufile 1.15 looks for that name and does not register such files with O_DIRECT (error 5031).
type readOnly struct {
	dir  *os.File // of the clone; nil where there is none
	root string   // the directory that it is of
	err  error    // why there is none
}

// clone makes the read-only clone of the mount at dir. It takes CAP_SYS_ADMIN and Linux 5.12.
func (r *readOnly) clone(dir string) {
	const op = "clone the mount of"
	r.root = dir
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == nil {
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	for _, sub := range []string{"tmp", "data"} {
		if err != nil {
			break
		}
		var here, there unix.Stat_t
		if err = unix.Stat(dir+"/"+sub, &here); err == nil {
			err = unix.Fstatat(fd, sub, &there, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err == nil && (here.Dev != there.Dev || here.Ino != there.Ino) {
			err = errs.New(errs.Unsupported, op, dir, sub+" is a link or a mount of its own")
		}
	}
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		r.err = &errs.Error{Kind: errs.Unsupported, Op: op, Name: dir, Err: err, Fix: "give the server CAP_SYS_ADMIN and Linux 5.12, or run door clients as another user than the server"}
		return
	}
	r.dir = os.NewFile(uintptr(fd), dir)
}

func (r *readOnly) close() {
	if r.dir != nil {
		_ = r.dir.Close() // nothing is written through it
	}
}

// openToRead opens a name to be handed out, through the read-only clone where there is one.
func (f *Files) openToRead(name string, flags int) (*os.File, error) {
	if f.readOnly.dir != nil {
		if rel, ok := strings.CutPrefix(name, f.readOnly.root+"/"); ok {
			return openHere(int(f.readOnly.dir.Fd()), rel, unix.O_RDONLY|flags)
		}
	}
	return openHere(unix.AT_FDCWD, name, unix.O_RDONLY|flags)
}

// Reopenable says why a descriptor that HandOut gives away can be opened again for writing by whoever may write to the file; nil where it cannot.
func (f *Files) Reopenable() error {
	switch {
	case f.readOnly.dir != nil:
		return nil
	case f.readOnly.err != nil:
		return f.readOnly.err
	}
	return errs.New(errs.Unsupported, "clone the mount of", f.opts.Dir, "it was not asked for").WithFix("set gpudirect.read_only_mount to true")
}
