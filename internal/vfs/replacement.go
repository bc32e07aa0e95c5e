// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Replacement is a new version of a file while it is being written. A Replacement has a temporary name in the
// directory of the file and is renamed to the file's name when it is complete. Readers of the file's name therefore
// see the complete old version or the complete new one.
//
// The process that writes a Replacement holds a lock on the temporary file. The lock on a temporary file ends with its
// process, so Sweep can find and remove temporary files of killed writers.
//
// Writes to a Replacement are safe for concurrent use. Only one goroutine may call the other methods of a
// Replacement, after the writes. A successful Publish, or Abandon, ends a Replacement.
type Replacement struct {
	path   string // path that the caller gave
	target string // the file to replace: path, or the target of the link at path
	temp   string
	output
	sparse   *Refusal // why blocks are not reserved; nil if they are
	replaces bool
	linked   bool // path is a link
	notes    []string
	swept    int
}

// Identity identifies one version of a file by inode and modification time, which a rename does not change.
type Identity struct {
	Inode   uint64
	MtimeNs int64
}

// Temporary files are named .NAME.<16 hex digits>.nebulaio.tmp.
const (
	tempSuffix = ".nebulaio.tmp"
	tempDigits = 16
	maxName    = 255
)

// Create begins a new file that will replace path, or the target of the link at path. The parameter `size` is the size
// of the new file in bytes. Create first removes the temporary files that killed writers left in the directory. Create
// reserves disk blocks, so a full disk is an error of Create. After an error of Create the old file is unchanged and
// no temporary file is left.
func Create(path string, size int64) (*Replacement, error) {
	target, old, err := replaced(path)
	if err != nil {
		return nil, err
	}
	if err := placeable(path, target); err != nil {
		return nil, err
	}
	d := &Replacement{path: path, target: target, linked: isLink(path),
		output: output{size: size, buffered: -1, direct: -1}}
	if d.swept, err = Sweep(filepath.Dir(target)); err != nil {
		return nil, d.fail("write", err)
	}
	if err := d.open(); err != nil {
		return nil, err
	}
	if old != nil {
		d.replaces = true
		d.inherit(old)
	}
	d.fs = fsType(d.buffered)
	d.openDirect()
	if err := d.reserve(); err != nil {
		d.Abandon()
		return nil, err
	}
	return d, nil
}

// replaced returns the path of the file that a save to path replaces, after following links. The Stat_t describes the
// existing file, or is nil if there is none.
func replaced(path string) (string, *unix.Stat_t, error) {
	const op = "write"
	if path == "" || strings.HasSuffix(path, "/") {
		return "", nil, errs.New(errs.Invalid, op, fmt.Sprintf("%q", path),
			"is no name of a file; expected a path that ends in a name")
	}
	name := path
	var st unix.Stat_t
	for range 40 {
		var err error
		if name, err = settled(name); errors.Is(err, unix.ENOTDIR) {
			return "", nil, notBelow(path, filepath.Dir(path))
		} else if err != nil {
			return "", nil, errs.Wrap(op, path, cause(err))
		}
		switch err := unix.Lstat(name, &st); {
		case err == unix.ENOENT:
			return name, nil, nil
		case err == unix.ENOTDIR:
			return "", nil, notBelow(path, filepath.Dir(name))
		case err != nil:
			return "", nil, errs.Wrap(op, path, err)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			to, err := os.Readlink(name)
			if err != nil {
				return "", nil, errs.Wrap(op, path, err)
			}
			if !filepath.IsAbs(to) {
				to = name[:strings.LastIndexByte(name, '/')+1] + to
			}
			name = to
			continue
		case unix.S_IFREG:
			if mountRoot(name) {
				return "", nil, errs.New(errs.Unsupported, op, path,
					"is mounted by itself, so that no other file can take its name").
					WithFix("mount the directory that holds it instead, or save to another name")
			}
		default:
			return "", nil, errs.New(errs.Invalid, op, path,
				"is "+kindOfMode(st.Mode)+", expected a regular file or a name that is free")
		}
		// A rename would replace even a file that is write-protected.
		if err := unix.Faccessat(unix.AT_FDCWD, name, unix.W_OK, unix.AT_EACCESS); err != nil {
			return "", nil, &errs.Error{Kind: errs.Permission, Op: op, Name: path,
				Msg: "the file that is there may not be written", Err: err,
				Fix: "chmod u+w it, or give another name"}
		}
		return name, &st, nil
	}
	return "", nil, errs.Wrap(op, path, unix.ELOOP)
}

// settled resolves every ".." in name as the kernel does. After a link to a
// directory, ".." is the parent of the link's target, not of the link.
func settled(name string) (string, error) {
	at := strings.LastIndexByte(name, '/') + 1
	if !slices.Contains(strings.Split(name[:at], "/"), "..") {
		return name, nil
	}
	dir, err := filepath.EvalSymlinks(name[:at])
	return filepath.Join(dir, name[at:]), err
}

func isLink(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// mountRoot reports whether a file is itself a mount point, as in containers. Kernels before 5.8 do not report this.
func mountRoot(name string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	return err == nil && st.Attributes_mask&st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// open creates the temporary file and locks it. A sweeper may remove a file that
// is not locked yet. Then open creates another one.
func (d *Replacement) open() error {
	dir, base := filepath.Split(d.target)
	if room := maxName - len(tempSuffix) - tempDigits - 2; len(base) > room {
		base = base[:room] // the random number keeps the name unique
	}
	for {
		d.temp = filepath.Join(dir, fmt.Sprintf(".%s.%0*x%s", base, tempDigits, rand.Uint64(), tempSuffix))
		fd, err := unix.Open(d.temp, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o666)
		if err == unix.EEXIST || err == unix.EINTR {
			continue
		}
		if err != nil {
			return d.fail("write", err)
		}
		if err := flock(fd, unix.LOCK_EX); err != nil && err != unix.ENOLCK && err != unix.EOPNOTSUPP {
			_ = unix.Unlink(d.temp)
			_ = unix.Close(fd)
			return d.fail("lock", err)
		}
		if sameFile(fd, d.temp) {
			d.buffered = fd
			return nil
		}
		_ = unix.Close(fd)
	}
}

// inherit copies the permissions of the replaced file, and its owner if that is
// allowed.
func (d *Replacement) inherit(old *unix.Stat_t) {
	var st unix.Stat_t
	if unix.Fstat(d.buffered, &st) == nil && (st.Uid != old.Uid || st.Gid != old.Gid) {
		if err := unix.Fchown(d.buffered, int(old.Uid), int(old.Gid)); err != nil {
			d.notes = append(d.notes, fmt.Sprintf("the file it replaces belonged to user %d and group %d, which could not be "+
				"kept: %v", old.Uid, old.Gid, err))
		}
	}
	if err := unix.Fchmod(d.buffered, old.Mode&0o777); err != nil {
		d.notes = append(d.notes, fmt.Sprintf("the permissions of the file it replaces, %#o, could not be kept: %v",
			old.Mode&0o777, err))
	}
}

// openDirect opens the second descriptor, with O_DIRECT, or records why it cannot.
func (d *Replacement) openDirect() {
	const fix = "save to a file system with direct I/O, such as ext4 or XFS"
	if d.fs.Memory {
		d.refuse(d.fs.Name+" keeps files in memory: there is no disk to write to past the page cache",
			"save to a disk if the file is to survive a restart")
		return
	}
	var why string
	if d.align, why = directAlign(d.buffered); why != "" {
		d.refuse(fmt.Sprintf("%s reports that this file cannot be written with O_DIRECT (%s)", d.fs.Name, why), fix)
		return
	}
	fd, err := unix.Open(d.temp, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_DIRECT|unix.O_NOFOLLOW, 0)
	if err != nil {
		d.refuse(fmt.Sprintf("opening with O_DIRECT on %s failed: %v", d.fs.Name, err), fix)
		return
	}
	if !sameFile(fd, d.temp) || !sameFile(d.buffered, d.temp) {
		_ = unix.Close(fd)
		d.refuse("the file was replaced while it was being opened", "save again")
		return
	}
	d.direct = fd
}

// reserve allocates the blocks of the whole file, rounded up to whole pages. Writes with O_DIRECT are whole pages.
// Inside the allocated size they do not need the inode lock.
func (d *Replacement) reserve() error {
	a := max(pageAlign, d.align.Offset)
	n := (d.size + a - 1) / a * a
	if n == 0 {
		return nil
	}
	for {
		err := unix.Fallocate(d.buffered, 0, 0, n)
		switch err {
		case nil:
			return nil
		case unix.EINTR:
			continue
		case unix.EOPNOTSUPP, unix.ENOSYS:
			d.sparse = &Refusal{Reason: fmt.Sprintf("%s cannot reserve blocks: %v", d.fs.Name, err),
				Fix: "none needed; a full disk shows in the middle of the save instead of at its start"}
			err = unix.Ftruncate(d.buffered, n)
		case unix.ENOSPC, unix.EDQUOT:
			// The blocks that were allocated are freed, so that the error shows the real free space.
			_ = unix.Ftruncate(d.buffered, 0)
		}
		return d.fail("reserve space for", err)
	}
}

// Path returns the path that was given to Create.
func (d *Replacement) Path() string { return d.path }

// Target returns the path that Publish gives to the file: Path, or the target of the link at Path.
func (d *Replacement) Target() string { return d.target }

// Linked reports whether Path is a symbolic link.
func (d *Replacement) Linked() bool { return d.linked }

// Sparse returns the reason why disk blocks could not be reserved, or nil if they were reserved.
func (d *Replacement) Sparse() *Refusal { return d.sparse }

// Replaces reports whether a file existed at Target when Create was called.
func (d *Replacement) Replaces() bool { return d.replaces }

// Swept returns the number of temporary files of killed writers that Create removed.
func (d *Replacement) Swept() int { return d.swept }

// Notes lists the properties of the replaced file, such as its owner, that the new file could not keep.
func (d *Replacement) Notes() []string { return d.notes }

// Seal sets the final size and a unique modification time, flushes the file to storage, and returns its identity.
// Seal uses fsync, because fdatasync would not make the modification time durable.
func (d *Replacement) Seal() (Identity, error) {
	if err := unix.Ftruncate(d.buffered, d.size); err != nil {
		return Identity{}, d.fail("cut to its size", err)
	}
	// The kernel's coarse time may be the same for another file that was written a moment ago.
	now := unix.NsecToTimespec(time.Now().UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, d.temp, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Identity{}, d.fail("set the time of", err)
	}
	if err := ignoringEINTR(func() error { return unix.Fsync(d.buffered) }); err != nil {
		return Identity{}, d.fail("sync", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(d.buffered, &st); err != nil {
		return Identity{}, d.fail("stat", err)
	}
	return Identity{Inode: st.Ino, MtimeNs: st.Mtim.Nano()}, nil
}

// Publish renames the file to Target. After Publish, the caller syncs the directory to make the new name durable.
// After an error of Publish the caller must call Abandon.
//
// Freeing the disk blocks of a large old file takes time, so Publish keeps the old file open. The result `release` is
// a function that closes the old file and so frees its disk blocks. The function `release` is never nil; the caller
// must call it once.
func (d *Replacement) Publish() (release func(), err error) {
	release = func() {}
	if !sameFile(d.buffered, d.temp) {
		return release, errs.New(errs.IO, "write", d.path,
			"the temporary file was removed or replaced while it was being written").WithFix("save again")
	}
	old, err := unix.Open(d.target, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err == nil {
		release = func() { _ = unix.Close(old) }
	}
	if err := unix.Rename(d.temp, d.target); err != nil {
		return release, d.fail("put in place", err)
	}
	d.temp = ""
	d.close()
	return release, nil
}

// Abandon removes the temporary file. After Publish or an earlier Abandon, Abandon does nothing.
func (d *Replacement) Abandon() {
	if d.temp != "" && d.buffered >= 0 {
		_ = unix.Unlink(d.temp) // before the lock is released, while the file is still ours
		d.temp = ""
	}
	d.close()
}

// close releases the lock explicitly. A forked process may still hold the
// descriptor, but a published file must not stay locked.
func (d *Replacement) close() {
	if d.buffered >= 0 {
		_ = flock(d.buffered, unix.LOCK_UN)
	}
	for _, fd := range []*int{&d.direct, &d.buffered} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// sameFile reports whether name still leads to the open file.
func sameFile(fd int, name string) bool {
	var a, b unix.Stat_t
	return unix.Fstat(fd, &a) == nil && unix.Lstat(name, &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func flock(fd, how int) error { return ignoringEINTR(func() error { return unix.Flock(fd, how) }) }
