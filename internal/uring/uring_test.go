// SPDX-License-Identifier: Apache-2.0

package uring_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/hostmem"
	"github.com/nebulaio/nebulaio/internal/uring"
)

// newRing makes a ring on this test's thread.
func newRing(t *testing.T, entries uint32) *uring.Ring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r, err := uring.New(entries)
	if err != nil {
		t.Skipf("io_uring is not allowed here: %v", err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func file(t *testing.T, n int) (int, []byte) {
	t.Helper()
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{2}).Read(data)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd()), data
}

func buffers(t *testing.T, n, size int) [][]byte {
	t.Helper()
	r, err := hostmem.Map(int64(n * size))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Unmap() })
	out := make([][]byte, n)
	for i := range out {
		out[i] = r.Bytes()[i*size : (i+1)*size]
	}
	return out
}

// reap waits for all reads in flight and returns their results by token.
func reap(t *testing.T, r *uring.Ring) map[uint64]int32 {
	t.Helper()
	out := map[uint64]int32{}
	for r.InFlight() > 0 {
		if err := r.Wait(1); err != nil {
			t.Fatal(err)
		}
		r.Reap(func(token uint64, res int32) { out[token] = res })
	}
	return out
}

func TestReads(t *testing.T) {
	for _, registered := range []bool{false, true} {
		r := newRing(t, 8)
		fd, data := file(t, 1<<20)
		bufs := buffers(t, 8, 64<<10)
		index := func(i int) int { return -1 }
		if registered {
			if err := r.RegisterBuffers(bufs); err != nil {
				t.Skipf("buffers cannot be registered: %v", err)
			}
			index = func(i int) int { return i }
		}
		if r.Fixed() != registered {
			t.Errorf("Fixed is %v", r.Fixed())
		}
		for round := range 2 { // the ring goes round
			for i, b := range bufs {
				clear(b)
				if !r.Read(fd, b, int64((round*8+i)*(64<<10)), index(i), uint64(100+i)) {
					t.Fatal("full too early")
				}
			}
			res := reap(t, r)
			for i, b := range bufs {
				if res[uint64(100+i)] != 64<<10 || !bytes.Equal(b, data[(round*8+i)*(64<<10):][:64<<10]) {
					t.Errorf("registered %v, read %d: result %d", registered, i, res[uint64(100+i)])
				}
			}
		}
	}
}

func TestAFullRingSaysSo(t *testing.T) {
	r := newRing(t, 4)
	fd, _ := file(t, 1<<20)
	b := buffers(t, 1, 4096)[0]
	n := 0
	for n < 100 && r.Read(fd, b, 0, -1, uint64(n)) {
		n++
	}
	if n != 4 || r.InFlight() != 4 {
		t.Errorf("%d reads were taken, %d are in flight, expected 4", n, r.InFlight())
	}
	if err := r.Wait(4); err != nil {
		t.Fatal(err)
	}
	if got := reap(t, r); len(got) != 4 || r.InFlight() != 0 {
		t.Errorf("%d reads ended, %d are in flight", len(got), r.InFlight())
	}
	if !r.Read(fd, b, 0, -1, 1) {
		t.Error("still full after everything was reaped")
	}
	reap(t, r)
}

func TestSubmitWithoutWaiting(t *testing.T) {
	r := newRing(t, 4)
	fd, _ := file(t, 4096)
	b := buffers(t, 2, 4096)
	for i := range b {
		r.Read(fd, b[i], 0, -1, uint64(i))
		if err := r.Wait(0); err != nil {
			t.Fatal(err)
		}
	}
	if got := reap(t, r); got[0] != 4096 || got[1] != 4096 {
		t.Errorf("%v", got)
	}
	r.Reap(func(uint64, int32) { t.Error("reaped twice") })
}

func TestResultsAreTheSystemCallsOwn(t *testing.T) {
	r := newRing(t, 4)
	fd, data := file(t, 5000)
	b := buffers(t, 3, 4096)
	r.Read(fd, b[0], 4096, -1, 0) // short
	r.Read(fd, b[1], 9000, -1, 1) // behind the end
	r.Read(-1, b[2], 0, -1, 2)    // no file
	got := reap(t, r)
	if got[0] != 904 || !bytes.Equal(b[0][:904], data[4096:]) || got[1] != 0 || got[2] != -int32(unix.EBADF) {
		t.Errorf("%v", got)
	}
}
