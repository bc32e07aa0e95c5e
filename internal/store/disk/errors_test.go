// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// What Pebble holds for fatal keeps its cause, so that a full disk is told from damage, in its kind and its remedy.
func TestFatalErrorsKeepTheirCause(t *testing.T) {
	err := fatalError("MANIFEST flush failed: %v", []any{syscall.ENOSPC})
	if !noSpace(err) || err.Error() != "MANIFEST flush failed: no space left on device" {
		t.Errorf("%v", err)
	}
	if e := copyFailed("salvage store", "/new", err); !errs.Is(e, errs.IO) || !strings.Contains(errs.FixOf(e), "make room") {
		t.Errorf("kind %v, fix %q: %v", errs.KindOf(e), errs.FixOf(e), e)
	}
	if fix := openFix(err, false); !strings.Contains(fix, "make room") || strings.Contains(fix, "salvage") {
		t.Errorf("fix of a full disk: %q", fix)
	}
	if fix := openFix(syscall.EIO, false); strings.Contains(fix, "salvage") {
		t.Errorf("fix of a failing disk: %q", fix)
	}
	if fix := openFix(errors.New("checksum mismatch"), false); !strings.Contains(fix, "salvage") {
		t.Errorf("fix of damage: %q", fix)
	}
	if err := fatalError("plain %d", []any{7}); err.Error() != "plain 7" {
		t.Errorf("%v", err)
	}
}

// A restore, salvage or backup that finds no space for its first note leaves nothing that keeps it from beginning anew.
func TestCopiesBeginAnewAfterAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	full := &faults{}
	fs := errorfs.Wrap(mem, full)
	must(t, mem.MkdirAll("new", 0o700))
	full.set(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	})
	err := beginPartial("restore store", fs, "new", "restore")
	if !errs.Is(err, errs.IO) || !strings.Contains(errs.FixOf(err), "make room") {
		t.Errorf("kind %v, fix %q: %v", errs.KindOf(err), errs.FixOf(err), err)
	}
	if names, err := mem.List("new"); err != nil || len(names) > 0 {
		t.Errorf("left: %q, %v", names, err)
	}
	full.set(nil)
	writeFile(t, mem, "new/"+partialName+".new", "part") // as a kill leaves it
	must(t, beginPartial("restore store", fs, "new", "restore"))
	if err := notMade(fs, "new"); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	must(t, mem.MkdirAll("out"+partialSuffix, 0o700))
	writeFile(t, mem, "out"+partialSuffix+"/"+backupName+".new", "back")
	must(t, (&backup{fs: fs}).clear("out"+partialSuffix))
}
