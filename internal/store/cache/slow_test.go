// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
)

// stuckFS is a file system whose writes of whole blocks wait until the disk is released.
type stuckFS struct {
	vfs.FS
	free chan struct{}
	once sync.Once
}

func (s *stuckFS) release() { s.once.Do(func() { close(s.free) }) }

func (s *stuckFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, c, o...)
	if err != nil {
		return nil, err
	}
	return &stuckFile{File: f, fs: s}, nil
}

type stuckFile struct {
	vfs.File
	fs *stuckFS
}

func (f *stuckFile) WriteAt(p []byte, off int64) (int, error) {
	if len(p) == mib {
		<-f.fs.free
	}
	return f.File.WriteAt(p, off)
}

// Fd hides the descriptor, so that nothing passes WriteAt.
func (f *stuckFile) Fd() uintptr { return vfs.InvalidFd }

// newStuck returns a store whose disk takes no block before release is called. A fetch holds 8 MiB in memory.
func newStuck(t *testing.T, f *far) (*rig, *stuckFS) {
	t.Helper()
	fs := &stuckFS{FS: vfs.Default, free: make(chan struct{})}
	r := &rig{far: f, dir: t.TempDir(), rules: cache.Rules{StaleIfError: time.Hour}, fs: fs, memory: 1}
	r.open(t, 1<<30)
	t.Cleanup(func() {
		fs.release()
		_ = r.Close()
	})
	return r, fs
}

// TestAReaderDoesNotWaitForTheDisk reads content that is larger than the memory of a fetch while the disk takes
// nothing. What the disk did not take is fetched later. The memory is full before the last block of one of the sizes.
func TestAReaderDoesNotWaitForTheDisk(t *testing.T) {
	for _, size := range []int{8*mib + 5, 20*mib + 5} {
		for _, noSum := range []bool{false, true} {
			f := newFar(t)
			f.set(func() { f.noSum = noSum })
			data := content(20, size)
			f.put(t, "a", data)
			r, disk := newStuck(t, f)
			r.want(t, "a", data, object.ServedUpstream)
			if s := r.Stats(); s.LeftOut == 0 || s.Files.Bytes > mib+4096 {
				t.Errorf("%d blocks were left out, %d bytes are on the disk", s.LeftOut, s.Files.Bytes)
			}
			disk.release()
			r.whole(t, "a", map[bool]string{false: "crc64nvme", true: "md5"}[noSum])
			r.want(t, "a", data, object.ServedHit)
			if n := f.sent.Load(); n > 2*int64(len(data)) {
				t.Errorf("%d bytes from the upstream", n)
			}
		}
	}
}

// TestASlowReaderLosesNothing reads with a second reader that is far behind the first one: no block that it needs is
// left out, so that it gets all bytes of the one fetch.
func TestASlowReaderLosesNothing(t *testing.T) {
	f := newFar(t)
	data := content(21, 20*mib)
	f.put(t, "a", data)
	r, disk := newStuck(t, f)
	c, err := r.Store.Open(t.Context(), object.Ref{Bucket: bucket, Key: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	slow, err := c.Section(object.Range{N: int64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	head := make([]byte, 10)
	if _, err := io.ReadFull(slow, head); err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	g.Go(func() { r.want(t, "a", data, object.ServedUpstream) })
	for f.sent.Load() < 6*mib {
		time.Sleep(time.Millisecond)
	}
	disk.release()
	rest, err := io.ReadAll(slow)
	if err != nil || !bytes.Equal(append(head, rest...), data) {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
	g.Wait()
	// Blocks that both readers had got before the disk took them are fetched again, for the disk.
	if n := f.sent.Load(); n > 2*int64(len(data)) {
		t.Errorf("%d bytes from the upstream of %d", n, len(data))
	}
}

// kept reads an object until the disk has its content, compared in the given way. While the cache drops wrong content,
// a read may fail. If such a read succeeds, its bytes are right, and the cache may not keep them.
func (r *rig) kept(t *testing.T, key string, data []byte, how string) {
	t.Helper()
	for {
		got, served, err := r.get(t.Context(), key, 0, -1)
		if err == nil && !bytes.Equal(got, data) || err != nil && !errs.Is(err, errs.Corrupt) {
			t.Fatalf("%s: %d bytes of %d, from %s, %v", key, len(got), len(data), served.From, err)
		}
		for e := range r.files.List(t.Context(), cachefile.Match{}) {
			if e.Key == key && e.Whole && e.Proof == how {
				return
			}
		}
	}
}

// whole waits until the disk has the object and its content was compared in the given way.
func (r *rig) whole(t *testing.T, key, how string) {
	t.Helper()
	for {
		for e := range r.files.List(t.Context(), cachefile.Match{}) {
			if e.Key == key && e.Whole && e.Proof == how {
				return
			}
		}
		select {
		case <-t.Context().Done():
			t.Fatal("the object does not become whole")
		case <-time.After(time.Millisecond):
		}
	}
}
