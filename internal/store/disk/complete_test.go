// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// An upload that is ended while it is completed has lost its files: that is no damage.
func TestUploadEndedWhileItIsCompletedIsNotDamaged(t *testing.T) {
	for _, numbers := range [][]int{{1, 2}, {1, 3}} {
		t.Run(fmt.Sprint(numbers), func(t *testing.T) {
			s := openMem(t, vfs.NewMem())
			makeBucket(t, s, object.Bucket{Name: "b"})
			id, err := s.CreateUpload(t.Context(), "b", "k", nil)
			must(t, err)
			c := object.Complete{Bucket: "b", Key: "k", Upload: id}
			for _, n := range numbers {
				putPart(t, s, "b", "k", id, n, content1(100<<10, n))
				c.Parts = append(c.Parts, object.CompletedPart{Number: n})
			}
			c.Finish = func([]object.PartInfo) (map[string]string, error) {
				err := s.AbortUpload(t.Context(), "b", "k", id)
				s.remover.wait()
				return nil, err
			}
			if _, err := s.CompleteUpload(t.Context(), c); !errors.Is(err, object.ErrNoSuchUpload) {
				t.Errorf("%v", err)
			}
			if n := s.damaged.Load(); n != 0 {
				t.Errorf("%d damages were told", n)
			}
			closed(t, s)
		})
	}
}

// A part that is not wanted may come between the look at the file and its becoming the object's.
func TestAdoptedFileHoldsNothingButTheObject(t *testing.T) {
	fs := vfs.NewMem()
	s := openMem(t, fs)
	makeBucket(t, s, object.Bucket{Name: "b"})
	id, err := s.CreateUpload(t.Context(), "b", "k", nil)
	must(t, err)
	c := object.Complete{Bucket: "b", Key: "k", Upload: id}
	for _, n := range []int{1, 2} {
		putPart(t, s, "b", "k", id, n, content1(100<<10, n))
		c.Parts = append(c.Parts, object.CompletedPart{Number: n})
	}
	bk, err := s.find("", "b")
	must(t, err)
	ch, err := s.choose("", bk, c)
	must(t, err)
	v, cont, err := s.adopt(ch)
	must(t, err)
	putPart(t, s, "b", "k", id, 3, content1(100<<10, 3))
	seq := s.uploadSeq(ch.raw)
	l := s.uploads.acquire(seq)
	if _, err = s.finish(t.Context(), "complete", bk, l, c, ch, v, cont); !errors.Is(err, errNotOurs) {
		t.Errorf("the file with another part in it was taken: %v", err)
	}
	s.uploads.release(seq, l)
	_, err = s.CompleteUpload(t.Context(), c)
	must(t, err)
	closed(t, s)
	checked(t, Options{Dir: "store", FS: fs})
}

// A part that was damaged on the disk is found when the parts are spliced: no object is made of it, and the upload
// stays.
func TestDamagedPartsAreNotSpliced(t *testing.T) {
	fs := vfs.NewMem()
	s := openMem(t, fs)
	makeBucket(t, s, object.Bucket{Name: "b"})
	id, err := s.CreateUpload(t.Context(), "b", "k", nil)
	must(t, err)
	putPart(t, s, "b", "k", id, 1, content1(50<<10, 1))
	side := putPart(t, s, "b", "k", id, 1, content1(60<<10, 2)) // too large for its place: a file of its own
	must(t, s.files.Flush())
	p, err := s.partAt(s.uploadSeq(first16(t, id)), 1, true)
	must(t, err)
	name := s.files.Path(datafile.ID(p.File))
	b := []byte(tree(t, fs, "store")[name])
	b[100] ^= 1
	writeFile(t, fs, name, string(b))
	_, err = s.CompleteUpload(t.Context(), object.Complete{Bucket: "b", Key: "k", Upload: id,
		Parts: []object.CompletedPart{{Number: 1, ETag: side.ETag}}})
	if !errors.Is(err, object.ErrDamaged) {
		t.Errorf("%v", err)
	}
	if _, err := s.Stat(t.Context(), object.Ref{Bucket: "b", Key: "k"}); !errors.Is(err, object.ErrNoSuchKey) {
		t.Errorf("an object was made: %v", err)
	}
	if _, err := s.GetUpload(t.Context(), "b", "k", id); err != nil {
		t.Errorf("the upload is gone: %v", err)
	}
	if n := s.damaged.Load(); n != 1 {
		t.Errorf("%d damages were told", n)
	}
	closed(t, s)
	if r, err := Check(t.Context(), Options{Dir: "store", FS: fs}, check.Options{}); err != nil || r.Found != 0 {
		t.Errorf("left behind: %+v, %v", r.Problems, err)
	}
}

func first16(t *testing.T, id string) [16]byte {
	t.Helper()
	raw, ok := record.ParseName(id)
	if !ok {
		t.Fatalf("%q is no name", id)
	}
	return raw
}
