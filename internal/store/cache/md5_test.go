// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
)

// large is the size of content whose MD5 readers of ranges do not wait for.
const large = 18*mib + 7

// cut fails the test if a reader gets all bytes of wrong content.
func (r *rig) cut(t *testing.T, what string) {
	t.Helper()
	got, how, err := r.get(t.Context(), "a", 0, -1)
	if !errs.Is(err, errs.Corrupt) || len(got) >= large {
		t.Errorf("%s: %d bytes from %s, %v; expected a part and the news that the content is wrong", what, len(got), how.From,
			err)
	}
}

// TestAWholeReadIsCutIfItIsWrong reads wrong content of which only the MD5, or a checksum of 32 bits, is known. A read
// of the whole content ends with an error, however the bytes came: by one fetch, by several, or past the cache.
func TestAWholeReadIsCutIfItIsWrong(t *testing.T) {
	for _, sum32 := range []string{"", "crc32c", "crc32"} {
		how := sum32
		if how == "" {
			how = "md5"
		}
		t.Run(how, func(t *testing.T) { testCut(t, sum32, how) })
	}
}

func testCut(t *testing.T, sum32, how string) {
	data := content(40, large)
	prepare := func(t *testing.T) (*far, *rig) {
		f := newFar(t)
		f.put(t, "b", content(41, 100))
		f.put(t, "a", data)
		f.set(func() { f.noSum, f.sum32 = true, sum32 })
		r := newRig(t, f, cache.Rules{})
		r.want(t, "b", content(41, 100), object.ServedUpstream) // the ETags of this upstream are MD5s
		f.set(func() { f.flip = 9*mib + 1 })
		return f, r
	}
	t.Run("one fetch", func(t *testing.T) {
		f, r := prepare(t)
		r.cut(t, "first read")
		r.cut(t, "second read")
		f.set(func() { f.flip = -1 })
		r.kept(t, "a", data, how)
	})
	t.Run("several fetches", func(t *testing.T) {
		f, r := prepare(t)
		for off := int64(0); off < large-mib; off += 3 * mib {
			if _, _, err := r.get(t.Context(), "a", off, 2*mib); err != nil {
				t.Fatal(err)
			}
		}
		r.cut(t, "read of what ranges left")
		f.set(func() { f.flip = -1 })
		r.kept(t, "a", data, how)
	})
	t.Run("ranges alone", func(t *testing.T) {
		f, r := prepare(t)
		for off := int64(0); off < large; off += 3 * mib {
			n := min(3*mib, large-off)
			if got, _, err := r.get(t.Context(), "a", off, n); err == nil && int64(len(got)) != n {
				t.Errorf("%d bytes at %d, expected %d", len(got), off, n)
			}
		}
		f.set(func() { f.flip = -1 })
		for { // the wrong content is dropped
			got, how, err := r.get(t.Context(), "a", 0, -1)
			if err == nil && !bytes.Equal(got, data) {
				t.Fatalf("%d wrong bytes, served as %s", len(got), how.From)
			}
			if err == nil && how.From == object.ServedHit {
				break
			}
		}
	})
	t.Run("past the cache", func(t *testing.T) {
		_, r := prepare(t)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		r.open(t, 8*mib)
		r.cut(t, "read of what does not fit")
		if n := r.Stats().Files.Refused; n == 0 {
			t.Error("the cache took the object")
		}
	})
}

// TestAReaderWaitsForTheChecksum reads wrong content whose description came with a range and named no checksum. Before
// the last block, the upstream is asked for the checksum. The reader does not get the last block before the answer.
func TestAReaderWaitsForTheChecksum(t *testing.T) {
	f := newFar(t)
	f.put(t, "a", content(42, large))
	f.set(func() { f.noSum = true })
	r := newRig(t, f, cache.Rules{NeverChanges: func(string) bool { return true }})
	if _, _, err := r.get(t.Context(), "a", 0, 10); err != nil {
		t.Fatal(err)
	}
	answers := make(chan struct{})
	f.set(func() { f.noSum, f.flip, f.silent = false, 9*mib+1, answers })
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.cut(t, "read before the answer")
	}()
	for f.stats.Load() == 0 {
		runtime.Gosched()
	}
	select {
	case <-done:
		t.Error("the read ended before the answer")
	default:
	}
	close(answers)
	<-done
}
