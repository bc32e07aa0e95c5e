// SPDX-License-Identifier: Apache-2.0

// Package vfstest writes and opens files for tests of direct reads and of the page cache.
package vfstest

import (
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/vfs"
)

// DiskDir returns an empty directory on a disk, which is removed when the test ends. The system's temporary folder
// may be tmpfs, where the page cache cannot be bypassed.
func DiskDir(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC {
		d, err := os.MkdirTemp(".", "disktest")
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { os.RemoveAll(d) })
		return d
	}
	return dir
}

// Write writes n random bytes to path and returns them. The same seed gives the same bytes.
func Write(tb testing.TB, path string, n int64, seed uint64) []byte {
	tb.Helper()
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(data)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return data
}

// Names returns the names in a directory, sorted.
func Names(tb testing.TB, dir string) []string {
	tb.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// Open opens the file at path. The file is closed when the test ends.
func Open(tb testing.TB, path string) *vfs.File {
	tb.Helper()
	f, err := vfs.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	return f
}
