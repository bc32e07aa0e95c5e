// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestLendsFilesForReading(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	for i, n := range []int{0, 1, 5000, 16 << 10, 1 << 20, 7<<20 + 3} { // those that lie with the metadata are spilled
		want := content(uint64(i), n)
		r.put("k", want)
		f, err := c.OpenFile(t.Context(), "b", "k", "", "host")
		if err != nil {
			t.Fatal(n, err)
		}
		r.put("k", []byte("something else")) // what was lent stays
		got := make([]byte, n+1)
		if k, err := syscall.Pread(f.Buffered(), got, 0); err != nil || k != n && n < 2<<20 {
			t.Error(n, k, err)
		} else if !bytes.Equal(got[:k], want[:k]) {
			t.Error(n, "other bytes")
		}
		if _, err := syscall.Pwrite(f.Buffered(), []byte("x"), 0); err != syscall.EBADF {
			t.Error("an object can be written to:", err)
		}
		if f.Size() != int64(n) || f.Info().Size != int64(n) || f.Info().ETag == "" {
			t.Errorf("%+v", f.Info())
		}
		fd := f.Buffered()
		for range 2 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		if f.Buffered() != -1 || f.Direct() != -1 {
			t.Error(fd, "is still told of")
		}
	}
	r.trace()
}

func TestLendsFilesForWriting(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	for i, n := range []int{0, 1, 1 << 20, 4<<20 + 17} {
		want := content(uint64(i), n)
		f, err := c.CreateFile(t.Context(), Write{Bucket: "b", Key: "new", Size: int64(n) + 1000, Device: "host"})
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < n; {
			k, err := syscall.Pwrite(f.Buffered(), want[at:], int64(at))
			if err != nil {
				t.Fatal(err)
			}
			at += k
		}
		info, err := f.Commit(t.Context(), int64(n))
		if err != nil || info.Size != int64(n) || info.ETag == "" {
			t.Fatalf("%+v, %v", info, err)
		}
		if got, _, err := r.get("new"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d: %d bytes, %v", n, len(got), err)
		}
		if got, rep, err := r.read(c, Read{Key: "new", Size: -1}, n); err != nil || !bytes.Equal(got, want) || n > 0 &&
			rep.Verify == nil {
			t.Errorf("the sums do not fit: %v", err) // each block is compared with what Commit has told
		}
		if _, err := f.Commit(t.Context(), 0); !errs.Is(err, errs.Closed) {
			t.Error(err)
		}
		if f.Close() != nil || f.Buffered() != -1 {
			t.Error("not closed")
		}
	}
	r.trace()
}

func TestLentFilesThatComeToNothing(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	create := func() *DraftFile {
		t.Helper()
		f, err := c.CreateFile(t.Context(), Write{Bucket: "b", Key: "none", Size: 100_000, Device: "host"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := syscall.Pwrite(f.Buffered(), content(3, 50_000), 0); err != nil {
			t.Fatal(err)
		}
		return f
	}
	fails := func(f *DraftFile, ctx context.Context, n int64, k errs.Kind, words ...string) {
		t.Helper()
		_, err := f.Commit(ctx, n)
		if !errs.Is(err, k) {
			t.Fatalf("%v, expected kind %v", err, k)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v lacks %q", err, w)
			}
		}
	}
	fails(create(), t.Context(), 100_001, errs.Invalid, "100001", "100000")
	fails(create(), t.Context(), -1, errs.Invalid, "-1")
	ended, end := context.WithCancel(t.Context())
	end()
	fails(create(), ended, 50_000, errs.Cancelled)
	if err := create().Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := r.get("none"); !errs.Is(err, errs.NotFound) {
		t.Error(err)
	}
	// A duplicate that can still write is a writer that is left.
	f := create()
	kept, err := syscall.Dup(f.Buffered())
	if err != nil {
		t.Fatal(err)
	}
	fails(f, t.Context(), 50_000, errs.Invalid, "b/none")
	_ = syscall.Close(kept)
	r.trace()

	for name, call := range map[string]func() error{
		"s3://b/missing": func() error { _, err := c.OpenFile(t.Context(), "b", "missing", "", "host"); return err },
		"s3://nowhere/k": func() error { _, err := c.OpenFile(t.Context(), "nowhere", "k", "", "host"); return err },
		"s3://nowhere/k2": func() error {
			_, err := c.CreateFile(t.Context(), Write{Bucket: "nowhere", Key: "k2", Device: "host"})
			return err
		},
	} {
		if err := call(); !errs.Is(err, errs.NotFound) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.CreateFile(t.Context(), Write{Bucket: "b", Key: "k", Size: -1}); !errs.Is(err, errs.Invalid) {
		t.Error(err)
	}
	off := r.client(func(o *Options) { o.Door = "off" })
	if _, err := off.OpenFile(t.Context(), "b", "k", "", "host"); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(err.Error(), "door") {
		t.Error(err)
	}
	if _, err := off.CreateFile(t.Context(), Write{Bucket: "b", Key: "k", Device: "host"}); !errs.Is(err,
		errs.Unsupported) {
		t.Error(err)
	}
}
