// SPDX-License-Identifier: Apache-2.0

package filecopy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A copy of a sparse file has its holes, wherever they are, and the same content.
func TestCopyKeepsHoles(t *testing.T) {
	const size = 64 << 20
	for i, data := range [][]int64{{}, {0}, {size - 5}, {3 << 20, 40 << 20}} {
		from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
		f, err := os.Create(from)
		noFailure(t, err)
		for _, off := range data {
			_, err := f.WriteAt([]byte("data!"), off)
			noFailure(t, err)
		}
		noFailure(t, f.Truncate(size))
		noFailure(t, f.Close())
		noFailure(t, CopyFile(t.Context(), vfs.Default, from, to, size, nil))
		want, err := os.ReadFile(from)
		noFailure(t, err)
		got, err := os.ReadFile(to)
		noFailure(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("case %d: the content differs", i)
		}
		was, is := blocks(t, from), blocks(t, to)
		if was < size/2 && is > was+4<<20 {
			t.Errorf("case %d: the copy takes %d bytes of the disk, the file %d", i, is, was)
		}
		// A part of the file is cut at its end, not at that of the data.
		noFailure(t, CopyFile(t.Context(), vfs.Default, from, to+"2", 3<<20+2, nil))
		if got, err = os.ReadFile(to + "2"); err != nil || !bytes.Equal(got, want[:3<<20+2]) {
			t.Errorf("case %d: the first bytes differ: %d bytes, %v", i, len(got), err)
		}
	}
}

func noFailure(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	noFailure(t, err)
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Skip(fmt.Sprintf("%T tells no blocks", info.Sys()))
	}
	return st.Blocks * 512
}
