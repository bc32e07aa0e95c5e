// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"errors"
	"fmt"
	"io"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// ReadFull fills dst with the bytes of a file at offset off. The operation op and the path or URL name are for the
// error. A file that ends early is an error of kind IO, because the caller compared off with the size of the file.
func ReadFull(r io.ReaderAt, dst []byte, off int64, op, name string) error {
	if len(dst) == 0 {
		return nil
	}
	n, err := r.ReadAt(dst, off)
	if n == len(dst) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	kind := errs.KindOf(err)
	if kind == errs.Other {
		kind = errs.IO
	}
	return &errs.Error{Kind: kind, Op: op, Name: name, Err: errs.WithoutPath(err), Fix: errs.Remedy(err),
		Msg: fmt.Sprintf("read %d bytes at offset %d, expected %d", n, off, len(dst))}
}
