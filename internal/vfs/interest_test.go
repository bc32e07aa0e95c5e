// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"bytes"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// interested opens a file of 16 MiB n times, with an Interest each.
func interested(t *testing.T, n int) ([]byte, []*File, []*Interest) {
	t.Helper()
	data := make([]byte, leastShared)
	rand.New(rand.NewSource(1)).Read(data)
	path := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var files []*File
	var all []*Interest
	for range n {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		i, why := NewInterest(f)
		if i == nil {
			t.Skipf("no agreement on this file system: %v", why)
		}
		t.Cleanup(i.Close)
		files, all = append(files, f), append(all, i)
	}
	return data, files, all
}

func TestInterestsSeeEachOther(t *testing.T) {
	_, files, all := interested(t, 2)
	a, b := all[0], all[1]
	if got := a.Company(); got != Now {
		t.Errorf("company of the first: %d, want Now", got)
	}
	if _, ok := a.Wanted(0, leastShared); ok {
		t.Error("a range is wanted before any was announced")
	}
	if err := b.Want(1<<20, 4<<20); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		off, n, from int64
		ok           bool
	}{{0, 1 << 20, 0, false}, {0, 1<<20 + 1, 1 << 20, true}, {3 << 20, 1, 1 << 20, true}, {5 << 20, 1 << 20, 0, false}} {
		from, ok := a.Wanted(x.off, x.n)
		if ok != x.ok || ok && from != x.from {
			t.Errorf("wanted %d bytes at %d: %d %v, want %d %v", x.n, x.off, from, ok, x.from, x.ok)
		}
	}
	if _, ok := b.Wanted(1<<20, 4<<20); ok {
		t.Error("an Interest sees its own announcement as another's")
	}
	b.Done(0, 2<<20)
	if from, ok := a.Wanted(0, leastShared); !ok || from != 2<<20 {
		t.Errorf("after the first part is done, wanted from %d %v, want %d", from, ok, 2<<20)
	}
	if got, want := a.Processes(), []int{os.Getpid()}; !slices.Equal(got, want) {
		t.Errorf("processes %v, want %v", got, want)
	}
	b.Close()
	b.fd = -1 // the second Close finds nothing
	if got := a.Company(); got != Alone {
		t.Errorf("company after the other ended: %d, want Alone", got)
	}
	if _, ok := a.Wanted(0, leastShared); ok {
		t.Error("a range is wanted by an Interest that ended")
	}
	Expect(files[1])
	if got := a.Company(); got != Alone {
		t.Errorf("company after this process opened the file again: %d, want Alone", got)
	}
}

// TestOldExpectationsDoNotCount announces opens of other processes at several times.
func TestOldExpectationsDoNotCount(t *testing.T) {
	_, files, all := interested(t, 1)
	pid := int64(os.Getpid()+1) & pidMask
	for _, x := range []struct {
		ago  time.Duration
		want Company
	}{{0, Soon}, {soonFor / 2, Soon}, {soonFor + time.Minute, Alone}} {
		fd, err := openLocks(files[0])
		if err != nil {
			t.Fatal(err)
		}
		at := soonBase + (time.Now().Add(-x.ago).UnixMilli()&timeMask)<<pidBits + pid
		if err := setLock(fd, unix.F_RDLCK, at, 1); err != nil {
			t.Fatal(err)
		}
		Expect(files[0]) // this process's own does not hide the other's
		if got := all[0].Company(); got != x.want {
			t.Errorf("company of an open %v ago: %d, want %d", x.ago, got, x.want)
		}
		unexpect(files[0])
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInterestReadsAndCounts(t *testing.T) {
	data, files, all := interested(t, 2)
	if left, err := files[0].DropCache(); err != nil || left > 0 {
		t.Skipf("the page cache keeps %d bytes: %v", left, err)
	}
	const off, n = 1<<20 + 4096, 3 << 20
	var missed int64
	for k, i := range all {
		p := make([]byte, n)
		b, err := i.Read(p, off, n, true)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p, data[off:off+n]) {
			t.Fatalf("reader %d read other bytes", k)
		}
		if b.Cached+b.Missed != n {
			t.Errorf("reader %d counted %d cached and %d missed of %d bytes", k, b.Cached, b.Missed, n)
		}
		missed += b.Missed
	}
	if missed != n {
		t.Errorf("two readers of the same bytes missed %d, want %d", missed, n)
	}
	if got, known := files[0].CachedBytes(0, 1<<20); known && got > 0 {
		t.Errorf("%d bytes before the range were read too", got)
	}
	if got, known := files[0].CachedBytes(off+n, leastShared-off-n); known && got > 0 {
		t.Errorf("%d bytes after the range were read too", got)
	}
	if _, err := all[0].Read(make([]byte, 4096), leastShared-4095, 4096, true); err == nil {
		t.Error("a read across the end of the file succeeded")
	}
}

func TestSmallFilesAreNotShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(path, make([]byte, leastShared-1), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	Expect(f)
	if i, why := NewInterest(f); i != nil || why != nil {
		t.Errorf("a small file has an Interest %v or a refusal %v", i, why)
	}
}
