// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// take reads a body of size bytes, or of any size if size is -1, to its end.
func take(ctx context.Context, op, name string, body io.Reader, size int64) ([]byte, error) {
	if size < -1 {
		return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("size %d, expected -1 or more", size))
	}
	if body == nil {
		body = bytes.NewReader(nil)
	}
	var data []byte
	piece := make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap(op, name, err)
		}
		n, err := body.Read(piece)
		data = append(data, piece[:n]...)
		if size >= 0 && int64(len(data)) > size {
			return nil, object.Fail(op, name, object.ErrIncompleteBody, fmt.Sprintf("the body goes on after %d bytes", size))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: reading the body: %w", op, name, err)
		}
	}
	if size >= 0 && int64(len(data)) < size {
		return nil, object.Fail(op, name, object.ErrIncompleteBody,
			fmt.Sprintf("the body ends after %d of %d bytes", len(data), size))
	}
	return data, nil
}

// written describes data, with its MD5 if that was requested.
func written(data []byte, withMD5 bool) object.Written {
	w := object.Written{Size: int64(len(data)), CRC64: checksum.Of(data)}
	if withMD5 {
		sum := md5.Sum(data)
		w.MD5 = sum[:]
	}
	return w
}

// shown describes content as clients see it. If plain is not nil, data is encrypted, and stored is its length.
func shown(data []byte, withMD5 bool, plain func() object.Written) (w object.Written, stored int64) {
	if plain == nil {
		return written(data, withMD5), 0
	}
	return plain(), int64(len(data))
}
