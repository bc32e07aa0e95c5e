// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
	"github.com/nebulaio/nebulaio/internal/store/fence"
)

// faults fails what its function says, while it is set.
type faults struct {
	f atomic.Pointer[func(errorfs.Op) error]
}

func (f *faults) MaybeError(op errorfs.Op) error {
	if p := f.f.Load(); p != nil {
		return (*p)(op)
	}
	return nil
}

func (f *faults) String() string { return "faults" }

func (f *faults) set(p func(errorfs.Op) error) {
	if p == nil {
		f.f.Store(nil)
		return
	}
	f.f.Store(&p)
}

func logWrite(op errorfs.Op) bool {
	return strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync ||
		op.Kind == errorfs.OpFileSyncData)
}

func TestFailingLogRefusesChangesAndGoesOnReading(t *testing.T) {
	mem, inject := vfs.NewMem(), &faults{}
	told := make(chan error, 1)
	s := openMem(t, errorfs.Wrap(mem, inject), func(o *Options) { o.Events.Failed = func(err error) { told <- err } })
	makeBucket(t, s, object.Bucket{Name: "b"})
	putBytes(t, s, "b", "before", []byte("x"))
	putBytes(t, s, "b", "large", content1(100<<10, 3))
	inject.set(func(op errorfs.Op) error {
		if logWrite(op) {
			return syscall.EIO
		}
		return nil
	})
	for i, size := range []int{1, 1, 100 << 10} {
		_, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: fmt.Sprint("during", i), Size: int64(size),
			Body: bytes.NewReader(content1(size, 1))})
		if !errors.Is(err, object.ErrReadOnly) || !errors.Is(err, syscall.EIO) {
			t.Fatalf("put %d while the log fails: %v", i, err)
		}
		if unknown := strings.Contains(err.Error(), "known after a restart"); unknown != (i == 0) {
			t.Errorf("put %d says that its outcome is unknown: %v: %v", i, unknown, err)
		}
	}
	if err := <-told; !errors.Is(err, syscall.EIO) {
		t.Errorf("told %v", err)
	}
	if got := readAll(t, s, object.Ref{Bucket: "b", Key: "large"}); !bytes.Equal(got, content1(100<<10, 3)) {
		t.Error("what was there before is not readable")
	}
	st, err := s.Stats()
	if err != nil || st.Failure == "" {
		t.Errorf("stats: %q, %v", st.Failure, err)
	}
	if err := s.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("close: %v", err)
	}
	inject.set(nil)
	checked(t, Options{Dir: "store", FS: mem})
	s = openMem(t, mem)
	if got := readAll(t, s, object.Ref{Bucket: "b", Key: "before"}); string(got) != "x" {
		t.Errorf("%q", got)
	}
	for i := range 2 {
		_, err := s.Stat(t.Context(), object.Ref{Bucket: "b", Key: fmt.Sprint("during", i+1)})
		if !errors.Is(err, object.ErrNoSuchKey) {
			t.Errorf("a change that was refused: %v", err)
		}
	}
	putBytes(t, s, "b", "after", []byte("y"))
	closed(t, s)
}

// signal sends on c if somebody may still wait for it, and never waits itself: a log is written to again and again.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// untilStalled waits until the log waits: from then on, the store refuses changes.
func untilStalled(s *Store) {
	for !s.fence.Stalled() {
		runtime.Gosched()
	}
}

func TestFullLogWaitsForSpaceAndGoesOn(t *testing.T) {
	mem, inject := vfs.NewMem(), &faults{}
	s := openMem(t, errorfs.Wrap(mem, inject))
	s.fence.Patience = time.Minute // a busy machine may not run this test for seconds
	s.fence.Waiting = time.Second  // between two tries the log does not count as waiting for a moment
	makeBucket(t, s, object.Bucket{Name: "b"})
	met := make(chan struct{}, 2)
	inject.set(func(op errorfs.Op) error {
		if logWrite(op) && op.Kind == errorfs.OpFileWrite {
			signal(met)
			return syscall.ENOSPC
		}
		return nil
	})
	done := make(chan error, 1)
	put := func(ctx context.Context, key string) error {
		_, err := s.Put(ctx, object.Put{Bucket: "b", Key: key, Size: 1, Body: strings.NewReader("x")})
		return err
	}
	go func() { done <- put(context.Background(), "waits") }()
	<-met
	untilStalled(s)
	if err := put(t.Context(), "refused"); !errors.Is(err, object.ErrNoSpace) {
		t.Errorf("a change meanwhile: %v", err)
	}
	inject.set(nil)
	if err := <-done; err != nil {
		t.Errorf("the change that waited: %v", err)
	}
	putBytes(t, s, "b", "after", []byte("y"))
	if _, err := s.Stat(t.Context(), object.Ref{Bucket: "b", Key: "waits"}); err != nil {
		t.Error(err)
	}
	closed(t, s)
	checked(t, Options{Dir: "store", FS: mem})
}

// TestALogThatBecomesReadOnlyGoesOn makes the file system refuse writes while the store is open, and take them again.
func TestALogThatBecomesReadOnlyGoesOn(t *testing.T) {
	for _, refusal := range []error{syscall.EROFS, syscall.EACCES} {
		mem, inject := vfs.NewMem(), &faults{}
		told := make(chan error, 1)
		s := openMem(t, errorfs.Wrap(mem, inject), func(o *Options) { o.Events.Failed = func(err error) { told <- err } })
		s.fence.Patience, s.fence.Waiting = time.Minute, time.Second // as above
		makeBucket(t, s, object.Bucket{Name: "b"})
		putBytes(t, s, "b", "before", []byte("x"))
		met := make(chan struct{}, 2)
		inject.set(func(op errorfs.Op) error {
			if logWrite(op) && op.Kind == errorfs.OpFileWrite {
				signal(met)
				return refusal
			}
			return nil
		})
		put := func(key string) error {
			_, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: key, Size: 1, Body: strings.NewReader("x")})
			return err
		}
		done := make(chan error, 1)
		go func() { done <- put("waits") }()
		<-met
		untilStalled(s)
		err := put("refused")
		if !errors.Is(err, object.ErrReadOnly) || !errors.Is(err, refusal) ||
			!strings.Contains(err.Error(), "fix: make the file system") {
			t.Errorf("%v: a change meanwhile: %v", refusal, err)
		}
		if err := s.Writable(t.Context()); !errors.Is(err, object.ErrReadOnly) ||
			!strings.Contains(err.Error(), "by itself") {
			t.Errorf("%v: writable: %v", refusal, err)
		}
		if got := readAll(t, s, object.Ref{Bucket: "b", Key: "before"}); string(got) != "x" {
			t.Errorf("%v: %q", refusal, got)
		}
		inject.set(nil)
		if err := <-done; err != nil {
			t.Errorf("%v: the change that waited: %v", refusal, err)
		}
		if err := s.Writable(t.Context()); err != nil {
			t.Errorf("%v: %v", refusal, err)
		}
		putBytes(t, s, "b", "after", []byte("y"))
		closed(t, s)
		checked(t, Options{Dir: "store", FS: mem})
		s = openMem(t, mem)
		for _, key := range []string{"before", "waits", "after"} {
			if _, err := s.Stat(t.Context(), object.Ref{Bucket: "b", Key: key}); err != nil {
				t.Errorf("%v: %v", refusal, err)
			}
		}
		closed(t, s)
		select {
		case err := <-told:
			t.Errorf("%v: told %v", refusal, err)
		default:
		}
	}
}

// TestASyncThatIsRefusedEndsWriting: what a failed sync has lost nobody knows, so that the store is not written again.
func TestASyncThatIsRefusedEndsWriting(t *testing.T) {
	mem, inject := vfs.NewMem(), &faults{}
	s := openMem(t, errorfs.Wrap(mem, inject))
	makeBucket(t, s, object.Bucket{Name: "b"})
	inject.set(func(op errorfs.Op) error {
		if logWrite(op) && op.Kind != errorfs.OpFileWrite {
			return syscall.EROFS
		}
		return nil
	})
	put := func(key string) error {
		_, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: key, Size: 1, Body: strings.NewReader("x")})
		return err
	}
	if err := put("a"); !errors.Is(err, object.ErrReadOnly) {
		t.Errorf("%v", err)
	}
	inject.set(nil)
	if err := put("b"); !errors.Is(err, object.ErrReadOnly) ||
		!strings.Contains(err.Error(), "fix: look at the disk, then restart") {
		t.Errorf("%v", err)
	}
	if err := s.Writable(t.Context()); err == nil || !strings.Contains(err.Error(), "restart the server") {
		t.Errorf("writable: %v", err)
	}
	if err := s.Close(); !errors.Is(err, syscall.EROFS) {
		t.Errorf("close: %v", err)
	}
}

// gated fails every attempt to make a new log for lack of space. Each waits in enter until it is let go by leave:
// meanwhile nobody seems to wait for space.
func gated(s *Store, inject *faults) (enter, leave chan struct{}) {
	enter, leave = make(chan struct{}), make(chan struct{})
	inject.set(func(op errorfs.Op) error {
		if !strings.HasSuffix(op.Path, ".log") || op.Kind != errorfs.OpCreate && op.Kind != errorfs.OpReuseForWrite {
			return nil
		}
		select {
		case enter <- struct{}{}:
			<-leave
		case <-leave:
		}
		return syscall.ENOSPC
	})
	s.fence.Waiting, s.fence.Patience = time.Millisecond, 20*time.Millisecond
	go func() { _, _ = s.db.AsyncFlush() }() // begins a new log
	return enter, leave
}

// owe puts an object whose batch waits behind the new log, before anything can see it, until its caller is told.
func owe(t *testing.T, s *Store, enter, leave chan struct{}, b []byte) {
	t.Helper()
	bk, err := s.find("", "b")
	must(t, err)
	for {
		<-enter
		done := make(chan error, 1)
		go func() {
			_, err := s.Put(context.Background(), object.Put{Bucket: "b", Key: "k", Size: int64(len(b)),
				Body: bytes.NewReader(b)})
			done <- err
		}()
		for len(done) == 0 && s.stripes.of(bk.id, "k").TryLock() {
			s.stripes.of(bk.id, "k").Unlock()
			runtime.Gosched()
		}
		for err = nil; err == nil; {
			select {
			case err = <-done:
				if err == nil {
					t.Fatal("a change was acknowledged that cannot be durable")
				}
			case leave <- struct{}{}:
			}
		}
		if !errors.Is(err, object.ErrNoSpace) {
			t.Fatalf("a change while the log waits: %v", err)
		}
		if fence.IsUnsure(err) {
			return
		}
	}
}

// A change that its caller was told of is made when there is space. Until then nobody may build on what was before it.
func TestChangeThatIsOwedKeepsOthersOut(t *testing.T) {
	mem, inject := vfs.NewMem(), &faults{}
	s := openMem(t, errorfs.Wrap(mem, inject))
	makeBucket(t, s, object.Bucket{Name: "b"})
	putBytes(t, s, "b", "k", content1(100<<10, 1))
	enter, leave := gated(s, inject)
	owe(t, s, enter, leave, content1(100<<10, 2))
	<-enter
	refused := make(chan error, 1)
	go func() {
		_, err := s.Put(context.Background(), object.Put{Bucket: "b", Key: "k", Size: 1, Body: strings.NewReader("x")})
		refused <- err
	}()
	select {
	case err := <-refused:
		if !errors.Is(err, object.ErrNoSpace) || fence.IsUnsure(err) {
			t.Errorf("a change beside one that is owed: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a change was begun beside one that is owed")
	}
	inject.set(nil)
	leave <- struct{}{}
	for {
		_, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: "after", Size: 1, Body: strings.NewReader("y")})
		if err == nil {
			break
		}
		if !errors.Is(err, object.ErrNoSpace) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	if got := readAll(t, s, object.Ref{Bucket: "b", Key: "k"}); !bytes.Equal(got, content1(100<<10, 2)) {
		t.Error("the change that was owed was not made")
	}
	closed(t, s)
	checked(t, Options{Dir: "store", FS: mem})
}

// A store whose log waits for space can be closed, also while files are being removed behind the scenes.
func TestFullStoreCloses(t *testing.T) {
	mem, inject := vfs.NewMem(), &faults{}
	s := openMem(t, errorfs.Wrap(mem, inject))
	makeBucket(t, s, object.Bucket{Name: "b"})
	putBytes(t, s, "b", "k", content1(100<<10, 1))
	enter, leave := gated(s, inject)
	<-enter
	s.remover.add(1 << 40) // of no file: what follows is the removal from the list
	go func() {
		for {
			select {
			case leave <- struct{}{}:
			case <-s.fence.Closed:
				return
			}
		}
	}()
	if err := s.Close(); !errors.Is(err, object.ErrNoSpace) {
		t.Errorf("close: %v", err)
	}
	inject.set(nil)
	checked(t, Options{Dir: "store", FS: mem})
}

func TestReserveIsKept(t *testing.T) {
	mem := vfs.NewMem()
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 20, TotalBytes: 1 << 30})
	s := openMem(t, mem)
	err := s.CreateBucket(t.Context(), object.Bucket{Name: "b"})
	if !errors.Is(err, object.ErrNoSpace) {
		t.Fatalf("below the reserve: %v", err)
	}
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 30, TotalBytes: 1 << 31})
	makeBucket(t, s, object.Bucket{Name: "b"})
	_, err = s.Put(t.Context(), object.Put{Bucket: "b", Key: "k", Size: 1 << 30, Body: strings.NewReader("")})
	if !errors.Is(err, object.ErrNoSpace) {
		t.Fatalf("more than fits: %v", err)
	}
	putBytes(t, s, "b", "k", []byte("x"))
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1, TotalBytes: 1 << 31})
	s.space.when.Store(0)
	if _, err := s.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: "b", Key: "k"}}); err != nil {
		t.Errorf("deleting on a full disk: %v", err)
	}
	closed(t, s)
}

// checked fails the test where the store breaks an invariant.
func checked(t testing.TB, o Options) {
	t.Helper()
	r, err := Check(context.Background(), o, check.Options{})
	if err != nil || r.Found > 0 {
		t.Fatalf("check: %v, %d problems: %+v", err, r.Found, r.Problems)
	}
}
