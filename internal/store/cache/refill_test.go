// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// TestBlocksThatAWarmingLeavesOutComeLater reads an object while it is being warmed and the disk takes nothing. The two
// share one fetch, which leaves out blocks for the reader. The warming has read past them, and they come all the same.
func TestBlocksThatAWarmingLeavesOutComeLater(t *testing.T) {
	f := newFar(t)
	data := content(22, 24*mib)
	f.put(t, "a", data)
	r, disk := newStuck(t, f)
	if _, err := r.Warm(t.Context(), object.Ref{Bucket: bucket, Key: "a"}, nil); err != nil {
		t.Fatal(err)
	}
	for f.sent.Load() < 8*mib { // then the memory of the fetch is full
		runtime.Gosched()
	}
	got, _, err := r.get(t.Context(), "a", 0, -1)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if n := r.Stats().LeftOut; n == 0 {
		t.Fatal("no block was left out")
	}
	disk.release()
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
		r.want(t, "a", data, object.ServedUpstream)
		f.set(func() { f.flip = 2*mib + 5 })
		got, _, err := r.get(t.Context(), "a", 0, -1)
		if !errs.Is(err, errs.Corrupt) || len(got) >= len(data) {
			t.Errorf("no checksum %t: %d bytes, %v", noSum, len(got), err)
		}
		f.set(func() { f.flip = -1 })
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
