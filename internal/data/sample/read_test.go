// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// failing is a file that cannot be read.
type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestReadFull(t *testing.T) {
	r := strings.NewReader("hello")
	b := make([]byte, 3)
	if err := sample.ReadFull(r, b, 2, "list", "x"); err != nil || string(b) != "llo" {
		t.Errorf("%q, %v", b, err)
	}
	if err := sample.ReadFull(r, nil, 99, "list", "x"); err != nil {
		t.Errorf("reading nothing: %v", err)
	}
	for _, c := range []struct {
		r    io.ReaderAt
		kind errs.Kind
		says string
	}{
		{r, errs.IO, "list x: read 2 bytes at offset 3, expected 3: unexpected EOF"},
		{failing{context.Canceled}, errs.Cancelled, "list x: read 0 bytes at offset 3, expected 3: context canceled"},
		{failing{errors.New("broken")}, errs.IO, "list x: read 0 bytes at offset 3, expected 3: broken"},
		{failing{}, errs.IO, "unexpected EOF"},
	} {
		err := sample.ReadFull(c.r, b, 3, "list", "x")
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v of kind %v, expected %q", err, errs.KindOf(err), c.says)
		}
	}
}

// once is a file that cannot be read the first time.
type once struct {
	io.ReaderAt
	failed bool
}

func (o *once) ReadAt(p []byte, off int64) (int, error) {
	if !o.failed {
		o.failed = true
		return 0, errors.New("broken")
	}
	return o.ReaderAt.ReadAt(p, off)
}

// TestWindowAfterAnError reads the same bytes again after a read that failed.
func TestWindowAfterAnError(t *testing.T) {
	w := sample.NewWindow(&once{ReaderAt: strings.NewReader("hello")}, 5, "list", "x")
	if _, err := w.Bytes(0, 5); !errs.Is(err, errs.IO) {
		t.Fatal(err)
	}
	if n := w.Ready(0); n != sample.LargePiece {
		t.Errorf("%d bytes are ready", n)
	}
	if b, err := w.Bytes(0, 5); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
}
