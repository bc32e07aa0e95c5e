// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Interest announces to the other processes of this host which bytes of a file a load still has to read. The
// announcements are shared locks (F_OFD_SETLK) on byte numbers far behind the end of the file. A shared lock needs only
// read permission, changes nothing on disk, and never blocks another process. The kernel releases the locks when the
// process ends, however it ends. All methods of an Interest are safe for concurrent use; Close must be the last call.
type Interest struct {
	f       *File
	fd      int
	counted bool       // the kernel counts the bytes that storage delivers for a thread
	filling sync.Mutex // one thread at a time adds pages: many threads would wait for the kernel's lock on the pages
}

// Byte numbers of the locks. They are the protocol between processes, also of different versions: do not change them.
// A lock on wantBase+x announces the wish to read byte x. A lock on a byte number from soonBase on tells the time in
// milliseconds, and in its low bits the process that has opened the file. A lock on loadBase+p tells that process p
// loads the file.
const (
	wantBase = 1 << 62
	soonBase = 1 << 61
	loadBase = soonBase + 1<<60
	pidBits  = 22
	pidMask  = 1<<pidBits - 1
	timeMask = 1<<(60-pidBits) - 1

	// soonFor is the time during which an opened file counts as a file that will be loaded soon. It covers the parse of
	// headers and the allocation of memory. A file that stays open without a load does not disturb others for longer.
	soonFor = 2 * time.Second
	// leastShared is the size of the smallest file that processes read together. Smaller files are read before an
	// agreement would pay off.
	leastShared = 16 << 20
)

// Company says whether other loads on this host use a file.
type Company int

const (
	// Alone means that no other load on this host reads the file.
	Alone Company = iota
	// Soon means that another process has just opened the file and will probably load it.
	Soon
	// Now means that another load reads the file.
	Now
)

// NewInterest opens an Interest in the file, or returns the reason why processes cannot agree on reads of the file. If
// the file is small or in memory, both results are nil. The caller closes the Interest.
func NewInterest(f *File) (*Interest, *Refusal) {
	unexpect(f)
	if f.remote != nil || f.fs.Memory || f.size < leastShared {
		return nil, nil
	}
	if !sharedLocally(f.fs.Name) {
		return nil, &Refusal{Reason: fmt.Sprintf("locks of %s are not known to stay on this host", f.fs.Name),
			Fix: "keep the file on a local file system, or load it with cache policy keep"}
	}
	fd, err := openLocks(f)
	if err != nil {
		return nil, &Refusal{Reason: fmt.Sprintf("the file cannot be opened or locked: %v", err),
			Fix: "load it with cache policy keep"}
	}
	i := &Interest{f: f, fd: fd}
	if err := i.lock(unix.F_RDLCK, loadBase+int64(os.Getpid()&pidMask), 1); err != nil {
		i.Close()
		return nil, &Refusal{Reason: fmt.Sprintf("the file cannot be locked: %v", err),
			Fix: "load it with cache policy keep"}
	}
	_, err = os.Stat("/proc/self/io")
	i.counted = err == nil
	// Exactly the wanted bytes are read: readahead would read bytes that another process reads.
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM)
	return i, nil
}

// openLocks opens the file once more. Locks belong to the open description, so a duplicate would not do.
func openLocks(f *File) (int, error) {
	if err := f.Pin(); err != nil {
		return -1, err
	}
	defer f.Unpin()
	return unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.buffered), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// sharedLocally reports whether locks on a file system are seen by all processes of this host and need no server.
func sharedLocally(fs string) bool {
	return slices.Contains([]string{"ext4", "ext3", "ext2", "xfs", "btrfs", overlay, "squashfs", "f2fs", "erofs", "zfs",
		"bcachefs", "jfs", "nilfs2", "reiserfs", "udf", "iso9660", "vfat", "exfat", "ntfs3", "hfsplus"}, fs)
}

// Expect announces to other processes that this process will probably load the file soon. A load ends the
// announcement, and so does Close. If the announcement is not possible, Expect does nothing.
func Expect(f *File) {
	if f.remote != nil || f.fs.Memory || f.size < leastShared || !sharedLocally(f.fs.Name) {
		return
	}
	fd, err := openLocks(f)
	if err != nil {
		return
	}
	at := soonBase + (time.Now().UnixMilli()&timeMask)<<pidBits + int64(os.Getpid()&pidMask)
	if setLock(fd, unix.F_RDLCK, at, 1) != nil || !f.expected.CompareAndSwap(0, int64(fd)+1) {
		_ = unix.Close(fd)
	}
}

// unexpect ends the announcement of Expect.
func unexpect(f *File) {
	if fd := f.expected.Swap(0); fd > 0 {
		_ = unix.Close(int(fd - 1))
	}
}

func setLock(fd int, kind int16, start, n int64) error {
	l := unix.Flock_t{Type: kind, Whence: unix.SEEK_SET, Start: start, Len: n}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l)
}

func (i *Interest) lock(kind int16, start, n int64) error { return setLock(i.fd, kind, start, n) }

// other returns the start and the length of a lock in [start, end) that another Interest holds.
func (i *Interest) other(start, end int64) (at, n int64, ok bool) {
	// A test for a write lock needs no permission to write. It finds every lock of others.
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: unix.SEEK_SET, Start: start, Len: end - start}
	if start >= end || unix.FcntlFlock(uintptr(i.fd), unix.F_OFD_GETLK, &l) != nil || l.Type == unix.F_UNLCK {
		return 0, 0, false
	}
	return l.Start, l.Len, true
}

// others calls yield with the start of each lock of one byte in [start, end) that another Interest holds, until yield
// returns false.
func (i *Interest) others(start, end int64, yield func(at int64) bool) {
	var look func(start, end int64) bool
	look = func(start, end int64) bool {
		at, _, ok := i.other(start, end)
		return !ok || yield(at) && look(start, at) && look(at+1, end)
	}
	look(start, end)
}

// Want announces that this load has yet to read n bytes at offset off.
func (i *Interest) Want(off, n int64) error {
	return errs.Wrap("announce a load of", i.f.path, i.lock(unix.F_RDLCK, wantBase+off, n))
}

// Done takes the announcement of the n bytes at offset off back.
func (i *Interest) Done(off, n int64) { _ = i.lock(unix.F_UNLCK, wantBase+off, n) }

// Wanted reports whether another load has yet to read a byte of [off, off+n). The result `from` is the offset at which
// a range with the byte begins that the other load has yet to read.
func (i *Interest) Wanted(off, n int64) (from int64, ok bool) {
	at, _, ok := i.other(wantBase+off, wantBase+off+n)
	return at - wantBase, ok
}

// Company reports whether other loads on this host use the file.
func (i *Interest) Company() Company {
	now := time.Now().Add(-soonFor).UnixMilli() & timeMask
	return i.company(soonBase+now<<pidBits, loadBase+1<<pidBits)
}

func (i *Interest) company(start, end int64) Company {
	at, _, ok := i.other(start, end)
	switch {
	case !ok:
		return Alone
	case at >= loadBase:
		return Now
	case at&pidMask != int64(os.Getpid()&pidMask):
		return Soon
	}
	// This process itself has opened the file a second time. The kernel names one lock only: look around it.
	return max(i.company(start, at), i.company(at+1, end))
}

// mostProcesses is the largest number of other processes that Processes lists.
const mostProcesses = 256

// Processes returns the ids of the processes with other loads of the file, in order, as these processes see their ids.
// Two loads of one process count once. Processes lists at most 256 ids.
func (i *Interest) Processes() []int {
	var out []int
	i.others(loadBase, loadBase+1<<pidBits, func(at int64) bool {
		out = append(out, int(at-loadBase))
		return len(out) < mostProcesses
	})
	slices.Sort(out)
	return out
}

// Bring brings n bytes at offset off into the page cache. The kernel reads each page from storage once, even if several
// processes want it at the same moment. Bring counts the bytes that storage delivered for this call as missed. If exact
// is false, the file system may deliver a page from fewer bytes of storage, and Bring then counts whole pages.
func (i *Interest) Bring(off, n int64, exact bool) (Buffered, error) {
	return i.read(nil, off, n, exact)
}

// Read reads into p at offset off through the page cache, and fails if it reads fewer than `need` bytes. Read counts as
// Bring does.
func (i *Interest) Read(p []byte, off int64, need int, exact bool) (Buffered, error) {
	return i.read(p[:need], off, int64(need), exact)
}

func (i *Interest) read(p []byte, off, n int64, exact bool) (Buffered, error) {
	runtime.LockOSThread() // the kernel counts the bytes from storage for each thread
	defer runtime.UnlockOSThread()
	before := delivered()
	hit := i.fill(off, n)
	// The last page arrives last. To wait for it is one wait; to wait for each page while it arrives would be many.
	var last [1]byte
	if _, err := i.f.preadFull(i.fd, last[:], off+n-1, 1); err != nil {
		return Buffered{}, err
	}
	if _, err := i.f.preadFull(i.fd, p, off, len(p)); err != nil {
		return Buffered{}, err
	}
	missed := min(delivered()-before, n)
	if !i.counted || missed > 0 && !exact {
		missed = n - hit
	}
	return Buffered{Cached: n - missed, Missed: missed}, nil
}

// delivered returns the number of bytes that storage delivered for the calling thread.
func delivered() int64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &r) != nil {
		return 0
	}
	return r.Inblock * 512
}

// fill starts the reads of all pages of [off, off+n) that are not in the page cache, without waiting for the reads. It
// returns the number of bytes that were cached.
func (i *Interest) fill(off, n int64) (hit int64) {
	i.filling.Lock()
	defer i.filling.Unlock()
	hit, known := i.f.CachedBytes(off, n)
	if known && hit >= n {
		return hit
	}
	// One call may start less than it was asked for: the kernel limits it to the size of one request to the disk.
	for at, end := off, off+n; at < end; {
		if unix.Fadvise(i.fd, at, end-at, unix.FADV_WILLNEED) != nil {
			break
		}
		started, known := i.f.CachedBytes(at, end-at)
		if !known || started < pageSize {
			break // the read itself brings the rest
		}
		at += started &^ (pageSize - 1)
	}
	return hit
}

// Close ends all announcements.
func (i *Interest) Close() {
	if i != nil {
		_ = i.lock(unix.F_UNLCK, 0, 0) // also if a child process has inherited the description
		_ = unix.Close(i.fd)
	}
}
