// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// ErrAbsent means that a block is not in the cache.
var ErrAbsent = errors.New("the block is not in the cache")

// absent returns the error for a block that is not in the cache.
func absent(op, name, msg string) error {
	return &errs.Error{Kind: errs.NotFound, Op: op, Name: name, Msg: msg, Err: ErrAbsent,
		Fix: "fetch the missing blocks first"}
}

// fail returns the error that op failed on name, with object.ErrNoSpace for a full disk.
func fail(op, name string, err error) error { return layout.WrapIO(op, name, err) }

// missing reports whether err means that the name does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// rotten reports whether err comes from the medium and not from the process, so that a retry gives the same error.
func rotten(err error) bool {
	for _, no := range []unix.Errno{unix.EIO, unix.ENODATA, unix.EUCLEAN, unix.EBADMSG, unix.EILSEQ} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
