// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
)

// stallPatience is how long a change waits for space before its caller gets an error.
const stallPatience = 3 * time.Second

// Logger receives Pebble's messages and never ends the process. After a fatal error of Pebble, Logger makes the store
// refuse changes and blocks the calling goroutine forever.
type Logger struct{ Fence *Fence }

// Infof discards the message.
func (Logger) Infof(string, ...any) {}

// Errorf discards the message, because Pebble also returns the error to the caller.
func (Logger) Errorf(string, ...any) {}

// Fatalf marks the store as failed and blocks the calling goroutine forever. While Pebble is still opening, Fatalf
// panics with the error.
func (l Logger) Fatalf(format string, args ...any) {
	err := metadb.FatalError(format, args)
	if !l.Fence.armed.Load() {
		panic(err)
	}
	l.Fence.Fail(err)
	park()
}

// unsure is the error of a change with an outcome that is known only after the store is opened again. The files of
// such a change must neither be removed nor settled.
type unsure struct{ error }

func (u unsure) Unwrap() error { return u.error }

// IsUnsure reports whether err, returned by Apply, means that the outcome of the change is unknown.
func IsUnsure(err error) bool {
	var u unsure
	return errors.As(err, &u)
}

// OpenDB opens the metadata with Pebble through the Fence. If the disk accepts no changes, Pebble may hang while it
// opens. If Pebble hangs, OpenDB returns the failure, and the Fence blocks all further writes of the abandoned Pebble
// instance.
func (f *Fence) OpenDB(dir string, o *pebble.Options) (*pebble.DB, error) {
	f.opening.Store(!o.ReadOnly)
	defer f.opening.Store(false)
	done := metadb.OpenAside(dir, o)
	select {
	case r := <-done:
		return r.DB, r.Err
	case <-f.Closed:
		return nil, f.Failure()
	}
}

// failed returns the error for changes after the metadata could not be written.
func failed(op, name string, cause error) error {
	e := &errs.Error{Kind: errs.IO, Op: op, Name: name, Err: layout.Both{Sentinel: object.ErrReadOnly, Cause: cause},
		Msg: "the metadata could not be written, so the store takes no more changes",
		Fix: "look at the disk, then restart the server"}
	if layout.IsNoSpace(cause) {
		e.Err = layout.Both{Sentinel: object.ErrNoSpace, Cause: cause}
	}
	return e
}

// Apply commits a batch durably. If the parameter called then is not nil, Apply calls it after the commit. If IsUnsure
// is true for the error of Apply, the outcome of the commit is unknown: the log has failed, or it still waits for
// space. After a failure of the log the store must be opened again.
//
// Batches that are applied at the same time are committed as one group, with one sync of Pebble's log. Groups are
// committed on a separate goroutine, because Pebble's commit does not return if the log fails.
func (f *Fence) Apply(db *pebble.DB, op, name string, b *pebble.Batch, then func()) error {
	if err := f.Writable(op, name); err != nil {
		_ = b.Close()
		return err
	}
	done := make(chan error, 1)
	f.group.add(db, pending{b: b, then: then, done: done})
	wait := time.NewTimer(f.Patience)
	defer wait.Stop()
	for {
		select {
		case err := <-done:
			return errs.Wrap(op, name, err)
		case <-f.Closed:
			e := failed(op, name, f.Failure())
			return unsure{&errs.Error{Op: op, Name: name, Msg: "whether the change was made is known after a restart", Err: e}}
		case <-wait.C:
			if f.Stalled() {
				f.owed.Add(1)
				go func() {
					<-done
					f.owed.Add(-1)
				}()
				return unsure{f.waitingError(op, name, "; the change is made then")}
			}
			wait.Reset(f.Patience) // slow, but under way
		}
	}
}

// ApplyLazily commits a change without a sync. A crash may lose the change, so it must be a change that the store makes
// again if it is missing.
func (f *Fence) ApplyLazily(db *pebble.DB, change func(*pebble.Batch) error) {
	if f.Failure() != nil || f.Stalled() {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := db.NewBatch()
		if change(b) == nil {
			_ = db.Apply(b, pebble.NoSync)
		}
		_ = b.Close()
	}()
	wait := time.NewTicker(f.Patience)
	defer wait.Stop()
	for {
		select {
		case <-done:
			return
		case <-f.Closed:
			return
		case <-wait.C:
			if f.Stalled() {
				return
			}
		}
	}
}

// CloseDB closes Pebble, or abandons it if it cannot be closed any more. The parameter dir is the directory of the
// store.
func (f *Fence) CloseDB(db *pebble.DB, dir string) error {
	const op = "close store"
	if f.Stalled() {
		f.Fail(f.waits())
	}
	if err := f.Failure(); err != nil {
		return failed(op, dir, err)
	}
	done := make(chan error, 1)
	go func() { done <- db.Close() }()
	wait := time.NewTicker(f.Patience)
	defer wait.Stop()
	for {
		select {
		case err := <-done:
			f.Fail(object.ErrClosed)
			return layout.WrapIO(op, dir, err)
		case <-f.Closed:
			return failed(op, dir, f.Failure())
		case <-wait.C:
			if f.Stalled() {
				f.Fail(f.waits())
			}
		}
	}
}
