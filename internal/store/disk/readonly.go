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
// tries from time to time whether it can be written. As soon as it can, the store opens its metadata again, between
// two calls.

// openRoom is the space that Pebble needs to be opened for changes, beside the space for the contents of its log: a
// new log, a manifest, and directories.
const openRoom = 8 << 20

// hindered reports whether an error is one for which a store is opened for reading instead.
func hindered(err error) bool {
	return errors.Is(err, object.ErrNoSpace) || errors.Is(err, object.ErrReadOnly)
}

// takeLock makes this process the owner of the store. If the file system accepts no changes, the process shares the
// store with other readers, and readOnly is the reason.
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

// ownLock makes a reader of the store its owner. The kernel has one lock of a process on a file, so that nobody else
// can take the lock in between.
func (s *Store) ownLock() error {
	if s.lock != nil {
		return nil
	}
	lock, err := layout.Lock(s.fs, s.opts.Dir)
	if err == nil {
		s.lock = lock
		return nil
	}
	// The failed try may have released the lock of this process.
	if file, ok := s.shared.(vfs.File); ok {
		if e := layout.LockForReading(file); e != nil {
			return layout.TakenBy(s.fs, s.opts.Dir, e)
		}
	}
	return err
}

// unlock releases the store.
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

// openReadOnly opens the metadata for reading and reports it; why is the reason.
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
	if err := s.journal.load(); err != nil {
		return err
	}
	s.fence.Arm()
	s.readOnly.Store(&why)
	s.tender.start()
	return nil
}

// refused returns the error for changes of a store that was opened for reading.
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

// room returns nil, or the reason why there is not enough space to open the metadata for changes. If the file system
// reports plenty, room believes it, unless try is set. Otherwise room reserves the space, gives up the ballast if
// that fails, and tries again.
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

// logSize returns the size of Pebble's logs, which is written to tables when they are replayed.
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

// tryFiles is at least the number of new files that Pebble creates when it is opened for changes.
const tryFiles = 8

// tryRoom takes space and inodes from the file system and gives them back: this is the only way to see quotas.
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

// revive opens the metadata for changes if that is possible again. It returns whether it tried: a failed try is
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

// mostTries limits how often opening the metadata for changes may fail: each failure costs the memory of that Pebble.
const mostTries = 10

// quiesce waits for a moment without calls, and keeps new calls waiting. It never makes a call wait for another one.
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

// Writable returns nil if the store accepts new content now, or the reason why not. The store refuses content if too
// little space is free, if the store is open for reading only, or after a failure. The error of Writable wraps
// object.ErrNoSpace, object.ErrReadOnly or object.ErrClosed.
func (s *Store) Writable(ctx context.Context) error {
	const op = "write to store"
	end, err := s.begin(ctx, op, s.opts.Dir)
	if err != nil {
		return err
	}
	defer end()
	return s.space.check(op, s.opts.Dir, 0)
}
