// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"os"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// A writer that puts the modification time back does not get its mixture delivered.
func TestALoadFindsAWriterThatPutsTheMtimeBack(t *testing.T) {
	path, _ := writeFile(t, 2*units.MiB, 61)
	f := openFile(t, path)
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteAt([]byte("another"), 4096); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, was.ModTime(), was.ModTime()); err != nil {
		t.Fatal(err)
	}
	e, dev := newEngine(t, small), host.New()
	b, err := dev.Alloc(f.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	tr, err := e.Start(t.Context(), Request{Device: dev, Files: []*vfs.File{f},
		Segments: []Segment{{Len: f.Size(), Dst: b.Ptr()}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Err(); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "ctime") {
		t.Errorf("%v", err)
	}
}

// A page that the load itself has brought in does not count as cached, whichever read of the load finds it.
func TestPagesThatTheLoadBroughtInWereNotCached(t *testing.T) {
	path, _ := writeFile(t, 2*units.MiB, 62)
	f := openFile(t, path)
	if f.FS().Memory {
		t.Skip("every page of a file in memory is cached")
	}
	read := func(off, n int64) vfs.Buffered {
		b, err := f.ReadBuffered(make([]byte, n), off)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if left, err := f.DropCache(); err != nil || left > 0 {
		t.Skipf("%d bytes stay in the page cache: %v", left, err)
	}
	f.ExpectRandom(true)
	read(0, units.MiB)
	u := &truth{f: f}
	var err error
	if u.before, err = f.CachedPages(); err != nil {
		t.Fatal(err)
	}
	read(units.MiB, units.MiB) // another worker's read
	if b := u.buffered(read(0, 2*units.MiB), 0, 2*units.MiB); b.Cached != units.MiB || b.Missed != units.MiB {
		t.Errorf("%+v", b)
	}
	if u.before, err = f.CachedPages(); err != nil {
		t.Fatal(err)
	}
	if b := u.buffered(read(4096, units.MiB), 4096, units.MiB); b.Cached != units.MiB || b.Missed != 0 {
		t.Errorf("%+v of a file that is cached as a whole", b)
	}
}

// Direct writes are proven where the file system keeps to them, and only there.
func TestTheRouteOfADirectWrite(t *testing.T) {
	for s, want := range map[vfs.Storage]report.RouteTaken{
		{FS: vfs.FSType{Name: "ext4"}}:                     report.RouteTakenDirect,
		{FS: vfs.FSType{Name: "btrfs"}, Falls: true}:       report.RouteTakenDirectUnproven,
		{FS: vfs.FSType{Name: "nfs"}, Hidden: "a server"}:  report.RouteTakenDirectUnproven,
		{FS: vfs.FSType{Name: "ext4"}, Hidden: "on loop0"}: report.RouteTakenDirectUnproven,
	} {
		if got := writtenDirect(s); got != want {
			t.Errorf("%+v: %s", s, got)
		}
		if (unprovenWrites(s) == "") != (want == report.RouteTakenDirect) {
			t.Errorf("%+v: %q", s, unprovenWrites(s))
		}
	}
}

func TestTheKernelCountsWhatAThreadFetches(t *testing.T) {
	if _, ok := fetchedByThread(); !ok {
		t.Skip("the kernel does not count I/O by thread")
	}
}
