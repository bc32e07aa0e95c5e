// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// fullDisk fails every write while it is set.
type fullDisk struct{ atomic.Bool }

func (f *fullDisk) MaybeError(op errorfs.Op) error {
	if f.Load() && op.Kind == errorfs.OpFileWrite {
		return syscall.ENOSPC
	}
	return nil
}

func (f *fullDisk) String() string { return "full disk" }

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeText(t *testing.T, f vfs.FS, name, text string) {
	t.Helper()
	file, err := f.Create(name, vfs.WriteCategoryUnspecified)
	noError(t, err)
	_, err = file.Write([]byte(text))
	noError(t, err)
	noError(t, file.Close())
}

// A restore, salvage or backup that finds no space for its first note leaves nothing that keeps it from beginning anew.
func TestCopiesBeginAnewAfterAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	full := &fullDisk{}
	fs := errorfs.Wrap(mem, full)
	noError(t, mem.MkdirAll("new", 0o700))
	full.Store(true)
	err := layout.BeginPartial("restore store", fs, "new", "restore")
	if !errs.Is(err, errs.IO) || !strings.Contains(errs.FixOf(err), "make room") {
		t.Errorf("kind %v, fix %q: %v", errs.KindOf(err), errs.FixOf(err), err)
	}
	if names, err := mem.List("new"); err != nil || len(names) > 0 {
		t.Errorf("left: %q, %v", names, err)
	}
	full.Store(false)
	writeText(t, mem, "new/"+layout.PartialName+".new", "part") // as a kill leaves it
	noError(t, layout.BeginPartial("restore store", fs, "new", "restore"))
	if err := layout.CheckMade(fs, "new"); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	noError(t, mem.MkdirAll("out"+partialSuffix, 0o700))
	writeText(t, mem, "out"+partialSuffix+"/"+layout.BackupName+".new", "back")
	noError(t, (&backup{fs: fs}).clear("out"+partialSuffix))
}
