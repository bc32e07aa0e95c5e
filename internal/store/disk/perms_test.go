// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// reachable are the entries below dir that a user who is neither owner nor in the group can open: every directory on
// the way lets others through.
func reachable(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&others == 0 {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		found = append(found, path)
		return nil
	}))
	return found
}

func TestNoEntryOfAStoreIsOpenToOtherUsers(t *testing.T) {
	for _, mask := range []int{0o022, 0, 0o077} {
		old := syscall.Umask(mask)
		defer syscall.Umask(old)
		dir := filepath.Join(t.TempDir(), "store")
		must(t, os.Mkdir(dir, 0o755))
		must(t, os.Chmod(dir, 0o755))
		use := func(exposed *[]string) {
			s, err := Open(t.Context(), Options{Dir: dir, Events: Events{Exposed: func(p string, _ fs.FileMode, err error) {
				if err != nil {
					t.Error(err)
				}
				*exposed = append(*exposed, filepath.Base(p))
			}}})
			must(t, err)
			if _, err := s.Bucket(t.Context(), "b"); err != nil {
				makeBucket(t, s, object.Bucket{Name: "b"})
			}
			putBytes(t, s, "b", "small", []byte("a secret"))
			putBytes(t, s, "b", "large", content1(100<<10, 1))
			if open := reachable(t, dir); len(open) != 0 {
				t.Errorf("umask %03o: other users reach %v", mask, open)
			}
			closed(t, s)
		}
		var exposed []string
		use(&exposed)
		// Within meta/ every file is its owner's alone as well.
		if open := reachable(t, filepath.Join(dir, layout.MetaName)); len(open) != 0 {
			t.Errorf("umask %03o: %v", mask, open)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("the operator's directory has mode %v, %v", info.Mode(), err)
		}
		if slices.Contains(exposed, layout.MetaName) {
			t.Errorf("a new store was made open: %v", exposed)
		}
		// A store of an earlier version is closed when it is opened, and that is told.
		for _, name := range []string{layout.MetaName, layout.DataName, layout.TmpName} {
			must(t, os.Chmod(filepath.Join(dir, name), 0o755))
		}
		for _, name := range []string{layout.FormatName, layout.EpochName} {
			must(t, os.Chmod(filepath.Join(dir, name), 0o644))
		}
		exposed = nil
		use(&exposed)
		for _, name := range []string{layout.MetaName, layout.DataName, layout.TmpName, layout.FormatName, layout.EpochName} {
			if !slices.Contains(exposed, name) {
				t.Errorf("umask %03o: nothing was told of %s: %v", mask, name, exposed)
			}
		}
	}
}
