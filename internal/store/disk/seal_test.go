// SPDX-License-Identifier: Apache-2.0

package disk_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/backup"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/disk"
	"github.com/nebulaio/nebulaio/internal/store/salvage"
	"github.com/nebulaio/nebulaio/test/effort"
)

// logsOf are the logs of the metadata of a store, and their sizes.
func logsOf(t *testing.T, fs vfs.FS, dir string) map[string]int64 {
	t.Helper()
	names, err := fs.List(dir + "/meta")
	if err != nil {
		t.Fatal(err)
	}
	logs := map[string]int64{}
	for _, n := range names {
		if !strings.HasSuffix(n, ".log") {
			continue
		}
		info, err := fs.Stat(dir + "/meta/" + n)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 0 {
			logs[dir+"/meta/"+n] = info.Size()
		}
	}
	return logs
}

// A restored or salvaged store has its witness before its first start: damage to its log is noticed then already.
func TestCopiedStoreHasAWitness(t *testing.T) {
	effort.SingleThreaded(t)
	for name, copyTo := range map[string]func(t *testing.T, fs vfs.FS, dir string){
		"restored": func(t *testing.T, fs vfs.FS, dir string) {
			s, err := disk.Open(t.Context(), damageOptions(fs))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Backup(t.Context(), backup.Options{To: "backup"}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			o := damageOptions(fs)
			o.Dir = dir
			if _, err := restored(t.Context(), "backup", o, backup.RestoreOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"salvaged": func(t *testing.T, fs vfs.FS, dir string) {
			if _, err := saved(t.Context(), damageOptions(fs), salvage.Options{To: dir}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := makeDamaged(t, false)
			copyTo(t, d.fs, "new")
			o := damageOptions(d.fs)
			o.Dir = "new"
			for _, n := range []string{"EPOCH", "REACH.0", "REACH.1"} {
				if _, err := d.fs.Stat("new/" + n); err != nil {
					t.Errorf("the store has no %s: %v", n, err)
				}
			}
			if text := string(readAll(t, d.fs, "new/FORMAT")); !strings.Contains(text, "witness 1\n") {
				t.Errorf("FORMAT is %q", text)
			}
			wantClean(t, o)
			logs := logsOf(t, d.fs, "new")
			if len(logs) == 0 {
				t.Fatal("there is no log to damage")
			}
			for log := range logs {
				flip(t, d.fs, log, 12, 1)
				if _, err := disk.Open(t.Context(), o); !errs.Is(err, errs.Corrupt) {
					t.Errorf("with a damaged log: %v", err)
				}
				flip(t, d.fs, log, 12, 1)
			}
			d.wantWhole(t, o)
		})
	}
}

// Whichever of the notes in the root are deleted, also all of them: a log that was cut short is noticed.
func TestNoSetOfDeletedNotesHidesACutLog(t *testing.T) {
	effort.SingleThreaded(t)
	notes := []string{"EPOCH", "REACH.0", "REACH.1", "FORMAT"}
	whole := makeDamaged(t, false)
	log := ""
	for name, size := range logsOf(t, whole.fs, "store") {
		if size > 300 && name > log {
			log = name // the newest one
		}
	}
	for set := range 1 << len(notes) {
		var gone []string
		for i, n := range notes {
			if set>>i&1 == 1 {
				gone = append(gone, n)
			}
		}
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprint(gone, cut), func(t *testing.T) {
				d := *whole
				d.fs = whole.clone()
				for _, n := range gone {
					if err := d.fs.Remove("store/" + n); err != nil {
						t.Fatal(err)
					}
				}
				if cut {
					flip(t, d.fs, log, 300, 2)
				}
				o := damageOptions(d.fs)
				var told []error
				o.Events.Background = func(err error) { told = append(told, err) }
				s, err := disk.Open(t.Context(), o)
				noWitness := set&0b110 == 0b110
				noFormat := set&0b1000 != 0
				switch {
				case cut || noWitness || noFormat:
					if !errs.Is(err, errs.Corrupt) || errs.FixOf(err) == "" {
						t.Fatalf("it opens, or says %v (fix %q)", err, errs.FixOf(err))
					}
				case err != nil:
					t.Fatal(err)
				default:
					if silent, said, first := d.missing(t.Context(), s); silent+said > 0 {
						t.Errorf("%d and %d are missing: %s", silent, said, first)
					}
					if len(gone) > 0 && len(told) == 0 {
						t.Error("nobody was told that a file is missing")
					}
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if cut || noFormat {
					return
				}
				d.wantRepaired(t, o, len(gone) > 0 && err != nil)
			})
		}
	}
}

// wantRepaired repairs a store whose notes are missing, and wants everything to be there afterwards.
func (d *damaged) wantRepaired(t *testing.T, o disk.Options, found bool) {
	t.Helper()
	r, err := disk.Check(t.Context(), o, check.Options{Repair: true})
	if err != nil || r.Repaired != r.Found || found && r.Found == 0 {
		t.Fatalf("repair: %+v, %v", r.Problems, err)
	}
	wantClean(t, o)
	d.wantWhole(t, o)
}

// EPOCH that is missing or damaged is named by check, and repair writes it anew.
func TestDamagedEpochIsWrittenAnew(t *testing.T) {
	effort.SingleThreaded(t)
	for name, harm := range map[string]func(fs vfs.FS) error{
		"missing":   func(fs vfs.FS) error { return fs.Remove("store/EPOCH") },
		"no note":   func(fs vfs.FS) error { return rewrite(fs, "store/EPOCH", "\x00\x00\x00") },
		"no number": func(fs vfs.FS) error { return rewrite(fs, "store/EPOCH", "uuid x\nepoch many\nreach 1\n") },
	} {
		t.Run(name, func(t *testing.T) {
			d := makeDamaged(t, true)
			o := damageOptions(d.fs)
			if err := harm(d.fs); err != nil {
				t.Fatal(err)
			}
			r, err := disk.Check(t.Context(), o, check.Options{})
			if err != nil || r.Found == 0 || r.Problems[0].What != "EPOCH" {
				t.Fatalf("check: %+v, %v", r.Problems, err)
			}
			d.wantRepaired(t, o, true)
		})
	}
}

func rewrite(fs vfs.FS, path, text string) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err := f.Write([]byte(text)); err != nil {
		return err
	}
	return f.Close()
}
