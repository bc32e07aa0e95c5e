// SPDX-License-Identifier: Apache-2.0

package cachefile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
)

// TestDescriptorsCannotBeReopenedForWriting where the cache may mount its directory read-only; otherwise the cache says
// why not. One content has a file, the other one is inline.
func TestDescriptorsCannotBeReopenedForWriting(t *testing.T) {
	for _, mounted := range []bool{false, true} {
		s := open(t, t.TempDir(), func(o *cachefile.Options) { o.ReadOnlyMount = mounted })
		why := s.Reopenable()
		if !mounted && why == nil {
			t.Error("without the mount: no reason is given")
		}
		for _, id := range []object.Identity{identity("file", mib+1), identity("inline", 100)} {
			fill(t, s, id)
			e, ok := s.Lookup(id, id.Size)
			if !ok {
				t.Fatalf("%s is not in the cache", id.Key)
			}
			file, err := e.Open(false)
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
			again, err := os.OpenFile(name, os.O_RDWR, 0)
			if err == nil {
				_ = again.Close()
			}
			switch {
			case !mounted && err != nil:
				t.Errorf("%s, without the mount: %v", id.Key, err)
			case mounted && why != nil:
				t.Logf("there is no read-only mount: %v", why)
			case mounted && !errors.Is(err, unix.EROFS):
				t.Errorf("%s, with the mount: it can be opened for writing: %v", id.Key, err)
			}
			if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, contentOf(id)) {
				t.Errorf("%s: %d bytes: %v", id.Key, len(got), err)
			}
			// libcufile opens files again by this name.
			if path, err := os.Readlink(name); err != nil || path != e.Path() {
				t.Errorf("%s: the descriptor's name is %q, expected %q: %v", id.Key, path, e.Path(), err)
			}
			_ = file.Close()
			e.Release()
		}
		fill(t, s, identity("after", 2*mib)) // the cache itself writes on
		wantWarm(t, s, identity("after", 2*mib))
	}
}

// TestLeasesOfOthersDoNotStopReads reads a cached file on which a client keeps a lease. The read is a miss, and does
// not hang.
// The entry stays.
func TestLeasesOfOthersDoNotStopReads(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	id := identity("a", mib+1)
	fill(t, s, id)
	e, _ := s.Lookup(id, id.Size)
	path := e.Path()
	e.Release()
	s = reopen(t, s, dir) // which has the file closed
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		_ = unix.Close(fd)
		t.Skipf("the file system has no leases: %v", err)
	}
	done := make(chan bool)
	go func() {
		e, ok := s.Lookup(id, id.Size)
		if ok {
			e.Release()
		}
		done <- ok
	}()
	select {
	case ok := <-done:
		if ok {
			t.Error("an entry was opened in spite of a lease")
		}
	case <-time.After(20 * time.Second): // the kernel's is 45 s
		t.Error("an open waits in the kernel for a lease of somebody else")
	}
	_ = unix.Close(fd)
	wantWarm(t, s, id)
	if st := s.Stats(); st.Lost != 0 {
		t.Errorf("%d entries were dropped", st.Lost)
	}
}
