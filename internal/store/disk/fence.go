// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
)

// fence stands between Pebble and the file system. Pebble ends the process
// (Fatalf, or a panic under a mutex that it has already unlocked) when its log
// or its manifest cannot be written. So that this never happens, an error of
// those files does not return to it:
//
//   - no space left: the ballast is given up, and the write is tried again. Where
//     there is none, the write waits until there is space; meanwhile the store
//     refuses changes with object.ErrNoSpace;
//   - the file system has become read-only, or the directory may not be written:
//     nothing was written, so the write waits too, and changes are refused with
//     object.ErrReadOnly. A sync that fails is another matter, see below;
//   - anything else: the store has failed. The goroutine that met the error is
//     parked for good, and nothing is written any more, so that the next Open
//     finds what was there at that moment.
//
// Errors of tables are returned, after a while: Pebble tries flushes and
// compactions again by itself, and at once, so that a full disk would keep a
// core busy and fill the log. When the store has failed, they are not tried again.
//
// While Pebble opens for changes it would try a flush again for ever on a disk that cannot be written. Then the
// goroutine is parked, and openDB abandons that Pebble.
type fence struct {
	vfs.FS
	armed   atomic.Bool   // false while Pebble opens: errors are returned, but see opening
	opening atomic.Bool   // true while Pebble opens for changes: where it cannot write, the opening is abandoned
	closed  chan struct{} // closed when the store has failed, or is abandoned
	once    sync.Once
	mu      sync.Mutex
	err     error
	full    atomic.Int32          // writers that wait until they can write
	cause   atomic.Pointer[error] // why the last of them waits
	syncs   atomic.Uint64
	onFail  func(error)
	home    string        // the directory of the metadata; other files are none of its business
	reach   *reach        // the witness of how far logs and manifests reach
	onFull  func() bool   // frees space, where there is some to free, and says whether it did
	quiet   atomic.Bool   // true while the store opens: whoever opens it hears of a failure
	waiting time.Duration // between two tries
	pause   time.Duration // before Pebble hears of a table that could not be written
}

func newFence(under vfs.FS, home string, onFail func(error)) *fence {
	f := &fence{FS: under, home: home, closed: make(chan struct{}), onFail: onFail, waiting: 200 * time.Millisecond, pause: time.Second}
	f.reach = newReach(under, f.fail)
	return f
}

// fail ends all writing; the first error stays.
func (f *fence) fail(err error) {
	f.once.Do(func() {
		f.mu.Lock()
		f.err = err
		f.mu.Unlock()
		close(f.closed)
		if f.onFail != nil && !f.quiet.Load() {
			f.onFail(err)
		}
	})
}

// speak ends the quiet of an opening.
func (f *fence) speak() {
	f.quiet.Store(false)
	if err := f.failure(); err != nil && f.onFail != nil {
		f.onFail(err)
	}
}

// waits is why writers wait, or were the last to wait: there is no space, unless the file system has refused them.
func (f *fence) waits() error {
	if p := f.cause.Load(); p != nil {
		return *p
	}
	return object.ErrNoSpace
}

// failure is why the store takes no changes any more, or nil.
func (f *fence) failure() error {
	select {
	case <-f.closed:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.err
	default:
		return nil
	}
}

func vital(name string) bool {
	return strings.HasSuffix(name, ".log") || strings.Contains(name, "MANIFEST") || strings.Contains(name, "marker.")
}

func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, object.ErrNoSpace)
}

// unwritable says whether an error is of a file system that takes no changes.
func unwritable(err error) bool {
	return noSpace(err) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}

// park keeps a goroutine of Pebble from going on with an error it does not survive.
func park() { select {} }

// do runs one step on a file. It returns only what the caller survives. A step that the file system refused has done
// nothing, so it is tried again when the file system takes changes.
func (f *fence) do(vital bool, step func() error) error { return f.run(vital, unwritable, step) }

// doSynced is do for a step that syncs. Where it fails for another reason than space, the kernel may have dropped what
// was to be written, so it is not tried again.
func (f *fence) doSynced(step func() error) error { return f.run(true, noSpace, step) }

func (f *fence) run(vital bool, waits func(error) bool, step func() error) error {
	for {
		if err := f.failure(); err != nil && f.armed.Load() {
			park()
		}
		err := step()
		if err == nil || !vital && errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !f.armed.Load() {
			if !f.opening.Load() || !unwritable(err) {
				return err
			}
			if noSpace(err) && f.onFull != nil && f.onFull() {
				continue
			}
			f.fail(err)
			park()
		}
		if noSpace(err) && f.onFull != nil && f.onFull() {
			continue
		}
		if !vital {
			select {
			case <-time.After(f.pause):
			case <-f.closed:
			}
			return err
		}
		if !waits(err) {
			f.fail(err)
			park()
		}
		f.cause.Store(&err)
		f.full.Add(1)
		select {
		case <-time.After(f.waiting):
		case <-f.closed:
		}
		f.full.Add(-1)
	}
}

// inside says whether a file is one of the metadata. A backup goes through the fence too, and its errors are its own.
func (f *fence) inside(name string) bool { return f.PathDir(name) == f.home }

func (f *fence) file(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if !f.inside(name) {
		return open()
	}
	v := vital(name)
	var file vfs.File
	err := f.do(v, func() (err error) {
		file, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: file, fence: f, vital: v, track: f.reach.track(f.PathBase(name))}, nil
}

// Create makes the names in a directory durable before it makes a marker there.
// Pebble syncs the directory once after it has made both a manifest and the
// marker that names it; where a power cut keeps only the second, the store
// could not be opened any more.
func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(f.PathBase(name), "marker.") {
		if err := syncDir(f, f.PathDir(name)); err != nil {
			return nil, err
		}
	}
	file, err := f.file(name, func() (vfs.File, error) { return private(f.FS.Create(name, c)) })
	if n, ok := markedManifest(f.PathBase(name)); ok && err == nil && f.inside(name) {
		f.reach.marker(n)
	}
	return file, err
}

func (f *fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return private(f.FS.OpenReadWrite(name, c, opts...)) })
}

func (f *fence) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.forget(old)
	return f.file(name, func() (vfs.File, error) { return private(f.FS.ReuseForWrite(old, name, c)) })
}

// forget strikes a log or manifest off the witness that is about to go. What Pebble removes it does not need any more.
func (f *fence) forget(name string) {
	if t := f.reach.track(f.PathBase(name)); t != nil && f.inside(name) {
		f.reach.forget(t.log, t.number)
	}
}

func (f *fence) OpenDir(name string) (vfs.File, error) {
	if name != f.home {
		return f.FS.OpenDir(name)
	}
	// The directory is synced on behalf of logs, manifests and tables alike.
	var file vfs.File
	err := f.do(true, func() (err error) {
		file, err = f.FS.OpenDir(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &fencedFile{File: file, fence: f, vital: true, dir: true}, nil
}

func (f *fence) Rename(old, name string) error {
	if !f.inside(name) {
		return f.FS.Rename(old, name)
	}
	return f.do(vital(name), func() error { return f.FS.Rename(old, name) })
}

func (f *fence) Link(old, name string) error {
	if !f.inside(name) {
		return syscall.EXDEV // a backup that shares files with the store shares their damage: Pebble copies instead
	}
	return f.do(vital(name), func() error { return f.FS.Link(old, name) })
}

func (f *fence) Remove(name string) error {
	if !f.inside(name) {
		return f.FS.Remove(name)
	}
	f.forget(name)
	if !f.armed.Load() {
		return f.FS.Remove(name)
	}
	return f.do(false, func() error { return f.FS.Remove(name) })
}

func (f *fence) RemoveAll(name string) error {
	if !f.inside(name) {
		return f.FS.RemoveAll(name)
	}
	return f.do(false, func() error { return f.FS.RemoveAll(name) })
}

// Lock gives Pebble a lock that is none: the store has its own over the whole
// directory, which does not outlive the store when Pebble had to be abandoned.
func (f *fence) Lock(string) (io.Closer, error) { return noLock{}, nil }

func (f *fence) Unwrap() vfs.FS { return f.FS }

type noLock struct{}

func (noLock) Close() error { return nil }

type fencedFile struct {
	vfs.File
	fence *fence
	vital bool
	dir   bool     // the directory of the metadata
	track *tracked // of a log or a manifest
}

// Write goes on after a short write where the file system had no space in between.
func (f *fencedFile) Write(p []byte) (n int, err error) {
	var count chunkCounter
	if f.track != nil {
		count = f.track.count
		count.wrote(p) // now: what is below may scramble the buffer, as Pebble's own file system in memory does under test
	}
	err = f.fence.do(f.vital, func() error {
		k, err := f.File.Write(p[n:])
		n += k
		if err == nil && n < len(p) {
			err = io.ErrShortWrite
		}
		return err
	})
	if f.track != nil && err == nil {
		f.track.count = count
	}
	return n, err
}

func (f *fencedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.fence.do(f.vital, func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

// A sync that failed is not tried again, whatever the reason: the kernel may have dropped what it could not write.
func (f *fencedFile) synced(step func() error) error {
	if f.vital {
		f.fence.syncs.Add(1)
	}
	err := f.fence.do(f.vital, func() error {
		err := step()
		if err != nil && f.vital && f.fence.armed.Load() {
			f.fence.fail(err)
			park()
		}
		return err
	})
	if err == nil && f.dir {
		f.fence.reach.named()
	}
	if err != nil || f.track == nil {
		return err
	}
	return f.fence.doSynced(f.track.synced)
}

func (f *fencedFile) Sync() error     { return f.synced(f.File.Sync) }
func (f *fencedFile) SyncData() error { return f.synced(f.File.SyncData) }

func (f *fencedFile) SyncTo(n int64) (full bool, err error) {
	err = f.synced(func() (err error) {
		full, err = f.File.SyncTo(n)
		return err
	})
	return full, err
}

// Close makes the witness durable with the end of each log.
func (f *fencedFile) Close() error {
	err := f.File.Close()
	if err == nil && f.track != nil && f.track.log {
		err = f.fence.doSynced(f.fence.reach.flush)
	}
	return err
}

func (f *fencedFile) Preallocate(off, n int64) error {
	// Room made ahead is a help, no need: a log that finds none is told so when it writes.
	if err := f.File.Preallocate(off, n); err != nil && !f.vital {
		return err
	}
	return nil
}
