// SPDX-License-Identifier: Apache-2.0

// Package fence keeps a failing disk from ending the process: it stands between Pebble and the file system.
package fence

import (
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
	"github.com/nebulaio/nebulaio/internal/store/witness"
)

// Fence stands between Pebble and the file system. Pebble ends the process
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
// goroutine is parked, and OpenDB abandons that Pebble.
type Fence struct {
	vfs.FS
	gate
	home    string          // the directory of the metadata; other files are none of its business
	Syncs   atomic.Uint64   // syncs of logs and manifests
	Witness *witness.Keeper // the witness of how far logs and manifests reach
}

// New returns a fence before the metadata in the directory home. The fence calls onFail, which may be nil, once when
// the store has failed.
func New(under vfs.FS, home string, onFail func(error)) *Fence {
	f := &Fence{FS: under, home: home, gate: gate{
		Closed: make(chan struct{}), onFail: onFail, Waiting: 200 * time.Millisecond, pause: time.Second,
		Patience: stallPatience,
	}}
	f.Witness = witness.NewKeeper(under, f.Fail)
	return f
}

func vital(name string) bool {
	return strings.HasSuffix(name, ".log") || strings.Contains(name, "MANIFEST") || strings.Contains(name, "marker.")
}

// inside says whether a file is one of the metadata. A backup goes through the fence too, and its errors are its own.
func (f *Fence) inside(name string) bool { return f.PathDir(name) == f.home }

func (f *Fence) file(name string, open func() (vfs.File, error)) (vfs.File, error) {
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
	return &fencedFile{File: file, fence: f, vital: v, track: f.Witness.Track(f.PathBase(name))}, nil
}

// Create makes the names in a directory durable before it makes a marker there.
// Pebble syncs the directory once after it has made both a manifest and the
// marker that names it; where a power cut keeps only the second, the store
// could not be opened any more.
func (f *Fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(f.PathBase(name), "marker.") {
		if err := layout.SyncDir(f, f.PathDir(name)); err != nil {
			return nil, err
		}
	}
	file, err := f.file(name, func() (vfs.File, error) { return layout.Private(f.FS.Create(name, c)) })
	if n, ok := witness.MarkedManifest(f.PathBase(name)); ok && err == nil && f.inside(name) {
		f.Witness.Marker(n)
	}
	return file, err
}

// OpenReadWrite opens a file that only the store's user can read.
func (f *Fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return layout.Private(f.FS.OpenReadWrite(name, c, opts...)) })
}

// ReuseForWrite renames an old log and opens it for writing. The witness forgets the old name.
func (f *Fence) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.forget(old)
	return f.file(name, func() (vfs.File, error) { return layout.Private(f.FS.ReuseForWrite(old, name, c)) })
}

// forget strikes a log or manifest off the witness that is about to go. What Pebble removes it does not need any more.
func (f *Fence) forget(name string) {
	if t := f.Witness.Track(f.PathBase(name)); t != nil && f.inside(name) {
		f.Witness.Forget(t.Log, t.Number)
	}
}

// OpenDir opens a directory. Failed syncs of the metadata's directory count as failures of the metadata.
func (f *Fence) OpenDir(name string) (vfs.File, error) {
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

// Rename renames a file. A failure inside of the metadata counts as its failure.
func (f *Fence) Rename(old, name string) error {
	if !f.inside(name) {
		return f.FS.Rename(old, name)
	}
	return f.do(vital(name), func() error { return f.FS.Rename(old, name) })
}

// Link links a file inside of the metadata, and refuses links to other places.
func (f *Fence) Link(old, name string) error {
	if !f.inside(name) {
		return syscall.EXDEV // a backup that shares files with the store shares their damage: Pebble copies instead
	}
	return f.do(vital(name), func() error { return f.FS.Link(old, name) })
}

// Remove removes a file. The witness forgets a log or manifest first.
func (f *Fence) Remove(name string) error {
	if !f.inside(name) {
		return f.FS.Remove(name)
	}
	f.forget(name)
	if !f.armed.Load() {
		return f.FS.Remove(name)
	}
	return f.do(false, func() error { return f.FS.Remove(name) })
}

// RemoveAll removes a directory. A failure inside of the metadata counts as its failure.
func (f *Fence) RemoveAll(name string) error {
	if !f.inside(name) {
		return f.FS.RemoveAll(name)
	}
	return f.do(false, func() error { return f.FS.RemoveAll(name) })
}

// Lock gives Pebble a lock that is none: the store has its own over the whole
// directory, which does not outlive the store when Pebble had to be abandoned.
func (f *Fence) Lock(string) (io.Closer, error) { return layout.NoLock{}, nil }

func (f *Fence) Unwrap() vfs.FS { return f.FS }

type fencedFile struct {
	vfs.File
	fence *Fence
	vital bool
	dir   bool             // the directory of the metadata
	track *witness.Tracked // of a log or a manifest
}

// Write goes on after a short write where the file system had no space in between.
func (f *fencedFile) Write(p []byte) (n int, err error) {
	var count metafile.Counter
	if f.track != nil {
		count = f.track.Count
		count.Wrote(p) // now: what is below may scramble the buffer, as Pebble's own file system in memory does under test
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
		f.track.Count = count
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
		f.fence.Syncs.Add(1)
	}
	err := f.fence.do(f.vital, func() error {
		err := step()
		if err != nil && f.vital && f.fence.armed.Load() {
			f.fence.Fail(err)
			park()
		}
		return err
	})
	if err == nil && f.dir {
		f.fence.Witness.Named()
	}
	if err != nil || f.track == nil {
		return err
	}
	return f.fence.doSynced(f.track.Synced)
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
	if err == nil && f.track != nil && f.track.Log {
		err = f.fence.doSynced(f.fence.Witness.Flush)
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
