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
	"github.com/nebulaio/nebulaio/internal/store/layout"
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

// folder returns the directory of a file.
func (s *Store) folder(n uint64) string {
	return s.fs.PathJoin(s.data, fmt.Sprintf("%03x", n/perFolder))
}

func (s *Store) path(n uint64) string { return s.fs.PathJoin(s.folder(n), fileName(n)) }

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
func (n *numbers) take(s *Store) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next == n.mark {
		done, err := s.use("reserve numbers", s.opts.Dir)
		if err != nil {
			return 0, err
		}
		defer done()
		b := s.db.NewBatch()
		if err := b.Set(metaKey("files"), binary.BigEndian.AppendUint64(nil, n.mark+numberReserve), nil); err != nil {
			return 0, fail("reserve numbers", s.opts.Dir, err)
		}
		if err := s.fence.Apply(s.db, "reserve numbers", s.opts.Dir, b, nil); err != nil {
			return 0, err
		}
		n.mark += numberReserve
	}
	n.next++
	return n.next - 1, nil
}

// create makes the file of an entry at its full length. The flusher makes the name durable.
func (s *Store) create(n uint64, size int64) (vfs.File, error) {
	const op = "create cache file"
	dir, path := s.folder(n), s.path(n)
	s.namesMu.Lock()
	made := s.folders[dir]
	s.namesMu.Unlock()
	if !made {
		if err := s.fs.MkdirAll(dir, 0o700); err != nil {
			return nil, fail(op, dir, err)
		}
	}
	file, err := layout.Private(s.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified))
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
		_ = s.fs.Remove(path)
		return nil, fail(op, path, err)
	}
	s.namesMu.Lock()
	if !s.folders[dir] {
		s.folders[dir] = true
		s.unsynced[s.data] = true
	}
	s.unsynced[dir] = true
	s.namesMu.Unlock()
	return file, nil
}

// syncNames makes the names of new files durable.
func (s *Store) syncNames() error {
	s.namesMu.Lock()
	dirs := s.unsynced
	s.unsynced = map[string]bool{}
	s.namesMu.Unlock()
	for dir := range dirs {
		if err := layout.SyncDir(s.fs, dir); err != nil {
			s.namesMu.Lock()
			for d := range dirs {
				s.unsynced[d] = true
			}
			s.namesMu.Unlock()
			return fail("sync", dir, err)
		}
	}
	return nil
}

// errLost means that an entry has no usable file.
var errLost = errors.New("the file is missing or has another length")

// reopen opens the file of an entry, which must have its full length.
func (s *Store) reopen(v *version) (vfs.File, error) {
	const op = "open cache file"
	path := s.path(v.file)
	info, err := s.fs.Stat(path) // OpenReadWrite would create a missing file
	switch {
	case missing(err):
		return nil, errLost
	case err != nil && !rotten(err):
		return nil, fail(op, path, err)
	case err != nil || !info.Mode().IsRegular() || info.Size() != v.id.Size:
		return nil, errLost
	}
	file, err := s.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		if rotten(err) {
			return nil, errLost
		}
		return nil, fail(op, path, err)
	}
	return file, nil
}

// unlink removes the file of an entry that the index does not have any more.
func (s *Store) unlink(v *version) {
	if !v.inline && v.file != 0 {
		s.remove(s.path(v.file))
	}
}

// remove removes a file, and tells what fails. A file that stays is removed after the next start.
func (s *Store) remove(path string) {
	if err := s.fs.Remove(path); err != nil && !missing(err) {
		s.opts.Failed(fail("remove", path, err))
	}
}

// checkSpace refuses n more bytes if they do not fit beside the reserve.
func (s *Store) checkSpace(op, name string, n int64) error {
	if s.opts.Reserve < 0 {
		return nil
	}
	u, err := s.fs.GetDiskUsage(s.opts.Dir)
	if err != nil {
		return nil // the write says what is wrong
	}
	if free := int64(min(u.AvailBytes, 1<<62)); free-n < s.opts.Reserve {
		return fullError(op, name, fmt.Sprintf("%d bytes are free on the disk, %d are kept in reserve", free, s.opts.Reserve))
	}
	return nil
}

// direct explains why an O_DIRECT open was refused.
func undirected(op, name string, direct bool, err error) error {
	if direct && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)) {
		return &errs.Error{Kind: errs.Unsupported, Op: op, Name: name,
			Msg: "the file system has no way past its page cache (O_DIRECT)", Err: err,
			Fix: "read through the page cache, or put the cache on ext4 or xfs"}
	}
	return fail(op, name, err)
}
