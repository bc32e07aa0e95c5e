// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// TestBlocksThatAWarmingPassedComeLater reads the first half of an object while the object is being warmed and the disk
// takes nothing. The two share one fetch, which leaves out blocks for the reader. The warming has passed them and is
// busy with the second half when the fetch ends. The blocks come all the same.
func TestBlocksThatAWarmingPassedComeLater(t *testing.T) {
	f := newFar(t)
	const half = 16 * mib
	data := content(22, 2*half)
	f.put(t, "a", data)
	r, disk := newStuck(t, f)
	part := func(off, n int64) {
		t.Helper()
		if got, _, err := r.get(t.Context(), "a", off, n); err != nil || !bytes.Equal(got, data[off:off+n]) {
			t.Fatalf("%d bytes at %d, %v", len(got), off, err)
		}
	}
	part(half, mib) // by a fetch of its own, so that the halves have different fetches
	reached, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.set(func() {
		f.before = func(at int64) {
			if at >= half+2*mib {
				once.Do(func() { close(reached) })
				<-goOn
			}
		}
	})
	if _, err := r.Warm(t.Context(), object.Ref{Bucket: bucket, Key: "a"}, nil); err != nil {
		t.Fatal(err)
	}
	part(0, half)
	if n := r.Stats().LeftOut; n == 0 {
		t.Fatal("no block was left out")
	}
	<-reached
	disk.release()
	r.stored(t, "a", 0, half)
	close(goOn)
	r.whole(t, "a", "crc64nvme")
	r.want(t, "a", data, object.ServedHit)
}

// TestOnlyBlocksThatWereReadAreFetchedAgain reads a part of an object while the disk takes nothing. The blocks of that
// part come to the disk later, and no others.
func TestOnlyBlocksThatWereReadAreFetchedAgain(t *testing.T) {
	f := newFar(t)
	data := content(23, 40*mib)
	f.put(t, "a", data)
	r, disk := newStuck(t, f)
	const part = 20 * mib
	f.set(func() {
		f.before = func(at int64) {
			if at >= part {
				t.Errorf("byte %d of the upstream is read, which nobody has asked for", at)
			}
		}
	})
	got, _, err := r.get(t.Context(), "a", 0, part)
	if err != nil || !bytes.Equal(got, data[:part]) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	left := r.Stats().LeftOut
	if left == 0 {
		t.Fatal("no block was left out")
	}
	disk.release()
	r.stored(t, "a", 0, part)
	if err := r.Close(); err != nil { // waits for all fetches
		t.Fatal(err)
	}
	if n := f.sent.Load(); n != part+left*mib {
		t.Errorf("%d bytes from the upstream, expected %d and %d again", n, int64(part), left*mib)
	}
}

// TestAReaderOfWrongBlocksGetsAnError: a first reader gets the right content, of which the disk takes nothing. A second
// reader shares its fetch, has to fetch some blocks again, and these are wrong. No reader gets the whole of them, and
// they do not stay in the cache.
func TestAReaderOfWrongBlocksGetsAnError(t *testing.T) {
	for _, noSum := range []bool{false, true} {
		f := newFar(t)
		f.set(func() { f.noSum = noSum })
		data := content(24, 20*mib)
		f.put(t, "a", data)
		r, disk := newStuck(t, f)
		f.set(func() {
			f.before = func(at int64) {
				if f.sent.Load() >= int64(len(data)) { // these blocks are fetched again, and all are wrong
					f.set(func() { f.flip = at })
				}
			}
		})
		r.want(t, "a", data, object.ServedUpstream)
		got, _, err := r.get(t.Context(), "a", 0, -1)
		if !errs.Is(err, errs.Corrupt) || len(got) >= len(data) {
			t.Errorf("no checksum %t: %d bytes, %v", noSum, len(got), err)
		}
		f.set(func() { f.before, f.flip = nil, -1 })
		disk.release()
		for {
			got, how, err := r.get(t.Context(), "a", 0, -1)
			if err == nil && !bytes.Equal(got, data) {
				t.Fatalf("no checksum %t: %d wrong bytes, served as %s", noSum, len(got), how.From)
			}
			if err == nil && how.From == object.ServedHit {
				break
			}
		}
	}
}
