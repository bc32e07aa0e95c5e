// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// trailing has bytes of its own behind the content, which it takes off as they
// are read and never hands out, as the readers of signed uploads do.
type trailing struct{ rest io.Reader }

func (r trailing) Read(p []byte) (int, error) {
	_, err := r.rest.Read(p)
	return 0, err
}

func TestEndOfABodyWithATrailer(t *testing.T) {
	if err := atEnd(trailing{strings.NewReader(strings.Repeat("t", 400))}); err != nil {
		t.Errorf("a trailer of 400 bytes: %v", err)
	}
	if err := atEnd(strings.NewReader("x")); !errors.Is(err, errMore) {
		t.Errorf("one more byte: %v, expected %v", err, errMore)
	}
}
