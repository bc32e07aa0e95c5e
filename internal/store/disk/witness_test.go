// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
)

// The newest log of a killed store is cut short or gone: the store says so, and how much is missing.
func TestShortLogIsRefused(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, fs vfs.FS, log string){
		"gone": func(t *testing.T, fs vfs.FS, log string) {
			if err := fs.Remove(log); err != nil {
				t.Fatal(err)
			}
		},
		"a flipped bit": func(t *testing.T, fs vfs.FS, log string) { flip(t, fs, log, 300, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			d := makeDamaged(t, false)
			names, sizes := metaFiles(t, d.fs)
			log, size := "", int64(0)
			for i, n := range names {
				if strings.HasSuffix(n, ".log") && sizes[i] > 300 {
					log, size = "store/meta/"+n, sizes[i]
				}
			}
			harm(t, d.fs, log)
			_, err := disk.Open(t.Context(), damageOptions(d.fs))
			if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "changes are lost") ||
				!strings.Contains(errs.FixOf(err), "store salvage") {
				t.Errorf("%s of %d bytes: %v (fix: %s)", log, size, err, errs.FixOf(err))
			}
			r, err := disk.Check(t.Context(), damageOptions(d.fs), check.Options{})
			if err != nil || r.Found == 0 {
				t.Errorf("check: %+v, %v", r, err)
			}
		})
	}
}

// One copy of the witness is enough. Without both the store does not start, until check --repair goes on without.
func TestWitnessIsMissing(t *testing.T) {
	d := makeDamaged(t, false)
	o := damageOptions(d.fs)
	var told []error
	o.Events.Background = func(err error) { told = append(told, err) }
	flip(t, d.fs, "store/REACH.1", 20, 1)
	for i := range int64(4) {
		flip(t, d.fs, "store/REACH.0", i*4096+40, 1)
	}
	s, err := disk.Open(t.Context(), o)
	if err != nil {
		t.Fatalf("with one copy: %v", err)
	}
	if len(told) == 0 {
		t.Error("nobody was told that one copy is damaged")
	}
	if silent, said, first := d.missing(t.Context(), s); silent+said > 0 {
		t.Errorf("%d and %d are missing: %s", silent, said, first)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"store/REACH.0", "store/REACH.1"} {
		if err := d.fs.Remove(n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := disk.Open(t.Context(), o); !errs.Is(err, errs.Corrupt) || !strings.Contains(errs.FixOf(err), "--repair") {
		t.Fatalf("without a witness: %v", err)
	}
	r, err := disk.Check(t.Context(), o, check.Options{})
	if err != nil || r.Found != 1 || r.Repaired != 0 {
		t.Fatalf("check: %+v, %v", r, err)
	}
	r, err = disk.Check(t.Context(), o, check.Options{Repair: true})
	if err != nil || r.Found != 1 || r.Repaired != 1 {
		t.Fatalf("repair: %+v, %v", r, err)
	}
	wantClean(t, o)
	d.wantWhole(t, o)
}

// A store that was last used by a version without a witness opens, and has one afterwards.
func TestOlderStoreGetsAWitness(t *testing.T) {
	d := makeDamaged(t, true)
	o := damageOptions(d.fs)
	for _, n := range []string{"store/REACH.0", "store/REACH.1"} {
		if err := d.fs.Remove(n); err != nil {
			t.Fatal(err)
		}
	}
	text := strings.ReplaceAll(string(readAll(t, d.fs, "store/EPOCH")), "reach 1\n", "")
	f, err := d.fs.Create("store/EPOCH", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := disk.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if text := string(readAll(t, d.fs, "store/EPOCH")); !strings.Contains(text, "reach 1\n") {
		t.Errorf("EPOCH is %q", text)
	}
	if len(readAll(t, d.fs, "store/REACH.0")) == 0 || len(readAll(t, d.fs, "store/REACH.1")) == 0 {
		t.Error("no witness was made")
	}
}
