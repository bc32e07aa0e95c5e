// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/object"
)

// leased takes a lease on a file that nobody has open, as a client of the server's own user can.
func leased(t *testing.T, name string, kind int) (letGo func()) {
	t.Helper()
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, kind); err != nil {
		_ = unix.Close(fd)
		t.Skipf("the file system has no leases: %v", err)
	}
	return func() { _ = unix.Close(fd) }
}

// quick ends the test where f takes as long as the kernel gives a lease.
func quick(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second): // the kernel's is 45 s
		t.Fatal("an open waits in the kernel for a lease of somebody else")
	}
}

// TestLeasesOfOthersDoNotStopReads reads a file on which another process has a lease. The read fails at once with
// ErrBusy, and does not hang.
func TestLeasesOfOthersDoNotStopReads(t *testing.T) {
	f, _ := settledFile(t, 3000)
	letGo := leased(t, f.Path(1), unix.F_WRLCK)
	quick(t, func() {
		if _, err := f.OpenRead(1, 3000, nil); !errors.Is(err, object.ErrBusy) {
			t.Errorf("read: %v", err)
		}
	})
	quick(t, func() {
		if _, err := f.HandOut(1, 3000, noSums); !errors.Is(err, object.ErrBusy) {
			t.Errorf("hand out: %v", err)
		}
	})
	quick(t, func() {
		if _, err := f.OpenShared(1); !errors.Is(err, object.ErrBusy) {
			t.Errorf("shared: %v", err)
		}
	})
	letGo()
	h, err := f.HandOut(1, 3000, noSums)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, direct := range []bool{false, true} {
		file, err := h.Open(direct)
		if err != nil {
			t.Logf("direct %v: %v", direct, err)
			continue
		}
		flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 || (flags&unix.O_DIRECT != 0) != direct {
			t.Errorf("direct %v: flags %#x, %v", direct, flags, err)
		}
		_ = file.Close()
	}
	r, err := f.OpenRead(1, 3000, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
}

// TestALeaseOnADraft does not stop the draft's end, nor that of others.
func TestALeaseOnADraft(t *testing.T) {
	f, _ := settledFile(t, 1)
	for _, end := range []string{"seal", "abort"} {
		d, err := f.NewDraft(ID(100+len(end)), 8192)
		if err != nil {
			t.Skipf("no drafts here: %v", err)
		}
		letGo := leased(t, d.Path(), unix.F_RDLCK)
		quick(t, func() {
			if end == "seal" { // it has to be cut
				if err := d.Seal(t.Context(), 100); !errors.Is(err, object.ErrWriterLeft) {
					t.Errorf("%v", err)
				}
			}
			if err := d.Abort(); err != nil {
				t.Errorf("%s: %v", end, err)
			}
		})
		letGo()
		if d.Remains() {
			t.Errorf("%s: somebody is said to be able to write", end)
		}
	}
}

// TestWhoWritesAfterAnAbort: a descriptor that outlives its draft cannot fill the disk, and is counted until it is
// closed.
func TestWhoWritesAfterAnAbort(t *testing.T) {
	f, _ := settledFile(t, 1)
	d, err := f.NewDraft(9, 1<<20)
	if err != nil {
		t.Skipf("no drafts here: %v", err)
	}
	file, err := d.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := d.Abort(); err != nil {
		t.Fatal(err)
	}
	if !d.Remains() {
		t.Fatal("a descriptor is left and not seen")
	}
	if _, err := file.WriteAt(make([]byte, 8<<20), 0); err != nil {
		t.Fatal(err)
	}
	if n := d.Reserved(); n < 8<<20 {
		t.Errorf("it takes %d bytes, expected 8 MiB", n)
	}
	if !d.Remains() {
		t.Error("a descriptor is left and not seen")
	}
	if n, bytes := f.drafts.reserved(); n != 1 || bytes != 0 {
		t.Errorf("%d drafts take %d bytes after a look", n, bytes)
	}
	_ = file.Close()
	if d.Remains() || d.Remains() {
		t.Error("nobody is left")
	}
	if n, _ := f.drafts.reserved(); n != 0 {
		t.Errorf("%d drafts are left", n)
	}
}

// TestDescriptorsCannotBeReopenedForWriting where the store may mount its directory read-only; otherwise it says why
// not.
func TestDescriptorsCannotBeReopenedForWriting(t *testing.T) {
	for _, mounted := range []bool{false, true} {
		f, dir := settledFile(t, 3000, func(o *Options) { o.ReadOnlyMount = mounted })
		h, err := f.HandOut(1, 3000, noSums)
		if err != nil {
			t.Fatal(err)
		}
		file, err := h.Open(false)
		if err != nil {
			t.Fatal(err)
		}
		again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
		why := f.Reopenable()
		if err == nil {
			_ = again.Close()
		}
		if !mounted && (err != nil || why == nil) {
			t.Errorf("without the mount: %v, %v", err, why)
		}
		if mounted && why != nil {
			t.Logf("there is no read-only mount of %s: %v", dir, why)
		} else if mounted && !errors.Is(err, unix.EROFS) {
			t.Errorf("with the mount it can be opened for writing: %v", err)
		}
		// libcufile opens files again by this name.
		if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd())); err != nil || !namesFile(t, name, file) {
			t.Errorf("the descriptor's name is %q, which is not the file; %v", name, err)
		}
		if got, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd())); err != nil || len(got) != 3000 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_ = file.Close()
		_ = h.Close()
		// The store itself writes on.
		if w, err := f.Create(77, -1); err != nil {
			t.Error(err)
		} else {
			_ = w.Abort()
		}
	}
}

// TestFilesOfALooseUmaskAreHandedOut: other users' right to write is taken away also where the way to the file is
// read-only.
func TestFilesOfALooseUmaskAreHandedOut(t *testing.T) {
	for _, mounted := range []bool{false, true} {
		f, _ := settledFile(t, 3000, func(o *Options) { o.ReadOnlyMount = mounted })
		if err := os.Chmod(f.Path(1), 0o666); err != nil {
			t.Fatal(err)
		}
		h, err := f.HandOut(1, 3000, noSums)
		if err != nil {
			t.Fatalf("mounted %v: %v", mounted, err)
		}
		file, err := h.Open(false)
		if err != nil {
			t.Fatalf("mounted %v: %v", mounted, err)
		}
		if st, err := file.Stat(); err != nil || st.Mode().Perm() != 0o644 {
			t.Errorf("mounted %v: mode %v, %v", mounted, st.Mode(), err)
		}
		_ = file.Close()
		_ = h.Close()
	}
}

// settledFile is a store of files with one file of that size, number 1, in its final place.
func settledFile(t *testing.T, size int, change ...func(*Options)) (f *Files, dir string) {
	t.Helper()
	dir = t.TempDir()
	o := Options{FS: vfs.Default, Dir: dir}
	for _, c := range change {
		c(&o)
	}
	f = open(t, o)
	write(t, f, 1, make([]byte, size))
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	return f, dir
}

func namesFile(t *testing.T, name string, file *os.File) bool {
	t.Helper()
	there, err := os.Stat(name)
	if err != nil {
		return false
	}
	here, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(there, here)
}
