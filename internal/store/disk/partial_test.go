// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

// backedUp makes a store with small and large objects and a backup of it, whose log holds all of them.
func backedUp(t *testing.T) (dir, copied string) {
	t.Helper()
	ctx := t.Context()
	root := t.TempDir()
	dir, copied = filepath.Join(root, "store"), filepath.Join(root, "backup")
	s, err := disk.Open(ctx, backupOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CreateBucket(ctx, object.Bucket{Name: "bucket"}); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		b := storetest.Bytes(uint64(i), 500)
		if i == 0 {
			b = storetest.Bytes(0, 40_000)
		}
		if _, err := s.Put(ctx, object.Put{Bucket: "bucket", Key: fmt.Sprint("key", i), Size: int64(len(b)),
			Body: bytes.NewReader(b)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Backup(ctx, backup.Options{To: copied}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, copied
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A backup whose metadata was cut short, changed or lost is refused, whatever the file, without --verify too. Salvage
// says so.
func TestRestoreOfDamagedMetadata(t *testing.T) {
	ctx := t.Context()
	_, whole := backedUp(t)
	names, err := os.ReadDir(filepath.Join(whole, "meta"))
	if err != nil {
		t.Fatal(err)
	}
	half := func(b []byte) []byte { return b[:len(b)/2] }
	flipped := func(b []byte) []byte { b[len(b)/2] ^= 4; return b }
	paths := []string{"SUMS"}
	for _, n := range names {
		if n.Name() != "LOCK" {
			paths = append(paths, "meta/"+n.Name())
		}
	}
	for _, name := range paths {
		for what, change := range map[string]func([]byte) []byte{"cut": half, "changed": flipped, "gone": nil} {
			root := t.TempDir()
			copied, to := filepath.Join(root, "backup"), filepath.Join(root, "store")
			if err := os.CopyFS(copied, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(copied, name)
			if info, err := os.Stat(path); err != nil || info.Size() == 0 && change != nil {
				continue // a marker: its name is all that it has
			}
			if change == nil {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else {
				edit(t, path, change)
			}
			_, err := restored(ctx, copied, backupOptions(to), backup.RestoreOptions{})
			if !errs.Is(err, errs.Corrupt) || errs.FixOf(err) == "" || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: restore: kind %v: %v", name, what, errs.KindOf(err), err)
			}
			if layout.StoreAt(to) == nil {
				t.Errorf("%s %s: a store was made of it", name, what)
			}
			r, err := saved(ctx, backupOptions(copied), salvage.Options{To: filepath.Join(root, "saved")})
			if err != nil || len(r.Warnings) == 0 {
				t.Errorf("%s %s: salvage: %v, %+v", name, what, err, r.Warnings)
			}
		}
	}
}

// Backups of older versions have no list of their metadata, and are restored as they are.
func TestRestoreWithoutSums(t *testing.T) {
	_, copied := backedUp(t)
	edit(t, filepath.Join(copied, "BACKUP"), func(b []byte) []byte { return b[:bytes.Index(b, []byte("sums "))] })
	if err := os.Remove(filepath.Join(copied, "SUMS")); err != nil {
		t.Fatal(err)
	}
	o := backupOptions(filepath.Join(t.TempDir(), "new"))
	if _, err := restored(t.Context(), copied, o, backup.RestoreOptions{Verify: true}); err != nil {
		t.Fatal(err)
	}
	wantClean(t, o)
}

// Nothing is salvaged into the damaged store, restored into the backup or backed up into the store, through links
// neither.
func TestCopiesStayApart(t *testing.T) {
	ctx := t.Context()
	dir, copied := backedUp(t)
	link := filepath.Join(t.TempDir(), "link")
	for _, outer := range []string{dir, copied} {
		_ = os.Remove(link)
		if err := os.Symlink(outer, link); err != nil {
			t.Fatal(err)
		}
		before := treeOf(t, outer)
		for _, to := range []string{outer + "/new", outer + "/data/a/b", link + "/new", outer} {
			var err error
			if outer == dir {
				_, err = saved(ctx, disk.Options{Dir: dir}, salvage.Options{To: to})
			} else {
				_, err = restored(ctx, copied, backupOptions(to), backup.RestoreOptions{})
			}
			if !errs.Is(err, errs.Invalid) || errs.FixOf(err) == "" {
				t.Errorf("%s: kind %v: %v", to, errs.KindOf(err), err)
			}
		}
		if after := treeOf(t, outer); after != before {
			t.Errorf("it changed: %s, was %s", after, before)
		}
	}
	s, err := disk.Open(ctx, backupOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	_ = os.Remove(link)
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(ctx, backup.Options{To: link + "/a/b/c"}); !errs.Is(err, errs.Invalid) {
		t.Errorf("backup into the store: %v", err)
	}
}

// treeOf is the names and lengths of what is in a directory.
func treeOf(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Name() != "LOCK" {
			fmt.Fprintln(&out, path, info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// What an interrupted restore or salvage left is no store, not even a new one, and the same command begins anew.
func TestInterruptedCopiesBeginAnew(t *testing.T) {
	ctx := t.Context()
	dir, copied := backedUp(t)
	for kind, run := range map[string]func(to string) error{
		"restore": func(to string) error {
			_, err := restored(ctx, copied, backupOptions(to), backup.RestoreOptions{})
			return err
		},
		"salvage": func(to string) error {
			_, err := saved(ctx, disk.Options{Dir: dir}, salvage.Options{To: to})
			return err
		},
	} {
		to := filepath.Join(t.TempDir(), "new")
		for _, sub := range []string{"meta", "data", "tmp"} {
			if err := os.MkdirAll(filepath.Join(to, sub), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(to, "PARTIAL"), []byte("partial "+kind+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := treeOf(t, to)
		_, err := disk.Open(ctx, backupOptions(to))
		if !errs.Is(err, errs.Invalid) || errs.FixOf(err) == "" || treeOf(t, to) != before {
			t.Errorf("%s: open: kind %v: %v, %s", kind, errs.KindOf(err), err, treeOf(t, to))
		}
		stranger := filepath.Join(to, "letter")
		if err := os.WriteFile(stranger, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(to); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s beside a stranger's file: %v", kind, err)
		}
		if err := os.Remove(stranger); err != nil {
			t.Fatal(err)
		}
		if err := run(to); err != nil {
			t.Fatalf("%s again: %v", kind, err)
		}
		if _, err := os.Stat(filepath.Join(to, "PARTIAL")); err == nil {
			t.Errorf("%s: PARTIAL is still there", kind)
		}
		wantClean(t, backupOptions(to))
		if err := run(to); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s over a store: %v", kind, err)
		}
	}
}

// A server that is started on a backup says what to do, and leaves nothing there.
func TestOpenOnABackup(t *testing.T) {
	_, copied := backedUp(t)
	before := treeOf(t, copied)
	for _, err := range []error{layout.StoreAt(copied),
		func() error { _, err := disk.Open(t.Context(), backupOptions(copied)); return err }()} {
		if !errs.Is(err, errs.Invalid) || !strings.Contains(errs.FixOf(err), "store restore") {
			t.Errorf("kind %v, fix %q: %v", errs.KindOf(err), errs.FixOf(err), err)
		}
	}
	if after := treeOf(t, copied); after != before {
		t.Errorf("it changed: %s, was %s", after, before)
	}
}

// A store without FORMAT is damaged and not missing, and salvage keeps its identity.
func TestStoreWithoutFormat(t *testing.T) {
	dir, _ := backedUp(t)
	whole, err := saved(t.Context(), disk.Options{Dir: dir}, salvage.Options{To: filepath.Join(t.TempDir(), "new")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "FORMAT")); err != nil {
		t.Fatal(err)
	}
	if err := layout.StoreAt(dir); !errs.Is(err, errs.Corrupt) || !strings.Contains(errs.FixOf(err), "salvage") {
		t.Errorf("kind %v: %v", errs.KindOf(err), err)
	}
	to := filepath.Join(t.TempDir(), "new")
	r, err := saved(t.Context(), disk.Options{Dir: dir}, salvage.Options{To: to})
	if err != nil || r.UUID != whole.UUID || r.UUID == "" || len(r.Warnings) > 0 {
		t.Errorf("%v, %q, expected %q; %q", err, r.UUID, whole.UUID, r.Warnings)
	}
	wantClean(t, backupOptions(to))
	if err := layout.StoreAt(t.TempDir()); !errs.Is(err, errs.NotFound) {
		t.Errorf("an empty directory: %v", err)
	}
}

// A backup of a store with damage names the object or the upload, and what to do.
func TestBackupNamesDamage(t *testing.T) {
	ctx := t.Context()
	dir, file := oneFile(t)
	s, err := disk.Open(ctx, backupOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	try := func(name string, wants ...string) {
		t.Helper()
		_, err := s.Backup(ctx, backup.Options{To: filepath.Join(t.TempDir(), "backup")})
		if !errs.Is(err, errs.Corrupt) || errs.FixOf(err) == "" {
			t.Errorf("%s: kind %v: %v", name, errs.KindOf(err), err)
			return
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, expected %q in it", name, err, want)
			}
		}
	}
	if err := s.CreateBucket(ctx, object.Bucket{Name: "o"}); err != nil {
		t.Fatal(err)
	}
	a := newActor(s)
	for _, x := range []action{begin("up"), part("up", 1, 700_000)} {
		if err := x.do(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	more, err2 := filepath.Glob(filepath.Join(dir, "data", "*", "*", "*"))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	damaged := ""
	for _, p := range append(parts, more...) {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Size() >= 700_000 &&
			!strings.Contains(p, "/meta/") {
			damaged = p
		}
	}
	if damaged == "" {
		t.Fatalf("no file of the part: %v %v", parts, more)
	}
	edit(t, damaged, func(b []byte) []byte { b[9] ^= 1; return b })
	try("damaged part", filepath.Base(damaged), "a part of an upload is damaged")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	try("missing file", `"key"`, filepath.Base(file))
}
