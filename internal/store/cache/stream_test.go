// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// TestAFetchGoesOnWithoutItsReader opens an object and reads nothing of it. Another client gets the whole object by the
// same request to the upstream, whether the first client is still there or has left.
func TestAFetchGoesOnWithoutItsReader(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		f := newFar(t)
		data := content(31, 5*mib+100)
		f.put(t, "a", data)
		r := newRig(t, f, cache.Rules{})
		c, err := r.Store.Open(t.Context(), object.Ref{Bucket: bucket, Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if leaves {
			_ = c.Close()
		}
		r.stored(t, "a", 0, int64(len(data)))
		r.want(t, "a", data, object.ServedHit)
		if n := f.opens.Load() + f.fetches.Load(); n != 1 || f.sent.Load() != int64(len(data)) {
			t.Errorf("%d reads of %d bytes from the upstream, expected one of %d", n, f.sent.Load(), len(data))
		}
		_ = c.Close()
	}
}

// TestAnOpenEndsWithItsRequest ends a request while the upstream has sent the header of its reply and no byte more.
func TestAnOpenEndsWithItsRequest(t *testing.T) {
	f := newFar(t)
	data := content(32, 3*mib)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	ctx, cancel := context.WithCancel(t.Context())
	f.set(func() { f.before = func(int64) { cancel() } })
	c, err := r.Store.Open(ctx, object.Ref{Bucket: bucket, Key: "a"})
	if !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v, %v; expected a cancelled open", c, err)
	}
	f.set(func() { f.before = nil })
	r.want(t, "a", data, object.ServedUpstream)
}

// TestABreakAtTheFirstByte breaks the first reply before its first byte: the client does not notice.
func TestABreakAtTheFirstByte(t *testing.T) {
	f := newFar(t)
	data := content(33, 3*mib)
	f.put(t, "a", data)
	f.breakAt[0] = object.Fail("get", "a", upstream.ErrUnavailable, "reset")
	r := newRig(t, f, cache.Rules{})
	r.want(t, "a", data, object.ServedUpstream)
	r.stored(t, "a", 0, int64(len(data)))
	r.want(t, "a", data, object.ServedHit)
}

// TestWrongFirstBytes has the upstream send one wrong byte among those that come with the header of the reply. No
// client gets the last block, and nothing is kept.
func TestWrongFirstBytes(t *testing.T) {
	f := newFar(t)
	data := content(34, 3*mib)
	f.put(t, "a", data)
	f.flip = 5
	r := newRig(t, f, cache.Rules{})
	got, _, err := r.get(t.Context(), "a", 0, -1)
	if !errors.Is(err, object.ErrWrongReply) || len(got) > 2*mib {
		t.Errorf("%d bytes, %v; expected at most %d bytes and an error", len(got), err, 2*mib)
	}
	f.set(func() { f.flip = -1 })
	r.want(t, "a", data, object.ServedUpstream)
}

// TestFirstBytesForManyReaders has clients read one object at the same time: all get the same bytes, by one request. A
// reader that asks at the very moment may begin a request of its own, and gives it up after its first bytes.
func TestFirstBytesForManyReaders(t *testing.T) {
	f := newFar(t)
	data := content(35, 4*mib+5)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			got, _, err := r.get(t.Context(), "a", 0, -1)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
			}
		})
	}
	readers.Wait()
	const begun = 7 * 8 << 10 // the first bytes of requests that seven readers gave up
	if sent := f.sent.Load(); sent < int64(len(data)) || sent > int64(len(data))+begun {
		t.Errorf("the upstream sent %d bytes, expected %d and at most %d of requests given up", sent, len(data), begun)
	}
}
