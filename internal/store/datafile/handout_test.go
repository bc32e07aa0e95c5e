// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// nameOf is the name that a descriptor was opened with, as the kernel tells it.
func nameOf(t *testing.T, file *os.File) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func noSums() ([]uint64, error) { return []uint64{1}, nil }

// TestSettlingLeavesTheNameOfWhatIsHeld: a file that was handed out under its first name keeps it until it is let go
// of, and has both meanwhile. A crash in between leaves both, which Recover mends.
func TestSettlingLeavesTheNameOfWhatIsHeld(t *testing.T) {
	dir := t.TempDir()
	f := open(t, Options{FS: vfs.Default, Dir: dir})
	write(t, f, 1, []byte("x"))
	h, err := f.HandOut(1, 1, noSums)
	if err != nil {
		t.Fatal(err)
	}
	early, err := h.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := nameOf(t, early); got != f.tmpName(1) || h.Path() != got {
		t.Errorf("after settling it is %s, Path says %s", got, h.Path())
	}
	if got, want := names(t, f), 2; len(got) != want {
		t.Errorf("names: %q", got)
	}
	again, err := f.HandOut(1, 1, noSums)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := nameOf(t, early); strings.Contains(got, "deleted") {
		t.Errorf("with one of two left it is %s", got)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.tmpName(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nobody holds it, and it is still in tmp/: %v", err)
	}
	if st := f.Stats(); st.Settling != 0 || len(f.holds.of) != 0 {
		t.Errorf("%+v", st)
	}
}

func TestRecoverMendsWhatWasHeld(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(Options{FS: vfs.Default, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	write(t, f, 1, []byte("x"))
	if _, err := f.HandOut(1, 1, noSums); err != nil { // and never lets go
		t.Fatal(err)
	}
	if _, err := f.Spill(2, []byte("y"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := f.NewDraft(3, 100); err != nil && !errs.Is(err, errs.Unsupported) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = open(t, Options{FS: vfs.Default, Dir: dir})
	r, err := f.Recover(func(id ID) bool { return id == 1 })
	if err != nil || !slices.Equal(r.Settled, []ID{1}) || !slices.Contains(r.Removed, 2) || len(r.Left) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := names(t, f); len(got) != 1 {
		t.Errorf("names: %q", got)
	}
}

// TestOthersCannotBecomeWriters: a file that other users may write to, as a generous umask makes it, is handed out
// without that.
func TestOthersCannotBecomeWriters(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	write(t, f, 1, []byte("x"))
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.Path(1), 0o666); err != nil {
		t.Fatal(err)
	}
	h, err := f.HandOut(1, 1, noSums)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	info, err := os.Stat(f.Path(1))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestFilesThatAreNotThereAreDamage(t *testing.T) {
	each(t, func(t *testing.T, o Options) {
		f := open(t, o)
		write(t, f, 1, []byte("xy"))
		var d *Damage
		if _, err := f.HandOut(2, 1, noSums); !errors.As(err, &d) || d.What != "missing" {
			t.Errorf("missing: %v", err)
		}
		if _, err := f.HandOut(1, 3, noSums); !errors.As(err, &d) || d.What != "short" || d.Off != 2 {
			t.Errorf("short: %v", err)
		}
		bad := errors.New("no sums")
		if _, err := f.HandOut(1, 2, func() ([]uint64, error) { return nil, bad }); !errors.Is(err, bad) {
			t.Errorf("sums: %v", err)
		}
		if len(f.holds.of) != 0 {
			t.Error("what failed is held")
		}
	})
}

// newDraft begins draft 1 and opens it for writing. The test is skipped where the file system has no drafts.
func newDraft(t *testing.T, f *Files, size int64) (*Draft, *os.File) {
	t.Helper()
	d, err := f.NewDraft(1, size)
	if errs.Is(err, errs.Unsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Abort() })
	file, err := d.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	return d, file
}

// TestNobodyComesInAfterTheSeal opens a sealed file for writing: the kernel makes that wait, and tells us by a signal
// that must not end us.
func TestNobodyComesInAfterTheSeal(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	d, file := newDraft(t, f, 100)
	if err := d.Seal(t.Context(), 100); !errors.Is(err, object.ErrWriterLeft) || !errs.Is(err, errs.Invalid) {
		t.Fatalf("seal with a writer: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Seal(t.Context(), 90); err != nil {
		t.Fatal(err)
	}
	if fd, err := unix.Open(d.Path(), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EWOULDBLOCK) {
		_ = unix.Close(fd)
		t.Errorf("a sealed file was opened for writing: %v", err)
	}
	d.Close()
	fd, err := unix.Open(d.Path(), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Errorf("after it was let go: %v", err)
	}
	_ = unix.Close(fd)
	if info, err := os.Stat(d.Path()); err != nil || info.Size() != 90 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestFileSystemsThatCannotTellAreRefused by name, with something to do about it.
func TestFileSystemsThatCannotTellAreRefused(t *testing.T) {
	for magic, name := range map[int64]string{0x794c7630: "overlayfs", 0x6969: "nfs", 0xff534d42: "cifs",
		0x65735546: "fuse"} {
		err := judge("create draft", "file", magic)
		var e *errs.Error
		if !errors.As(err, &e) || e.Kind != errs.Unsupported || !strings.Contains(e.Msg, name) || e.Fix == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, magic := range []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC} {
		if err := judge("create draft", "file", magic); err != nil {
			t.Error(err)
		}
	}
}

// TestLeasesAreProved shows the proof a file that has a writer which it does not know of, and one that has none.
func TestLeasesAreProved(t *testing.T) {
	path := t.TempDir() + "/file"
	w, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := prove("prove", path, r.Fd(), func() error { return nil }); !errs.Is(err, errs.Unsupported) {
		t.Errorf("a lease that is refused where nobody should write: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := prove("prove", path, r.Fd(), func() error { return nil }); !errs.Is(err, errs.Unsupported) {
		t.Errorf("a lease that is granted where somebody should write: %v", err)
	}
}

// TestNamesStayWhileEverythingMoves hands out files while they settle: the name that a descriptor was opened with is
// there for as long as the hold.
func TestNamesStayWhileEverythingMoves(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := range 60 {
				id := ID(k*1000 + i)
				write(t, f, id, []byte("x"))
				var some sync.WaitGroup
				some.Go(func() {
					if err := f.Flush(); err != nil {
						t.Error(err)
					}
				})
				some.Go(func() {
					h, err := f.HandOut(id, 1, noSums)
					if err != nil {
						t.Error(err)
						return
					}
					defer h.Close()
					file, err := h.Open(false)
					if err != nil {
						t.Error(err)
						return
					}
					defer file.Close()
					if err := f.Flush(); err != nil {
						t.Error(err)
					}
					if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd())); err != nil ||
						strings.Contains(name, "deleted") {
						t.Errorf("it is %s, %v", name, err)
					}
				})
				some.Wait()
			}
		})
	}
	all.Wait()
	if err := f.Flush(); err != nil {
		t.Error(err)
	}
	for _, name := range names(t, f) {
		if strings.HasPrefix(name, "tmp/") {
			t.Errorf("%s is left", name)
		}
	}
	if n := len(f.settler.moving) + len(f.holds.of); n > 0 {
		t.Errorf("%d are still moving or held", n)
	}
}

// TestWhatNobodyAsksForIsNotKeptOpen: a description that was opened ahead costs a descriptor for as long as the file is
// held.
func TestWhatNobodyAsksForIsNotKeptOpen(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	write(t, f, 1, []byte("x"))
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		t.Helper()
		n := 0
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name, _ := os.Readlink("/proc/self/fd/" + e.Name()); name == f.dataName(1) {
				n++
			}
		}
		return n
	}
	before := count() // readers keep some too
	var all []*Handout
	for range 640 {
		h, err := f.HandOut(1, 1, noSums)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	if n := count() - before; n > 64 {
		t.Errorf("%d descriptors are open that nobody asked for, expected at most 64", n)
	}
	for i, h := range all {
		file, err := h.Open(i%2 == 0)
		if errs.Is(err, errs.Unsupported) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
	}
	if n := count() - before; n != 0 {
		t.Errorf("%d descriptors are open after each was asked for its own", n)
	}
	for _, h := range all {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRoomBehindTheEndIsNotCommitted: a client can reserve it without making the file longer, and would keep it.
func TestRoomBehindTheEndIsNotCommitted(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	d, file := newDraft(t, f, 100)
	if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 8<<20); err != nil {
		_ = file.Close()
		t.Skipf("the file system cannot: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if n := d.Reserved(); n < 8<<20 {
		t.Skipf("%d bytes are taken", n)
	}
	if err := d.Seal(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if n := d.Reserved(); n > 1<<20 {
		t.Errorf("100 bytes take %d bytes of the disk", n)
	}
}

// TestAnAbortedDraftTakesNothing, also while the client keeps its descriptor: room without a name would be bounded by
// nothing.
func TestAnAbortedDraftTakesNothing(t *testing.T) {
	f := open(t, Options{FS: vfs.Default, Dir: t.TempDir()})
	d, file := newDraft(t, f, 8<<20)
	defer file.Close()
	if err := d.Abort(); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if n := st.Blocks * 512; n > 1<<16 || st.Nlink != 0 {
		t.Errorf("it takes %d bytes and has %d names", n, st.Nlink)
	}
}
