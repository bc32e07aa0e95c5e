// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/test/effort"
)

// writes says whether an operation changes the file system.
func writes(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpLink, errorfs.OpRemove, errorfs.OpRename, errorfs.OpReuseForWrite, errorfs.OpMkdirAll,
		errorfs.OpRemoveAll,
		errorfs.OpLock, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate:
		return true
	}
	return false
}

// killed is a file system with a store whose process was killed, its last changes in the log alone.
func killed(t *testing.T) (fs *vfs.MemFS, large []byte) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	s := openMem(t, mem)
	makeBucket(t, s, object.Bucket{Name: "b"})
	large = content1(100<<10, 1)
	putBytes(t, s, "b", "large", large)
	putBytes(t, s, "b", "small", []byte("small"))
	left := mem.CrashClone(vfs.CrashCloneCfg{})
	closed(t, s)
	return left, large
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after a minute it does not hold that %s", what)
		}
	}
}

func readable(t *testing.T, s *Store, large []byte) {
	t.Helper()
	if got := readAll(t, s, object.Ref{Bucket: "b", Key: "large"}); !bytes.Equal(got, large) {
		t.Errorf("the large object came back with %d bytes that are not its own", len(got))
	}
	if got := readAll(t, s, object.Ref{Bucket: "b", Key: "small"}); string(got) != "small" {
		t.Errorf("the small object came back as %q", got)
	}
	if page, err := s.List(t.Context(), object.List{Bucket: "b"}); err != nil || len(page.Objects) != 2 {
		t.Errorf("the listing has %d objects, %v", len(page.Objects), err)
	}
}

func TestAStoreThatCannotBeWrittenIsReadAndRecovers(t *testing.T) {
	for errno, sentinel := range map[syscall.Errno]error{
		syscall.ENOSPC: object.ErrNoSpace, syscall.EDQUOT: object.ErrNoSpace, syscall.EROFS: object.ErrReadOnly,
		syscall.EPERM: object.ErrReadOnly,
	} {
		t.Run(errno.Error(), func(t *testing.T) {
			t.Parallel()
			mem, large := killed(t)
			inject := &faults{}
			inject.set(func(op errorfs.Op) error {
				if writes(op) {
					return errno
				}
				return nil
			})
			s := openMem(t, errorfs.Wrap(mem, inject),
				func(o *Options) { o.Events.Failed = func(err error) { t.Errorf("failed: %v", err) } })
			readable(t, s, large)
			_, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: "new", Size: 3, Body: strings.NewReader("new")})
			if !errors.Is(err, sentinel) || !errors.Is(err, errno) {
				t.Errorf("a put: %v, expected %v because of %v", err, sentinel, errno)
			}
			if _, err := s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "b", Key: "small"}}); !errors.Is(err,
				sentinel) {
				t.Errorf("a deletion: %v, expected %v", err, sentinel)
			}
			if err := s.Writable(t.Context()); !errors.Is(err, sentinel) {
				t.Errorf("Writable says %v, expected %v", err, sentinel)
			}
			if st, err := s.Stats(); err != nil || !strings.Contains(st.Refusing, errno.Error()) {
				t.Errorf("the stats say %q, %v, expected %q", st.Refusing, err, errno.Error())
			}
			inject.set(nil)
			eventually(t, "the store is writable", func() bool { return s.Writable(t.Context()) == nil })
			readable(t, s, large)
			putBytes(t, s, "b", "new", []byte("new"))
			closed(t, s)
			checked(t, Options{Dir: "store", FS: mem})
		})
	}
}

// TestSpaceThatEndsWhileAStoreOpens lets the space end at each step of an opening in turn. No opening hangs, loses
// anything, or leaves what the next one cannot open.
func TestSpaceThatEndsWhileAStoreOpens(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	for at := int64(0); ; at++ {
		mem, large := killed(t)
		inject := &faults{}
		var n atomic.Int64
		inject.set(func(op errorfs.Op) error {
			if writes(op) && op.Kind != errorfs.OpRemove && n.Add(1) > at {
				return syscall.ENOSPC
			}
			return nil
		})
		s, err := Open(t.Context(), Options{Dir: "store", FS: errorfs.Wrap(mem, inject), MemTable: 1 << 20,
			tend: 5 * time.Millisecond})
		if err != nil {
			t.Fatalf("step %d: %v", at, err)
		}
		readable(t, s, large)
		if n.Load() <= at { // it opened without meeting the end
			inject.set(nil)
			closed(t, s)
			return
		}
		inject.set(nil)
		eventually(t, "the store is writable", func() bool { return s.Writable(t.Context()) == nil })
		putBytes(t, s, "b", "new", []byte("new"))
		closed(t, s)
		checked(t, Options{Dir: "store", FS: mem})
		if at > 200 {
			t.Fatal("an opening has no 200 steps")
		}
	}
}

// TestBallastLetsDeletionsGoOn: the log that finds no space gets that of the ballast, which is taken again later.
func TestBallastLetsDeletionsGoOn(t *testing.T) {
	inject := &faults{}
	dir := t.TempDir()
	s, err := Open(t.Context(), Options{Dir: dir, FS: errorfs.Wrap(vfs.Default, inject), Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	putBytes(t, s, "b", "k", []byte("x"))
	has := func() bool {
		_, err := s.fs.Stat(s.ballast.path())
		return err == nil
	}
	if !has() {
		t.Skip("there is no room for a ballast here")
	}
	inject.set(func(op errorfs.Op) error {
		if logWrite(op) && op.Kind == errorfs.OpFileWrite && has() {
			return syscall.ENOSPC
		}
		return nil
	})
	if _, err := s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}}); err != nil {
		t.Fatalf("a deletion while there is a ballast: %v", err)
	}
	if has() {
		t.Error("the ballast was not given up")
	}
	inject.set(nil)
	s.ballast.take()
	if !has() {
		t.Error("the ballast was not taken again")
	}
}

// TestSpaceOfDeletedMetadataComesBack: after a mass deletion the space of the records is given back while the store
// runs.
func TestSpaceOfDeletedMetadataComesBack(t *testing.T) {
	effort.Slow(t)
	effort.SingleThreaded(t)
	s, err := Open(t.Context(), Options{Dir: t.TempDir(), MemTable: 1 << 20, Reserve: -1, blobAge: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	const count = 3000
	var all []object.Deletion
	for i := range count {
		key := fmt.Sprintf("dir/%06d", i)
		putBytes(t, s, "b", key, content1(8<<10, i))
		if i%10 != 0 {
			all = append(all, object.Deletion{Ref: object.Ref{Key: key}})
		}
	}
	used := func() uint64 {
		m := s.db.Metrics() // less the log, which is used again
		tables := m.Total()
		return uint64(tables.TablesSize) + m.BlobFiles.LiveSize + m.BlobFiles.ObsoleteSize + m.BlobFiles.ZombieSize
	}
	for len(all) > 0 {
		n := min(len(all), 500)
		if _, errs := s.DeleteMany(t.Context(), "b", all[:n]); errors.Join(errs...) != nil {
			t.Fatal(errors.Join(errs...))
		}
		all = all[n:]
	}
	before := used()
	eventually(t, "nine tenths of the objects have given back half of the space", func() bool { return used() < before/2 })
	t.Logf("%d KiB before, %d KiB after", before>>10, used()>>10)
	if got := readAll(t, s, object.Ref{Bucket: "b", Key: "dir/000010"}); !bytes.Equal(got, content1(8<<10, 10)) {
		t.Error("what was not deleted is not what was written")
	}
}
