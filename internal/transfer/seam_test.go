// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
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
	e.main.saves.onStep = func(step string) error {
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

// TestCuFileReadsSlices: a row is a read of its own, and all of them are in what
// was read. Memory is registered as far as it goes, not as far as the file does.
func TestCuFileReadsSlices(t *testing.T) {
	const width, stride = 3 * units.MiB, 8 * units.MiB
	path, want := writeFile(t, 8*stride, 51)
	for _, api := range apis() {
		t.Run(string(api), func(t *testing.T) {
			r := newCuRig(t, Options{CuFile: api}, fakegpu.CuFileOptions{Route: fakegpu.P2P}, DirectPath{})
			f := openFile(t, path)
			b := alloc(t, r.dev, 8*width)
			req := Request{Device: r.dev, Files: []*vfs.File{f}, Route: report.RouteCuFile, Gap: DefaultGap,
				Segments: []Segment{{Off: 5, Len: 7*stride + width, Dst: b.Ptr(), Width: width, Stride: stride}},
				Parts:    []Part{{Dst: b.Ptr(), Len: 8 * width}}}
			for i := range 2 { // counters show the way in the first one
				tr := start(t, r.e, t.Context(), req)
				if err := tr.Err(); err != nil {
					t.Fatal(err)
				}
				got := r.gpu.Bytes(b.Ptr(), b.Size())
				for row := range 8 {
					if !bytes.Equal(got[row*width:][:width], want[5+row*stride:][:width]) {
						t.Fatalf("row %d differs", row)
					}
				}
				if n, err := tr.Ready(t.Context(), 0); n != 1 || err != nil {
					t.Errorf("%d parts are ready, %v", n, err)
				}
				rep := tr.Report()
				if rep.Read != b.Size() || rep.Wanted != b.Size() || rep.Amplification != 1 {
					t.Errorf("read %d for %d, %v times", rep.Read, rep.Wanted, rep.Amplification)
				}
				if registered := rep.CuFile.Registered; registered != int64(i)*b.Size() {
					t.Errorf("load %d: %d bytes registered of %d", i, registered, b.Size())
				}
			}
		})
	}
}

// TestCuFileRefusesTooManyRows: each row would be kept in the plan.
func TestCuFileRefusesTooManyRows(t *testing.T) {
	r := newCuRig(t, tiny(report.CuFileSync), fakegpu.CuFileOptions{}, DirectPath{})
	path := filepath.Join(t.TempDir(), "sparse")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2*mostRows+2); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, path)
	b := alloc(t, r.dev, mostRows+1)
	req := Request{Device: r.dev, Files: []*vfs.File{f}, Route: report.RouteCuFile, Gap: DefaultGap,
		Segments: []Segment{{Len: 2*mostRows + 2, Dst: b.Ptr(), Width: 1, Stride: 2}}}
	if _, err := r.e.Start(t.Context(), req); !errs.Is(err, errs.Invalid) || errs.FixOf(err) == "" {
		t.Errorf("err: %v", err)
	}
	req.Route = report.RouteAuto
	if err := start(t, r.e, t.Context(), req).Err(); err != nil {
		t.Errorf("by the route auto: %v", err)
	}
}

// TestReleasesWhileAnotherWaits: a save that finds the disk full waits for space
// while others go on to replace files.
func TestReleasesWhileAnotherWaits(t *testing.T) {
	e := newEngine(t, smallSave)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				e.main.saves.releasing.Go(func() {})
				e.main.saves.releasing.Wait()
			}
		})
	}
	all.Wait()
}
