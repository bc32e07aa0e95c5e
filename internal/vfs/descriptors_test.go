// SPDX-License-Identifier: Apache-2.0

package vfs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/test/nobody"
)

// descriptions opens path as a server would; direct is -1 where the file system has none.
func descriptions(t *testing.T, path string) (buffered, direct int) {
	t.Helper()
	buffered, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if direct, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECT, 0); err != nil {
		direct = -1
	}
	return buffered, direct
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func TestFromDescriptors(t *testing.T) {
	path, data := write(t, t.TempDir(), 3*mib+17)
	buffered, direct := descriptions(t, path)
	closed := 0
	f, err := vfs.FromDescriptors(vfs.Descriptors{Name: "s3://b/k", Buffered: buffered, Direct: direct,
		Size: int64(len(data)), Closed: func() { closed++ }})
	if err != nil {
		t.Fatal(err)
	}
	// The name goes away while the descriptions are held: nothing notices.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	readsAll(t, f, data)
	if ok, _ := f.Direct(); ok != (direct >= 0) {
		t.Errorf("direct is %v with descriptor %d", ok, direct)
	}
	if got := f.Path(); got != "s3://b/k" {
		t.Errorf("messages call it %q", got)
	}
	if st, err := os.Stat(f.Locate()); err != nil || st.Size() != int64(len(data)) {
		t.Errorf("the kernel does not find it by %q: %v", f.Locate(), err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if closed != 1 || isOpen(buffered) || direct >= 0 && isOpen(direct) {
		t.Errorf("after Close: told %d times, buffered open %v, direct open %v", closed, isOpen(buffered), direct >= 0 &&
			isOpen(direct))
	}
}

func readsAll(t *testing.T, f *vfs.File, data []byte) {
	t.Helper()
	got := make([]byte, len(data))
	if _, err := f.ReadBuffered(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("buffered read: %v, equal %v", err, bytes.Equal(got, data))
	}
	r, err := f.NewReader(true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	clear(got)
	if err := r.ReadFull(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("own reader: %v, equal %v", err, bytes.Equal(got, data))
	}
	fd, err := f.Again()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	if err := f.CheckUnchanged(false); err != nil {
		t.Error(err)
	}
	if ok, _ := f.Direct(); ok {
		a := f.Align()
		mem, err := unix.Mmap(-1, 0, mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(mem)
		if err := f.ReadDirect(mem[:a.Offset], 0, int(a.Offset)); err != nil ||
			!bytes.Equal(mem[:a.Offset], data[:a.Offset]) {
			t.Errorf("direct read: %v", err)
		}
	}
}

func TestFromDescriptorsRefuses(t *testing.T) {
	dir := t.TempDir()
	path, data := write(t, dir, 5000)
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, data, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := func(path string) int {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	for name, c := range map[string]struct {
		d    vfs.Descriptors
		kind errs.Kind
		text string
	}{
		"of another size": {vfs.Descriptors{Name: "s3://b/k", Buffered: opened(path), Direct: -1, Size: 4999}, errs.IO,
			"has 5000 bytes, expected 4999"},
		"of two files": {vfs.Descriptors{Name: "s3://b/k", Buffered: opened(path), Direct: opened(other), Size: 5000},
			errs.IO, "are not of one file"},
		"a directory": {vfs.Descriptors{Name: "s3://b/k", Buffered: opened(dir), Direct: -1, Size: 0}, errs.Invalid,
			"is a directory"},
	} {
		f, err := vfs.FromDescriptors(c.d)
		if f != nil || errs.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) ||
			!strings.Contains(err.Error(), "s3://b/k") {
			t.Errorf("%s: %v", name, err)
		}
		if isOpen(c.d.Buffered) || c.d.Direct >= 0 && isOpen(c.d.Direct) {
			t.Errorf("%s: a descriptor was left open", name)
		}
	}
	f, err := vfs.FromDescriptors(vfs.Descriptors{Name: "s3://b/k", Buffered: opened(path), Direct: -1,
		Refused: "tmpfs has none", Size: 5000})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, why := f.Direct(); ok || why == nil || why.Reason != "tmpfs has none" {
		t.Errorf("direct is %v because of %v", ok, why)
	}
}

const nobodyEnv = "NEBULAIO_TEST_DESCRIPTORS"

// TestDescriptorsAsNobody reads another user's file, of which it only has
// descriptors, as a user without any right.
func TestDescriptorsAsNobody(t *testing.T) {
	cmd, dir := nobody.Command(t, "TestNobodysDescriptors")
	private := filepath.Join(dir, "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	path, _ := write(t, private, 2*mib+5)
	cmd.Env = append(os.Environ(), nobodyEnv+"=1")
	buffered, direct := descriptions(t, path)
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(buffered), "buffered")}
	if direct >= 0 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(direct), "direct"))
		cmd.Env = append(cmd.Env, nobodyEnv+"_DIRECT=1")
	}
	for _, f := range cmd.ExtraFiles {
		defer f.Close()
	}
	nobody.Run(t, cmd, "TestNobodysDescriptors")
}

// TestNobodysDescriptors is what TestDescriptorsAsNobody runs as nobody.
func TestNobodysDescriptors(t *testing.T) {
	if os.Getenv(nobodyEnv) == "" {
		t.Skip("run by TestDescriptorsAsNobody")
	}
	if _, err := os.Open("/proc/self/fd/3"); !os.IsPermission(err) {
		t.Fatalf("opening the file anew gives %v; the test needs a file that it may not open", err)
	}
	direct := -1
	if os.Getenv(nobodyEnv+"_DIRECT") != "" {
		direct = 4
	}
	data := make([]byte, 2*mib+5)
	if _, err := unix.Pread(3, data, 0); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.FromDescriptors(vfs.Descriptors{Name: "s3://b/k", Buffered: 3, Direct: direct, Size: int64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if m, why := f.Probe(); m != vfs.ProbeNone || why == "" {
		t.Errorf("residency of another user's file is found by %s (%s)", m, why)
	}
	readsAll(t, f, data)
}

// passed opens path as a server would, and returns the file that its client gets.
func passed(t *testing.T, path string, beside *vfs.File) *vfs.File {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	buffered, direct := descriptions(t, path)
	f, err := vfs.FromDescriptors(vfs.Descriptors{Name: path, Buffered: buffered, Direct: direct, Size: st.Size(),
		Beside: beside})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestResidencyAtOpen compares what the opening found in the page cache with what the kernel says later.
func TestResidencyAtOpen(t *testing.T) {
	path, data := write(t, t.TempDir(), 3*mib+17)
	first := passed(t, path, nil)
	if m, why := first.Probe(); m != vfs.ProbeCachestat {
		t.Skip("the kernel does not answer cachestat for this file: ", why)
	}
	if left, err := first.DropCache(); err != nil || left != 0 {
		t.Skipf("%d bytes stay in the page cache: %v", left, err)
	}
	cold := passed(t, path, nil)
	readsAll(t, cold, data)
	if r, known := vfs.ResidencyAtOpen(cold, 0, cold.Size()); !known || r.Cached != 0 {
		t.Errorf("opened cold: %+v, known %v; expected nothing cached, although it was read since", r, known)
	}
	warm := passed(t, path, nil)
	for _, x := range []struct{ off, n int64 }{{0, 1}, {0, warm.Size()}, {mib + 5, mib}, {warm.Size() - 3, 100}} {
		now, err := warm.Residency(x.off, x.n)
		if r, known := vfs.ResidencyAtOpen(warm, x.off, x.n); err != nil || !known || r != now {
			t.Errorf("bytes %d+%d, opened warm: %+v, known %v; the kernel says %+v, %v", x.off, x.n, r, known, now, err)
		}
	}
	if left, err := warm.DropCache(); err != nil || left != 0 {
		t.Skipf("%d bytes stay in the page cache: %v", left, err)
	}
	warm.ExpectRandom(true)
	if _, err := warm.ReadAt(make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	if r, known := vfs.ResidencyAtOpen(passed(t, path, nil), 0, 1); known {
		t.Errorf("opened partly cached: %+v is known of one page", r)
	}
}

// TestResidencyAtOpenIsBounded: the opening asks for the whole of a small file and for the first page of a large one.
// Nobody asks for a file of Open.
func TestResidencyAtOpenIsBounded(t *testing.T) {
	small, _ := write(t, t.TempDir(), 4*mib)
	path, _ := write(t, t.TempDir(), 4*mib+1)
	page := int64(os.Getpagesize())
	for _, p := range []string{small, path} { // the pages of a file that was just written are dirty
		if f := passed(t, p, nil); unix.Fdatasync(f.BufferedFD()) != nil {
			t.Fatal("the file cannot be synchronized")
		}
	}
	whole, large := passed(t, small, nil), passed(t, path, nil)
	if m, why := large.Probe(); m != vfs.ProbeCachestat {
		t.Skip("the kernel does not answer cachestat for this file: ", why)
	}
	for _, x := range []struct {
		f      *vfs.File
		off, n int64
		known  bool
	}{{whole, 0, 4 * mib, true}, {whole, page, page, true}, {large, 0, page, true}, {large, 0, page + 1, false},
		{large, page, 1, false}, {large, 0, 4*mib + 1, false}} {
		if r, known := vfs.ResidencyAtOpen(x.f, x.off, x.n); known != x.known {
			t.Errorf("bytes %d+%d of %d: %+v, known %v; expected known %v", x.off, x.n, x.f.Size(), r, known, x.known)
		}
	}
	f, err := vfs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r, known := vfs.ResidencyAtOpen(f, 0, 1); known {
		t.Errorf("%+v is known of a file that Open opened", r)
	}
}

// TestBesideAnotherFile: the file system is that of the file, whichever file is beside it.
func TestBesideAnotherFile(t *testing.T) {
	here, _ := write(t, t.TempDir(), mib)
	there, err := os.MkdirTemp("/dev/shm", "vfs")
	if err != nil {
		t.Skip("there is no second file system: ", err)
	}
	defer os.RemoveAll(there)
	other, _ := write(t, there, mib)
	alone, elsewhere := passed(t, here, nil), passed(t, other, nil)
	for _, beside := range []*vfs.File{alone, elsewhere} {
		if got := passed(t, here, beside).FS(); got != alone.FS() {
			t.Errorf("beside a file on %v it is on %v, expected %v", beside.FS(), got, alone.FS())
		}
	}
	var s vfs.Storages
	if got, want := s.OfFile(alone), s.Of(alone.BufferedFD()); got != want {
		t.Errorf("below the file lies %+v, below its descriptor %+v", got, want)
	}
}
