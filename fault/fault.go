// SPDX-License-Identifier: Apache-2.0

// Package fault defines the error that NebulaIO returns: what was attempted, on what, why it failed, and what to do.
//
// Every [Error] has a [Kind]. The kind decides the exit code of the command, the status code of the C library and the
// exception in Python, so the list of kinds only grows. Package nebulaio exports these names too; programs that import
// it do not need this package.
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

// The kinds. Their numbers are the status codes of the C library and never change; new kinds are appended.
const (
	// Other is an error without a better kind: a defect, or an unknown cause.
	Other Kind = 1
	// Invalid is a bad argument, flag or option. The same call fails again.
	Invalid Kind = 2
	// NotFound means that the file, object, tensor or device does not exist.
	NotFound Kind = 3
	// Permission means that the operating system denied access.
	Permission Kind = 4
	// Corrupt means that the content breaks its format or its checksum.
	Corrupt Kind = 5
	// IO is a failed or short read or write.
	IO Kind = 6
	// Device is a failed call into a device driver.
	Device Kind = 7
	// NoMemory means that host or device memory is exhausted.
	NoMemory Kind = 8
	// Unsupported means that this build, kernel, driver or device cannot do it.
	Unsupported Kind = 9
	// Cancelled means that the caller's context ended, or that the user interrupted.
	Cancelled Kind = 10
	// Closed means use after Close, Free, Commit or Abort.
	Closed Kind = 11
)

// Kinds returns every kind in order.
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

// ExitCode returns the exit code of the command nebulaio for this kind: 1 other or closed, 2 invalid, 3 not found,
// 4 permission, 5 corrupt, 6 I/O, 7 device, 8 memory, 9 unsupported, 130 cancelled.
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

// Error is a failure: the operation, its subject, the reason and the fix. errors.As finds it in every error that
// NebulaIO returns.
type Error struct {
	// Kind classifies the error. If it is 0, [KindOf] takes the kind of the cause.
	Kind Kind
	Op   string // the operation, such as "load"
	Name string // its subject: a path, a tensor or a device; may be empty
	Msg  string // the reason, with the offending value and the expected form; may be empty if Err says it
	Fix  string // what the user can do; may be empty
	Err  error  // the cause; may be nil
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

// Unwrap returns the cause, so that errors.Is and errors.As see through.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the [Sentinel] of the error's kind and Go's own error for that kind: fs.ErrNotExist (for a key as for a
// file), fs.ErrPermission, fs.ErrInvalid, fs.ErrClosed, context.Canceled, errors.ErrUnsupported and syscall.ENOMEM. An
// expired deadline matches context.DeadlineExceeded, by its cause, and not context.Canceled.
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

// WithFix returns a copy of e with that fix.
func (e *Error) WithFix(fix string) *Error {
	c := *e
	c.Fix = fix
	return &c
}

// KindOf returns the kind of err. The outermost Error with a kind decides, then a context, file system or errno cause.
// Anything else is Other, and a nil error has kind 0.
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
