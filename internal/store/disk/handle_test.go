// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/record"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

// openReal opens a store in a directory in which there can be drafts.
func openReal(t *testing.T, dir string, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{Dir: dir, MemTable: 1 << 20, Reserve: -1}
	for _, c := range change {
		c(&o)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CanDraft(t.Context()); errs.Is(err, errs.Unsupported) {
		closed(t, s)
		t.Skip(err)
	}
	return s
}

// drafted writes data through a draft, and seals it as told.
func drafted(t *testing.T, s *Store, key string, data []byte, c object.Sealed) object.Info {
	t.Helper()
	d, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: key, Size: int64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	i, err := d.Commit(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func handed(t *testing.T, s *Store, key string) object.Handle {
	t.Helper()
	h, err := s.Handle(t.Context(), object.Ref{Bucket: "b", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestNoFilesInMemory: a store on a file system that is not the operating system's says so, and goes on with the rest.
func TestNoFilesInMemory(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	for _, n := range []int{100, 100_000} {
		putBytes(t, s, "b", "k", content1(n, 1))
		h := handed(t, s, "k")
		if sums, err := h.Sums(0, 1); err != nil || len(sums) != 1 || h.Info().Size != int64(n) {
			t.Errorf("%v, %v", sums, err)
		}
		if _, err := h.Open(false); !errs.Is(err, errs.Unsupported) {
			t.Errorf("open: %v", err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: "k", Size: 1}); !errs.Is(err, errs.Unsupported) {
		t.Errorf("draft: %v", err)
	}
	if err := s.CanDraft(t.Context()); !errs.Is(err, errs.Unsupported) {
		t.Errorf("drafts: %v", err)
	}
}

// TestScrubReadsWhatClientsWrote finds a byte that has changed, and a sum that never was right.
func TestScrubReadsWhatClientsWrote(t *testing.T) {
	s := openReal(t, storetest.Dir(t))
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	data := content1(3<<20+5, 1)
	for _, key := range []string{"good", "flipped", "lied"} {
		c := storetest.Seal(data)
		if key == "lied" {
			other := bytes.Clone(data)
			other[2<<20+1] ^= 1
			c = storetest.Seal(other)
		}
		drafted(t, s, key, data, c)
	}
	if err := s.files.Flush(); err != nil {
		t.Fatal(err)
	}
	h := handed(t, s, "flipped")
	defer h.Close()
	f, err := os.OpenFile(h.Path(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{^data[1<<20]}, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := s.Scrub(t.Context(), ScrubOptions{})
	if err != nil || r.Damaged != 2 || r.Files != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	want := map[string]int64{"flipped": 1 << 20, "lied": 2 << 20}
	for _, d := range r.Damage {
		if off, ok := want[d.Key]; !ok || d.Off != off || d.What != object.DamageDeclared {
			t.Errorf("%+v", d)
		}
	}
	for key := range want {
		if _, _, err := storetest.Read(t.Context(), s, object.Ref{Bucket: "b", Key: key}); !errors.Is(err,
			object.ErrDamaged) {
			t.Errorf("%s: a reader gets %v", key, err)
		}
	}
	readAll(t, s, object.Ref{Bucket: "b", Key: "good"})
}

// TestDamagedFilesAreNotHandedOut: what is missing or short is found before a client is.
func TestDamagedFilesAreNotHandedOut(t *testing.T) {
	var met []object.Damage
	s := openReal(t, storetest.Dir(t), func(o *Options) {
		o.Events.Damage = func(d object.Damage) {
			met = append(met,
				d)
		}
	})
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	for _, key := range []string{"missing", "short"} {
		putBytes(t, s, "b", key, content1(100_000, 1))
		if err := s.files.Flush(); err != nil {
			t.Fatal(err)
		}
		h := handed(t, s, key)
		path := h.Path()
		err := h.Close()
		if err != nil {
			t.Fatal(err)
		}
		if key == "short" {
			err = os.Truncate(path, 99_999)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Handle(t.Context(), object.Ref{Bucket: "b", Key: key}); !errors.Is(err, object.ErrDamaged) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if len(met) != 2 || met[0].What != "missing" || met[1].What != "short" {
		t.Errorf("told of %+v", met)
	}
	if st := s.files.Stats(); st.Held != 0 {
		t.Errorf("%+v", st)
	}
}

// TestHeldSpaceIsCounted follows the numbers of a deletion, a spill and a draft.
func TestHeldSpaceIsCounted(t *testing.T) {
	s := openReal(t, storetest.Dir(t))
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	want := func(when string, held, heldBytes, drafts int64) Stats {
		t.Helper()
		s.remover.wait()
		st, err := s.Stats()
		if err != nil || st.HeldFiles != held || st.HeldBytes != heldBytes || st.DraftFiles != drafts {
			t.Errorf("%s: %d files of %d bytes held, %d drafts, %v", when, st.HeldFiles, st.HeldBytes, st.DraftFiles, err)
		}
		return st
	}
	want("in the beginning", 0, 0, 0)
	putBytes(t, s, "b", "large", content1(1<<20, 1))
	putBytes(t, s, "b", "small", content1(100, 1))
	one, two, small := handed(t, s, "large"), handed(t, s, "large"), handed(t, s, "small")
	want("while the key has it", 0, 0, 0)
	if _, err := s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "b", Key: "large"}}); err != nil {
		t.Fatal(err)
	}
	want("after the deletion", 1, 1<<20, 0)
	f, err := small.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want("with a small one in a file", 2, 1<<20+100, 0)
	d, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: "k", Size: 5 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if st := want("with a draft", 2, 1<<20+100, 1); st.DraftBytes < 5<<20 || st.DraftBytes != d.Reserved() {
		t.Errorf("the draft takes %d bytes, says %d", st.DraftBytes, d.Reserved())
	}
	for _, c := range []interface{ Close() error }{one, small} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := d.Abort(); err != nil {
		t.Error(err)
	}
	want("with one of two left", 1, 1<<20, 0)
	path := two.Path()
	if err := two.Close(); err != nil {
		t.Error(err)
	}
	want("in the end", 0, 0, 0)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
	if left, err := os.ReadDir(filepath.Join(s.opts.Dir, layout.TmpName)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestDraftsLeaveTheReserve refuses what would take it.
func TestDraftsLeaveTheReserve(t *testing.T) {
	s := openReal(t, storetest.Dir(t))
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	s.opts.Reserve = 1
	if _, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: "k", Size: datafile.MaxSize}); !errors.Is(err,
		object.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	s.opts.Reserve = -1
	if _, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: "k", Size: datafile.MaxSize + 1}); !errors.Is(err,
		object.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if st := s.files.Stats(); st.Drafts != 0 {
		t.Errorf("%+v", st)
	}
}

func TestSumsAreJoined(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	defer closed(t, s)
	for _, n := range []int{0, 1, 1 << 20, 1<<20 + 1, 5<<20 + 77} {
		data := content1(n, n)
		if got, want := record.JoinSums(s.join, storetest.Sums(data), int64(n)), checksum.Of(data); got != want {
			t.Errorf("%d bytes: %016x, expected %016x", n, got, want)
		}
	}
}

func BenchmarkHandle(b *testing.B) {
	s, err := Open(b.Context(), Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	makeBucket(b, s, object.Bucket{Name: "b"})
	for name, n := range map[string]int{"inline": 4096, "file": 1 << 20} {
		putBytes(b, s, "b", name, content1(n, 1))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h, err := s.Handle(b.Context(), object.Ref{Bucket: "b", Key: name})
				if err != nil {
					b.Fatal(err)
				}
				if _, ok := h.Inline(); !ok {
					f, err := h.Open(false)
					if err != nil {
						b.Fatal(err)
					}
					_ = f.Close()
				}
				_ = h.Close()
			}
		})
	}
}

// small is a file system that has room for so many bytes in a directory of the store.
type small struct {
	vfs.FS
	dir  string
	room int64
}

// GetDiskUsage is vfs.FS's.
func (f *small) GetDiskUsage(string) (vfs.DiskUsage, error) {
	left := f.room
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			left -= info.Size()
		}
	}
	return vfs.DiskUsage{AvailBytes: uint64(max(left, 0))}, err
}

// TestManyDraftsLeaveTheReserve: each of them fits beside it, all together do not.
func TestManyDraftsLeaveTheReserve(t *testing.T) {
	dir := storetest.Dir(t)
	s := openReal(t, dir, func(o *Options) { o.FS = &small{vfs.Default, filepath.Join(dir, layout.TmpName), 10 << 20} })
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	s.opts.Reserve = 4 << 20
	var got []object.Drafting
	for range 8 { // faster than the file system is asked
		d, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: "k", Size: 2 << 20})
		if err == nil {
			got = append(got, d)
		} else if !errors.Is(err, object.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d drafts of 2 MiB found room in 10 MiB of which 4 are reserved, expected 3", len(got))
	}
	for _, d := range got {
		if err := d.Abort(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, layout.TmpName)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestWhatOutlivesTheStore: handles and drafts may be let go after it was closed, and the next Open finds nothing of
// them.
func TestWhatOutlivesTheStore(t *testing.T) {
	dir := storetest.Dir(t)
	s := openReal(t, dir)
	makeBucket(t, s, object.Bucket{Name: "b"})
	putBytes(t, s, "b", "large", content1(1<<20, 1))
	putBytes(t, s, "b", "small", content1(100, 1))
	h, inline := handed(t, s, "large"), handed(t, s, "small")
	f, err := inline.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	putBytes(t, s, "b", "large", content1(1<<20, 2))
	d, err := s.NewDraft(t.Context(), object.Draft{Bucket: "b", Key: "k", Size: 5})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	if _, err := d.Commit(t.Context(), object.Sealed{}); !errors.Is(err, object.ErrClosed) {
		t.Errorf("commit: %v", err)
	}
	for _, end := range []func() error{h.Close, inline.Close, d.Abort} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	s = openReal(t, dir)
	defer closed(t, s)
	s.remover.wait()
	st, err := s.Stats()
	if err != nil || st.Removing != 0 || st.HeldFiles != 0 || st.DraftFiles != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, layout.TmpName)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
