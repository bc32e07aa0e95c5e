// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"context"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Shared is a data file with regions that are written separately, in any order and concurrently. The regions of a
// Shared are the parts of a multipart upload, at their final offsets in the object. The caller must not write to a
// region that was already acknowledged.
type Shared struct {
	f     *Files
	id    ID
	name  string
	file  vfs.File
	syncs *group

	mu     sync.Mutex
	named  bool // the name of the file is durable
	closed bool
}

// OpenShared opens the data file with this ID for writing, or creates it. The caller's metadata must record the file
// durably before the call of OpenShared. A Shared file is moved to data/ like a committed file, must be known to the
// caller of Recover, and is removed only by Remove.
func (f *Files) OpenShared(id ID) (*Shared, error) {
	const op = "open"
	f.names.RLock()
	defer f.names.RUnlock()
	name, named := f.dataName(id), true
	if _, err := f.fs.Stat(name); missing(err) {
		// Settling removes a name only under the lock that is held here, so a file that is not in data/ is in tmp/ or
		// missing.
		name, named = f.tmpName(id), false
	} else if err != nil {
		return nil, fail(op, name, err)
	}
	var file vfs.File
	err := f.guarded(name, unix.O_RDWR, func() (err error) {
		file, err = f.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
		return err
	})
	if err != nil {
		return nil, fail(op, name, err)
	}
	syncs := newGroup(func() error { return again(file.SyncData) }, file.Close)
	syncs.once = true
	return &Shared{f: f, id: id, name: name, file: file, named: named, syncs: syncs}, nil
}

// ID returns the ID of the file.
func (s *Shared) ID() ID { return s.id }

// FillAt writes a region of the file at offset off: exactly `size` bytes of body, or all bytes of body if size is -1.
// The returned Pieces are the checksums of the region, split at the block boundaries of the file. If FillAt fails, the
// bytes of its region are undefined; other regions are unaffected. FillAt handles the length and the errors of body as
// Writer.Fill does.
func (s *Shared) FillAt(ctx context.Context, body io.Reader, off, size int64, md5 bool) (Written, error) {
	const op = "write"
	if err := checkSize(op, s.name, off, max(size, 0)); err != nil {
		return Written{}, err
	}
	if err := preallocate(s.file, off, size); err != nil {
		return Written{}, fail(op, s.name, err)
	}
	fl := s.f.filler(s.file, s.name, s.file.WriteAt)
	g, sum, err := fl.fill(ctx, body, off, size, md5)
	if err != nil {
		return Written{}, err
	}
	return Written{Size: g.off - off, CRC64: g.whole, Pieces: g.pieces, MD5: sum}, nil
}

// Sync makes the file's name and all regions that were written before the call of Sync durable. Concurrent calls of
// Sync share one sync of the disk. After a failed Sync, the Shared can make no further writes durable.
func (s *Shared) Sync(ctx context.Context) error {
	const op = "sync"
	if err := context.Cause(ctx); err != nil {
		return fail(op, s.name, err)
	}
	if err := s.syncs.wait(); err != nil {
		return fail(op, s.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.named {
		return nil
	}
	if err := s.f.tmpDir.wait(); err != nil {
		return fail(op, s.name, err)
	}
	s.named = true
	s.f.Settle(s.id)
	return nil
}

// Close closes the Shared file, which stays on disk. Close must not run concurrently with FillAt or Sync.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errs.New(errs.Closed, "close", s.name, "the file is closed already")
	}
	s.closed = true
	return fail("close", s.name, s.syncs.close())
}
