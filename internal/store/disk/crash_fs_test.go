// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
)

// step is one call of the file system.
type step struct {
	op   string // create, write, sync, link, remove, rename, mkdir, open, …
	path string
	to   string // of a link or rename
}

// stepFS calls before, where given, ahead of every step, and done after it; an
// error of before is returned in place of the step.
type stepFS struct {
	vfs.FS
	before func(step) error
	done   func(step)
	// names makes a link atomic, as the kernel does, where vfs.MemFS looks up and
	// enters in two steps, and keeps it from running beside CrashClone, for which
	// it takes a lock twice.
	names sync.Mutex
}

// crash clones a file system in memory as a loss of power would leave it.
func (f *stepFS) crash(mem *vfs.MemFS, percent int, r *rand.Rand) *vfs.MemFS {
	f.names.Lock()
	defer f.names.Unlock()
	return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: r})
}

func (f *stepFS) do(s step, call func() error) error {
	if f.before != nil {
		if err := f.before(s); err != nil {
			return err
		}
	}
	err := call()
	if f.done != nil {
		f.done(s)
	}
	return err
}

func (f *stepFS) file(s step, open func() (vfs.File, error)) (file vfs.File, err error) {
	if err := f.do(s, func() error { file, err = open(); return err }); err != nil {
		return nil, err
	}
	return &stepFile{File: file, fs: f, path: s.path}, nil
}

func (f *stepFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(step{op: "create", path: name}, func() (vfs.File, error) { return f.FS.Create(name, c) })
}

func (f *stepFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(step{op: "open", path: name}, func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

func (f *stepFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.file(step{op: "open to write", path: name},
		func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

func (f *stepFS) OpenDir(name string) (vfs.File, error) {
	return f.file(step{op: "open directory", path: name}, func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

func (f *stepFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.file(step{op: "reuse", path: name}, func() (vfs.File, error) { return f.FS.ReuseForWrite(old, name, c) })
}

func (f *stepFS) Link(old, name string) error {
	return f.do(step{"link", old, name}, func() error {
		f.names.Lock()
		defer f.names.Unlock()
		return f.FS.Link(old, name)
	})
}

func (f *stepFS) Rename(old, name string) error {
	return f.do(step{"rename", old, name}, func() error { return f.FS.Rename(old, name) })
}

func (f *stepFS) Remove(name string) error {
	return f.do(step{op: "remove", path: name}, func() error {
		f.names.Lock()
		defer f.names.Unlock()
		return f.FS.Remove(name)
	})
}

func (f *stepFS) RemoveAll(name string) error {
	return f.do(step{op: "remove all", path: name}, func() error { return f.FS.RemoveAll(name) })
}

func (f *stepFS) MkdirAll(name string, perm os.FileMode) error {
	return f.do(step{op: "mkdir", path: name}, func() error { return f.FS.MkdirAll(name, perm) })
}

func (f *stepFS) List(name string) (names []string, err error) {
	err = f.do(step{op: "list", path: name}, func() error { names, err = f.FS.List(name); return err })
	return names, err
}

func (f *stepFS) Lock(name string) (c io.Closer, err error) {
	err = f.do(step{op: "lock", path: name}, func() error { c, err = f.FS.Lock(name); return err })
	return c, err
}

func (f *stepFS) Unwrap() vfs.FS { return f.FS }

type stepFile struct {
	vfs.File
	fs   *stepFS
	path string
}

func (f *stepFile) Write(p []byte) (n int, err error) {
	err = f.fs.do(step{op: "write", path: f.path}, func() error { n, err = f.File.Write(p); return err })
	return n, err
}

func (f *stepFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.fs.do(step{op: "write", path: f.path}, func() error { n, err = f.File.WriteAt(p, off); return err })
	return n, err
}

func (f *stepFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.fs.do(step{op: "read", path: f.path}, func() error { n, err = f.File.ReadAt(p, off); return err })
	return n, err
}

func (f *stepFile) Read(p []byte) (n int, err error) {
	err = f.fs.do(step{op: "read", path: f.path}, func() error { n, err = f.File.Read(p); return err })
	return n, err
}

func (f *stepFile) Preallocate(off, n int64) error {
	return f.fs.do(step{op: "preallocate", path: f.path}, func() error { return f.File.Preallocate(off, n) })
}

func (f *stepFile) Sync() error {
	return f.fs.do(step{op: "sync", path: f.path}, f.File.Sync)
}

func (f *stepFile) SyncData() error {
	return f.fs.do(step{op: "sync", path: f.path}, f.File.SyncData)
}

func (f *stepFile) SyncTo(n int64) (full bool, err error) {
	err = f.fs.do(step{op: "sync", path: f.path}, func() error { full, err = f.File.SyncTo(n); return err })
	return full, err
}

// wantClean ends the test unless a stopped store keeps all of its invariants.
func wantClean(t *testing.T, o disk.Options) {
	t.Helper()
	r, err := disk.Check(context.Background(), o, check.Options{})
	if err != nil || r.Found > 0 {
		t.Fatalf("check: %v, %d problems: %+v", err, r.Found, r.Problems)
	}
}
