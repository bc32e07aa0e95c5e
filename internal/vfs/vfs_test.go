// SPDX-License-Identifier: Apache-2.0

package vfs_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/internal/vfs/vfstest"
)

const mib = 1 << 20

func write(t *testing.T, dir string, n int) (string, []byte) {
	t.Helper()
	path := filepath.Join(dir, "file")
	return path, vfstest.Write(t, path, int64(n), 1)
}

func open(t *testing.T, path string) *vfs.File {
	t.Helper()
	return vfstest.Open(t, path)
}

func onDisk(t *testing.T, f *vfs.File) {
	t.Helper()
	if ok, why := f.Direct(); !ok {
		t.Skipf("no direct reads in the temporary folder: %s", why.Reason)
	}
}

func dropped(t *testing.T, f *vfs.File) {
	t.Helper()
	if left, err := f.DropCache(); err != nil || left != 0 {
		t.Fatalf("%d bytes stayed in the page cache: %v", left, err)
	}
}

// fetch brings exactly [lo, hi) into the page cache.
func fetch(t *testing.T, path string, lo, hi int64) {
	t.Helper()
	x, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := unix.Fadvise(int(x.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	if _, err := x.ReadAt(make([]byte, hi-lo), lo); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "is a directory", fifo: "is a pipe", os.DevNull: "is a device"} {
		if _, err := vfs.Open(path); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := vfs.Open(filepath.Join(dir, "missing")); !errs.Is(err, errs.NotFound) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// asNobody runs f on a thread that the file system takes for an unprivileged
// user's; the thread ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if _, err := unix.SetfsgidRetGid(65534); err != nil {
			t.Error(err)
		}
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Error(err)
		}
		f()
	}()
	<-done
}

func TestAFileThatMayNotBeRead(t *testing.T) {
	dir, err := os.MkdirTemp("", "nebulaio")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path, _ := write(t, dir, 10)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0)); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		if _, err := vfs.Open(path); !errs.Is(err, errs.Permission) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	})
}

// The kernel hides the page-cache state of files of others.
func TestResidencyOfAFileOfOthersIsHidden(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file of another user")
	}
	dir, err := os.MkdirTemp("", "nebulaio")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path, data := write(t, dir, 3*4096)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o644)); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		f, err := vfs.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		m, why := f.Probe()
		if m == vfs.ProbeCachestat {
			t.Log("this kernel tells")
			return
		}
		if m != vfs.ProbeNone || why == "" {
			t.Errorf("probe %q: %q", m, why)
		}
		if _, err := f.Residency(0, f.Size()); !errs.Is(err, errs.Unsupported) {
			t.Errorf("residency: %v", err)
		}
		if f.FS().Memory {
			return // it does not read without waiting
		}
		got := make([]byte, len(data))
		if n := f.ReadCached(got, 0); n != f.Size() || !bytes.Equal(got, data) {
			t.Errorf("%d of %d bytes could be had from the page cache", n, f.Size())
		}
	})
}

func TestCheckUnchanged(t *testing.T) {
	path, _ := write(t, t.TempDir(), 5000)
	a := open(t, path)
	if a.Size() != 5000 || a.Path() != path {
		t.Errorf("%d %q", a.Size(), a.Path())
	}
	if err := a.CheckUnchanged(false); err != nil {
		t.Error(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	if err := a.CheckUnchanged(false); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "2001-09-09T01:46:40Z") {
		t.Errorf("another modification time: %v", err)
	}
	if err := os.Truncate(path, 4000); err != nil {
		t.Fatal(err)
	}
	if err := a.CheckUnchanged(false); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "size 5000") ||
		!strings.Contains(err.Error(), "now size 4000") {
		t.Errorf("another size: %v", err)
	}
}

func TestAlignmentIsWholePagesAndPowersOfTwo(t *testing.T) {
	path, _ := write(t, t.TempDir(), 5000)
	f := open(t, path)
	onDisk(t, f)
	a := f.Align()
	if a.Offset < 4096 || a.Offset&(a.Offset-1) != 0 || a.Memory < 1 || a.Memory&(a.Memory-1) != 0 || a.Memory > a.Offset {
		t.Errorf("%+v", a)
	}
}

func TestAFileInMemoryHasNoWayPastThePageCache(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "nebulaio")
	if err != nil {
		t.Skipf("no tmpfs to test on: %v", err)
	}
	defer os.RemoveAll(dir)
	path, data := write(t, dir, 3*4096+5)
	f := open(t, path)
	if fs := f.FS(); fs.Name != "tmpfs" || !fs.Memory {
		t.Errorf("file system %+v", fs)
	}
	if ok, why := f.Direct(); ok || why == nil || !strings.Contains(why.Reason, "memory") || why.Fix == "" {
		t.Errorf("direct %v: %+v", ok, why)
	}
	got := make([]byte, len(data))
	if b, err := f.ReadBuffered(got, 0); err != nil || b.Missed != 0 || b.Cached != f.Size() || !bytes.Equal(got, data) {
		t.Errorf("%+v %v", b, err)
	}
	if _, err := f.DropCache(); !errs.Is(err, errs.Unsupported) {
		t.Errorf("dropping what has no other copy: %v", err)
	}
}

func TestReadAtIsWholeOrAnError(t *testing.T) {
	path, data := write(t, t.TempDir(), 10_000)
	f := open(t, path)
	got := make([]byte, 4000)
	if n, err := f.ReadAt(got, 6000); n != 4000 || err != nil || !bytes.Equal(got, data[6000:]) {
		t.Errorf("%d %v", n, err)
	}
	n, err := f.ReadAt(got, 7000)
	if n != 3000 || !errs.Is(err, errs.IO) || !strings.Contains(err.Error(),
		"ended at offset 10000 while bytes 7000 to 11000 were expected") {
		t.Errorf("%d %v", n, err)
	}
	if _, err := f.ReadAt(got, 50_000); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "ended at offset 10000") {
		t.Errorf("behind the end: %v", err)
	}
}

func TestReadDirect(t *testing.T) {
	path, data := write(t, t.TempDir(), mib+77)
	f := open(t, path)
	onDisk(t, f)
	dropped(t, f)
	r, err := hostmem.Map(2 * mib)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Unmap()
	buf := r.Bytes()
	if err := f.ReadDirect(buf[:mib], 0, mib); err != nil || !bytes.Equal(buf[:mib], data[:mib]) {
		t.Errorf("aligned: %v", err)
	}
	if err := f.ReadDirect(buf[:4096], mib, 77); err != nil || !bytes.Equal(buf[:77], data[mib:]) {
		t.Errorf("the end: %v", err)
	}
	if err := f.ReadDirect(buf[:4096], 8*mib, 4096); !errs.Is(err, errs.IO) ||
		!strings.Contains(err.Error(), "ended at offset 1048653") {
		t.Errorf("behind the end: %v", err)
	}
	if res, err := f.Residency(0, f.Size()); err == nil && res.Cached != 0 {
		t.Errorf("direct reads left %d bytes in the page cache", res.Cached)
	}
}

func TestARefusedDirectReadIsRememberedWithItsReason(t *testing.T) {
	path, _ := write(t, t.TempDir(), mib)
	f := open(t, path)
	onDisk(t, f)
	r, err := hostmem.Map(mib)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Unmap()
	odd := r.Bytes()[1:513] // no file system reads directly to there
	switch err := f.ReadDirect(odd, 1, 512); {
	case err == nil:
		t.Skip("this file system takes any alignment")
	case !errors.Is(err, vfs.ErrDirectRefused):
		t.Fatalf("got %v", err)
	}
	ok, why := f.Direct()
	if ok || why == nil || !strings.Contains(why.Reason, "refused an aligned read") || why.Fix == "" {
		t.Errorf("direct %v: %+v", ok, why)
	}
	f.RefuseDirect("a second reason", "")
	if _, again := f.Direct(); again != why {
		t.Errorf("the first reason was replaced: %+v", again)
	}
}

func TestMethodsAgreeOnResidency(t *testing.T) {
	path, _ := write(t, t.TempDir(), 4*mib+100)
	f := open(t, path)
	onDisk(t, f)
	if m, why := f.Probe(); m != vfs.ProbeCachestat {
		t.Skipf("the kernel has no cachestat: %s", why)
	}
	dropped(t, f)
	fetch(t, path, mib, 2*mib)
	fetch(t, path, 4*mib, 4*mib+100)
	for _, c := range []struct{ off, n, want int64 }{
		{0, 4*mib + 100, mib + 4096}, // in whole pages
		{0, mib, 0},
		{mib, mib, mib},
		{mib - 4096, 8192, 4096},
		{mib + 1, 100, 101}, // widened to its page, cut at its end
		{4 * mib, 4096, 100},
		{1 << 40, 5, 0},
		{0, 0, 0},
	} {
		for _, m := range []vfs.ProbeMethod{vfs.ProbeCachestat, vfs.ProbeMincore} {
			f.ForceProbe(m)
			if r, err := f.Residency(c.off, c.n); err != nil || r.Cached != c.want {
				t.Errorf("%s: %d+%d has %d cached bytes, expected %d: %v", m, c.off, c.n, r.Cached, c.want, err)
			}
		}
	}
	f.ForceProbe(vfs.ProbeMincore)
	if r, err := f.Residency(0, mib); err != nil || r.Dirty != -1 {
		t.Errorf("mincore does not see dirty pages, and said %d: %v", r.Dirty, err)
	}
	f.ForceProbe(vfs.ProbeNone)
	if _, err := f.Residency(0, mib); !errs.Is(err, errs.Unsupported) {
		t.Errorf("got %v", err)
	}
}

// halfCached returns a file of 2 MiB, of which the first MiB is in the page cache, and its bytes.
func halfCached(t *testing.T) (*vfs.File, []byte) {
	t.Helper()
	path, data := write(t, t.TempDir(), 2*mib)
	f := open(t, path)
	onDisk(t, f)
	dropped(t, f)
	fetch(t, path, 0, mib)
	return f, data
}

func TestReadBufferedTellsWhatWasCached(t *testing.T) {
	f, data := halfCached(t)
	f.ExpectRandom(true) // nothing but what is asked for
	got := make([]byte, 2*mib)
	b, err := f.ReadBuffered(got, 0)
	if err != nil || !bytes.Equal(got, data) || b.Cached < mib || b.Cached+b.Missed != 2*mib {
		t.Errorf("half: %+v %v", b, err)
	}
	b, err = f.ReadBuffered(got, 0)
	if err != nil || b != (vfs.Buffered{Cached: 2 * mib}) {
		t.Errorf("warm: %+v %v", b, err)
	}
	if _, err := f.ReadBuffered(got, 1); !errs.Is(err, errs.IO) {
		t.Errorf("behind the end: %v", err)
	}
}

func TestReadCachedStopsAtTheFirstAbsentPage(t *testing.T) {
	f, data := halfCached(t)
	got := make([]byte, 2*mib)
	n := f.ReadCached(got, 0)
	if n == 0 {
		t.Skip("the file system does not read without waiting")
	}
	if n < mib || !bytes.Equal(got[:n], data[:n]) {
		t.Errorf("%d bytes", n)
	}
}

func TestDropCacheWritesBackFirst(t *testing.T) {
	path, data := write(t, t.TempDir(), mib) // dirty
	f := open(t, path)
	onDisk(t, f)
	dropped(t, f)
	got := make([]byte, mib)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("bytes differ: %v", err)
	}
	if r, err := f.Residency(0, mib); err != nil || r.Cached != mib {
		t.Errorf("%d bytes are cached after reading them: %v", r.Cached, err)
	}
}

func TestAReaderOfItsOwn(t *testing.T) {
	path, data := write(t, t.TempDir(), mib)
	f := open(t, path)
	onDisk(t, f)
	for _, drop := range []bool{false, true} {
		dropped(t, f)
		r, err := f.NewReader(drop)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, mib)
		if err := r.ReadFull(got, 0); err != nil || !bytes.Equal(got, data) || r.File() != f {
			t.Errorf("drop %v: %v", drop, err)
		}
		if err := r.ReadFull(got, 1); !errs.Is(err, errs.IO) {
			t.Errorf("behind the end: %v", err)
		}
		r.Close()
	}
	(*vfs.Reader)(nil).Close()
	// A name that is gone does not matter to those who have the file open.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r, err := f.NewReader(false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := make([]byte, mib)
	if err := r.ReadFull(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("an unlinked file: %v", err)
	}
}

func TestCloseTwice(t *testing.T) {
	path, _ := write(t, t.TempDir(), 10)
	f := open(t, path)
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err == nil {
		t.Error("a closed file was read")
	}
	if err := f.CheckUnchanged(false); err == nil {
		t.Error("a closed file was found unchanged")
	}
}
