// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
	"github.com/nebulaio/nebulaio/test/effort"
)

// replaceFile gives a file another content.
func replaceFile(t *testing.T, fs vfs.FS, path string, content []byte) {
	t.Helper()
	if err := rewrite(fs, path, string(content)); err != nil {
		t.Fatal(err)
	}
}

// cutLog shortens the newest log of the metadata that holds something to a half.
func cutLog(t *testing.T, fs vfs.FS) {
	t.Helper()
	names, sizes := metaFiles(t, fs)
	at := -1
	for i, n := range names {
		if strings.HasSuffix(n, ".log") && sizes[i] > 300 {
			at = i
		}
	}
	path := "store/meta/" + names[at]
	replaceFile(t, fs, path, readAll(t, fs, path)[:sizes[at]/2])
}

// A log is cut, and with it goes what would tell. Salvage never reports a store as whole that nothing proves to be.
func TestSalvageOfALogThatNothingProves(t *testing.T) {
	effort.SingleThreaded(t)
	remove := func(names ...string) func(*testing.T, vfs.FS) {
		return func(t *testing.T, fs vfs.FS) {
			for _, n := range names {
				if err := fs.Remove("store/" + n); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, harm := range map[string]func(*testing.T, vfs.FS){
		"no witness":           remove("REACH.0", "REACH.1"),
		"no witness, no EPOCH": remove("REACH.0", "REACH.1", "EPOCH"),
		"no FORMAT":            remove("FORMAT"),
		"no FORMAT, no EPOCH":  remove("FORMAT", "EPOCH"),
		"an empty FORMAT":      func(t *testing.T, fs vfs.FS) { replaceFile(t, fs, "store/FORMAT", nil) },
		"a FORMAT without UUID": func(t *testing.T, fs vfs.FS) {
			replaceFile(t, fs, "store/FORMAT", []byte("nebulaio store\nformat 1\n"))
		},
		"no marker": func(t *testing.T, fs vfs.FS) {
			names, _ := metaFiles(t, fs)
			for _, n := range names {
				if strings.HasPrefix(n, "marker.manifest.") {
					remove("meta/"+n)(t, fs)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := makeDamaged(t, false)
			harm(t, d.fs)
			cutLog(t, d.fs)
			r, err := saved(t.Context(), damageOptions(d.fs), salvage.Options{To: "saved"})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Warnings) == 0 || r.Doubtful != r.Objects {
				t.Errorf("%d of %d objects are doubtful, warnings %q", r.Doubtful, r.Objects, r.Warnings)
			}
		})
	}
}

// The UUID in FORMAT is damaged. Repair does not give it to the metadata, salvage does not take it, and a FORMAT that
// is put back is enough.
func TestADamagedUUIDInFormat(t *testing.T) {
	effort.SingleThreaded(t)
	for name, damage := range map[string]func(uuid string) string{
		"no UUID any more": func(uuid string) string { return uuid[:35] + "v" },
		"another UUID": func(uuid string) string {
			if uuid[35] == '0' {
				return uuid[:35] + "1"
			}
			return uuid[:35] + "0"
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := makeDamaged(t, true)
			whole := readAll(t, d.fs, "store/FORMAT")
			_, rest, _ := strings.Cut(string(whole), "uuid ")
			uuid := rest[:36]
			replaceFile(t, d.fs, "store/FORMAT", bytes.Replace(whole, []byte(uuid), []byte(damage(uuid)), 1))
			for _, repair := range []bool{false, true} {
				_, err := disk.Check(t.Context(), damageOptions(d.fs), check.Options{Repair: repair})
				if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), uuid) ||
					!strings.Contains(errs.FixOf(err), "FORMAT") {
					t.Errorf("check, repair %v: %v", repair, err)
				}
			}
			r, err := saved(t.Context(), damageOptions(d.fs), salvage.Options{To: "saved"})
			if err != nil || r.UUID != uuid || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "UUID") {
				t.Errorf("salvage: UUID %s, expected %s; warnings %q, %v", r.UUID, uuid, r.Warnings, err)
			}
			replaceFile(t, d.fs, "store/FORMAT", whole)
			d.wantWhole(t, damageOptions(d.fs))
		})
	}
}

// The log is cut and the witness is gone, so that repair goes on with less. Content that was not settled
// yet and whose record is lost stays: Open would remove it.
func TestRepairWithoutAWitnessKeepsContent(t *testing.T) {
	d := makeDamaged(t, false)
	const text = "acknowledged by a record that is lost"
	replaceFile(t, d.fs, "store/tmp/00000000000fffff", []byte(text))
	for _, n := range []string{"store/REACH.0", "store/REACH.1"} {
		if err := d.fs.Remove(n); err != nil {
			t.Fatal(err)
		}
	}
	cutLog(t, d.fs)
	if _, err := disk.Check(t.Context(), damageOptions(d.fs), check.Options{Repair: true}); err != nil {
		t.Fatal(err)
	}
	s, err := disk.Open(t.Context(), damageOptions(d.fs))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, d.fs, "store/quarantine/00000000000fffff"); string(got) != text {
		t.Errorf("quarantine has %q, expected %q", got, text)
	}
}
