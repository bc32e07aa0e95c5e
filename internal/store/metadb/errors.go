// SPDX-License-Identifier: Apache-2.0

package metadb

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// KindOf returns the kind of an error of Pebble. An error that is neither a cancellation nor an error of the operating
// system counts as Corrupt. For KindOf, a missing file counts as Corrupt too.
func KindOf(err error) errs.Kind {
	var no syscall.Errno
	switch k := errs.KindOf(err); {
	case k == errs.Cancelled, k == errs.Permission, k == errs.NoMemory:
		return k
	case errors.Is(err, pebble.ErrCorruption), errors.Is(err, fs.ErrNotExist):
		return errs.Corrupt
	case errors.As(err, &no), layout.IsNoSpace(err), errors.Is(err, fs.ErrClosed):
		return k
	}
	return errs.Corrupt
}

// WrapRead returns the error of a failed read of the metadata. If the metadata is damaged, the error has kind
// Corrupt; Pebble's text names the file and the offset.
func WrapRead(name string, err error) error {
	if err == nil || errors.As(err, new(*errs.Error)) {
		return err
	}
	e := &errs.Error{Kind: KindOf(err), Op: "read metadata", Name: name, Err: err}
	if e.Kind == errs.Corrupt {
		e.Msg, e.Fix = "a file of the metadata is damaged", "stop the server; "+layout.MetaFix
	}
	return e
}

// OpenFix returns the advice for metadata that cannot be opened. For OpenFix, a full or failing disk does not count as
// damage. The parameter checked means that a check has already examined the metadata.
func OpenFix(err error, checked bool) string {
	switch {
	case layout.IsNoSpace(err):
		return "make room on the disk of the store; nothing was deleted"
	case KindOf(err) != errs.Corrupt:
		return "look at the disk and at the permissions of the store; nothing was deleted"
	}
	if checked {
		return layout.SaveFix + "; nothing was deleted"
	}
	return layout.MetaFix + "; nothing was deleted"
}
