// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/test/effort"
)

// realStore makes a store with one of everything on the real file system, stopped.
func realStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(t.Context(), Options{Dir: dir, Reserve: -1})
	must(t, err)
	makeBucket(t, s, object.Bucket{Name: "b"})
	putBytes(t, s, "b", "inline", content1(100, 1))
	putBytes(t, s, "b", "file", content1(100<<10, 2))
	putBytes(t, s, "b", "many sums", content1(9<<20, 3))
	up, err := s.CreateUpload(t.Context(), "b", "open", nil)
	must(t, err)
	putPart(t, s, "b", "open", up, 1, content1(50<<10, 7))
	closed(t, s)
	return dir
}

// wantWhole wants every object of a real store to be readable.
func wantWhole(t *testing.T, dir string) {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: dir, Reserve: -1})
	must(t, err)
	defer closed(t, s)
	for key, want := range map[string][]byte{"inline": content1(100, 1), "file": content1(100<<10, 2),
		"many sums": content1(9<<20, 3)} {
		if got := readAll(t, s, object.Ref{Bucket: "b", Key: key}); !slices.Equal(got, want) {
			t.Errorf("%s has changed", key)
		}
	}
}

// onlyFile is the one data file of a size.
func onlyFile(t *testing.T, dir string, size int64) string {
	t.Helper()
	found := ""
	must(t, filepath.WalkDir(filepath.Join(dir, "data"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if i, err := d.Info(); err == nil && i.Size() == size {
			found = p
		}
		return nil
	}))
	if found == "" {
		t.Fatal("no such file")
	}
	return found
}

// TestThingsInAStoreThatAreNotItsOwn: repair names and moves what does not belong into a store, of whatever kind it is,
// and touches nothing else, twice in a row and whatever it meets in quarantine.
func TestThingsInAStoreThatAreNotItsOwn(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte("another's"), 0o600))
	for name, c := range map[string]struct {
		put   func(t *testing.T, dir string)
		found string // in the report; empty where nothing is wrong
	}{
		"link out of the store": {func(t *testing.T, dir string) {
			must(t,
				os.Symlink(outside, filepath.Join(dir, "data", "link")))
		}, "data/link"},
		"link to nowhere": {func(t *testing.T, dir string) {
			must(t, os.Symlink("nowhere", filepath.Join(dir, "data/00/00/dangling")))
		}, "dangling"},
		"link to nowhere in tmp": {func(t *testing.T, dir string) {
			must(t, os.Symlink("nowhere", filepath.Join(dir, "tmp/dangling")))
		}, "dangling"},
		"link with a data file's name": {func(t *testing.T, dir string) {
			must(t, os.Symlink(outside, filepath.Join(dir, "data/00/00/0000000000000abc")))
		}, "abc"},
		"link to itself": {func(t *testing.T, dir string) { must(t, os.Symlink("loop", filepath.Join(dir, "data/00/loop"))) },
			"loop"},
		"link to a directory": {func(t *testing.T, dir string) {
			must(t, os.Symlink(t.TempDir(), filepath.Join(dir, "data/00/00/0000000000000abd")))
		}, "abd"},
		"pipe": {func(t *testing.T, dir string) {
			must(t, syscall.Mkfifo(filepath.Join(dir, "data/00/00/0000000000000abe"), 0o600))
		}, "abe"},
		"directory": {func(t *testing.T,
			dir string) {
			must(t, os.MkdirAll(filepath.Join(dir, "data/00/00/sub/sub"), 0o700))
		}, "sub"},
		"file in place of a directory": {func(t *testing.T,
			dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "data/0a"), nil, 0o600))
		}, "data/0a"},
		"hard link of a data file": {func(t *testing.T, dir string) {
			must(t, os.Link(onlyFile(t, dir, 100<<10), filepath.Join(dir, "data/00/00/0000000000000abf")))
		}, "abf"},
		"data file also outside": {func(t *testing.T, dir string) {
			must(t, os.Link(onlyFile(t, dir, 100<<10), filepath.Join(dir, "mine")))
		}, ""},
		"file of another user": {func(t *testing.T, dir string) {
			p := filepath.Join(dir, "data/00/00/others")
			must(t, os.WriteFile(p, []byte("x"), 0o000))
			_ = os.Chown(p, 65534, 65534) // only root can
		}, "others"},
		"name of a note": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "data/x"), []byte("x"), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, "data/x.json"), []byte("y"), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, "data/00/x"), []byte("z"), 0o600))
		}, "x.json"},
		"quarantine that is a link": {func(t *testing.T, dir string) {
			must(t, os.Symlink(t.TempDir(), filepath.Join(dir, layout.QuarantineName)))
			must(t, os.WriteFile(filepath.Join(dir, "data/x"), []byte("x"), 0o600))
		}, "data/x"},
		"lost+found": {func(t *testing.T, dir string) { must(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700)) }, ""},
		"strange names": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "tmp", "a\nb\xff\x1b[31m"), nil, 0o600))
		}, "a\nb"},
		"name as long as can be": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "tmp", strings.Repeat("n", 255)), []byte("x"), 0o600))
		}, "nnnn"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realStore(t)
			c.put(t, dir)
			o := Options{Dir: dir, Reserve: -1}
			before, err := Check(t.Context(), o, check.Options{})
			must(t, err)
			r, err := Check(t.Context(), o, check.Options{Repair: true})
			must(t, err)
			if before.Found != r.Found || r.Repaired != r.Found || (r.Found == 0) != (c.found == "") {
				t.Errorf("%d found before, %d repaired of %d: %+v", before.Found, r.Repaired, r.Found, r.Problems)
			}
			if c.found != "" && !slices.ContainsFunc(r.Problems, func(p check.Problem) bool {
				return strings.Contains(p.What, c.found) && strings.HasPrefix(p.Did, "moved to ")
			}) {
				t.Errorf("%q is not named: %+v", c.found, r.Problems)
			}
			if again, err := Check(t.Context(), o, check.Options{Repair: true}); err != nil || again.Found != 0 {
				t.Errorf("the second time: %+v, %v", again.Problems, err)
			}
			wantWhole(t, dir)
			// All of it can be put back.
			list, err := Quarantine(t.Context(), o)
			must(t, err)
			for _, q := range list {
				if _, err := RestoreQuarantined(t.Context(), o, q.Name); err != nil {
					t.Errorf("%+v: %v", q, err)
				}
			}
			if after, err := Check(t.Context(), o, check.Options{}); err != nil || after.Found != before.Found {
				t.Errorf("put back: %+v, %v", after.Problems, err)
			}
			wantWhole(t, dir)
			if b, err := os.ReadFile(outside); err != nil || string(b) != "another's" {
				t.Errorf("a file outside has changed: %q, %v", b, err)
			}
		})
	}
}

// TestCopiedStores: a store that was copied without hard links, modes or holes is the same store.
func TestCopiedStores(t *testing.T) {
	effort.SingleThreaded(t)
	for name, copied := range map[string]func(from, to string) *exec.Cmd{
		"cp -r":            func(from, to string) *exec.Cmd { return exec.Command("cp", "-r", from, to) },
		"cp -r, no holes":  func(from, to string) *exec.Cmd { return exec.Command("cp", "-r", "--sparse=never", from, to) },
		"cp -r, all holes": func(from, to string) *exec.Cmd { return exec.Command("cp", "-r", "--sparse=always", from, to) },
		"tar without owner": func(from, to string) *exec.Cmd {
			return exec.Command("sh", "-c", "mkdir "+to+" && tar -C "+from+" -cf - . | tar -C "+to+" -xf - --no-same-owner")
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realStore(t)
			// As a crash leaves it while a file is settled: it has both its names.
			file := onlyFile(t, dir, 100<<10)
			must(t, os.Link(file, filepath.Join(dir, "tmp", filepath.Base(file))))
			to := filepath.Join(t.TempDir(), "copy")
			out, err := copied(dir, to).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			o := Options{Dir: to, Reserve: -1}
			r, err := Check(t.Context(), o, check.Options{Repair: true, Content: true})
			if err != nil || r.Repaired != r.Found {
				t.Errorf("%+v, %v", r.Problems, err)
			}
			wantWhole(t, to)
			if open := reachable(t, to); len(open) != 0 {
				t.Errorf("other users reach %v", open)
			}
			if r, err := Check(t.Context(), o, check.Options{Content: true}); err != nil || r.Found != 0 {
				t.Errorf("%+v, %v", r.Problems, err)
			}
		})
	}
}

// TestTwoCopiesOfOneFile: where data/ and tmp/ have different files of one number, the one of the right size stays.
func TestTwoCopiesOfOneFile(t *testing.T) {
	effort.SingleThreaded(t)
	for name, spoil := range map[string]func(data, tmp string) error{
		"same content":  func(string, string) error { return nil },
		"short in tmp":  func(_, tmp string) error { return os.Truncate(tmp, 5) },
		"short in data": func(data, _ string) error { return os.Truncate(data, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := realStore(t)
			data := onlyFile(t, dir, 100<<10)
			tmp := filepath.Join(dir, "tmp", filepath.Base(data))
			b, err := os.ReadFile(data)
			must(t, err)
			must(t, os.WriteFile(tmp, b, 0o600))
			must(t, spoil(data, tmp))
			o := Options{Dir: dir, Reserve: -1}
			r, err := Check(t.Context(), o, check.Options{Repair: true})
			if err != nil || r.Found != 1 || r.Repaired != 1 {
				t.Errorf("%+v, %v", r.Problems, err)
			}
			wantWhole(t, dir)
		})
	}
}

// TestRepairOfAStoreInUse is refused.
func TestRepairOfAStoreInUse(t *testing.T) {
	dir := realStore(t)
	s, err := Open(t.Context(), Options{Dir: dir, Reserve: -1})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "data/x"), []byte("x"), 0o600))
	before := tree(t, vfs.Default, filepath.Join(dir, "data"))
	o := Options{Dir: dir, Reserve: -1}
	if _, err := Check(t.Context(), o, check.Options{Repair: true}); err == nil ||
		!strings.Contains(err.Error(), "has this store open") {
		t.Errorf("%v", err)
	}
	if _, err := RestoreQuarantined(t.Context(), o, "x"); err == nil ||
		!strings.Contains(err.Error(), "has this store open") {
		t.Errorf("%v", err)
	}
	if !maps.Equal(before, tree(t, vfs.Default, filepath.Join(dir, "data"))) {
		t.Error("something has changed")
	}
	closed(t, s)
	wantWhole(t, dir)
}
