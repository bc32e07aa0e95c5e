// SPDX-License-Identifier: Apache-2.0

// Package errs defines the error type of this project: what was attempted, on
// what, why it failed, and what to do about it.
//
// Every error that leaves a package carries a Kind. The kind decides the exit
// code of the command, the status code of the C ABI and the exception type in
// Python, so the list is append-only.
package errs

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
)

// Kind classifies an error by what the caller can do about it.
type Kind uint8

// The kinds. Their numeric values are the status codes of the C ABI and must
// never change; new kinds are appended.
const (
	// Other is an error without a better kind: a defect, or a cause unknown to us.
	Other Kind = 1
	// Invalid is a bad argument, flag or option; calling again unchanged fails again.
	Invalid Kind = 2
	// NotFound means that the named file, tensor or device does not exist.
	NotFound Kind = 3
	// Permission means that the operating system denied access.
	Permission Kind = 4
	// Corrupt means that the content breaks its format or its checksum.
	Corrupt Kind = 5
	// IO is a failed or short read or write.
	IO Kind = 6
	// Device is a failed call into a device driver.
	Device Kind = 7
	// NoMemory means that there is not enough host or device memory.
	NoMemory Kind = 8
	// Unsupported means that this build, kernel, driver or device cannot do it.
	Unsupported Kind = 9
	// Cancelled means that the caller's context ended or the user interrupted.
	Cancelled Kind = 10
	// Closed means that the handle was used after it was closed.
	Closed Kind = 11
)

// Kinds lists every kind in order; bindings and tables are tested against it.
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

// ExitCode returns the process exit code for an error of this kind. The codes are
// documented in the README: 1 other, 2 invalid, 3 not found, 4 permission,
// 5 corrupt, 6 I/O, 7 device, 8 memory, 9 unsupported, 130 cancelled.
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

// Error is a failure with its operation, its object, its cause and its fix. A zero
// Kind means the kind of the cause, or else Other.
type Error struct {
	Kind Kind
	Op   string // what was attempted: "load", "parse safetensors header"
	Name string // on what: a path, a tensor, a device; may be empty
	Msg  string // what is wrong, with the offending value and the expected form
	Fix  string // what the user can do; may be empty
	Err  error  // the cause; may be nil
}

// Error returns one line: op name: msg: cause (fix).
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

// MessageOf returns the text of err without its fixes, also without those of its causes. FixOf has the fix. Joined
// errors become one line.
func MessageOf(err error) string {
	switch e := err.(type) {
	case *Error:
		c := *e
		c.Fix = ""
		if c.Err != nil {
			c.Err = errors.New(MessageOf(c.Err))
		}
		return c.Error()
	case interface{ Unwrap() []error }:
		text := err.Error()
		for _, inner := range e.Unwrap() {
			text = strings.Replace(text, inner.Error(), MessageOf(inner), 1)
		}
		return strings.ReplaceAll(text, "\n", "; ") // joined errors are lines
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return strings.Replace(err.Error(), inner.Error(), MessageOf(inner), 1)
		}
	}
	return err.Error()
}

// Unwrap returns the cause, so that errors.Is and errors.As see through.
func (e *Error) Unwrap() error { return e.Err }

// Is lets errors.Is match Go's own error for the kind, whatever the cause: fs.ErrNotExist, fs.ErrPermission,
// fs.ErrInvalid, fs.ErrClosed, context.Canceled, errors.ErrUnsupported and syscall.ENOMEM. An expired deadline matches
// context.DeadlineExceeded, by its cause, and not context.Canceled.
func (e *Error) Is(target error) bool {
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

// New returns an error of kind k; msg states what is wrong with value and expectation.
func New(k Kind, op, name, msg string) *Error {
	return &Error{Kind: k, Op: op, Name: name, Msg: msg}
}

// Wrap returns an error around cause with the kind that KindOf finds in it.
// It returns nil for a nil cause.
func Wrap(op, name string, cause error) error {
	if cause == nil {
		return nil
	}
	return &Error{Kind: KindOf(cause), Op: op, Name: name, Err: cause, Fix: Remedy(cause)}
}

// Remedy returns the fix for a cause that has the same fix everywhere, or "".
func Remedy(cause error) string {
	if (errors.Is(cause, syscall.EMFILE) || errors.Is(cause, syscall.ENFILE)) && FixOf(cause) == "" {
		return "close files, or raise the limit of open files (ulimit -n)"
	}
	return ""
}

// WithFix returns a copy of e that also says what to do.
func (e *Error) WithFix(fix string) *Error {
	c := *e
	c.Fix = fix
	return &c
}

// KindOf finds the kind of err: the outermost Error's own, else the meaning of
// a context, file-system or errno cause, else Other. A nil error has kind 0.
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

// Is reports whether err is of kind k.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// FixOf returns the first fix in the chain of err, or "".
func FixOf(err error) string {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if e.Fix != "" {
			return e.Fix
		}
		if e.Err == nil {
			return ""
		}
	}
	return ""
}
