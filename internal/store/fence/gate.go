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

// gate decides what happens to an error of the file system: it is returned, waited for, or ends all writing.
type gate struct {
	armed   atomic.Bool   // false while Pebble opens: errors are returned, but see opening
	opening atomic.Bool   // true while Pebble opens for changes: if it cannot write, the opening is abandoned
	quiet   atomic.Bool   // true while the store opens: whoever opens it gets a failure as an error
	Closed  chan struct{} // closed when the store has failed, or is abandoned
	once    sync.Once
	mu      sync.Mutex
	err     error                 // why the store has failed
	full    atomic.Int32          // writers that wait until they can write
	cause   atomic.Pointer[error] // why the last of them waits
	owed    atomic.Int32          // changes that are made when there is space, and whose callers were told so
	onFail  func(error)
	OnFull  func() bool // frees space, if there is some to free, and says whether it did

	Waiting  time.Duration // between two tries
	Patience time.Duration // how long a change waits before its caller is told
	pause    time.Duration // before Pebble gets the error of a table that could not be written
}

// Fail ends all writing; the first error stays.
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

// Arm lets the fence hold back errors that Pebble does not survive. Pebble is open from now on.
func (f *gate) Arm() { f.armed.Store(true) }

// Hush keeps the fence from telling of a failure until Speak, because whoever opens the store gets it as an error.
func (f *gate) Hush() { f.quiet.Store(true) }

// Speak ends the quiet of an opening.
func (f *gate) Speak() {
	f.quiet.Store(false)
	if err := f.Failure(); err != nil && f.onFail != nil {
		f.onFail(err)
	}
}

// waits is why writers wait, or were the last to wait: there is no space, unless the file system has refused them.
func (f *gate) waits() error {
	if p := f.cause.Load(); p != nil {
		return *p
	}
	return object.ErrNoSpace
}

// Failure is why the store takes no changes any more, or nil.
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

// Writable says why the metadata takes no change now, or nil.
func (f *gate) Writable(op, name string) error {
	if err := f.Failure(); err != nil {
		return failed(op, name, err)
	}
	if f.Stalled() {
		return f.waitingError(op, name, "")
	}
	return nil
}

// waitingError is the error of changes while the log waits until it can be written.
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

// Stalled says whether the log waits until it can be written, or a change is still owed. The caller of an owed change
// got an error and let go of the locks before the change was made. A later change would undo half of it.
func (f *gate) Stalled() bool { return f.full.Load() > 0 || f.owed.Load() > 0 }

// park keeps a goroutine of Pebble from going on with an error it does not survive.
func park() { select {} }

// do runs one step on a file. It returns only what the caller survives. A step that the file system refused has done
// nothing, so it is tried again when the file system takes changes.
func (f *gate) do(vital bool, step func() error) error {
	return f.run(vital, layout.IsUnwritable, step)
}

// doSynced is do for a step that syncs. Where it fails for another reason than space, the kernel may have dropped what
// was to be written, so it is not tried again.
func (f *gate) doSynced(step func() error) error { return f.run(true, layout.IsNoSpace, step) }

// run runs a step until it succeeds, or returns what the caller survives. waits says of which errors it waits for
// better.
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
