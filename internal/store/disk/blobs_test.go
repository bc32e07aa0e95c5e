// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
	"github.com/nebulaio/nebulaio/test/effort"
)

// blobFiles returns the blob files of a store's metadata.
func blobFiles(t *testing.T, fs vfs.FS) (paths []string, sizes []int64) {
	t.Helper()
	names, lengths := metaFiles(t, fs)
	for i, n := range names {
		if strings.HasSuffix(n, ".blob") {
			paths, sizes = append(paths, path.Join("store/meta", path.Base(n))), append(sizes, lengths[i])
		}
	}
	return paths, sizes
}

// makeBlobs is makeDamaged for a store with several blob files. How many files there are depends on the moments in
// which Pebble flushes and compacts.
func makeBlobs(t *testing.T, clean bool) *damaged {
	t.Helper()
	for range 50 {
		d := makeDamaged(t, clean)
		if paths, _ := blobFiles(t, d.clone()); len(paths) >= 2 {
			return d
		}
	}
	t.Fatal("no store has two blob files")
	return nil
}

// A damaged end of a blob file, and a blob file under the name of another, are refused at the start and named by check.
// Pebble panics at the one, and ends the process at the other.
func TestDamagedEndsOfBlobFiles(t *testing.T) {
	effort.SingleThreaded(t)
	d := makeBlobs(t, false)
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
	d := makeBlobs(t, true)
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

// The end of a blob file is damaged or cut off. Salvage saves every value whose block is whole, and check names the
// file.
func TestSalvageOfBlobFilesWithoutTheirEnd(t *testing.T) {
	effort.SingleThreaded(t)
	d := makeBlobs(t, true)
	paths, sizes := blobFiles(t, d.clone())
	for name, harm := range map[string]func(fs vfs.FS) (least int){
		"a flipped bit": func(fs vfs.FS) int {
			flip(t, fs, paths[0], sizes[0]-8, 1)
			return len(d.want)
		},
		"no end": func(fs vfs.FS) int {
			replaceFile(t, fs, paths[0], readAll(t, fs, paths[0])[:sizes[0]-20])
			return len(d.want)
		},
		"a half": func(fs vfs.FS) int {
			replaceFile(t, fs, paths[0], readAll(t, fs, paths[0])[:sizes[0]/2])
			return 1 + d.savedWithout(t, paths[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := d.clone()
			least := harm(fs)
			r, err := disk.Check(t.Context(), damageOptions(fs), check.Options{})
			named := slices.ContainsFunc(r.Problems, func(p check.Problem) bool { return "store/"+p.What == paths[0] })
			if err != nil || !named {
				t.Errorf("check does not name %s: %+v, %v", paths[0], r.Problems, err)
			}
			if saved := d.saved(t, fs); saved < least {
				t.Errorf("saved %d of %d objects, expected at least %d", saved, len(d.want), least)
			}
		})
	}
}

// savedWithout returns how many objects a salvage saves without a file.
func (d *damaged) savedWithout(t *testing.T, path string) int {
	t.Helper()
	fs := d.clone()
	if err := fs.Remove(path); err != nil {
		t.Fatal(err)
	}
	return d.saved(t, fs)
}
