// SPDX-License-Identifier: Apache-2.0

// Package vfs opens files for the transfer engine.
//
// Each file is opened twice: once normally, for reads through the page cache, and once with O_DIRECT. Package vfs
// also reports the alignment that O_DIRECT needs, and which pages of a file are in the page cache.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Refusal is the reason why a faster route cannot be used, with a fix.
type Refusal struct {
	Reason string `json:"reason"`
	Fix    string `json:"fix,omitempty"`
}

// File is an open regular file for reading, with a second descriptor for O_DIRECT if the file system allows it. All
// methods of a File are safe for concurrent use; Close must be the last call.
type File struct {
	path     string
	size     int64
	mtime    time.Time
	state    atomic.Pointer[state] // the state at Open, or after the latest accepted change
	id       Identity
	fs       FSType
	buffered int
	direct   int // -1 if O_DIRECT was refused
	align    Alignment
	// refused is set if an open or a read with O_DIRECT fails. It is atomic, because any worker may set it.
	refused  atomic.Pointer[Refusal]
	probe    prober
	noNowait atomic.Bool // the file system answered EOPNOTSUPP to RWF_NOWAIT
	passed   bool        // another process opened the file and passed its descriptors
	served   Served      // how the process that passed the descriptors got the bytes
	closed   func()      // called once after Close; may be nil
	storage  lookedUp
	remote   Remote // nil for a local file
	dev      uint64 // device number of the file system
	// pastCache reports whether the file can be opened with O_DIRECT; the descriptor itself may be closed by a pool.
	pastCache bool
	pooled    pooled
	expected  atomic.Int64 // descriptor of the announcement of Expect, plus 1; 0 if there is none
}

// Alignment is the alignment in bytes that O_DIRECT requires.
type Alignment struct {
	Offset int64 `json:"offset"` // alignment of file offsets and lengths in bytes
	Memory int64 `json:"memory"` // alignment of buffer addresses in bytes
}

// pageAlign is the smallest alignment we use, even if the device allows 512 bytes.
// With whole pages, the aligned ranges of neighbouring reads do not overlap.
const pageAlign = 4096

// Open opens the regular file at path for reading. Open refuses a directory, a device or a socket.
func Open(path string) (*File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errs.Wrap("open", path, err)
	}
	f := &File{path: path, buffered: fd, direct: -1}
	if err := f.stat(); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	// O_NONBLOCK was for pipes; cuFile refuses a descriptor that has it.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0); err != nil {
		_ = unix.Close(fd)
		return nil, errs.Wrap("open", path, err)
	}
	f.fs = fsType(fd)
	f.openDirect()
	f.probe = newProber(fd, f.fs, 0)
	return f, nil
}

func (f *File) stat() error {
	var st unix.Stat_t
	if err := unix.Fstat(f.buffered, &st); err != nil {
		return errs.Wrap("stat", f.path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errs.New(errs.Invalid, "open", f.path, "is "+kindOfMode(st.Mode)+", expected a regular file")
	}
	f.size, f.dev = st.Size, st.Dev
	f.mtime = time.Unix(st.Mtim.Unix())
	seen := f.stateOf(&st)
	f.state.Store(&seen)
	f.id = Identity{Inode: st.Ino, MtimeNs: st.Mtim.Nano()}
	return nil
}

func kindOfMode(m uint32) string {
	kinds := map[uint32]string{unix.S_IFDIR: "a directory", unix.S_IFBLK: "a device", unix.S_IFCHR: "a device",
		unix.S_IFIFO: "a pipe", unix.S_IFSOCK: "a socket"}
	if kind, ok := kinds[m&unix.S_IFMT]; ok {
		return kind
	}
	return "not a regular file"
}

// openDirect opens the second descriptor, with O_DIRECT, or records why it cannot.
func (f *File) openDirect() {
	if f.fs.Memory {
		f.refuse(f.fs.Name+" keeps files in memory: there is no disk to read past the page cache",
			"none needed: reads come from memory")
		return
	}
	var why string
	if f.align, why = directAlign(f.buffered); why != "" {
		f.refuse(fmt.Sprintf("%s reports that this file cannot be read with O_DIRECT (%s)", f.fs.Name, why),
			"keep the file on ext4 or XFS without encryption, verity or data journalling")
		return
	}
	fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECT, 0)
	if err != nil {
		f.refuse(fmt.Sprintf("opening with O_DIRECT on %s failed: %v", f.fs.Name, err),
			"keep the file on a file system with direct I/O, such as ext4 or XFS")
		return
	}
	var a, b unix.Stat_t
	if unix.Fstat(f.buffered, &a) != nil || unix.Fstat(fd, &b) != nil || a.Ino != b.Ino || a.Dev != b.Dev {
		_ = unix.Close(fd)
		f.refuse("the file was replaced while it was being opened", "load it again")
		return
	}
	f.direct, f.pastCache = fd, true
}

// directAlign returns the alignment for direct I/O on the open file, or the
// kernel's reason why direct I/O is not possible.
func directAlign(fd int) (a Alignment, why string) {
	var stx unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &stx)
	return alignIn(&stx, err)
}

// alignOf returns the alignment for direct I/O on another descriptor, and whether it is a descriptor of f. One system
// call answers both questions.
func alignOf(f *File, fd int) (a Alignment, same bool, why string) {
	var stx unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_DIOALIGN, &stx)
	if err != nil || stx.Mask&unix.STATX_INO == 0 {
		// A kernel or a sandbox without statx.
		var st unix.Stat_t
		a, why = alignIn(&stx, unix.ENOSYS)
		return a, unix.Fstat(fd, &st) == nil && st.Ino == f.id.Inode && st.Dev == f.dev, why
	}
	a, why = alignIn(&stx, nil)
	return a, stx.Ino == f.id.Inode && unix.Mkdev(stx.Dev_major, stx.Dev_minor) == f.dev, why
}

// alignIn returns the alignment that statx reports, or a page if err is set or statx does not report it.
func alignIn(stx *unix.Statx_t, err error) (a Alignment, why string) {
	if err != nil || stx.Mask&unix.STATX_DIOALIGN == 0 {
		return Alignment{Offset: pageAlign, Memory: pageAlign}, ""
	}
	if stx.Dio_offset_align == 0 {
		return a, "statx dio_offset_align is 0"
	}
	return Alignment{Offset: max(int64(stx.Dio_offset_align), pageAlign), Memory: max(int64(stx.Dio_mem_align), 1)}, ""
}

func (f *File) refuse(reason, fix string) {
	f.refused.CompareAndSwap(nil, &Refusal{Reason: reason, Fix: fix})
}

// RefuseDirect records that reads with O_DIRECT fail although the file could be opened with O_DIRECT. Later calls of
// Direct return the first reason that was recorded.
func (f *File) RefuseDirect(reason, fix string) { f.refuse(reason, fix) }

// Path returns the path or name under which the file was opened.
func (f *File) Path() string { return f.path }

// Size returns the length in bytes that the file had when it was opened.
func (f *File) Size() int64 { return f.size }

// Identity returns the inode and the modification time of the open version of the file.
func (f *File) Identity() Identity { return f.id }

// FS returns the name of the file system and whether it keeps files in memory.
func (f *File) FS() FSType { return f.fs }

// Align returns the alignment that reads with O_DIRECT need, or zero if O_DIRECT is refused.
func (f *File) Align() Alignment { return f.align }

// Direct reports whether the file can be read with O_DIRECT; if not, the result `why` gives the reason.
func (f *File) Direct() (ok bool, why *Refusal) {
	if r := f.refused.Load(); r != nil {
		return false, r
	}
	return f.pastCache, nil
}

// DirectFD returns the file descriptor with O_DIRECT, or -1 if there is none. The File owns the descriptor.
func (f *File) DirectFD() int { return f.direct }

// BufferedFD returns the file descriptor without O_DIRECT, which uses the page cache. The File owns the descriptor.
func (f *File) BufferedFD() int { return f.buffered }

// Close closes both descriptors of the file. No read of the file may be in flight during Close.
func (f *File) Close() error {
	if p := f.pooled.pool; p != nil {
		p.leave(f)
	}
	unexpect(f)
	f.pastCache = false
	err := f.shut()
	if c, ok := f.remote.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	if tell := f.closed; tell != nil {
		f.closed = nil
		tell()
	}
	return errs.Wrap("close", f.path, err)
}
