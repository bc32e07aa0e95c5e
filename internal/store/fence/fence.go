// SPDX-License-Identifier: Apache-2.0

// Package fence keeps a failing disk from ending the process. A Fence is a file system for Pebble that handles errors
// of the real file system.
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

// Fence is a layer between Pebble and the file system. If Pebble cannot write its log or its manifest, Pebble ends the
// process: by Fatalf, or by a panic that cannot be recovered (its deferred unlock finds the mutex unlocked). A Fence
// keeps the process alive by not returning errors of the log and the manifest to Pebble:
//
//   - No space is left: the Fence gives up the ballast and tries the write again. Without ballast, the write
//     waits until there is space; meanwhile the store refuses changes with object.ErrNoSpace.
//   - The file system has become read-only, or the directory may not be written: nothing was written, so the
//     write waits too, and the store refuses changes with object.ErrReadOnly. A failed sync is never tried again.
//   - Any other error: the store has failed. The goroutine with the error is parked forever, and nothing is
//     written any more, so that the next Open finds the files as they were at that moment.
//
// The Fence returns errors of tables (SST files) to Pebble after a pause. Pebble retries failed flushes and compactions
// at once. Without a pause before each error, Pebble's retries on a full disk would occupy a CPU core and fill the log
// of messages. After the store has failed, the Fence retries nothing.
//
// If the disk cannot be written while Pebble opens for changes, Pebble would retry a flush forever. To stop an endless
// flush, the Fence blocks its goroutine forever, and OpenDB abandons the Pebble instance.
type Fence struct {
	vfs.FS
	gate
	group   group
	home    string          // the directory of the metadata; other files are passed through
	Syncs   atomic.Uint64   // number of syncs of Pebble's logs and manifests
	Witness *witness.Keeper // records how far logs and manifests are durable
}

// New returns a Fence for the metadata in the given directory. If the store fails, the Fence calls onFail once; onFail
// may be nil.
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

// inside reports whether a file belongs to the metadata. A backup goes through the fence too, but its errors are its
// own.
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

// Create creates a file. Before it creates a marker file (which names the current manifest), Create makes the names in
// the directory durable. Pebble creates a manifest and the marker that names it, and then syncs the directory only
// once. If a power cut kept only the marker and not the manifest, the store could not be opened any more.
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

// OpenReadWrite opens a file for reading and writing, with access for the store's user only.
func (f *Fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(name, func() (vfs.File, error) { return layout.Private(f.FS.OpenReadWrite(name, c, opts...)) })
}

// ReuseForWrite renames an old log and opens it for writing. The witness (the record of durable lengths) drops its
// entry for the log's old name.
func (f *Fence) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.forget(old)
	return f.file(name, func() (vfs.File, error) { return layout.Private(f.FS.ReuseForWrite(old, name, c)) })
}

// forget removes a log or manifest from the witness before Pebble removes the file, which it does not need any more.
func (f *Fence) forget(name string) {
	if t := f.Witness.Track(f.PathBase(name)); t != nil && f.inside(name) {
		f.Witness.Forget(t.Log, t.Number)
	}
}

// OpenDir opens a directory. If a sync of the metadata's directory fails, the store counts as failed and refuses
// changes.
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

// Rename renames a file. Errors in the metadata's directory are handled as the comment of Fence describes.
func (f *Fence) Rename(old, name string) error {
	if !f.inside(name) {
		return f.FS.Rename(old, name)
	}
	return f.do(vital(name), func() error { return f.FS.Rename(old, name) })
}

// Link creates a hard link in the metadata's directory, and fails with EXDEV for a link in another directory.
func (f *Fence) Link(old, name string) error {
	if !f.inside(name) {
		return syscall.EXDEV // a backup that shares files with the store shares their damage: Pebble copies instead
	}
	return f.do(vital(name), func() error { return f.FS.Link(old, name) })
}

// Remove removes a file. Before the removal of a log or a manifest, the witness (the record of durable lengths) drops
// its entry for the file.
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

// RemoveAll removes a directory. Errors in the metadata's directory are handled as the comment of Fence describes.
func (f *Fence) RemoveAll(name string) error {
	if !f.inside(name) {
		return f.FS.RemoveAll(name)
	}
	return f.do(false, func() error { return f.FS.RemoveAll(name) })
}

// Lock returns a lock without effect, because the store locks its whole directory itself. The store's own lock is
// released even if Pebble had to be abandoned.
func (f *Fence) Lock(string) (io.Closer, error) { return layout.NoLock{}, nil }

func (f *Fence) Unwrap() vfs.FS { return f.FS }

type fencedFile struct {
	vfs.File
	fence *Fence
	vital bool
	dir   bool             // the directory of the metadata
	track *witness.Tracked // of a log or a manifest
}

// Write writes p completely, and continues after a short write when the file system has space again.
func (f *fencedFile) Write(p []byte) (n int, err error) {
	var count metafile.Counter
	if f.track != nil {
		count = f.track.Count
		count.Wrote(p) // now: the file below may change the buffer, as Pebble's file system in memory does under test
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

// synced runs a sync. A failed sync is not tried again, whatever the reason: the kernel may have dropped the
// unwritten data.
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

// Close closes a file of the metadata. If the file is a log, Close then makes the witness (the record of durable
// lengths) durable.
func (f *fencedFile) Close() error {
	err := f.File.Close()
	if err == nil && f.track != nil && f.track.Log {
		err = f.fence.doSynced(f.fence.Witness.Flush)
	}
	return err
}

func (f *fencedFile) Preallocate(off, n int64) error {
	// Preallocation is optional: a log without space gets the error when it writes.
	if err := f.File.Preallocate(off, n); err != nil && !f.vital {
		return err
	}
	return nil
}
