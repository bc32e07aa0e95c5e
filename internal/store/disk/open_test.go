// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/record"
)

// large has more blocks than fit into a record, so that their sums have records of their own.
const large = (record.SumsInRecord+1)*record.BlockSize + 5

func readSection(t *testing.T, c object.Content) []byte {
	t.Helper()
	body, err := c.Section(object.Range{N: c.Info().Size})
	must(t, err)
	defer body.Close()
	b, err := io.ReadAll(body)
	must(t, err)
	return b
}

// What is opened keeps its bytes, and what they are compared with.
func TestContentIsReadableAfterItsKeyIsGone(t *testing.T) {
	for _, policy := range []datafile.Policy{datafile.VerifyFirst, datafile.VerifyAlways, datafile.VerifyNever} {
		t.Run(string(policy), func(t *testing.T) {
			s := openMem(t, vfs.NewMem(), func(o *Options) { o.Verify = policy })
			makeBucket(t, s, object.Bucket{Name: "b"})
			want := content1(large, 1)
			putBytes(t, s, "b", "k", want)
			c, err := s.Open(t.Context(), object.Ref{Bucket: "b", Key: "k"})
			must(t, err)
			_, err = s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}})
			must(t, err)
			s.remover.wait()
			if !bytes.Equal(readSection(t, c), want) {
				t.Error("other bytes")
			}
			must(t, c.Close())
			closed(t, s)
		})
	}
}

func TestContentIsReadableAfterTheStoreIsClosed(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	makeBucket(t, s, object.Bucket{Name: "b"})
	want := content1(large, 1)
	putBytes(t, s, "b", "k", want)
	c, err := s.Open(t.Context(), object.Ref{Bucket: "b", Key: "k"})
	must(t, err)
	closed(t, s)
	if !bytes.Equal(readSection(t, c), want) {
		t.Error("other bytes")
	}
	must(t, c.Close())
}

// A copy reads its source for as long as it takes, and the source may go meanwhile.
func TestSourceOfACopyMayGoMeanwhile(t *testing.T) {
	s := openMem(t, vfs.NewMem(), func(o *Options) { o.Verify = datafile.VerifyNever })
	makeBucket(t, s, object.Bucket{Name: "b"})
	want := content1(large, 1)
	putBytes(t, s, "b", "k", want)
	from, open, err := s.source("copy", object.Ref{Bucket: "b", Key: "k"}, object.Condition{})
	must(t, err)
	_, err = s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}})
	must(t, err)
	s.remover.wait()
	got, err := s.duplicate(t.Context(), open, DefaultInline)
	must(t, err)
	if got.CRC64 != from.CRC || got.Size != from.Size {
		t.Errorf("%+v", got.Written)
	}
	got.abort()
	must(t, open.Close())
	closed(t, s)
}

// Damage that a part is made of must not be given a sum that is right, whatever the policy and whatever was compared
// before.
func TestCopyPartComparesItsSource(t *testing.T) {
	for _, policy := range []datafile.Policy{datafile.VerifyFirst, datafile.VerifyAlways, datafile.VerifyNever} {
		t.Run(string(policy), func(t *testing.T) {
			s, err := Open(t.Context(), Options{Dir: t.TempDir(), Verify: policy})
			must(t, err)
			makeBucket(t, s, object.Bucket{Name: "b"})
			putBytes(t, s, "b", "k", content1(1<<20, 1))
			must(t, s.files.Flush())
			readAll(t, s, object.Ref{Bucket: "b", Key: "k"}) // every block is compared and remembered
			f, err := os.OpenFile(fileOf(t, s, "k"), os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt([]byte{0xff}, 100)
			must(t, err)
			must(t, f.Close())
			id, err := s.CreateUpload(t.Context(), "b", "u", nil)
			must(t, err)
			_, err = s.CopyPart(t.Context(), object.CopyPart{From: object.Ref{Bucket: "b", Key: "k"}, N: -1, Bucket: "b",
				Key: "u", Upload: id, Number: 1})
			if !errors.Is(err, object.ErrDamaged) {
				t.Errorf("a part of damaged bytes: %v", err)
			}
			closed(t, s)
		})
	}
}

// The directories above a store that Open makes are as durable as what is in it.
func TestDirectoriesAboveANewStoreAreDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := Options{Dir: "a/b/store", FS: mem}
	s, err := Open(t.Context(), o)
	must(t, err)
	makeBucket(t, s, object.Bucket{Name: "b"})
	putBytes(t, s, "b", "k", content1(100<<10, 1))
	o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
	after, err := Open(t.Context(), o)
	must(t, err)
	if got := readAll(t, after, object.Ref{Bucket: "b", Key: "k"}); !bytes.Equal(got, content1(100<<10, 1)) {
		t.Error("other bytes")
	}
	closed(t, after)
	closed(t, s)
}

// A hook of a call may call the store while somebody waits to close it.
func TestCallInsideACallDoesNotBlockClose(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	makeBucket(t, s, object.Bucket{Name: "b"})
	end, err := s.begin(t.Context(), "", "")
	must(t, err)
	done := make(chan error, 1)
	go func() {
		s.life.Lock() // as Close does, in the moment after another call has seen that the store is open
		s.life.Unlock()
		done <- nil
	}()
	for s.life.TryRLock() {
		s.life.RUnlock()
	}
	if _, err := s.begin(t.Context(), "", ""); !errors.Is(err, object.ErrClosed) {
		t.Errorf("a call while the store closes: %v", err)
	}
	end()
	<-done
	closed(t, s)
}

// A store may lie in a directory that its process can pass through and not open.
func TestDirectoryAboveAStoreNeedNotBeReadable(t *testing.T) {
	mem, inject := vfs.NewMem(), &faults{}
	must(t, mem.MkdirAll("above/store", 0o700))
	inject.set(func(op errorfs.Op) error {
		if op.Path == "above" && op.Kind == errorfs.OpOpenDir {
			return syscall.EACCES
		}
		return nil
	})
	s, err := Open(t.Context(), Options{Dir: "above/store", FS: errorfs.Wrap(mem, inject)})
	must(t, err)
	closed(t, s)
}

// Content without the sums that it has to be compared with is damaged, and what is not is served and scrubbed.
func TestContentWithoutItsSumsIsDamaged(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	makeBucket(t, s, object.Bucket{Name: "b"})
	putBytes(t, s, "b", "a", content1(large, 1))
	putBytes(t, s, "b", "z", content1(large, 2))
	delKey(t, s, record.SumsKey(current(t, s, "b", "a").File, 0))
	if _, err := s.Open(t.Context(), object.Ref{Bucket: "b", Key: "a"}); !errors.Is(err, object.ErrDamaged) {
		t.Errorf("open: %v", err)
	}
	r, err := s.Scrub(t.Context(), ScrubOptions{})
	if err != nil || r.Damaged != 1 || len(r.Damage) != 1 || r.Damage[0].Key != "a" || r.Objects != 2 || r.Bytes != large {
		t.Errorf("scrub: %v, %+v", err, r)
	}
	if n := s.damaged.Load(); n != 2 {
		t.Errorf("%d damages were told, expected 2", n)
	}
	closed(t, s)
}
