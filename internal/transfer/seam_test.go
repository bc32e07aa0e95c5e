// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestSaveCancelledWithACause: whatever the cause, and however late, it is a
// cancelled save, and the old file stays.
func TestSaveCancelledWithACause(t *testing.T) {
	e := newEngine(t, smallSave)
	dir := diskDir(t)
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	e.onStep = func(step string) error {
		if step == "sync" {
			cancel(errors.New("enough"))
		}
		return nil
	}
	tr := startWrite(t, e, ctx, WriteRequest{Path: path, Sources: []Source{{Len: 3, Data: []byte("new")}}})
	if err := tr.Err(); !errs.Is(err, errs.Cancelled) || !strings.Contains(err.Error(), "enough") {
		t.Errorf("kind %v: %v", errs.KindOf(err), err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("content: %q", b)
	}
	onlyNames(t, dir, "f")
}

// TestSaveToALongName: the longest name works without sums, and with them is
// refused before a byte is written.
func TestSaveToALongName(t *testing.T) {
	e := newEngine(t, smallSave)
	dir := diskDir(t)
	name := strings.Repeat("n", 255)
	req := WriteRequest{Path: filepath.Join(dir, name), Sources: []Source{{Len: 3, Data: []byte("abc")}}, Checksums: true}
	tr := startWrite(t, e, t.Context(), req)
	if err := tr.Err(); !errs.Is(err, errs.Invalid) || errs.FixOf(err) == "" || tr.Report().Bytes != 0 {
		t.Errorf("err: %v, %d bytes written", err, tr.Report().Bytes)
	}
	onlyNames(t, dir)
	req.Checksums = false
	for range 2 { // a new file, and one that is replaced
		if err := startWrite(t, e, t.Context(), req).Err(); err != nil {
			t.Error(err)
		}
	}
	onlyNames(t, dir, name)
}
