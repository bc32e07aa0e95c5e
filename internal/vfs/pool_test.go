// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// manyFiles opens n files of a pool that keeps the descriptors of most.
func manyFiles(t *testing.T, n, most int) (files []*File, dir string) {
	t.Helper()
	dir = t.TempDir()
	p := NewPool(most)
	for i := range n {
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, bytes.Repeat([]byte{byte(i)}, 8192), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		p.Adopt(f)
		files = append(files, f)
	}
	return files, dir
}

// descriptorsBelow counts this process's descriptors of files below dir.
func descriptorsBelow(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			n++
		}
	}
	return n
}

func TestPoolBoundsDescriptors(t *testing.T) {
	const n, most, readers = 40, 5, 4
	files, dir := manyFiles(t, n, most)
	if got := descriptorsBelow(t, dir); got > 2*most {
		t.Fatalf("%d descriptors are open of %d files, expected at most %d", got, n, 2*most)
	}
	var wg sync.WaitGroup
	for r := range readers {
		wg.Go(func() {
			buf := make([]byte, 100)
			for k := range 5 * n {
				i := (k*7 + r*11) % n
				if _, err := files[i].ReadBuffered(buf, 4000); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(buf, bytes.Repeat([]byte{byte(i)}, 100)) {
					t.Errorf("file %d gave bytes of another", i)
				}
				if _, err := files[i].Residency(0, 10); err != nil && !errs.Is(err, errs.Unsupported) {
					t.Error(err)
				}
			}
			if got := descriptorsBelow(t, dir); got > 2*(most+readers) {
				t.Errorf("%d descriptors are open, expected at most %d", got, 2*(most+readers))
			}
		})
	}
	wg.Wait()
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := descriptorsBelow(t, dir); got != 0 {
		t.Errorf("%d descriptors are left", got)
	}
}

func TestPinnedFilesStayOpen(t *testing.T) {
	files, dir := manyFiles(t, 10, 2)
	for _, f := range files {
		if err := f.Pin(); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range files {
		if f.BufferedFD() < 0 {
			t.Errorf("file %d is pinned and has no descriptor", i)
		}
		ok, _ := f.Direct()
		if ok != (f.DirectFD() >= 0) {
			t.Errorf("file %d: Direct says %v and its descriptor is %d", i, ok, f.DirectFD())
		}
	}
	for _, f := range files {
		f.Unpin()
	}
	if got := descriptorsBelow(t, dir); got > 4 {
		t.Errorf("%d descriptors are open, expected at most 4", got)
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPoolNoticesAnotherFileOfTheName(t *testing.T) {
	files, dir := manyFiles(t, 4, 1)
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	// The last one has its descriptors, the first has lost them.
	for _, i := range []int{0, 3} {
		name := filepath.Join(dir, fmt.Sprint(i))
		other := name + ".new"
		if err := os.WriteFile(other, bytes.Repeat([]byte{99}, 8192), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(other, name); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 10)
	if _, err := files[3].ReadAt(buf, 0); err != nil || buf[0] != 3 {
		t.Errorf("the open file gave %d, %v; expected its own bytes", buf[0], err)
	}
	if _, err := files[0].ReadAt(buf, 0); !errs.Is(err, errs.IO) || !strings.Contains(err.Error(), "replaced or changed") {
		t.Errorf("got %v, expected an error that the file was replaced", err)
	}
	if _, err := files[1].ReadAt(buf, 0); err != nil || buf[0] != 1 {
		t.Errorf("another file gave %d, %v", buf[0], err)
	}
}
