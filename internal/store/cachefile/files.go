// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/lend"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// perFolder is the number of neighbouring files that share a folder, so that one sync makes many names durable.
const perFolder = 4096

func fileName(n uint64) string { return fmt.Sprintf("%016x", n) }

// parseFile returns the number of a file's name, or false for a name that is not ours.
func parseFile(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 16, 64)
	return n, err == nil && fileName(n) == name
}

// files is the files of a cache with the content of entries.
type files struct {
	opts *Options
	fs   vfs.FS
	data string // the folder of the files
	lent *lend.Directory
	ids  numbers

	namesMu  sync.Mutex
	folders  map[string]bool // folders of files that exist
	unsynced map[string]bool // directories with names that are not durable
}

func newFiles(o *Options) *files {
	return &files{opts: o, fs: o.FS, data: o.FS.PathJoin(o.Dir, layout.DataName), folders: map[string]bool{},
		unsynced: map[string]bool{}, lent: lend.New(o.Dir)}
}

// native reports whether the files are the operating system's, and have descriptors.
func (f *files) native() bool { return f.fs == vfs.Default }

// mount lets clients open files through a read-only mount, if that is asked for.
func (f *files) mount() {
	if f.opts.ReadOnlyMount && f.native() {
		f.lent = lend.Mount(f.opts.Dir, layout.DataName)
	}
}

// makeDirs creates the directory of the cache and makes its name durable.
func (f *files) makeDirs() error {
	const op = "open cache"
	_, err := f.fs.Stat(f.opts.Dir)
	for _, dir := range []string{f.opts.Dir, f.data} {
		if err := f.fs.MkdirAll(dir, 0o700); err != nil {
			return fail(op, dir, err)
		}
	}
	if missing(err) {
		// If the parent belongs to another owner, its sync may fail. Then a loss of power may lose the empty cache.
		_ = layout.SyncDir(f.fs, f.fs.PathDir(f.opts.Dir))
	}
	return fail(op, f.opts.Dir, layout.SyncDir(f.fs, f.opts.Dir))
}

// folder returns the directory of a file.
func (f *files) folder(n uint64) string {
	return f.fs.PathJoin(f.data, fmt.Sprintf("%03x", n/perFolder))
}

func (f *files) path(n uint64) string { return f.fs.PathJoin(f.folder(n), fileName(n)) }

// numbers assigns the numbers of files, each once. The mark in the database is above all assigned numbers, and durable
// before the first of them is used.
type numbers struct {
	mu         sync.Mutex
	next, mark uint64
	first      uint64 // the first number that this process assigns
}

const numberReserve = 4096

// begin reads the mark.
func (n *numbers) begin(db *pebble.DB) error {
	next, err := metadb.GetNumber(db, metaKey("files"), 1)
	n.next, n.mark, n.first = next, next, next
	return err
}

// take assigns the next number.
func (n *numbers) take(m *metadata) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == n.mark {
		mark := pair{metaKey("files"), binary.BigEndian.AppendUint64(nil, n.mark+numberReserve)}
		if err := m.commit("reserve numbers", []pair{mark}, nil, false); err != nil {
			return 0, err
		}
		n.mark += numberReserve
	}
	n.next++
	return n.next - 1, nil
}

// create makes the file of an entry at its full length. The flusher makes the name durable.
func (f *files) create(n uint64, size int64) (vfs.File, error) {
	const op = "create cache file"
	dir, path := f.folder(n), f.path(n)
	f.namesMu.Lock()
	made := f.folders[dir]
	f.namesMu.Unlock()
	if !made {
		if err := f.fs.MkdirAll(dir, 0o700); err != nil {
			return nil, fail(op, dir, err)
		}
	}
	file, err := layout.Private(f.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified))
	if err != nil {
		return nil, fail(op, path, err)
	}
	if fd := file.Fd(); fd != vfs.InvalidFd {
		err = unix.Ftruncate(int(fd), size)
	} else {
		_, err = file.WriteAt([]byte{0}, size-1)
	}
	if err != nil {
		_ = file.Close()
		_ = f.fs.Remove(path)
		return nil, fail(op, path, err)
	}
	f.namesMu.Lock()
	if !f.folders[dir] {
		f.folders[dir] = true
		f.unsynced[f.data] = true
	}
	f.unsynced[dir] = true
	f.namesMu.Unlock()
	return file, nil
}

// syncNames makes the names of new files durable.
func (f *files) syncNames() error {
	f.namesMu.Lock()
	dirs := f.unsynced
	f.unsynced = map[string]bool{}
	f.namesMu.Unlock()
	for dir := range dirs {
		if err := layout.SyncDir(f.fs, dir); err != nil {
			f.namesMu.Lock()
			for d := range dirs {
				f.unsynced[d] = true
			}
			f.namesMu.Unlock()
			return fail("sync", dir, err)
		}
	}
	return nil
}

// errLost means that an entry has no usable file.
var errLost = errors.New("the file is missing or has another length")

// reopen opens the file of an entry, which must have its full length.
func (f *files) reopen(v *version) (vfs.File, error) {
	const op = "open cache file"
	path := f.path(v.file)
	info, err := f.fs.Stat(path) // OpenReadWrite would create a missing file
	switch {
	case missing(err):
		return nil, errLost
	case err != nil && !rotten(err):
		return nil, fail(op, path, err)
	case err != nil || !info.Mode().IsRegular() || info.Size() != v.id.Size:
		return nil, errLost
	}
	if f.native() {
		// A client with a lease on the file must not make the open wait. It cannot take a lease while we hold fd.
		fd, err := lend.Unleased(unix.AT_FDCWD, path, unix.O_RDWR)
		if errors.Is(err, lend.ErrBusy) {
			return nil, taken(op, path, err)
		}
		if err == nil {
			defer func() { _ = unix.Close(fd) }()
		}
	}
	file, err := f.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		if rotten(err) {
			return nil, errLost
		}
		return nil, fail(op, path, err)
	}
	return file, nil
}

// unlink removes the file of an entry that the index does not have any more.
func (f *files) unlink(v *version) {
	if !v.inline && v.file != 0 {
		f.remove(f.path(v.file))
	}
}

// remove removes a file, and tells what fails. A file that stays is removed after the next start.
func (f *files) remove(path string) {
	if err := f.fs.Remove(path); err != nil && !missing(err) {
		f.opts.Failed(fail("remove", path, err))
	}
}

// checkSpace refuses n more bytes if they do not fit beside the reserve.
func (f *files) checkSpace(op, name string, n int64) error {
	if f.opts.Reserve < 0 {
		return nil
	}
	u, err := f.fs.GetDiskUsage(f.opts.Dir)
	if err != nil {
		return nil // the write says what is wrong
	}
	if free := int64(min(u.AvailBytes, 1<<62)); free-n < f.opts.Reserve {
		return fullError(op, name, fmt.Sprintf("%d bytes are free on the disk, %d are kept in reserve", free, f.opts.Reserve))
	}
	return nil
}

// taken returns the error for a file on which somebody keeps a lease.
func taken(op, name string, err error) error {
	return object.Fail(op, name, both{object.ErrBusy, err}, "")
}

// undirected explains why an O_DIRECT open was refused.
func undirected(op, name string, direct bool, err error) error {
	if direct && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)) {
		return &errs.Error{Kind: errs.Unsupported, Op: op, Name: name,
			Msg: "the file system has no way past its page cache (O_DIRECT)", Err: err,
			Fix: "read through the page cache, or put the cache on ext4 or xfs"}
	}
	return fail(op, name, err)
}
