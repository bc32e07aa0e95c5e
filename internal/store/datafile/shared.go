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

// Shared is a file whose regions are written one by one, in any order and several at a time: the parts of an upload in
// their places. No region may be written that was acknowledged before; the caller sees to that.
type Shared struct {
	f     *Files
	id    ID
	name  string
	file  vfs.File
	syncs *group

	mu     sync.Mutex
	named  bool // the file's name is durable
	closed bool
}

// OpenShared opens the file for writing, or creates it. The caller's record of it has to be durable before: the file is
// settled like one that is committed, Recover has to know it, and only Remove ends it.
func (f *Files) OpenShared(id ID) (*Shared, error) {
	const op = "open"
	f.names.RLock()
	defer f.names.RUnlock()
	name, named := f.dataName(id), true
	if _, err := f.fs.Stat(name); missing(err) {
		// Settling takes a name away only under the lock that is held here, so what is not in data/ is in tmp/ or nowhere.
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

// ID is the file's.
func (s *Shared) ID() ID { return s.id }

// FillAt writes a region: exactly size bytes of body at off, or all of it where size is -1. The sums come as Pieces on
// the file's grid. An error leaves the region's bytes undefined and the others alone. For the body see Writer.Fill.
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

// Sync makes every region that was written before durable, and the file's name with them. One sync of the disk serves
// all who ask before it begins. After an error nothing that was not acknowledged before can be made durable through
// this Shared.
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

// Close lets go of the file, which stays. Nobody may be filling or syncing.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errs.New(errs.Closed, "close", s.name, "the file is closed already")
	}
	s.closed = true
	return fail("close", s.name, s.syncs.close())
}
