// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
)

// removeLike removes the files of a store that match a pattern; there must be one.
func removeLike(t *testing.T, dir string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		all, err := filepath.Glob(filepath.Join(dir, p))
		if err != nil || len(all) == 0 {
			t.Fatalf("%s matches %d files: %v", p, len(all), err)
		}
		for _, name := range all {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A store that only salvage can save names salvage in the fix of each error, and salvage then saves all of it.
func TestDamageNamesSalvage(t *testing.T) {
	cases := []struct {
		name   string
		damage func(t *testing.T, dir string)
		says   string // in the error of check
		lost   bool   // salvage cannot save all
	}{
		{"no marker of the manifest", func(t *testing.T, dir string) { removeLike(t, dir, "meta/marker.manifest.*") },
			"marker", false},
		{"no marker of the version", func(t *testing.T, dir string) { removeLike(t, dir, "meta/marker.format-version.*") },
			"marker", false},
		{"empty FORMAT", func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, "FORMAT"), nil) },
			"FORMAT is empty", false},
		{"garbage in FORMAT", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "FORMAT"),
				[]byte("\x00\x01"))
		}, "FORMAT", false},
		{"half a FORMAT", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "FORMAT"),
				[]byte("nebulaio store\n"))
		}, "FORMAT", false},
		{"FORMAT is a directory", func(t *testing.T, dir string) {
			removeLike(t, dir, "FORMAT")
			if err := os.Mkdir(filepath.Join(dir, "FORMAT"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "FORMAT", false},
		{"no log and no witness", func(t *testing.T, dir string) { removeLike(t, dir, "meta/*.log", "REACH.?") }, "", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			dir, _ := oneFile(t)
			c.damage(t, dir)
			refused := func(what string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(errs.FixOf(err), "store salvage") {
					t.Errorf("%s: %v, fix %q, want one that names store salvage", what, err, errs.FixOf(err))
				}
			}
			s, err := disk.Open(ctx, backupOptions(dir))
			if err == nil {
				err = errors.Join(errors.New("the store opened"), s.Close())
			}
			if !c.lost {
				refused("open", err)
				_, err = disk.Check(ctx, backupOptions(dir), check.Options{})
				refused("check", err)
				if strings.Contains(errs.FixOf(err), "store check") {
					t.Errorf("check sends to check: %q", errs.FixOf(err))
				}
				if err != nil && !strings.Contains(err.Error(), c.says) {
					t.Errorf("check says %q, want %q in it", err, c.says)
				}
			}
			_, err = disk.Check(ctx, backupOptions(dir), check.Options{Repair: true})
			refused("repair", err)
			if strings.Contains(errs.FixOf(err), "--repair") {
				t.Errorf("repair sends to repair: %q", errs.FixOf(err))
			}
			saved, err := saved(ctx, backupOptions(dir), salvage.Options{To: filepath.Join(t.TempDir(), "new")})
			if err != nil || !c.lost && (saved.Objects != 1 || saved.Lost != 0) {
				t.Errorf("salvage saved %d objects and lost %d: %v", saved.Objects, saved.Lost, err)
			}
		})
	}
}

func writeFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A directory in the place of EPOCH is moved to quarantine, and repair writes the note anew.
func TestRepairOfEpochThatIsADirectory(t *testing.T) {
	ctx := t.Context()
	dir, _ := oneFile(t)
	removeLike(t, dir, "EPOCH")
	if err := os.Mkdir(filepath.Join(dir, "EPOCH"), 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := disk.Check(ctx, backupOptions(dir), check.Options{Repair: true})
	if err != nil || r.Found != 1 || r.Repaired != 1 {
		t.Fatalf("repair: found %d, repaired %d: %v, fix %q", r.Found, r.Repaired, err, errs.FixOf(err))
	}
	wantWhole(t, dir)
}

// A lost or damaged copy of the witness is a problem, although the other is whole, and repair writes it anew.
func TestCheckNamesADamagedCopyOfTheWitness(t *testing.T) {
	for name, damage := range map[string]func(string) error{
		"missing":   os.Remove,
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"zeros":     func(p string) error { return os.WriteFile(p, make([]byte, 4*4096), 0o600) },
		"directory": func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			dir, _ := oneFile(t)
			if err := damage(filepath.Join(dir, "REACH.1")); err != nil {
				t.Fatal(err)
			}
			r, err := disk.Check(ctx, backupOptions(dir), check.Options{})
			if err != nil || r.Found != 1 || len(r.Problems) != 1 || r.Problems[0].What != "REACH.1" {
				t.Fatalf("check: %+v: %v", r.Problems, err)
			}
			r, err = disk.Check(ctx, backupOptions(dir), check.Options{Repair: true})
			if err != nil || r.Found != 1 || r.Repaired != 1 {
				t.Fatalf("repair: %+v: %v", r.Problems, err)
			}
			wantWhole(t, dir)
		})
	}
}

// wantWhole wants a store that check finds nothing in, and that opens.
func wantWhole(t *testing.T, dir string) {
	t.Helper()
	ctx := t.Context()
	if r, err := disk.Check(ctx, backupOptions(dir), check.Options{Content: true}); err != nil || r.Found != 0 {
		t.Errorf("check: %+v: %v", r.Problems, err)
	}
	s, err := disk.Open(ctx, backupOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
