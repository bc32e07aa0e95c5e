// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestFullDisk: a commit that finds the disk full leaves the old checkpoint complete, and nothing of its own.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting a small file system needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	save(t, dir, 1, 10)
	draft := draftOf(t, dir, 2, 20)
	before := names(t, dir)
	// The manifest still has room, and .metadata has none.
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "filler"), make([]byte, (int64(st.Bfree)-4)*st.Bsize))
	_, err := Commit(t.Context(), NewLocal(dir),
		CommitRequest{Draft: draft, Metadata: content(2, 40_000), Now: time.Now()})
	if !errs.Is(err, errs.IO) {
		t.Fatalf("%v", err)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	if after := names(t, dir); !slices.Equal(after, before) {
		t.Errorf("the directory has %q, expected %q", after, before)
	}
	if found := all(t, dir); len(found) != 1 || !found[0].Complete || found[0].ID != idOf(1) ||
		verify(t, dir).Verdict != VerdictGood {
		t.Errorf("%s", shown(found))
	}
	save(t, dir, 3, 30)
}
