// SPDX-License-Identifier: Apache-2.0

// Package errs makes errors of package fault and returns their texts and fixes.
package errs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/nebulaio/nebulaio/fault"
)

// Types of package fault, under shorter names.
type (
	// Error is a failure with its operation, subject, reason and fix.
	Error = fault.Error
	// Kind classifies an error by what the caller can do about it.
	Kind = fault.Kind
)

// Kinds of errors, as documented in package fault.
const (
	Other       = fault.Other
	Invalid     = fault.Invalid
	NotFound    = fault.NotFound
	Permission  = fault.Permission
	Corrupt     = fault.Corrupt
	IO          = fault.IO
	Device      = fault.Device
	NoMemory    = fault.NoMemory
	Unsupported = fault.Unsupported
	Cancelled   = fault.Cancelled
	Closed      = fault.Closed
)

// Kinds returns every kind in the order of their numbers. Tests compare the C and Python bindings with the result of
// Kinds.
func Kinds() []Kind { return fault.Kinds() }

// KindOf returns the kind of err; see fault.KindOf.
func KindOf(err error) Kind { return fault.KindOf(err) }

// New returns an error of kind k. The parameter op is the operation that failed, `name` is its subject, and msg is the
// reason with the bad and the expected value.
func New(k Kind, op, name, msg string) *Error {
	return &Error{Kind: k, Op: op, Name: name, Msg: msg}
}

// Wrap returns an error around cause, of the same kind as cause. If cause is nil, Wrap returns nil.
func Wrap(op, name string, cause error) error {
	if cause == nil {
		return nil
	}
	return &Error{Kind: KindOf(cause), Op: op, Name: name, Err: cause, Fix: Remedy(cause)}
}

// WithoutPath returns the cause of a file-system error of package os, which repeats the path, and any other error
// unchanged.
func WithoutPath(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// Remedy returns the fix for causes that have the same fix everywhere, such as too many open files. Remedy returns ""
// for any other cause, and if cause already has a fix.
func Remedy(cause error) string {
	if (errors.Is(cause, syscall.EMFILE) || errors.Is(cause, syscall.ENFILE)) && FixOf(cause) == "" {
		return "close files, or raise the limit of open files (ulimit -n)"
	}
	return ""
}

// Is reports whether err is an error of kind k; for a nil err, Is returns false.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// FixOf returns the first fix in err and its causes, or "" if there is none.
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

// MessageOf returns the text of err without the fixes of err and its causes. Use FixOf to get the fix of an error. The
// texts of joined errors are put on one line.
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
