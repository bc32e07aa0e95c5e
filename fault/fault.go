// SPDX-License-Identifier: Apache-2.0

// Package fault defines the error type of NebulaIO. An error names the operation, its subject, the reason and the
// fix.
//
// Every [Error] has a [Kind]. The kind of an error decides the exit code of the command, the status code of the C
// library and the exception in Python. A kind is never removed, so that exit codes, status codes and exceptions keep
// their meaning. Package nebulaio also exports the names of package fault, so programs that import nebulaio do not
// need package fault.
package fault

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// Kind classifies an error by what the caller can do about it.
type Kind uint8

// Kinds of errors. The numbers of the kinds are also the status codes of the C library and never change; new kinds
// are appended.
const (
	// Other means that no other kind fits: a defect in NebulaIO, or an unknown cause.
	Other Kind = 1
	// Invalid means that an argument, flag or option is not valid. After an error of kind Invalid, a retry with the
	// same arguments fails again.
	Invalid Kind = 2
	// NotFound means that a file, object, tensor or device does not exist.
	NotFound Kind = 3
	// Permission means that the operating system or a server denied access.
	Permission Kind = 4
	// Corrupt means that content does not match its format or its checksum.
	Corrupt Kind = 5
	// IO means that a read or write failed or was short.
	IO Kind = 6
	// Device means that a call into a device driver failed.
	Device Kind = 7
	// NoMemory means that host or device memory is exhausted.
	NoMemory Kind = 8
	// Unsupported means that this build, kernel, driver or device does not support the operation.
	Unsupported Kind = 9
	// Cancelled means that the caller's context ended, or that the user interrupted the command.
	Cancelled Kind = 10
	// Closed means that the caller used something after its Close, Free, Commit or Abort.
	Closed Kind = 11
)

// Kinds returns every kind in the order of their numbers.
func Kinds() []Kind {
	return []Kind{Other, Invalid, NotFound, Permission, Corrupt, IO, Device, NoMemory, Unsupported, Cancelled, Closed}
}

// String returns the kind's stable, lower-case name.
func (k Kind) String() string {
	switch k {
	case Invalid:
		return "invalid"
	case NotFound:
		return "not found"
	case Permission:
		return "permission denied"
	case Corrupt:
		return "corrupt"
	case IO:
		return "i/o error"
	case Device:
		return "device error"
	case NoMemory:
		return "out of memory"
	case Unsupported:
		return "unsupported"
	case Cancelled:
		return "cancelled"
	case Closed:
		return "closed"
	default:
		return "error"
	}
}

// ExitCode returns the exit code of the command nebulaio for this kind: 1 for Other and Closed, 130 for Cancelled. For
// a kind other than Other, Closed and Cancelled, the exit code is the number of the kind.
func (k Kind) ExitCode() int {
	switch k {
	case Cancelled:
		return 130
	case Closed, Other:
		return 1
	default:
		return int(k)
	}
}

// Error is a failure with its operation, subject, reason and fix. errors.As finds an Error in every error that
// NebulaIO returns.
type Error struct {
	// Kind classifies the error. If Kind is 0, [KindOf] returns the kind of the cause.
	Kind Kind
	Op   string // the operation that failed, such as "load"
	Name string // the subject of the operation, such as a path, a tensor or a device; may be empty
	Msg  string // the reason of the failure, with the bad and the expected value; may be empty if Err has the reason
	Fix  string // what the user can do about the failure; may be empty
	Err  error  // the cause of the failure; may be nil
}

// Error returns the text "op name: msg: cause (fix: what to do)".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Name != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(e.Name)
	}
	for _, part := range []string{e.Msg, causeText(e.Err)} {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(part)
	}
	if e.Fix != "" {
		b.WriteString(" (fix: ")
		b.WriteString(e.Fix)
		b.WriteByte(')')
	}
	return b.String()
}

func causeText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Unwrap returns the cause of the error, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the [Sentinel] of the error's kind, or Go's own error for the kind. The errors of Go
// that Is accepts are fs.ErrNotExist (also for a missing object), fs.ErrPermission, fs.ErrInvalid, fs.ErrClosed,
// context.Canceled, errors.ErrUnsupported and syscall.ENOMEM. If a deadline expired, the error matches
// context.DeadlineExceeded, through its cause, and not context.Canceled.
func (e *Error) Is(target error) bool {
	if s, ok := target.(Sentinel); ok {
		return KindOf(e) == s.Kind()
	}
	switch e.Kind {
	case NotFound:
		return target == fs.ErrNotExist
	case Permission:
		return target == fs.ErrPermission
	case Invalid:
		return target == fs.ErrInvalid
	case Closed:
		return target == fs.ErrClosed
	case Cancelled:
		return target == context.Canceled && !errors.Is(e.Err, context.DeadlineExceeded)
	case Unsupported:
		return target == errors.ErrUnsupported
	case NoMemory:
		return target == syscall.ENOMEM
	}
	return false
}

// WithFix returns a copy of the error e that has the given fix.
func (e *Error) WithFix(fix string) *Error {
	c := *e
	c.Fix = fix
	return &c
}

// KindOf returns the kind of err. If err wraps several Errors, the outermost one with a kind decides. If no Error has
// a kind, KindOf looks for a known cause: a context error, a file system error or an errno. An error without a known
// cause is of kind Other, and a nil error has kind 0.
func KindOf(err error) Kind {
	if err == nil {
		return 0
	}
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if e.Kind != 0 {
			return e.Kind
		}
		if e.Err == nil {
			return Other
		}
	}
	var s Sentinel
	if errors.As(err, &s) {
		return s.Kind()
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Cancelled
	case errors.Is(err, fs.ErrNotExist):
		return NotFound
	case errors.Is(err, fs.ErrPermission):
		return Permission
	case errors.Is(err, syscall.ENOMEM):
		return NoMemory
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
		return Unsupported
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		return IO
	}
	return Other
}
