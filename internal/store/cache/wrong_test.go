// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
)

// TestWrongContentIsServedToNoReader checks that wrong content of an upstream reaches nobody. While one reader detects
// that the content is wrong, no other reader gets this content from the cache's disk.
func TestWrongContentIsServedToNoReader(t *testing.T) {
	f := newFar(t)
	data := content(30, 100)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	f.set(func() { f.flip = 17 })
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 60 {
				if got, how, err := r.get(t.Context(), "a", 0, -1); err == nil {
					t.Errorf("%d wrong bytes were served as %s, verified by %s", len(got), how.From, how.Verified)
					return
				}
			}
		})
	}
	g.Wait()
	f.set(func() { f.flip = -1 })
	r.want(t, "a", data, object.ServedUpstream)
	r.want(t, "a", data, object.ServedHit)
}

// TestContentThatWasNeverCompared: a process can be killed after content became whole and before it was compared. The
// next process compares the content before a client or the door gets it.
func TestContentThatWasNeverCompared(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		for _, door := range []bool{false, true} {
			f := newFar(t)
			data := content(31, mib+100)
			f.put(t, "a", data)
			r := newRig(t, f, cache.Rules{})
			about, err := f.Stat(t.Context(), "a", "", "")
			if err != nil {
				t.Fatal(err)
			}
			e, ok, err := r.files.Admit(t.Context(), about.Identity)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			left := slices.Clone(data)
			if wrong {
				left[mib+5] ^= 1
			}
			for i := range int64(2) {
				if err := e.Put(t.Context(), i, left[i*mib:min((i+1)*mib, mib+100)]); err != nil {
					t.Fatal(err)
				}
			}
			e.Release()
			if door {
				h, err := r.Handle(t.Context(), object.Ref{Bucket: bucket, Key: "a"})
				if wrong != errs.Is(err, errs.Corrupt) || !wrong && err != nil {
					t.Errorf("wrong %t, at the door: %v", wrong, err)
				}
				if err == nil {
					_ = h.Close()
				}
			} else if got, _, err := r.get(t.Context(), "a", 0, -1); wrong != errs.Is(err, errs.Corrupt) ||
				!wrong && !bytes.Equal(got, data) {
				t.Errorf("wrong %t: %d bytes, %v", wrong, len(got), err)
			}
			from := object.ServedHit
			if wrong {
				from = object.ServedUpstream
			}
			r.want(t, "a", data, from)
			if how := r.want(t, "a", data, object.ServedHit); how.Verified != "crc64nvme" {
				t.Errorf("wrong %t: verified by %s", wrong, how.Verified)
			}
		}
	}
}
