// SPDX-License-Identifier: Apache-2.0

package lend_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/store/lend"
)

// TestOpen opens a file of a directory with and without a read-only mount.
func TestOpen(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(root, "data", "file")
	if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mounted := range []bool{false, true} {
		d := lend.New(root)
		if mounted {
			d = lend.Mount(root, "data")
		}
		file, err := d.Open(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_WRONLY, 0)
		if err == nil {
			_ = again.Close()
		}
		if why := d.Reopenable(); (why == nil) != (err != nil) || !mounted && why == nil {
			t.Errorf("mounted %t: reopened for writing: %v; the reason: %v", mounted, err, why)
		}
		d.Close()
		b := make([]byte, 7)
		if _, err := file.ReadAt(b, 0); err != nil || string(b) != "content" {
			t.Errorf("mounted %t: %q, %v", mounted, b, err)
		}
		_ = file.Close()
	}
}

// TestLinksAreNotMounted: a folder that is a link is not below the mount, and has no protection.
func TestLinksAreNotMounted(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(root, "data")); err != nil {
		t.Fatal(err)
	}
	d := lend.Mount(root, "data")
	defer d.Close()
	if d.Reopenable() == nil {
		t.Error("files behind a link are said to be protected")
	}
}

// TestLeases: an open for writing fails soon while somebody has a lease, and works afterwards.
func TestLeases(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	holder, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Skipf("the file system has no leases: %v", err)
	}
	if _, err := lend.Unleased(unix.AT_FDCWD, name, unix.O_RDWR); !errors.Is(err, lend.ErrBusy) {
		t.Errorf("with a lease: %v", err)
	}
	_ = holder.Close()
	fd, err := lend.Unleased(unix.AT_FDCWD, name, unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
}
