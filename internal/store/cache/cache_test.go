// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

const mib = 1 << 20

func TestTheSecondReadAndTheReadAfterARestartAreHits(t *testing.T) {
	f := newFar(t)
	data := content(1, 5*mib+123)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	r.want(t, "a", data, object.ServedUpstream)
	if f.opens.Load() != 1 || f.stats.Load() != 0 || f.fetches.Load() != 0 {
		t.Errorf("a miss took %d opens, %d stats and %d fetches, expected one open", f.opens.Load(), f.stats.Load(),
			f.fetches.Load())
	}
	if how := r.want(t, "a", data, object.ServedHit); how.Verified != "crc64nvme" {
		t.Errorf("verified by %s", how.Verified)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.open(t, 1<<30)
	r.want(t, "a", data, object.ServedHit)
	if n := f.sent.Load(); n != int64(len(data)) {
		t.Errorf("%d bytes from the upstream, expected %d", n, len(data))
	}
	s := r.Stats()
	if b := s.Buckets[0]; b.Hits != 1 || b.Misses != 0 || s.Files.Entries != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAnEmptyObject(t *testing.T) {
	f := newFar(t)
	f.put(t, "empty", nil)
	r := newRig(t, f, cache.Rules{})
	for range 2 {
		got, _, err := r.get(t.Context(), "empty", 0, -1)
		if err != nil || len(got) != 0 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}

func TestManyReadersOfOneObjectShareOneFetch(t *testing.T) {
	f := newFar(t)
	data := content(2, 3*mib+7)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	var g sync.WaitGroup
	for i := range 64 {
		g.Go(func() {
			off, n := int64(0), int64(-1)
			if i%3 == 1 {
				off, n = int64(i)*20_000, 3*mib/2
			}
			got, _, err := r.get(t.Context(), "a", off, n)
			want := data[off:]
			if n >= 0 {
				want = want[:n]
			}
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("reader %d: %d bytes of %d, %v", i, len(got), len(want), err)
			}
		})
	}
	g.Wait()
	if n := f.sent.Load(); n > int64(len(data))*102/100 {
		t.Errorf("%d bytes from the upstream for %d", n, len(data))
	}
}

func TestARangeFetchesItsBlocksAlone(t *testing.T) {
	f := newFar(t)
	data := content(3, 10*mib)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	for range 2 {
		got, _, err := r.get(t.Context(), "a", 5*mib+10, 1*mib)
		if err != nil || !bytes.Equal(got, data[5*mib+10:6*mib+10]) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	r.stored(t, "a", 5*mib, 2*mib)
	if n := f.sent.Load(); n != 2*mib {
		t.Errorf("%d bytes from the upstream, expected 2 MiB", n)
	}
	r.want(t, "a", data, object.ServedUpstream)
	if n := f.sent.Load(); n != 10*mib {
		t.Errorf("%d bytes from the upstream, expected the rest alone", n)
	}
}

func TestFreshness(t *testing.T) {
	for _, x := range []struct {
		name        string
		rules       cache.Rules
		early, late bool // whether the change is seen at once, and after the time of Validate
	}{
		{"always", cache.Rules{}, true, true},
		{"ttl", cache.Rules{Validate: time.Minute}, false, true},
		{"immutable", cache.Rules{NeverChanges: func(string) bool { return true }}, false, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := newFar(t)
			old, fresh := content(4, 100_000), content(5, 100_001)
			f.put(t, "a", old)
			r := newRig(t, f, x.rules)
			r.want(t, "a", old, object.ServedUpstream)
			f.put(t, "a", fresh)
			see := func(changed bool) {
				t.Helper()
				got, _, err := r.get(t.Context(), "a", 0, -1)
				if want := map[bool][]byte{false: old, true: fresh}[changed]; err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, %v; expected %d", len(got), err, len(want))
				}
			}
			see(x.early)
			r.clock.Add(120)
			see(x.late)
		})
	}
}

func TestAChangeInTheMiddleEndsTheRead(t *testing.T) {
	f := newFar(t)
	data, other := content(6, 6*mib), content(7, 6*mib)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	var once sync.Once
	f.set(func() {
		f.before = func(at int64) {
			if at >= 3*mib {
				once.Do(func() { f.put(t, "a", other) })
			}
		}
	})
	got, _, err := r.get(t.Context(), "a", 0, -1)
	if !errors.Is(err, object.ErrChanged) || !bytes.HasPrefix(data, got) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	f.set(func() { f.before = nil })
	r.want(t, "a", other, object.ServedUpstream)
	r.want(t, "a", other, object.ServedHit)
}

func TestAnAbsentKeyIsAskedOncePerSecond(t *testing.T) {
	f := newFar(t)
	r := newRig(t, f, cache.Rules{})
	for range 3 {
		if _, _, err := r.get(t.Context(), "none", 0, -1); !errors.Is(err, object.ErrNoSuchKey) {
			t.Errorf("%v", err)
		}
	}
	if n := f.opens.Load() + f.stats.Load(); n != 1 {
		t.Errorf("%d questions, expected 1", n)
	}
	r.clock.Add(2)
	f.put(t, "none", []byte("here"))
	r.want(t, "none", []byte("here"), object.ServedUpstream)
}

func TestASilentUpstream(t *testing.T) {
	f := newFar(t)
	data := content(8, 3*mib)
	f.put(t, "whole", data)
	f.put(t, "part", data)
	r := newRig(t, f, cache.Rules{StaleIfError: 100 * time.Second})
	r.want(t, "whole", data, object.ServedUpstream)
	if _, _, err := r.get(t.Context(), "part", 0, 10); err != nil {
		t.Fatal(err)
	}
	r.stored(t, "part", 0, mib)
	f.set(func() { f.down = true })
	r.clock.Add(30)
	if how := r.want(t, "whole", data, object.ServedStale); how.Age != 30 {
		t.Errorf("age %d", how.Age)
	}
	if got, _, err := r.get(t.Context(), "part", 0, 10); err != nil || !bytes.Equal(got, data[:10]) {
		t.Errorf("%q, %v", got, err)
	}
	for _, key := range []string{"part", "never"} {
		var refused *object.Refusal
		_, _, err := r.get(t.Context(), key, 0, -1)
		if !errors.Is(err, upstream.ErrUnavailable) || key == "part" && (!errors.As(err, &refused) || refused.Status != 503) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := r.Put(t.Context(), object.Put{Bucket: bucket, Key: "w", Size: 1,
		Body: bytes.NewReader([]byte{1})}); !errors.Is(err,
		upstream.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	r.clock.Add(100)
	if _, _, err := r.get(t.Context(), "whole", 0, -1); !errors.Is(err, upstream.ErrUnavailable) {
		t.Errorf("older than stale_if_error: %v", err)
	}
	f.set(func() { f.down = false })
	r.want(t, "whole", data, object.ServedHit)
}

// TestAnOverloadedUpstream: a refusal because of the upstream's own failure gives stale replies, other refusals do not.
func TestAnOverloadedUpstream(t *testing.T) {
	f := newFar(t)
	data := content(8, 2*mib)
	f.put(t, "whole", data)
	r := newRig(t, f, cache.Rules{StaleIfError: 100 * time.Second})
	r.want(t, "whole", data, object.ServedUpstream)
	r.clock.Add(30)
	slow := &object.Refusal{Kind: errs.IO, Status: 503, Code: "SlowDown", Message: "Please reduce your request rate."}
	f.set(func() { f.refuses = slow })
	r.want(t, "whole", data, object.ServedStale)
	if _, _, err := r.get(t.Context(), "never", 0, -1); !errors.Is(err, slow) {
		t.Errorf("an unknown key: %v, expected the refusal of the upstream", err)
	}
	keys := &object.Refusal{Kind: errs.Permission, Status: 503, Code: "ServiceUnavailable", Message: "wrong credentials"}
	f.set(func() { f.refuses = keys })
	if _, _, err := r.get(t.Context(), "whole", 0, -1); !errors.Is(err, keys) {
		t.Errorf("refused credentials: %v, expected the refusal of the upstream", err)
	}
	f.set(func() { f.refuses = nil })
	r.want(t, "whole", data, object.ServedHit)
}

func TestWrongContentIsNeverGivenAsAWholeNorKept(t *testing.T) {
	for _, noSum := range []bool{false, true} {
		f := newFar(t)
		data := content(9, 4*mib+5)
		f.put(t, "a", data)
		f.put(t, "md5", data)
		f.set(func() { f.noSum = noSum })
		r := newRig(t, f, cache.Rules{})
		r.want(t, "md5", data, object.ServedUpstream) // shows that ETags are MD5s
		f.set(func() { f.flip = 2*mib + 17 })
		got, _, err := r.get(t.Context(), "a", 0, -1)
		if !errs.Is(err, errs.Corrupt) || len(got) >= len(data) {
			t.Errorf("no sum %t: %d bytes of %d, %v", noSum, len(got), len(data), err)
		}
		if s := r.Stats(); s.Wrong != 1 || s.Files.Entries != 1 {
			t.Errorf("%+v", s)
		}
		f.set(func() { f.flip = -1 })
		r.want(t, "a", data, object.ServedUpstream)
		if how := r.want(t, "a", data, object.ServedHit); how.Verified != map[bool]string{false: "crc64nvme",
			true: "md5"}[noSum] {
			t.Errorf("verified by %s", how.Verified)
		}
	}
}

func TestAnotherReaderTakesOver(t *testing.T) {
	f := newFar(t)
	data := content(10, 6*mib)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	f.set(func() { f.breakAt[3*mib] = object.Fail("read", "a", upstream.ErrUnavailable, "reset") })
	r.want(t, "a", data, object.ServedUpstream)
	if n := f.sent.Load(); n > int64(len(data))+mib {
		t.Errorf("%d bytes from the upstream, %d fetches, %+v", n, f.fetches.Load(), r.Stats())
	}
}

func TestAReaderThatLeavesDoesNotStopTheOthers(t *testing.T) {
	f := newFar(t)
	data := content(11, 14*mib)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	c, err := r.Store.Open(t.Context(), object.Ref{Bucket: bucket, Key: "a"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Section(object.Range{N: 14 * mib})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(b, make([]byte, 10))
	var g sync.WaitGroup
	g.Go(func() {
		got, _, err := r.get(t.Context(), "a", 0, -1)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
	_, _ = b.Close(), c.Close()
	g.Wait()
	if n := f.sent.Load(); n > 14*mib+2*mib {
		t.Errorf("%d bytes from the upstream", n)
	}
}

func TestWritesGoThroughAndStayWarm(t *testing.T) {
	f := newFar(t)
	r := newRig(t, f, cache.Rules{Validate: time.Hour})
	data := content(12, 3*mib+9)
	old := content(13, 100)
	f.put(t, "a", old)
	r.want(t, "a", old, object.ServedUpstream)
	info, err := r.Put(t.Context(), object.Put{Bucket: bucket, Key: "a", Size: int64(len(data)),
		Body: bytes.NewReader(data)})
	if err != nil {
		t.Fatal(err)
	}
	sent := f.sent.Load()
	if how := r.want(t, "a", data, object.ServedHit); how.Verified != "crc64nvme" || f.sent.Load() != sent {
		t.Errorf("%+v, %d more bytes", how, f.sent.Load()-sent)
	}
	if i, err := f.Store.Stat(t.Context(), object.Ref{Bucket: bucket, Key: "a"}); err != nil || i.ETag != info.ETag {
		t.Errorf("the upstream has %s, %v", i.ETag, err)
	}
	refused := errors.New("refused")
	_, err = r.Put(t.Context(), object.Put{Bucket: bucket, Key: "b", Size: 5, Body: bytes.NewReader([]byte("12345")),
		Finish: func(object.Written) (map[string]string, error) { return nil, refused }})
	if !errors.Is(err, refused) {
		t.Errorf("%v", err)
	}
	if n := r.Stats().Files.Entries; n != 2 { // the old and the new content of a
		t.Errorf("%d entries", n)
	}
	if _, err := r.Delete(t.Context(), object.Deletion{Ref: object.Ref{Bucket: bucket, Key: "a"}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.get(t.Context(), "a", 0, -1); !errors.Is(err, object.ErrNoSuchKey) {
		t.Errorf("%v", err)
	}
}

func TestAReadOnlyBucketRefusesChanges(t *testing.T) {
	f := newFar(t)
	r := newRig(t, f, cache.Rules{ReadOnly: true})
	_, err := r.Put(t.Context(), object.Put{Bucket: bucket, Key: "a", Size: 0, Body: bytes.NewReader(nil)})
	if !errs.Is(err, errs.Permission) {
		t.Errorf("%v", err)
	}
}

func TestTheDoorGetsWholeContentAlone(t *testing.T) {
	f := newFar(t)
	data := content(14, 2*mib+1)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	ref := object.Ref{Bucket: bucket, Key: "a"}
	if _, err := r.Handle(t.Context(), ref); !errors.Is(err, object.ErrNotCached) || !errs.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
	r.want(t, "a", data, object.ServedUpstream)
	h, err := r.Handle(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if how := h.(object.Sourced).Served(object.Range{}); how != (object.Served{From: "hit", Verified: "crc64nvme"}) {
		t.Errorf("%+v", how)
	}
	file, err := h.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got, err := io.ReadAll(file)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if sums, err := h.Sums(0, 3); err != nil || len(sums) != 3 {
		t.Errorf("%v, %v", sums, err)
	}
	if _, err := r.NewDraft(t.Context(), object.Draft{Bucket: bucket, Key: "d", Size: 1}); !errs.Is(err,
		errs.Unsupported) {
		t.Errorf("%v", err)
	}
}

func TestContentThatDoesNotFitIsServedAllTheSame(t *testing.T) {
	f := newFar(t)
	data := content(15, 6*mib)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.open(t, 4*mib)
	for range 2 {
		r.want(t, "a", data, object.ServedUpstream)
	}
	got, _, err := r.get(t.Context(), "a", 3*mib+5, 1000)
	if err != nil || !bytes.Equal(got, data[3*mib+5:3*mib+1005]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestWarmFetchesInTheBackground(t *testing.T) {
	f := newFar(t)
	data := content(16, 5*mib)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	ref := object.Ref{Bucket: bucket, Key: "a"}
	var w cache.Warmed
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var err error
		if w, err = r.Warm(t.Context(), ref, &time.Time{}); err != nil {
			t.Fatal(err)
		}
		if w.Whole && w.Verified != "" {
			break
		}
	}
	if !w.Whole || !w.Pinned || w.Cached != 5*mib || w.Verified != "crc64nvme" || f.sent.Load() != 5*mib {
		t.Errorf("%+v, %d bytes", w, f.sent.Load())
	}
	r.want(t, "a", data, object.ServedHit)
}
