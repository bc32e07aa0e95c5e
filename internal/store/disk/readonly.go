// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// A store that cannot be written when it is opened is opened for reading: its disk is full, or its file system or its
// directory is read-only. Pebble then replays its log into memory and writes nothing. The store refuses changes, and
// tries from time to time whether it can be written; then it opens its metadata again, between two calls.

// openRoom is the space that Pebble needs to be opened for changes, beside that for what is in its log: a new log, a
// manifest, and directories.
const openRoom = 8 << 20

// hindered says whether an error is one for which a store is opened for reading instead.
func hindered(err error) bool {
	return errors.Is(err, object.ErrNoSpace) || errors.Is(err, object.ErrReadOnly)
}

// takeLock makes this process the owner of the store. Where the file system takes no changes, the process shares the
// store with other readers, and readOnly says why.
func (s *Store) takeLock() (readOnly, err error) {
	if s.lock, err = layout.Lock(s.fs, s.opts.Dir); !hindered(err) {
		return nil, err
	}
	readOnly = err
	if s.shared, err = layout.Share(s.fs, s.opts.Dir); err != nil {
		return nil, err
	}
	return readOnly, nil
}

// ownLock makes a reader of the store its owner. The kernel has one lock of a process on a file, so that nobody comes
// in between.
func (s *Store) ownLock() error {
	if s.lock != nil {
		return nil
	}
	lock, err := layout.Lock(s.fs, s.opts.Dir)
	if err == nil {
		s.lock = lock
		return nil
	}
	// The failed try may have taken the lock of this process away with it.
	if file, ok := s.shared.(vfs.File); ok {
		if e := layout.LockForReading(file); e != nil {
			return layout.TakenBy(s.fs, s.opts.Dir, e)
		}
	}
	return err
}

// unlock lets go of the store.
func (s *Store) unlock() error {
	var err error
	if s.lock != nil {
		err = s.lock.Close()
	}
	if s.shared != nil {
		if e := s.shared.Close(); err == nil {
			err = e
		}
	}
	return err
}

// openReadOnly opens the metadata for reading, and says so; why is the reason.
func (s *Store) openReadOnly(why error) error {
	exists, err := s.metaExists(s.fs.PathJoin(s.opts.Dir, layout.MetaName))
	if err != nil {
		return err
	}
	if !exists || s.epoch == 0 {
		return why // there is nothing to be read
	}
	if err := s.openMeta(true); err != nil {
		return err
	}
	if err := s.loadBuckets(); err != nil {
		return err
	}
	s.fence.Arm()
	s.readOnly.Store(&why)
	s.tender.start()
	return nil
}

// refused is what changes of a store that was opened for reading are told.
func (s *Store) refused(op, name string, why error) error {
	sentinel := object.ErrReadOnly
	if layout.IsNoSpace(why) {
		sentinel = object.ErrNoSpace
	}
	return &errs.Error{Kind: errs.KindOf(sentinel), Op: op, Name: name, Err: layout.Both{Sentinel: sentinel, Cause: why},
		Msg: "the store is open for reading only",
		Fix: "make room on its disk, or make it writable: the store then takes changes again by itself"}
}

// letGo abandons metadata that could not be opened for changes, so that it can be opened for reading.
func (s *Store) letGo() {
	s.remover.stop()
	if s.db != nil {
		_ = s.closeDB() // what it could not write is in the log, or was never acknowledged
		s.db = nil
	}
	_ = s.fence.Witness.Close(false) // what it says holds, durable or not
	s.newFence()
}

// room says why there is not enough space to open the metadata for changes, or nil. It believes the file system where
// that reports plenty, unless it shall try; else it asks for the space, gives up the ballast, and asks again.
func (s *Store) room(try bool) error {
	need := openRoom + s.logSize()
	if free := s.space.look(); !try && (free < 0 || free >= 2*need) {
		return nil
	}
	err := s.tryRoom(need)
	if layout.IsNoSpace(err) && s.ballast.giveUp() {
		err = s.tryRoom(need)
	}
	return layout.WrapIO("open store", s.opts.Dir, err)
}

// logSize is how long Pebble's logs are: what they hold is written to tables when they are replayed.
func (s *Store) logSize() int64 {
	meta := s.fs.PathJoin(s.opts.Dir, layout.MetaName)
	names, err := s.fs.List(meta)
	if err != nil {
		return 0
	}
	var sum int64
	for _, name := range names {
		if info, err := s.fs.Stat(s.fs.PathJoin(meta, name)); err == nil && strings.HasSuffix(name, ".log") {
			sum += info.Size()
		}
	}
	return sum
}

// tryFiles is how many new files Pebble makes when it is opened for changes, or a few more.
const tryFiles = 8

// tryRoom takes space and inodes from the file system and gives them back: quotas are not seen in another way.
func (s *Store) tryRoom(need int64) error {
	dir := s.fs.PathJoin(s.opts.Dir, layout.MetaName)
	if _, err := s.fs.Stat(dir); err != nil {
		dir = s.opts.Dir // a new store
	}
	path := s.fs.PathJoin(dir, layout.BallastName+".try")
	var file vfs.File
	for range tryFiles {
		f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // nothing was written to it
		if err := s.fs.Remove(path); err != nil {
			return err
		}
		file = f
	}
	err := file.Preallocate(0, need)
	if unsupported(err) {
		if free := s.space.look(); free >= 0 && free < need {
			return fmt.Errorf("%d bytes are free, %d are needed: %w", free, need, unix.ENOSPC)
		}
		return nil
	}
	return err
}

// revive opens the metadata for changes where that is possible again. It says whether it was tried: a try that fails is
// expensive.
func (s *Store) revive(ctx context.Context) (tried bool) {
	if s.tries >= mostTries {
		return false
	}
	if err := s.ownLock(); err != nil || s.room(true) != nil {
		return false
	}
	s.yield.Store(true)
	defer s.yield.Store(false)
	if !s.quiesce(ctx) {
		return false
	}
	defer s.life.Unlock()
	if s.closed.Load() {
		return false
	}
	_ = s.db.Close() // nothing was written through it
	s.db = nil
	_ = s.fence.Witness.Close(false) // it was never started
	s.newFence()
	s.readOnly.Store(nil)
	err := s.openWritable(ctx)
	if err == nil {
		return true
	}
	s.letGo()
	if s.tries++; s.tries == mostTries {
		err = fmt.Errorf("%w (tried %d times; restart the server when this is mended)", err, s.tries)
	}
	if e := s.openReadOnly(err); e != nil {
		s.fence.Fail(e) // said to Events.Failed: a restart is needed
	}
	return true
}

// mostTries bounds how often the metadata is opened for changes in vain: each time costs the memory that Pebble had
// taken.
const mostTries = 10

// quiesce waits for a moment without calls, and keeps new ones waiting. It never makes a call wait for another one.
func (s *Store) quiesce(ctx context.Context) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		if s.life.TryLock() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return false
}

// Writable says why the store takes no new content now, nil while it does: the disk is full up to the reserve, the
// store is open for reading only, or it has failed. object.ErrNoSpace, object.ErrReadOnly, object.ErrClosed.
func (s *Store) Writable(ctx context.Context) error {
	const op = "write to store"
	end, err := s.begin(ctx, op, s.opts.Dir)
	if err != nil {
		return err
	}
	defer end()
	return s.space.check(op, s.opts.Dir, 0)
}
