// SPDX-License-Identifier: Apache-2.0

package metadb

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// What Pebble holds for fatal keeps its cause, so that a full disk is told from damage, in its kind and its remedy.
func TestFatalErrorsKeepTheirCause(t *testing.T) {
	err := FatalError("MANIFEST flush failed: %v", []any{syscall.ENOSPC})
	if !layout.IsNoSpace(err) || err.Error() != "MANIFEST flush failed: no space left on device" {
		t.Errorf("%v", err)
	}
	if e := layout.CopyFailed("salvage store", "/new", err); !errs.Is(e, errs.IO) ||
		!strings.Contains(errs.FixOf(e), "make room") {
		t.Errorf("kind %v, fix %q: %v", errs.KindOf(e), errs.FixOf(e), e)
	}
	if fix := OpenFix(err, false); !strings.Contains(fix, "make room") || strings.Contains(fix, "salvage") {
		t.Errorf("fix of a full disk: %q", fix)
	}
	if fix := OpenFix(syscall.EIO, false); strings.Contains(fix, "salvage") {
		t.Errorf("fix of a failing disk: %q", fix)
	}
	if fix := OpenFix(errors.New("checksum mismatch"), false); !strings.Contains(fix, "salvage") {
		t.Errorf("fix of damage: %q", fix)
	}
	if err := FatalError("plain %d", []any{7}); err.Error() != "plain 7" {
		t.Errorf("%v", err)
	}
}

// What Pebble holds for fatal while a tool opens metadata is still told from damage: the panic carries the cause.
func TestFatalErrorsOfAnOpeningKeepTheirCause(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !layout.IsNoSpace(err) || KindOf(err) == errs.Corrupt {
			t.Errorf("%v", err)
		}
	}()
	quiet{}.Fatalf("MANIFEST flush failed: %v", syscall.ENOSPC)
}
