// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"

	"github.com/nebulaio/nebulaio/fault"
)

// Error is the type of every error of this package; errors.As finds an Error that another error wraps. errors.Is also
// matches an Error with Go's own errors: fs.ErrNotExist, fs.ErrPermission, fs.ErrExist, fs.ErrInvalid, fs.ErrClosed,
// context.Canceled, context.DeadlineExceeded, errors.ErrUnsupported, syscall.ENOSPC and syscall.ENOMEM.
type Error = fault.Error

// ErrorKind classifies errors by what the caller can do about them.
type ErrorKind = fault.Kind

// Kinds of errors that this package returns.
const (
	// KindOther means that no other kind fits: a defect in NebulaIO, or an unknown cause.
	KindOther = fault.Other
	// KindInvalid means that an argument or option is not valid. After an error of KindInvalid, a retry with the same
	// arguments fails again.
	KindInvalid = fault.Invalid
	// KindNotFound means that a file, object, tensor or device does not exist.
	KindNotFound = fault.NotFound
	// KindPermission means that access was denied.
	KindPermission = fault.Permission
	// KindCorrupt means that content does not match its format or its checksum.
	KindCorrupt = fault.Corrupt
	// KindIO means that a read or write failed or was short.
	KindIO = fault.IO
	// KindDevice means that a call into a device driver failed.
	KindDevice = fault.Device
	// KindNoMemory means that host or device memory is exhausted.
	KindNoMemory = fault.NoMemory
	// KindUnsupported means that this build, kernel, driver or device does not support the operation.
	KindUnsupported = fault.Unsupported
	// KindCancelled means that the caller's context was cancelled or its deadline expired.
	KindCancelled = fault.Cancelled
	// KindClosed means that the caller used something after its Close, Free, Commit or Abort.
	KindClosed = fault.Closed
)

// ErrorSentinel is a constant error that stands for one ErrorKind in errors.Is.
type ErrorSentinel = fault.Sentinel

// Sentinels for errors.Is, one for each ErrorKind. An error matches the sentinel of its own kind, and the sentinels of
// the kinds of its causes.
const (
	ErrOther       = fault.ErrOther
	ErrInvalid     = fault.ErrInvalid
	ErrNotFound    = fault.ErrNotFound
	ErrPermission  = fault.ErrPermission
	ErrCorrupt     = fault.ErrCorrupt
	ErrIO          = fault.ErrIO
	ErrDevice      = fault.ErrDevice
	ErrNoMemory    = fault.ErrNoMemory
	ErrUnsupported = fault.ErrUnsupported
	ErrCancelled   = fault.ErrCancelled
	ErrClosed      = fault.ErrClosed
)

// KindOf returns the kind of an error. A nil error has kind 0.
func KindOf(err error) ErrorKind { return fault.KindOf(err) }

// cancelled returns the error of a context that has ended. The error is always of kind Cancelled, even if the context
// has a cause of another kind.
func cancelled(ctx context.Context, op, name string) error {
	return &fault.Error{Kind: fault.Cancelled, Op: op, Name: name, Err: context.Cause(ctx)}
}
