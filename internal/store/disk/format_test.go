// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// tree is every file under dir with its content, but for what an attempt to open may leave: the lock and who tried.
func tree(t *testing.T, fs vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(string)
	walk = func(d string) {
		names, err := fs.List(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			p := fs.PathJoin(d, n)
			if n == layout.LockName || n == layout.OwnerName {
				continue
			}
			info, err := fs.Stat(p)
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(p)
				continue
			}
			f, err := fs.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(f)
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			out[p] = string(b)
		}
	}
	walk(dir)
	return out
}

func writeFile(t *testing.T, fs vfs.FS, name, text string) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// filled is a store with a file in it, closed.
func filled(t *testing.T) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	s := openMem(t, fs)
	makeBucket(t, s, object.Bucket{Name: "b"})
	putBytes(t, s, "b", "large", content1(100<<10, 1))
	putBytes(t, s, "b", "small", content1(100, 1))
	closed(t, s)
	return fs
}

func copyTree(t *testing.T, from vfs.FS, to vfs.FS, a, b string) {
	t.Helper()
	if ok, err := vfs.Clone(from, to, a, b); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

func TestRefusesWhatIsNotWholeAndChangesNothing(t *testing.T) {
	cases := map[string]struct {
		spoil func(t *testing.T, fs vfs.FS)
		says  string
	}{
		"metadata missing": {func(t *testing.T, fs vfs.FS) { must(t, fs.RemoveAll("store/meta")) }, "the metadata is gone"},
		"metadata and FORMAT missing": {func(t *testing.T, fs vfs.FS) {
			must(t, fs.RemoveAll("store/meta"))
			must(t, fs.Remove("store/FORMAT"))
		}, "the metadata is gone"},
		"metadata empty": {func(t *testing.T, fs vfs.FS) {
			must(t, fs.RemoveAll("store/meta"))
			must(t, fs.MkdirAll("store/meta", 0o755))
		}, "the metadata is gone"},
		"FORMAT missing": {func(t *testing.T, fs vfs.FS) { must(t, fs.Remove("store/FORMAT")) }, "FORMAT is missing"},
		"newer format": {func(t *testing.T, fs vfs.FS) {
			writeFile(t, fs, "store/FORMAT", "nebulaio store\nformat 3\nuuid x\n")
		}, "format 3"},
		"not a store's FORMAT": {func(t *testing.T, fs vfs.FS) { writeFile(t, fs, "store/FORMAT", "what else\n") },
			"is not a store's"},
		"FORMAT of no lines": {func(t *testing.T, fs vfs.FS) { writeFile(t, fs, "store/FORMAT", "junk") },
			"expected a name and a value"},
		"data missing": {func(t *testing.T, fs vfs.FS) { must(t, fs.RemoveAll("store/data")) }, "the data is gone"},
		"of another store": {func(t *testing.T, fs vfs.FS) {
			other := filled(t)
			must(t, fs.RemoveAll("store/meta"))
			copyTree(t, other, fs, "store/meta", "store/meta")
		}, "the metadata is of store"},
		"EPOCH of another store": {func(t *testing.T, fs vfs.FS) {
			copyTree(t, filled(t), fs, "store/EPOCH", "store/EPOCH")
		}, "EPOCH is of store"},
		"older by an epoch": {func(t *testing.T, fs vfs.FS) {
			copyTree(t, fs, fs, "store/meta", "old")
			closed(t, openMem(t, fs))
			must(t, fs.RemoveAll("store/meta"))
			must(t, fs.Rename("old", "store/meta"))
		}, "older than the data"},
		"older within an epoch": {func(t *testing.T, fs vfs.FS) {
			s := openMem(t, fs)
			must(t, s.db.Checkpoint("old"))
			putBytes(t, s, "b", "later", content1(100, 2))
			closed(t, s)
			must(t, fs.RemoveAll("store/meta"))
			must(t, fs.Rename("old", "store/meta"))
		}, "older than the data"},
		"older than the files": {func(t *testing.T, fs vfs.FS) {
			must(t, fs.Remove("store/EPOCH"))
			must(t, fs.MkdirAll("store/data/7f/00", 0o755))
			writeFile(t, fs, fmt.Sprintf("store/data/7f/00/%016x", 0x7f00001), "x")
		}, "older than the data"},
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			fs := filled(t)
			cases[name].spoil(t, fs)
			before := tree(t, fs, "store")
			s, err := Open(t.Context(), Options{Dir: "store", FS: fs})
			if err == nil {
				closed(t, s)
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), cases[name].says) || errs.FixOf(err) == "" {
				t.Errorf("%v\nexpected %q and a fix", err, cases[name].says)
			}
			after := tree(t, fs, "store")
			for p, b := range before {
				if got, ok := after[p]; !ok {
					t.Errorf("%s is gone", p)
				} else if got != b {
					t.Errorf("%s changed", p)
				}
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneOwner(t *testing.T) {
	for name, o := range map[string]Options{"in memory": {Dir: "store", FS: vfs.NewMem()}, "on disk": {Dir: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), o)
			must(t, err)
			_, err = Open(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), "has this store open") ||
				!strings.Contains(err.Error(), "process ") {
				t.Errorf("a second owner: %v", err)
			}
			_, err = Check(t.Context(), o, check.Options{})
			if err == nil || !strings.Contains(err.Error(), "has this store open") {
				t.Errorf("a check beside the owner: %v", err)
			}
			closed(t, s)
			s, err = Open(t.Context(), o)
			must(t, err)
			closed(t, s)
			if err := s.Close(); !errors.Is(err, object.ErrClosed) {
				t.Errorf("closed twice: %v", err)
			}
		})
	}
}

// An older program would take records of this one for damage, so it must refuse the store by its format.
func TestAStoreOfAnOlderFormatGetsTheNewest(t *testing.T) {
	o := Options{Dir: "store", FS: vfs.NewMem()}
	s, err := Open(t.Context(), o)
	must(t, err)
	must(t, s.CreateBucket(t.Context(), object.Bucket{Name: "bucket", Owner: "root", ETag: object.ETagMD5}))
	closed(t, s)
	path := o.FS.PathJoin(o.Dir, layout.FormatName)
	newest := tree(t, o.FS, o.Dir)[path]
	line := fmt.Sprintf("\nformat %d\n", layout.FormatVersion)
	rewrite := func(version int) {
		t.Helper()
		text := strings.Replace(newest, line, fmt.Sprintf("\nformat %d\n", version), 1)
		must(t, layout.WriteNote(o.FS, o.Dir, layout.FormatName, text))
	}
	rewrite(1)
	for range 2 {
		s, err = Open(t.Context(), o)
		must(t, err)
		if _, err := s.Bucket(t.Context(), "bucket"); err != nil {
			t.Error(err)
		}
		closed(t, s)
		if got := tree(t, o.FS, o.Dir)[path]; got != newest {
			t.Errorf("FORMAT is %q, expected %q", got, newest)
		}
	}
	rewrite(layout.FormatVersion + 1)
	if _, err = Open(t.Context(), o); !errs.Is(err, errs.Unsupported) {
		t.Errorf("a newer format: %v", err)
	}
}

// TestMakingAStoreCanStopAnywhere cuts the power at each step of the first opening: the next one succeeds.
func TestMakingAStoreCanStopAnywhere(t *testing.T) {
	for _, keep := range []int{0, 100} {
		fs := vfs.NewCrashableMem()
		s := openMem(t, fs)
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rand.New(rand.NewPCG(1, uint64(keep)))})
		closed(t, s)
		closed(t, openMem(t, clone))
	}
}
