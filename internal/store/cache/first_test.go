// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
)

// TestTheFirstBytesDoNotWait reads through a large buffer, as the HTTP server has one. The upstream sends the second
// piece only after the client has got the first one.
func TestTheFirstBytesDoNotWait(t *testing.T) {
	const piece = 100 << 10 // of the upstream's replies
	f := newFar(t)
	data := content(30, 3*mib)
	f.put(t, "a", data)
	r := newRig(t, f, cache.Rules{})
	got := make(chan struct{})
	f.set(func() {
		f.before = func(at int64) {
			if at >= piece {
				<-got
			}
		}
	})
	c, err := r.Store.Open(t.Context(), object.Ref{Bucket: bucket, Key: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body, err := c.Section(object.Range{N: int64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	from, to := io.Pipe()
	go func() {
		w := bufio.NewWriterSize(to, 2*piece)
		_, err := body.WriteTo(w)
		if err == nil {
			err = w.Flush()
		}
		_ = body.Close()
		_ = to.CloseWithError(err)
	}()
	head := make([]byte, piece)
	if _, err := io.ReadFull(from, head); err != nil {
		t.Fatal(err)
	}
	close(got)
	rest, err := io.ReadAll(from)
	if err != nil || !bytes.Equal(append(head, rest...), data) {
		t.Errorf("%d bytes of %d, %v", len(head)+len(rest), len(data), err)
	}
}

// TestAnAnswerIsRecordedBeforeTheNextQuestion opens objects twice while answers count for an hour: the second open
// finds the record of the first one, although the record is written in the background. After a change, no such record
// counts.
func TestAnAnswerIsRecordedBeforeTheNextQuestion(t *testing.T) {
	f := newFar(t)
	r := newRig(t, f, cache.Rules{Validate: time.Hour})
	for i := range 50 {
		key := strconv.Itoa(i)
		f.put(t, key, content(uint64(i), 100+i))
		asked := f.opens.Load() + f.stats.Load()
		for range 2 {
			c, err := r.Store.Open(t.Context(), object.Ref{Bucket: bucket, Key: key})
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		}
		if n := f.opens.Load() + f.stats.Load() - asked; n != 1 {
			t.Errorf("%d questions about %s, expected one", n, key)
		}
		data := content(uint64(100+i), 200+i)
		if _, err := r.Put(t.Context(), object.Put{Bucket: bucket, Key: key, Size: int64(len(data)),
			Body: bytes.NewReader(data)}); err != nil {
			t.Fatal(err)
		}
		if got, _, err := r.get(t.Context(), key, 0, -1); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes of %d after a change, %v", key, len(got), len(data), err)
		}
	}
}
