// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"

	"github.com/nebulaio/nebulaio/fault"
)

// Error is the error that every function of this package returns, alone or wrapped. errors.As finds it. errors.Is also
// finds Go's own errors in it: fs.ErrNotExist, fs.ErrPermission, fs.ErrExist, fs.ErrInvalid, fs.ErrClosed,
// context.Canceled, context.DeadlineExceeded, errors.ErrUnsupported, syscall.ENOSPC and syscall.ENOMEM.
type Error = fault.Error

// ErrorKind classifies errors by what the caller can do about them.
type ErrorKind = fault.Kind

// The kinds of errors.
const (
	// KindOther is an error without a better kind: a defect, or an unknown cause.
	KindOther = fault.Other
	// KindInvalid is a bad argument or option. The same call fails again.
	KindInvalid = fault.Invalid
	// KindNotFound means that the file, object, tensor or device does not exist.
	KindNotFound = fault.NotFound
	// KindPermission means that access was denied.
	KindPermission = fault.Permission
	// KindCorrupt means that the content breaks its format or its checksum.
	KindCorrupt = fault.Corrupt
	// KindIO is a failed or short read or write.
	KindIO = fault.IO
	// KindDevice is a failed call into a device driver.
	KindDevice = fault.Device
	// KindNoMemory means that host or device memory is exhausted.
	KindNoMemory = fault.NoMemory
	// KindUnsupported means that this build, kernel, driver or device cannot do it.
	KindUnsupported = fault.Unsupported
	// KindCancelled means that the context ended.
	KindCancelled = fault.Cancelled
	// KindClosed means use after Close, Free, Commit or Abort.
	KindClosed = fault.Closed
)

// ErrorSentinel is a constant error that stands for a kind.
type ErrorSentinel = fault.Sentinel

// The sentinels, for errors.Is. An error matches the sentinel of its kind, and those of its causes.
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

// cancelled returns the error of a context that has ended. It is of kind Cancelled, whatever cause the caller gave.
func cancelled(ctx context.Context, op, name string) error {
	return &fault.Error{Kind: fault.Cancelled, Op: op, Name: name, Err: context.Cause(ctx)}
}
