// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func descriptor(t *testing.T, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func TestSinkRefusesWhatIsNoFileToWrite(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	create := unix.O_WRONLY | unix.O_CREAT
	for name, d := range map[string]Descriptors{
		"none":        {Buffered: -1, Direct: -1},
		"a directory": {Buffered: descriptor(t, dir, unix.O_RDONLY), Direct: -1},
		"two files":   {Buffered: descriptor(t, a, create), Direct: descriptor(t, b, create)},
		"closed":      {Buffered: 1 << 20, Direct: -1},
	} {
		if _, err := SinkFromDescriptors(d); err == nil {
			t.Errorf("%s: no error", name)
		}
		for _, fd := range []int{d.Buffered, d.Direct} {
			if fd >= 0 && isOpen(fd) {
				t.Errorf("%s: descriptor %d is left open", name, fd)
			}
		}
	}
}

func TestSinkWritesAndCloses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	fd := descriptor(t, path, unix.O_WRONLY|unix.O_CREAT)
	s, err := SinkFromDescriptors(Descriptors{Name: "b/k", Buffered: fd, Direct: -1, Refused: "no room for it", Size: 5})
	if err != nil {
		t.Fatal(err)
	}
	if ok, why := s.Direct(); ok || why == nil || why.Reason != "no room for it" || why.Fix == "" {
		t.Errorf("direct %v %+v", ok, why)
	}
	if err := errors.Join(s.WriteBuffered([]byte("lo"), 3), s.WriteBuffered([]byte("hel"), 0), s.Close(),
		s.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "hello" {
		t.Errorf("%q %v", got, err)
	}
	if isOpen(fd) {
		t.Error("the descriptor is left open")
	}
}

func TestSinkThatCannotBeWrittenSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := SinkFromDescriptors(Descriptors{Name: "b/k", Buffered: descriptor(t, path, unix.O_RDONLY), Direct: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.WriteBuffered([]byte("x"), 7); !errs.Is(err, errs.Invalid) ||
		!strings.Contains(err.Error(), "offset 7 of b/k") || errs.FixOf(err) == "" {
		t.Error(err)
	}
}
