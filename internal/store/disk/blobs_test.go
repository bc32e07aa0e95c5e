// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

func blobFiles(t *testing.T, fs vfs.FS) (paths []string, sizes []int64) {
	t.Helper()
	names, lengths := metaFiles(t, fs)
	for i, n := range names {
		if strings.HasSuffix(n, ".blob") {
			paths, sizes = append(paths, path.Join("store/meta", path.Base(n))), append(sizes, lengths[i])
		}
	}
	if len(paths) < 2 {
		t.Fatalf("%d blob files, expected some", len(paths))
	}
	return paths, sizes
}

// A damaged end of a blob file, and a blob file under the name of another, are refused at the start and named by check.
// Pebble panics at the one, and ends the process at the other.
func TestDamagedEndsOfBlobFiles(t *testing.T) {
	d := makeDamaged(t, false)
	var sum tally
	paths, sizes := blobFiles(t, d.clone())
	for back := int64(1); back <= 120; back += 7 {
		fs := d.clone()
		flip(t, fs, paths[0], sizes[0]-back, uint(back%8))
		syncMeta(t, fs)
		d.judge(t, fs, paths[0], &sum)
	}
	fs := d.clone()
	for _, move := range [][2]string{{paths[0], "store/meta/x"}, {paths[1], paths[0]}, {"store/meta/x", paths[1]}} {
		if err := fs.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
	syncMeta(t, fs)
	d.judge(t, fs, "exchanged blob files", &sum)
	if sum.refused < 6 {
		t.Errorf("%+v, expected damaged ends to be refused", sum)
	}
}

// A blob file that is damaged while the store runs fails the requests that need it, by name; the store can be closed.
func TestBlobFileDamagedWhileItRuns(t *testing.T) {
	d := makeDamaged(t, true)
	fs := d.clone()
	s, err := disk.Open(t.Context(), damageOptions(fs))
	if err != nil {
		t.Fatal(err)
	}
	paths, sizes := blobFiles(t, fs)
	for i, p := range paths {
		flip(t, fs, p, sizes[i]-1, 2)
	}
	failed := 0
	for key := range d.want {
		_, _, err := storetest.Read(t.Context(), s, object.Ref{Bucket: damageBucket, Key: key})
		if err == nil {
			continue
		}
		failed++
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), ".blob") || errs.FixOf(err) == "" {
			t.Fatalf("%s: kind %v: %v", key, errs.KindOf(err), err)
		}
	}
	if failed == 0 {
		t.Error("no read failed")
	}
	if err := s.Close(); err != nil && !errors.Is(err, object.ErrReadOnly) {
		t.Errorf("close: %v", err)
	}
}
