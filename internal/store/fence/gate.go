// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// gate decides how an error of the file system is handled: the error is returned, the write waits, or all writing
// ends.
type gate struct {
	armed   atomic.Bool   // false while Pebble opens: errors are returned, but see opening
	opening atomic.Bool   // true while Pebble opens for changes: if it cannot write, the opening is abandoned
	quiet   atomic.Bool   // true while the store opens: the caller of Open gets a failure as an error
	Closed  chan struct{} // closed when the store has failed or is abandoned
	once    sync.Once
	mu      sync.Mutex
	err     error                 // why the store has failed
	full    atomic.Int32          // number of writers that wait until they can write
	cause   atomic.Pointer[error] // why the last of them waits
	owed    atomic.Int32          // changes that are made when there is space; their callers got an error
	onFail  func(error)
	OnFull  func() bool // frees space if it can, and returns whether it did

	Waiting  time.Duration // between two tries
	Patience time.Duration // how long a change waits before its caller gets an error
	pause    time.Duration // before Pebble gets the error of a table that could not be written
}

// Fail marks the store as failed, after which nothing is written any more. Fail keeps only the error of its first call
// as the cause of the failure.
func (f *gate) Fail(err error) {
	f.once.Do(func() {
		f.mu.Lock()
		f.err = err
		f.mu.Unlock()
		close(f.Closed)
		if f.onFail != nil && !f.quiet.Load() {
			f.onFail(err)
		}
	})
}

// Arm makes the Fence hold back errors at which Pebble would end the process. Arm is called as soon as Pebble is open.
func (f *gate) Arm() { f.armed.Store(true) }

// Hush suppresses calls of onFail until Speak is called. Hush is used while a store is being opened, because Open then
// returns a failure to its caller.
func (f *gate) Hush() { f.quiet.Store(true) }

// Speak ends the effect of Hush. If the store has failed, Speak calls onFail.
func (f *gate) Speak() {
	f.quiet.Store(false)
	if err := f.Failure(); err != nil && f.onFail != nil {
		f.onFail(err)
	}
}

// waits returns why writers wait, or waited last: there is no space, or the file system refused the write.
func (f *gate) waits() error {
	if p := f.cause.Load(); p != nil {
		return *p
	}
	return object.ErrNoSpace
}

// Failure returns the error after which the store accepts no changes, or nil if the store has not failed.
func (f *gate) Failure() error {
	select {
	case <-f.Closed:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.err
	default:
		return nil
	}
}

// Writable returns nil if the metadata accepts changes now, or the reason why not.
func (f *gate) Writable(op, name string) error {
	if err := f.Failure(); err != nil {
		return failed(op, name, err)
	}
	if f.Stalled() {
		return f.waitingError(op, name, "")
	}
	return nil
}

// waitingError returns the error for changes while the log waits until it can be written.
func (f *gate) waitingError(op, name, more string) error {
	cause := f.waits()
	if layout.IsNoSpace(cause) {
		return object.Fail(op, name, object.ErrNoSpace, "the log of the metadata waits for space"+more)
	}
	return &errs.Error{Kind: errs.KindOf(object.ErrReadOnly), Op: op, Name: name,
		Err: layout.Both{Sentinel: object.ErrReadOnly, Cause: cause},
		Msg: "the log of the metadata waits until its directory can be written" + more,
		Fix: "make the file system and the directory writable: the store then takes changes again by itself"}
}

// Stalled reports whether the log waits until it can be written, or a change is owed (still pending after its caller
// got an error). A change is owed if it is still pending although its caller has already got an error and released its
// locks. While a change is owed, the store refuses later changes, because they could undo half of the owed change.
func (f *gate) Stalled() bool { return f.full.Load() > 0 || f.owed.Load() > 0 }

// park stops a goroutine of Pebble forever, before it handles an error that would end the process.
func park() { select {} }

// do runs one step on a file. It returns only errors that the caller survives. A step that the file system refused
// has done nothing, so it is tried again when the file system accepts changes.
func (f *gate) do(vital bool, step func() error) error {
	return f.run(vital, layout.IsUnwritable, step)
}

// doSynced is do for a step that syncs. If it fails for another reason than space, the kernel may have dropped the
// unwritten data, so it is not tried again.
func (f *gate) doSynced(step func() error) error { return f.run(true, layout.IsNoSpace, step) }

// run runs a step until it succeeds, or returns an error that the caller survives. For errors for which waits returns
// true, run waits and tries again.
func (f *gate) run(vital bool, waits func(error) bool, step func() error) error {
	for {
		if err := f.Failure(); err != nil && f.armed.Load() {
			park()
		}
		err := step()
		if err == nil || !vital && errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !f.armed.Load() {
			if !f.opening.Load() || !layout.IsUnwritable(err) {
				return err
			}
			if layout.IsNoSpace(err) && f.OnFull != nil && f.OnFull() {
				continue
			}
			f.Fail(err)
			park()
		}
		if layout.IsNoSpace(err) && f.OnFull != nil && f.OnFull() {
			continue
		}
		if !vital {
			select {
			case <-time.After(f.pause):
			case <-f.Closed:
			}
			return err
		}
		if !waits(err) {
			f.Fail(err)
			park()
		}
		f.cause.Store(&err)
		f.full.Add(1)
		select {
		case <-time.After(f.Waiting):
		case <-f.Closed:
		}
		f.full.Add(-1)
	}
}
