// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

type textRemote struct {
	text   string
	closed int
}

func (r *textRemote) Fetch(_ context.Context, off, n int64) (io.ReadCloser, error) {
	if r.closed > 0 {
		return nil, errs.New(errs.Closed, "get", "x", "closed")
	}
	return io.NopCloser(strings.NewReader(r.text[off : off+n])), nil
}
func (r *textRemote) Parallel() int   { return 3 }
func (r *textRemote) Notes() []string { return nil }
func (r *textRemote) Close() error    { r.closed++; return nil }

func TestARemoteIsAFileWithoutADescriptor(t *testing.T) {
	r := &textRemote{text: "hello, world"}
	f := NewRemote("s3://b/k", int64(len(r.text)), r)
	if f.Remote() != r || f.Path() != "s3://b/k" || f.Size() != 12 || f.BufferedFD() != -1 || f.DirectFD() != -1 ||
		f.FS().Memory || f.CheckUnchanged(false) != nil {
		t.Errorf("%+v", f)
	}
	buf := make([]byte, 5)
	if n, err := f.ReadAt(buf, 7); n != 5 || err != nil || string(buf) != "world" {
		t.Errorf("%d, %v, %q", n, err, buf)
	}
	if b, err := f.ReadBuffered(buf, 0); err != nil || b != (Buffered{Missed: 5}) || !bytes.Equal(buf, []byte("hello")) {
		t.Errorf("%+v, %v", b, err)
	}
	if n, err := f.ReadAt(buf[:0], 12); n != 0 || err != nil {
		t.Errorf("nothing at the end: %d, %v", n, err)
	}
	for _, off := range []int64{-1, 8, 12, 1 << 62} {
		if _, err := f.ReadAt(buf, off); !errs.Is(err, errs.IO) {
			t.Errorf("offset %d: %v", off, err)
		}
	}
	if ok, why := f.Direct(); ok || why == nil || why.Fix == "" {
		t.Errorf("direct: %v, %+v", ok, why)
	}
	if _, err := f.Residency(0, 5); !errs.Is(err, errs.Unsupported) {
		t.Errorf("residency: %v", err)
	}
	if m, why := f.Probe(); m != ProbeNone || why == "" {
		t.Errorf("probe %s, %s", m, why)
	}
	if left, err := f.DropCache(); left != 0 || err != nil {
		t.Errorf("drop: %d, %v", left, err)
	}
	f.ExpectRandom(true)
	if _, err := f.NewReader(false); !errs.Is(err, errs.Unsupported) {
		t.Errorf("reader: %v", err)
	}
	if _, err := f.Again(); !errs.Is(err, errs.Unsupported) {
		t.Errorf("again: %v", err)
	}
	if err := f.Close(); err != nil || r.closed != 1 {
		t.Errorf("close: %v, %d", err, r.closed)
	}
}
