// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Sums returns the checksum of each block of the given bytes.
func Sums(data []byte) []uint64 {
	sums := []uint64{}
	for len(data) > 0 {
		n := min(len(data), object.SumBlock)
		sums = append(sums, checksum.Of(data[:n]))
		data = data[n:]
	}
	return sums
}

// handles is the store as one that hands out files; the test is skipped where it is none, or has no files.
func (f *fixture) handles() object.Handles {
	f.Helper()
	h, ok := f.s.(object.Handles)
	if !ok {
		f.Skip("the store hands out nothing")
	}
	const name = "a-look-at-the-store"
	f.bucket(name, object.VersioningOff, object.ETagMD5)
	defer func() { f.ok(f.s.DeleteBucket(f.ctx, name), "delete bucket") }()
	d, err := h.NewDraft(f.ctx, object.Draft{Bucket: name, Key: "k"})
	if errs.Is(err, errs.Unsupported) {
		f.Skipf("the store hands out no files here: %v", err)
	}
	f.ok(err, "new draft")
	f.ok(d.Abort(), "abort")
	return h
}

func (f *fixture) handle(ref object.Ref) object.Handle {
	f.Helper()
	h, err := f.s.(object.Handles).Handle(f.ctx, ref)
	f.ok(err, "handle of %q", ref.Key)
	return h
}

// opened opens a description, and closes it at the end.
func (f *fixture) opened(open func(bool) (*os.File, error), direct bool) *os.File {
	f.Helper()
	file, err := open(direct)
	if direct && errs.Is(err, errs.Unsupported) {
		file, err = open(false)
	}
	f.ok(err, "open")
	f.Cleanup(func() { _ = file.Close() }) // closed twice where a test has closed it
	return file
}

// named ends the test unless a descriptor is of a file that has a name, and that one.
func (f *fixture) named(file *os.File, path string) {
	f.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	f.ok(err, "readlink")
	if strings.HasSuffix(link, " (deleted)") {
		f.Fatalf("the file has lost the name that it was opened with: %s", link)
	}
	a, err := os.Stat(link)
	f.ok(err, "stat of the name that it was opened with")
	b, err := os.Stat(path)
	f.ok(err, "stat of Path")
	if !os.SameFile(a, b) {
		f.Fatalf("%s is not %s", link, path)
	}
}

// vanished ends the test unless nothing has one of these names, at the latest after a restart.
func (f *fixture) vanished(paths ...string) {
	f.Helper()
	f.restart()
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			f.Fatalf("%s is still there: %v", path, err)
		}
	}
}

// reads ends the test unless a file has these bytes.
func (f *fixture) reads(file *os.File, data []byte) {
	f.Helper()
	got, err := readAll(io.NewSectionReader(file, 0, 1<<40), int64(len(data)))
	f.ok(err, "read")
	if !bytes.Equal(got, data) {
		f.Fatalf("the file has %s, expected %s", brief(got), brief(data))
	}
}

func flagsOf(f *fixture, file *os.File) int {
	f.Helper()
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	f.ok(err, "F_GETFL")
	return flags
}

// handSizes are lengths on both sides of everything that changes how content is handed out.
func (f *fixture) handSizes() []int {
	sizes := []int{1, 4096, 20_000, object.SumBlock, object.SumBlock + 1, 3*object.SumBlock + 7, 9 * object.SumBlock}
	for _, n := range f.target.Sizes {
		sizes = append(sizes, n, n+1)
	}
	return sizes
}

var handleTests = []test{
	{"say what Stat says", func(f *fixture) {
		h, ok := f.s.(object.Handles)
		if !ok {
			f.Skip("the store hands out nothing")
		}
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range append(f.handSizes(), 0) {
			data := Bytes(uint64(n), n)
			ref := object.Ref{Bucket: "b", Key: fmt.Sprint(n)}
			f.put("b", ref.Key, data, func(p *object.Put) { p.Attributes = map[string]string{"a": "1"} })
			x, err := h.Handle(f.ctx, ref)
			f.ok(err, "handle")
			st, err := f.s.Stat(f.ctx, ref)
			f.ok(err, "stat")
			if a, b := show(x.Info(), true), show(st, true); a != b {
				f.Fatalf("the handle says %s, Stat says %s", a, b)
			}
			if b, ok := x.Inline(); ok && !bytes.Equal(b, data) {
				f.Fatalf("inline %s, expected %s", brief(b), brief(data))
			} else if ok && x.Path() != "" {
				f.Fatalf("what is inline has a path: %s", x.Path())
			}
			sums, err := x.Sums(0, 1<<40)
			f.ok(err, "sums")
			if !slices.Equal(sums, Sums(data)) {
				f.Fatalf("%d bytes: sums %x, expected %x", n, sums, Sums(data))
			}
			if len(sums) > 1 {
				one, err := x.Sums(1, 1)
				f.ok(err, "sums from 1 on")
				if len(one) != 1 || one[0] != sums[1] {
					f.Fatalf("the sum of block 1 is %x, expected %x", one, sums[1])
				}
			}
			if _, err := x.Sums(int64(len(sums))+1, 1); !errs.Is(err, errs.Invalid) {
				f.Fatalf("sums behind the end: %v", err)
			}
			f.ok(x.Close(), "close")
			f.ok(x.Close(), "close again")
		}
	}},
	{"fail as Open fails", func(f *fixture) {
		h, ok := f.s.(object.Handles)
		if !ok {
			f.Skip("the store hands out nothing")
		}
		f.bucket("b", object.VersioningEnabled, object.ETagMD5)
		_, err := h.Handle(f.ctx, object.Ref{Bucket: "none", Key: "k"})
		f.fails(err, object.ErrNoSuchBucket, "no bucket")
		_, err = h.Handle(f.ctx, object.Ref{Bucket: "b", Key: "k"})
		f.fails(err, object.ErrNoSuchKey, "no key")
		f.put("b", "k", []byte("x"))
		_, err = h.Handle(f.ctx, object.Ref{Bucket: "b", Key: "k", Version: "no-such-version"})
		f.fails(err, object.ErrNoSuchVersion, "no version")
		d, err := f.s.Delete(f.ctx, object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}})
		f.ok(err, "delete")
		_, err = h.Handle(f.ctx, object.Ref{Bucket: "b", Key: "k"})
		f.fails(err, object.ErrNoSuchKey, "deleted")
		_, err = h.Handle(f.ctx, object.Ref{Bucket: "b", Key: "k", Version: d.Version})
		f.fails(err, object.ErrIsMarker, "a delete marker")
	}},
	{"give descriptions of nobody else", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		for _, n := range f.handSizes() {
			data := Bytes(uint64(n), n)
			f.put("b", "k", data)
			h := f.handle(object.Ref{Bucket: "b", Key: "k"})
			one, two := f.opened(h.Open, false), f.opened(h.Open, false)
			direct := f.opened(h.Open, true)
			for _, file := range []*os.File{one, two, direct} {
				flags := flagsOf(f, file)
				same(f, flags&unix.O_ACCMODE, unix.O_RDONLY, "how it is open")
				same(f, flags&unix.O_NONBLOCK, 0, "O_NONBLOCK")
				f.named(file, h.Path())
				if _, err := file.WriteAt([]byte("x"), 0); err == nil {
					f.Fatal("what was handed out can be written to")
				}
			}
			same(f, flagsOf(f, one)&unix.O_DIRECT, 0, "O_DIRECT of a buffered one")
			f.reads(one, data)
			if _, err := unix.FcntlInt(one.Fd(), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
				f.Fatal(err)
			}
			same(f, flagsOf(f, two)&unix.O_NONBLOCK, 0, "flags of another one after those of one have changed")
			path := h.Path()
			f.ok(h.Close(), "close")
			if _, err := h.Open(false); !errs.Is(err, errs.Closed) {
				f.Fatalf("open of a closed handle: %v", err)
			}
			f.reads(two, data)
			if _, inline := h.Inline(); inline {
				if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
					f.Fatalf("what was spilled is left: %s, %v", path, err)
				}
			}
		}
	}},
	{"keep the bytes and the name of what is deleted or replaced", func(f *fixture) {
		f.handles()
		for _, versioning := range []object.Versioning{object.VersioningOff, object.VersioningSuspended} {
			for _, n := range f.handSizes() {
				bucket := "b" + strings.ToLower(string(versioning)) + fmt.Sprint(n)
				f.bucket(bucket, versioning, object.ETagMD5)
				data := Bytes(uint64(n), n)
				ref := object.Ref{Bucket: bucket, Key: "k"}
				f.put(bucket, "k", data)
				first, second := f.handle(ref), f.handle(ref)
				file := f.opened(first.Open, false)
				f.put(bucket, "k", []byte("other"))
				_, err := f.s.Delete(f.ctx, object.Deletion{Ref: ref})
				f.ok(err, "delete")
				late, later := f.opened(first.Open, false), f.opened(second.Open, false)
				path, other := first.Path(), second.Path()
				for _, x := range []*os.File{file, late, later} {
					f.reads(x, data)
				}
				f.named(file, path)
				f.named(late, path)
				sums, err := second.Sums(0, 100)
				f.ok(err, "sums")
				if !slices.Equal(sums, Sums(data)) {
					f.Fatal("the sums have changed")
				}
				f.ok(first.Close(), "close")
				f.named(later, other)
				f.ok(second.Close(), "close")
				f.vanished(path, other)
				f.reads(late, data)
			}
		}
	}},
	{"are many at once", func(f *fixture) {
		f.handles()
		f.bucket("b", object.VersioningOff, object.ETagMD5)
		const n = 100_000
		contents := [][]byte{Bytes(1, n), Bytes(2, n), Bytes(3, 500)}
		f.put("b", "k", contents[0])
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 40 {
					h, err := f.s.(object.Handles).Handle(f.ctx, object.Ref{Bucket: "b", Key: "k"})
					if err != nil {
						f.Errorf("handle: %v", err)
						return
					}
					file, err := h.Open(false)
					if err != nil {
						f.Errorf("open: %v", err)
						_ = h.Close()
						return
					}
					got, err := io.ReadAll(file)
					if i := h.Info(); err != nil || checksum.Of(got) != i.CRC64 {
						f.Errorf("%d bytes that are not those of %d, %v", len(got), i.Size, err)
					}
					_ = file.Close()
					if err := h.Close(); err != nil {
						f.Errorf("close: %v", err)
					}
				}
			})
		}
		for i := range 40 {
			f.put("b", "k", contents[i%3])
		}
		wg.Wait()
	}},
}

// Dir returns a temporary directory for a test, on a file system that can tell whether a file has writers. If the
// default directory is on overlayfs, which cannot tell whether a file has writers, Dir uses /dev/shm.
func Dir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return dir
	}
	shm, err := os.MkdirTemp("/dev/shm", "nebulaio-test-*")
	if err != nil {
		return dir
	}
	t.Cleanup(func() { _ = os.RemoveAll(shm) })
	return shm
}
