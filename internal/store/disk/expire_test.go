// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/check"
)

// clock is a time that a test sets.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time       { return time.UnixMilli(c.at.Load()) }
func (c *clock) add(by time.Duration) { c.at.Add(by.Milliseconds()) }

func openAt(t testing.TB, fs vfs.FS) (*Store, *clock) {
	c := &clock{}
	c.at.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
	return openMem(t, fs, func(o *Options) { o.Now = c.now }), c
}

func beginUpload(t testing.TB, s *Store, key string) string {
	t.Helper()
	id, err := s.CreateUpload(t.Context(), "b", key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func expire(t testing.TB, s *Store, before time.Time) []Expired {
	t.Helper()
	var all []Expired
	if err := s.ExpireUploads(t.Context(), before, func(e Expired) { all = append(all, e) }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUploadsWithoutASignOfLifeExpire(t *testing.T) {
	fs := vfs.NewMem()
	s, c := openAt(t, fs)
	makeBucket(t, s, object.Bucket{Name: "b"})
	left := beginUpload(t, s, "left")
	putPart(t, s, "b", "left", left, 1, content1(1<<20, 1))
	putPart(t, s, "b", "left", left, 2, content1(2<<20, 2)) // into a file of its own
	busy := beginUpload(t, s, "busy")
	for i := range 2 * expirePage {
		beginUpload(t, s, fmt.Sprintf("many/%04d", i))
	}
	c.add(24 * time.Hour)
	putPart(t, s, "b", "busy", busy, 1, content1(100, 1))
	young := beginUpload(t, s, "young")
	c.add(time.Hour)

	gone := expire(t, s, c.now().Add(-2*time.Hour))
	if len(gone) != 2*expirePage+1 || gone[0].Key != "left" || gone[0].Parts != 2 || gone[0].Bytes != 3<<20 {
		t.Fatalf("%d uploads expired, the first is %+v; expected %d and left with 2 parts of 3 MiB", len(gone), gone[0],
			2*expirePage+1)
	}
	for key, id := range map[string]string{"busy": busy, "young": young} {
		if _, err := s.GetUpload(t.Context(), "b", key, id); err != nil {
			t.Errorf("an upload with a sign of life is gone: %v", err)
		}
	}
	if again := expire(t, s, c.now().Add(-2*time.Hour)); len(again) != 0 {
		t.Errorf("expired twice: %v", again)
	}
	if stats, err := s.Stats(); err != nil || stats.Uploads != 2 || stats.PartBytes != 100 {
		t.Errorf("%d uploads with %d bytes of parts, %v; expected 2 with 100", stats.Uploads, stats.PartBytes, err)
	}
	closed(t, s)
	r, err := Check(t.Context(), Options{Dir: "store", FS: fs}, check.Options{Content: true})
	if err != nil || r.Found != 0 {
		t.Errorf("the store after it: %+v, %v", r, err)
	}
}

// TestAPartOnItsWayKeepsItsUpload expires an upload while a part is half sent.
func TestAPartOnItsWayKeepsItsUpload(t *testing.T) {
	s, c := openAt(t, vfs.NewMem())
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	id := beginUpload(t, s, "k")
	c.add(time.Hour)
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	body := content1(2<<20, 1)
	go func() {
		_, err := s.PutPart(context.Background(), object.PutPart{Bucket: "b", Key: "k", Upload: id, Number: 1,
			Size: int64(len(body)), Body: pr})
		done <- err
	}()
	if _, err := pw.Write(body[:1<<20]); err != nil { // taken: the part is under way
		t.Fatal(err)
	}
	if gone := expire(t, s, c.now()); len(gone) != 0 {
		t.Errorf("expired under a part: %v", gone)
	}
	if _, err := pw.Write(body[1<<20:]); err != nil {
		t.Fatal(err)
	}
	_ = pw.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if gone := expire(t, s, c.now()); len(gone) != 0 {
		t.Errorf("expired although a part came just now: %v", gone)
	}
}

// TestExpiryAgainstCompletion lets completions and new parts race with the expiry of their upload. Whatever was
// acknowledged has to be there: a completed object whole, a part with its upload.
func TestExpiryAgainstCompletion(t *testing.T) {
	s, c := openAt(t, vfs.NewMem())
	defer closed(t, s)
	makeBucket(t, s, object.Bucket{Name: "b"})
	completed, expired := 0, 0
	for round := range 60 {
		key := fmt.Sprint("k", round)
		id := beginUpload(t, s, key)
		body := content1(64<<10, round)
		part := putPart(t, s, "b", key, id, 1, body)
		c.add(time.Hour)
		before := c.now()
		var wg sync.WaitGroup
		var doneErr, partErr error
		wg.Go(func() {
			_, doneErr = s.CompleteUpload(context.Background(), object.Complete{Bucket: "b", Key: key, Upload: id,
				Parts: []object.CompletedPart{{Number: 1, ETag: part.ETag}}})
		})
		wg.Go(func() {
			_, partErr = s.PutPart(context.Background(), object.PutPart{Bucket: "b", Key: key, Upload: id, Number: 2, Size: 10,
				Body: bytes.NewReader(content1(10, 1))})
		})
		var gone []Expired
		wg.Go(func() { gone = expire(t, s, before) })
		wg.Wait()
		for _, err := range []error{doneErr, partErr} {
			if err != nil && !errors.Is(err, object.ErrNoSuchUpload) {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		switch {
		case doneErr == nil:
			completed++
			if got := readAll(t, s, object.Ref{Bucket: "b", Key: key}); !bytes.Equal(got, body) {
				t.Fatalf("round %d: a completed object has other bytes", round)
			}
			if len(gone) != 0 {
				t.Fatalf("round %d: completed and expired", round)
			}
		case len(gone) == 0:
			t.Fatalf("round %d: neither completed (%v) nor expired", round, doneErr)
		default:
			expired++
			if partErr == nil {
				t.Fatalf("round %d: an acknowledged part went with its upload", round)
			}
		}
	}
	t.Logf("%d completed, %d expired", completed, expired)
}

// TestExpiryIsWholeAfterACrash copies what is durable right after an upload expired, as a power cut would leave it.
func TestExpiryIsWholeAfterACrash(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s, c := openAt(t, mem)
	makeBucket(t, s, object.Bucket{Name: "b"})
	for i := range 3 {
		key := fmt.Sprint("k", i)
		id := beginUpload(t, s, key)
		for n := 1; n <= 3; n++ {
			putPart(t, s, "b", key, id, n, content1(100<<10+n, i))
		}
	}
	c.add(time.Hour)
	var cuts []*vfs.MemFS
	err := s.ExpireUploads(t.Context(), c.now(), func(Expired) {
		cuts = append(cuts,
			mem.CrashClone(vfs.CrashCloneCfg{}))
	})
	if err != nil || len(cuts) != 3 {
		t.Fatalf("%d expired, %v", len(cuts), err)
	}
	closed(t, s)
	for i, fs := range cuts {
		after := openMem(t, fs)
		stats, err := after.Stats()
		if err != nil || stats.Uploads != int64(2-i) || stats.PartBytes != int64(2-i)*(3*100<<10+6) {
			t.Errorf("after cut %d: %d uploads with %d bytes, %v", i, stats.Uploads, stats.PartBytes, err)
		}
		closed(t, after)
		if r, err := Check(t.Context(), Options{Dir: "store", FS: fs}, check.Options{Content: true}); err != nil ||
			r.Found != 0 {
			t.Errorf("after cut %d: %+v, %v", i, r, err)
		}
	}
}
