// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/object"
)

// lent opens an object's file and fails the test if it cannot.
func (r *rig) lent(c *Client, key string) *File {
	r.t.Helper()
	f, err := c.OpenFile(r.t.Context(), "b", key, "", "host")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = f.Close() })
	return f
}

// edit begins a change of the object behind f.
func (r *rig) edit(f *File, e Edit) *DraftFile {
	r.t.Helper()
	d, err := f.Edit(r.t.Context(), e)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = d.Close() })
	return d
}

// change begins a change of the object "k", whose File it closes.
func (r *rig) change(c *Client, e Edit) *DraftFile {
	r.t.Helper()
	f := r.lent(c, "k")
	d := r.edit(f, e)
	_ = f.Close()
	return d
}

// over writes p at off through the descriptor of a draft.
func (r *rig) over(d *DraftFile, p []byte, off int64) {
	r.t.Helper()
	if n, err := syscall.Pwrite(d.Buffered(), p, off); err != nil || n != len(p) {
		r.t.Fatal(n, err)
	}
}

// is fails the test if the object does not have this content, or if a block does not fit its checksum.
func (r *rig) is(c *Client, key string, want []byte) {
	r.t.Helper()
	if got, _, err := r.get(key); err != nil || !bytes.Equal(got, want) {
		r.t.Errorf("%s: %d bytes, %v; expected %d", key, len(got), err, len(want))
	}
	got, rep, err := r.read(c, Read{Key: key, Size: -1}, len(want))
	if err != nil || !bytes.Equal(got, want) || len(want) > 0 && rep.Verify == nil {
		r.t.Errorf("%s: the checksums do not fit: %v", key, err)
	}
}

func TestEdits(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	for i, n := range []int{0, 1, 5000, 1 << 20, 4<<20 + 17} {
		old := content(uint64(i), n)
		r.put("k", old)
		was := r.lent(c, "k")
		d := r.edit(was, Edit{Device: "host"})
		got := make([]byte, n)
		if k, err := syscall.Pread(d.Buffered(), got, 0); err != nil || k != n || !bytes.Equal(got, old) {
			t.Fatal(n, k, err, "the draft does not begin as a copy")
		}
		// A part is overwritten, and the file grows.
		piece, at := content(99, 3000), int64(max(n-1000, 0))
		if err := d.Extend(t.Context(), at+3000); err != nil {
			t.Fatal(err)
		}
		r.over(d, piece, at)
		want := append(append([]byte{}, old[:at]...), piece...)
		r.is(c, "k", old) // nobody sees it
		info, err := d.Commit(t.Context(), WholeFile)
		if err != nil || info.Size != int64(len(want)) {
			t.Fatalf("%d: %+v, %v", n, info, err)
		}
		r.is(c, "k", want)
		if k, err := syscall.Pread(was.Buffered(), got, 0); err != nil || k != n || !bytes.Equal(got, old) {
			t.Error(n, "who holds the old object lost its bytes", err)
		}
		_ = was.Close()
	}
	r.trace()
}

func TestEditsOfShorterAndLongerFiles(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	old := content(1, 3<<20)
	r.put("k", old)
	d := r.change(c, Edit{Device: "host"})
	if err := syscall.Ftruncate(d.Buffered(), 5000); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Commit(t.Context(), WholeFile); err != nil {
		t.Fatal(err)
	}
	r.is(c, "k", old[:5000])

	// A hole reads as zeros. What a program wrote without an announcement is announced by the commit.
	d = r.change(c, Edit{Device: "host", Size: 1})
	r.over(d, []byte("end"), 1<<20)
	if _, err := d.Commit(t.Context(), WholeFile); err != nil {
		t.Fatal(err)
	}
	r.is(c, "k", append(append(append([]byte{}, old[:5000]...), make([]byte, 1<<20-5000)...), "end"...))

	// A given size cuts the file, and cannot be larger than it.
	d = r.change(c, Edit{Device: "host"})
	if _, err := d.Commit(t.Context(), 1<<20+4); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "1048579") {
		t.Fatal(err)
	}
	d = r.change(c, Edit{Device: "host"})
	if _, err := d.Commit(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	r.is(c, "k", old[:7])
	r.trace()
}

func TestTwoWriters(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	r.put("k", content(1, 100_000))
	one, two := r.change(c, Edit{Device: "host"}), r.change(c, Edit{Device: "host"})
	last := r.change(c, Edit{Device: "host", Replace: true})
	gone := r.change(c, Edit{Device: "host"})
	r.over(one, []byte("one"), 0)
	r.over(two, []byte("two"), 0)
	r.over(last, []byte("last"), 0)
	if _, err := one.Commit(t.Context(), WholeFile); err != nil {
		t.Fatal(err)
	}
	_, err := two.Commit(t.Context(), WholeFile)
	if !errs.Is(err, errs.Invalid) || !errors.Is(err, syscall.ESTALE) || !strings.Contains(err.Error(), "s3://b/k") ||
		!strings.Contains(err.Error(), "replaced") {
		t.Fatal(err)
	}
	r.is(c, "k", append([]byte("one"), content(1, 100_000)[3:]...))
	if _, err := last.Commit(t.Context(), WholeFile); err != nil {
		t.Fatal(err)
	}
	r.is(c, "k", append([]byte("last"), content(1, 100_000)[4:]...))
	if _, err := r.store.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Commit(t.Context(), WholeFile); !errors.Is(err, syscall.ESTALE) {
		t.Fatal(err)
	}
	r.trace()
}

func TestDraftsThatBeginEmpty(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	begin := func(w Write) *DraftFile {
		t.Helper()
		w.Bucket, w.Key, w.Device = "b", "new", "host"
		d, err := c.CreateGrowing(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := begin(Write{})
	want := content(5, 2<<20+5)
	if err := d.Extend(t.Context(), int64(len(want))); err != nil {
		t.Fatal(err)
	}
	r.over(d, want, 0)
	if _, err := d.Commit(t.Context(), WholeFile); err != nil {
		t.Fatal(err)
	}
	r.is(c, "new", want)
	d = begin(Write{IfNoneMatch: "*"})
	if _, err := d.Commit(t.Context(), WholeFile); !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	if d.Copied() != 0 || d.Buffered() != -1 {
		t.Error(d.Copied(), d.Buffered())
	}
	r.trace()
}

func TestEditsThatAreRefused(t *testing.T) {
	r := newRig(t, false, func(r *rig) { r.limits = server.Limits{DraftBytes: 1 << 20} })
	c := r.client()
	r.put("readonly/k", content(1, 5000))
	r.put("k", content(1, 5000))
	f := r.lent(c, "readonly/k")
	if _, err := f.Edit(t.Context(), Edit{Device: "host"}); !errs.Is(err, errs.Permission) ||
		!strings.Contains(err.Error(), "PutObject") {
		t.Error(err)
	}
	d := r.change(c, Edit{Device: "host"})
	if err := d.Extend(t.Context(), 1<<20+1); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "1048576") {
		t.Error(err)
	}
	if err := d.Extend(t.Context(), 1<<20); err != nil || d.Most() != 1<<20 {
		t.Error(err, d.Most())
	}
	fixed, err := c.CreateFile(t.Context(), Write{Bucket: "b", Key: "fixed", Device: "host"})
	if err != nil {
		t.Fatal(err)
	}
	if err := fixed.Extend(t.Context(), 1); !errs.Is(err, errs.Invalid) {
		t.Error(err)
	}
	_, _ = fixed.Close(), d.Close()
	_, err = d.Commit(t.Context(), 0)
	for _, err := range []error{err, d.Extend(t.Context(), 1)} {
		if !errs.Is(err, errs.Closed) {
			t.Error(err)
		}
	}
	_ = f.Close()
	if _, err := f.Edit(t.Context(), Edit{Device: "host"}); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	r.trace()
}

// A program may close a descriptor that it got, although it must not. The commit needs one of the two, and a file that
// got the number meanwhile stays open.
func TestDescriptorsThatTheProgramClosed(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	old := content(1, 1<<20+7)
	r.put("k", old)
	f := r.lent(c, "k")
	d := r.edit(f, Edit{Device: "host"})
	r.over(d, []byte("new"), 5)
	other, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, fd := range []int{f.Buffered(), f.Direct(), d.Buffered()} {
		if fd >= 0 {
			if err := syscall.Dup3(int(other.Fd()), fd, syscall.O_CLOEXEC); err != nil { // closed, and another file is there
				t.Fatal(err)
			}
			defer func() {
				if err := syscall.Close(fd); err != nil {
					t.Error("a file of the program was closed:", err)
				}
			}()
		}
	}
	if d.Direct() < 0 {
		t.Skip("the file system has no O_DIRECT, so the program has closed the only descriptor")
	}
	if _, err := d.Commit(t.Context(), WholeFile); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	r.is(c, "k", slices.Concat(old[:5], []byte("new"), old[8:]))
	r.trace()
}

// A block that the disk has damaged is not published with a checksum that fits the damage.
func TestDamageIsNotPublished(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	old := content(1, 3<<20)
	r.put("k", old)
	f := r.lent(c, "k")
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(f.Buffered()))
	if err != nil {
		t.Fatal(err)
	}
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := disk.WriteAt([]byte{old[1<<20+9] ^ 1}, 1<<20+9); err != nil {
		t.Fatal(err)
	}
	_ = disk.Close()
	d := r.edit(f, Edit{Device: "host"})
	r.over(d, []byte("elsewhere"), 0)
	if _, err := d.Commit(t.Context(), WholeFile); !errs.Is(err, errs.Corrupt) ||
		!strings.Contains(err.Error(), "block 1") {
		t.Fatal(err)
	}
	// What is overwritten needs no old bytes.
	d = r.edit(f, Edit{Device: "host"})
	block := content(7, 1<<20)
	r.over(d, block, 1<<20)
	d.Wrote(1<<20, 1<<19)
	d.Wrote(3<<19, 1<<19)
	if _, err := d.Commit(t.Context(), WholeFile); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	r.is(c, "k", slices.Concat(old[:1<<20], block, old[2<<20:]))
	r.trace()
}

func TestRanges(t *testing.T) {
	var r ranges
	for _, s := range []span{{10, 20}, {30, 40}, {20, 25}, {26, 29}, {24, 31}, {0, 1}, {1 << 62, 1<<62 + 5}} {
		r.add(s.off, s.end-s.off)
	}
	if want := []span{{0, 1}, {10, 40}, {1 << 62, 1<<62 + 5}}; !slices.Equal(r.all, want) {
		t.Errorf("%v, expected %v", r.all, want)
	}
	if !r.covers(10, 30) || r.covers(10, 31) || r.covers(9, 2) || !r.covers(12, 0) {
		t.Error("covers is wrong")
	}
	for i := range int64(3 * mostRanges) {
		r.add(100+i*10, 1+i%7)
	}
	if len(r.all) != mostRanges || !r.covers(10, 30) {
		t.Error(len(r.all))
	}
	r.add(1<<63-5, 10) // beyond the largest offset
	if r.covers(1<<63-5, 1) {
		t.Error("an impossible range was added")
	}
}
