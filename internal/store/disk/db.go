// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

const (
	// minMemTable and maxMemTable bound what is in memory only. That bounds the log that has to be read again after a crash:
	// it is about two of them.
	minMemTable = 4 << 20
	maxMemTable = 32 << 20
	// memTables is how many memory tables there may be: one that is filled, and others that wait to be written.
	memTables = 4
	// toolMemory bounds the blocks of metadata that tools keep in memory, which have no setting for it.
	toolMemory = 64 << 20
	// minCache bounds the blocks of metadata in memory from below.
	minCache = 8 << 20
	// separated is the length from which a value is kept apart from its key, in a blob file. Then listings do not read
	// it, and compactions do not rewrite it. Records without many attributes are shorter. Without blob files, 80,000
	// writes of 4 KiB to 50,000 keys rewrote 1.9 times the bytes, and took 1.2 to 1.6 times the CPU time.
	separated = 1 << 10
	// blobGarbage is the share of deleted values from which files of values are rewritten, once they are blobAge old.
	blobGarbage = 0.3
	blobAge     = 10 * time.Second
)

// dbOptions are Pebble's.
func dbOptions(fs vfs.FS, so *Options, readOnly bool, l pebble.Logger, background func(error)) *pebble.Options {
	o := &pebble.Options{
		FS:                          blobFS{fs},
		ReadOnly:                    readOnly,
		Logger:                      l,
		Merger:                      counting,
		CacheSize:                   max(so.Memory, minCache+memTables*so.MemTable), // memory tables come out of it
		MemTableSize:                uint64(so.MemTable),
		MemTableStopWritesThreshold: memTables,
		MaxOpenFiles:                512,
		L0CompactionThreshold:       2,
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               64 << 20,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			BackgroundError: background,
			DataCorruption:  func(i pebble.DataCorruptionInfo) { background(fmt.Errorf("%s: %w", i.Path, i.Details)) },
		},
		WALBytesPerSync: 0,
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize = 4 << 10
		o.Levels[i].IndexBlockSize = 32 << 10
	}
	o.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: separated, MaxBlobReferenceDepth: 10,
			RewriteMinimumAge: so.blobAge, TargetGarbageRatio: blobGarbage,
		}
	}
	return o
}

// logger hears what Pebble says. It never ends the process: what Pebble holds
// for fatal makes the store refuse changes, and parks the goroutine it came from.
type logger struct{ fence *fence }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}
func (l logger) Fatalf(format string, args ...any) {
	err := fatalError(format, args)
	if !l.fence.armed.Load() {
		panic(fatal{err})
	}
	l.fence.fail(err)
	park()
}

// fatal is what Pebble held for fatal while it opened; open recovers it.
type fatal struct{ error }

// fatalError is what Pebble held for fatal, with the error that it came from: that tells a full disk from damage.
func fatalError(format string, args []any) error {
	err := fmt.Errorf(format, args...)
	for _, a := range args {
		if cause, ok := a.(error); ok && !errors.Is(err, cause) {
			return because{err, cause}
		}
	}
	return err
}

// because is an error that is said in other words than its cause.
type because struct{ said, cause error }

func (b because) Error() string { return b.said.Error() }
func (b because) Unwrap() error { return b.cause }

// toolOptions are Pebble's for check, backup and salvage, which open metadata without a store around it.
func toolOptions(fs vfs.FS, memTable int64, readOnly bool) *pebble.Options {
	so := &Options{Memory: toolMemory, MemTable: memTable, blobAge: blobAge}
	return dbOptions(fs, so, readOnly, quiet{}, func(error) {})
}

// openDB opens the metadata, and turns whatever Pebble does on a failure into an error. Where the disk takes no changes,
// Pebble may never return: then it is left behind the fence, which lets it do nothing more. The fence may be nil.
func openDB(dir string, o *pebble.Options, f *fence) (*pebble.DB, error) {
	type result struct {
		db  *pebble.DB
		err error
	}
	var closed chan struct{} // never, without a fence
	if f != nil {
		closed = f.closed
		f.opening.Store(!o.ReadOnly)
		defer f.opening.Store(false)
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				err, ok := p.(error)
				if !ok {
					panic(p)
				}
				r = result{nil, err}
			}
			done <- r
		}()
		r.db, r.err = pebble.Open(dir, o)
	}()
	select {
	case r := <-done:
		return r.db, r.err
	case <-closed:
		return nil, f.failure()
	}
}

// get reads a value; it returns nil and no error where there is none.
func get(r pebble.Reader, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, metaErr("", err)
	}
	c := append(make([]byte, 0, len(v)), v...)
	// A value that could not be fetched from a blob file comes empty, and only the end says why.
	if err := closer.Close(); err != nil {
		return nil, metaErr("", err)
	}
	return c, nil
}

// has says whether one of the keys exists.
func has(r pebble.Reader, keys ...[]byte) (bool, error) {
	for _, k := range keys {
		v, err := get(r, k)
		if v != nil || err != nil {
			return v != nil, err
		}
	}
	return false, nil
}

// writable says why no change can be made now, or nil.
func (s *Store) writable(op, name string) error {
	if why := s.readOnly.Load(); why != nil {
		return s.refused(op, name, *why)
	}
	if err := s.fence.failure(); err != nil {
		return s.failed(op, name, err)
	}
	if s.stalled() {
		return s.waiting(op, name, "")
	}
	return nil
}

func (s *Store) failed(op, name string, cause error) error {
	e := &errs.Error{Kind: errs.IO, Op: op, Name: name, Err: bothErrors{object.ErrReadOnly, cause},
		Msg: "the metadata could not be written, so the store takes no more changes", Fix: "look at the disk, then restart the server"}
	if noSpace(cause) {
		e.Err = bothErrors{object.ErrNoSpace, cause}
	}
	return e
}

// waiting is what changes are told while the log waits until it can be written.
func (s *Store) waiting(op, name, more string) error {
	cause := s.fence.waits()
	if noSpace(cause) {
		return object.Fail(op, name, object.ErrNoSpace, "the log of the metadata waits for space"+more)
	}
	return &errs.Error{Kind: errs.KindOf(object.ErrReadOnly), Op: op, Name: name, Err: bothErrors{object.ErrReadOnly, cause},
		Msg: "the log of the metadata waits until its directory can be written" + more,
		Fix: "make the file system and the directory writable: the store then takes changes again by itself"}
}

// stalled says whether the log waits until it can be written, or a change is still owed: one that its caller was told of, and let go of the
// locks for, before it was made. Whoever built on what was before it would undo half of it.
func (s *Store) stalled() bool { return s.fence.full.Load() > 0 || s.owed.Load() > 0 }

// stallPatience is how long a change waits for space before its caller is told.
const stallPatience = 3 * time.Second

// apply makes a batch durable. Where it returns an error that isUnsure, the
// outcome is known only later: the log failed, and the store has to be opened
// again, or the log still waits for space. then, where given, is called once when the batch is durable.
//
// Pebble shares the sync of its log among all who commit at the same time. It
// runs in a goroutine of its own, since it does not return when the log fails.
func (s *Store) apply(op, name string, b *pebble.Batch, then func()) error {
	if err := s.writable(op, name); err != nil {
		_ = b.Close()
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := s.db.Apply(b, pebble.Sync)
		if err == nil {
			err = b.Close()
		}
		if err == nil && then != nil {
			then()
		}
		done <- err
	}()
	wait := time.NewTimer(s.patience)
	defer wait.Stop()
	for {
		select {
		case err := <-done:
			return errs.Wrap(op, name, err)
		case <-s.fence.closed:
			e := s.failed(op, name, s.fence.failure())
			return unsure{&errs.Error{Op: op, Name: name, Msg: "whether the change was made is known after a restart", Err: e}}
		case <-wait.C:
			if s.stalled() {
				owed := s.owed
				owed.Add(1)
				go func() {
					<-done
					owed.Add(-1)
				}()
				return unsure{s.waiting(op, name, "; the change is made then")}
			}
			wait.Reset(s.patience) // slow, but under way
		}
	}
}

// applyLazily makes a change that may be lost, since it would be made again.
func (s *Store) applyLazily(change func(*pebble.Batch) error) {
	if s.fence.failure() != nil || s.stalled() {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := s.db.NewBatch()
		if change(b) == nil {
			_ = s.db.Apply(b, pebble.NoSync)
		}
		_ = b.Close()
	}()
	wait := time.NewTicker(s.patience)
	defer wait.Stop()
	for {
		select {
		case <-done:
			return
		case <-s.fence.closed:
			return
		case <-wait.C:
			if s.stalled() {
				return
			}
		}
	}
}
