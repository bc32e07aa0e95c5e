// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// target is where a file will be: a directory that is open, and a name in it. All file operations go through the open
// directory, so that no symbolic link below it can lead them elsewhere.
type target struct {
	dir  *os.Root
	name string
	path string // for messages
}

// openTarget returns the target of a path that the user named. A symbolic link at the path is followed.
func openTarget(path string) (target, error) {
	const op = "write"
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return target{}, errs.New(errs.Invalid, op, path, "is a directory; expected the name of a file")
		}
		return target{}, errs.New(errs.Invalid, op, path, "is not a regular file").WithFix("write to standard output with -")
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return target{}, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: err,
			Fix: "make the directory first, and check its permissions"}
	}
	return target{dir: dir, name: filepath.Base(path), path: path}, nil
}

// beside returns the name of a file of ours beside the target. A long name is replaced by its checksum.
func (t target) beside(suffix string) string {
	name := t.name
	if len(name) > 200 {
		name = fmt.Sprintf("%.100s-%016x", name, checksum.Of([]byte(name)))
	}
	return "." + name + suffix
}

// draft is the file that becomes the target when it is whole.
type draft struct {
	target
	temp   string
	f      *os.File
	direct *os.File // opened with O_DIRECT; nil if the file system refuses it
}

// directAlign is the alignment of offsets, lengths and addresses that every file system accepts for direct writes.
const directAlign = 4096

// close closes the descriptors and releases the lock.
func (d *draft) close() {
	if d.direct != nil {
		d.direct.Close()
	}
	d.f.Close()
}

// write writes a block past the page cache where the file system can. A large download would otherwise push other files
// out of the page cache, and a copy of each byte would be made for nothing.
func (d *draft) write(p []byte, off int64) error {
	if d.direct != nil && len(p)%directAlign == 0 && off%directAlign == 0 {
		_, err := d.direct.WriteAt(p, off)
		if !errors.Is(err, unix.EINVAL) {
			return d.fail("write", err)
		}
	}
	if _, err := d.f.WriteAt(p, off); err != nil {
		return d.fail("write", err)
	}
	startWriteback(d.f, off, int64(len(p)))
	return nil
}

// startWriteback makes the kernel begin to write a range, so that the sync at the end has little left to do.
func startWriteback(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE) // only a hint
}

// aligned returns a buffer for direct writes.
func aligned(n int) []byte {
	b := make([]byte, n+directAlign)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (directAlign - 1)
	return b[skip : skip+n : skip+n]
}

// openDraft opens the draft of a target, which an earlier copy may have left, and locks it. Another copy to the same
// target gives an error of kind Invalid.
func (t target) openDraft() (*draft, error) {
	const op = "write"
	d := &draft{target: t, temp: t.beside(draftSuffix)}
	for range 100 {
		f, err := t.dir.OpenFile(d.temp, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, t.fail("open draft of", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, errs.New(errs.Invalid, op, t.path, "another copy writes this file").WithFix("wait until it has ended")
			}
			return nil, t.fail("lock draft of", err)
		}
		a, err1 := f.Stat()
		b, err2 := t.dir.Lstat(d.temp)
		if err1 == nil && err2 == nil && os.SameFile(a, b) && a.Mode().IsRegular() {
			d.f = f
			d.direct, _ = t.dir.OpenFile(d.temp, os.O_WRONLY|unix.O_DIRECT, 0) // without it, the page cache is used
			return d, nil
		}
		f.Close() // it was published in the meantime
	}
	return nil, errs.New(errs.IO, op, t.path, "the draft "+d.temp+" changes all the time").
		WithFix("see which processes write to this directory")
}

// fail explains an error of the file system.
func (t target) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &errs.Error{Kind: errs.KindOf(err), Op: op, Name: t.path, Err: errs.WithoutPath(err)}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e.Kind, e.Fix = errs.IO, "free space, and run the same command again: it goes on where it ended"
	case errors.Is(err, unix.ENAMETOOLONG):
		e.Kind, e.Fix = errs.Invalid, "use a shorter name"
	case errors.Is(err, unix.EFBIG):
		e.Kind, e.Fix = errs.IO, "raise the limit of file sizes (ulimit -f), or use another file system"
	}
	return e
}

// grow gives the draft its size, and its space where the file system can. A draft that is too long is cut.
func (d *draft) grow(size int64) error {
	info, err := d.f.Stat()
	if err != nil {
		return d.fail("look at draft of", err)
	}
	if info.Size() > size {
		if err := d.f.Truncate(size); err != nil {
			return d.fail("cut draft of", err)
		}
	}
	if size == 0 {
		return nil
	}
	err = syscall.Fallocate(int(d.f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = d.f.Truncate(size)
	}
	return d.fail("reserve space for", err)
}

// publish makes the draft durable and gives it the name of the target. A file that is replaced passes on its mode.
func (d *draft) publish(modified time.Time) error {
	if info, err := d.dir.Lstat(d.name); err == nil {
		if info.IsDir() {
			return errs.New(errs.Invalid, "write", d.path, "is a directory; expected the name of a file")
		}
		if info.Mode().IsRegular() {
			if err := d.f.Chmod(info.Mode().Perm()); err != nil {
				return d.fail("set mode of", err)
			}
		}
	}
	if err := setTime(d.f, modified); err != nil {
		return d.fail("set time of", err)
	}
	if err := d.f.Sync(); err != nil {
		return d.fail("sync", err)
	}
	if err := d.dir.Rename(d.temp, d.name); err != nil {
		return d.fail("put in place", err)
	}
	return d.syncDir()
}

func (t target) syncDir() error {
	f, err := t.dir.Open(".")
	if err != nil {
		return t.fail("sync directory of", err)
	}
	defer f.Close()
	return t.fail("sync directory of", f.Sync())
}

// setTime gives an open file the modification time of its source.
func setTime(f *os.File, modified time.Time) error {
	if modified.IsZero() {
		return nil
	}
	t := unix.NsecToTimeval(modified.UnixNano())
	return unix.Futimes(int(f.Fd()), []unix.Timeval{t, t})
}

// remove removes a file of ours; a missing one is no error.
func (t target) remove(name string) error {
	if err := t.dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return t.fail("remove "+name+" of", err)
	}
	return nil
}
