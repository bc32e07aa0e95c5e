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
