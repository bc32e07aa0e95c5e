// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

func refusal(k errs.Kind, code, msg, fix string) *wire.Error {
	return &wire.Error{Kind: uint8(k), Code: code, Message: cut(msg, wire.MaxText), Fix: cut(fix, wire.MaxText)}
}

func draining() *wire.Error {
	return refusal(errs.Closed, wire.CodeDraining, "the server is stopping",
		"connect again when it is back, or use its S3 endpoint")
}

func badMessage(format string, args ...any) *wire.Error {
	return refusal(errs.Invalid, wire.CodeBadMessage, fmt.Sprintf(format, args...),
		"use a client of this protocol's version: docs/gpudirect-protocol.md")
}

func invalid(code, fix, format string, args ...any) *wire.Error {
	return refusal(errs.Invalid, code, fmt.Sprintf(format, args...), fix)
}

// codes maps the errors of stores to codes and fixes, specific errors first.
var codes = []struct {
	err       error
	code, fix string
}{
	{object.ErrNoSuchBucket, wire.CodeNoSuchBucket, "make the bucket, or correct its name"},
	{object.ErrNoSuchKey, wire.CodeNoSuchKey, "correct the key: a listing of the bucket shows those that there are"},
	{object.ErrNoSuchVersion, wire.CodeNoSuchVersion, "leave the version out, or name one that a listing shows"},
	{object.ErrIsMarker, wire.CodeDeleteMarker, "name a version that has content"},
	{object.ErrPrecondition, wire.CodePreconditionFailed, "look at the object again: it is not the one that was expected"},
	{object.ErrWriterLeft, wire.CodeWriterLeft, "close every descriptor and mapping of the file, then commit again"},
	{object.ErrInvalidSums, wire.CodeBadSums, "send one CRC-64/NVME for each MiB of the content, and that of the whole"},
	{object.ErrTooLarge, wire.CodeTooLarge, "write a smaller object"},
	{object.ErrInvalidRange, wire.CodeInvalidRange, "ask for a range within the object"},
	{object.ErrInvalidName, wire.CodeInvalidName, "use a key of 1 to 1024 bytes of UTF-8"},
	{object.ErrNoSpace, wire.CodeNoSpace, "make room on the store's file system"},
	{object.ErrDamaged, wire.CodeDamaged, "restore the object from a copy; nebulaio store scrub names all that is " +
		"damaged"},
	{object.ErrNotCached, wire.CodeNotCached, "read it over HTTP once: the server then keeps it on its disk"},
	{object.ErrEncrypted, wire.CodeEncrypted, "read it over HTTP, where the server decrypts it"},
	{object.ErrReadOnly, wire.CodeReadOnly, "look at the server's log for why, then restart it"},
	{object.ErrBusy, wire.CodeBusy, "ask again"},
	{object.ErrClosed, wire.CodeDraining, "connect again when the server is back"},
	{syscall.EMFILE, wire.CodeTooManyFiles, "raise the server's limit of open files (LimitNOFILE=)"},
	{syscall.ENFILE, wire.CodeTooManyFiles, "raise the system's limit of open files (fs.file-max)"},
	{syscall.ENOSPC, wire.CodeNoSpace, "make room on the store's file system"},
}

// failure makes the answer to a request that failed with err.
func failure(err error) *wire.Error {
	kind, code, fix := errs.KindOf(err), "", errs.FixOf(err)
	for i := range codes {
		if errors.Is(err, codes[i].err) {
			code = codes[i].code
			if fix == "" {
				fix = codes[i].fix
			}
			break
		}
	}
	if code == "" {
		other := ofKind(kind)
		code = other.code
		if fix == "" {
			fix = other.fix
		}
	}
	return refusal(kind, code, text(err), fix)
}

// denied makes the answer to a request that the authorizer refused. Permission errors of the store's own files go to
// failure instead.
func denied(err error) *wire.Error {
	e := failure(err)
	if e.Code == wire.CodeInternal && errs.Is(err, errs.Permission) {
		e.Code = wire.CodeAccessDenied
		if e.Fix = errs.FixOf(err); e.Fix == "" {
			e.Fix = "let the bucket's owner allow it by policy, or use another access key"
		}
	}
	return e
}

// ofKind returns the code and the fix for an error that is not in codes.
func ofKind(k errs.Kind) (out struct{ code, fix string }) {
	switch k {
	case errs.Unsupported:
		out.code, out.fix = wire.CodeUnsupported, "use the S3 endpoint"
	case errs.NotFound:
		out.code, out.fix = wire.CodeNoSuchKey, "correct the name"
	case errs.Invalid:
		out.code, out.fix = wire.CodeInvalidArgument, "correct the request"
	case errs.Corrupt:
		out.code, out.fix = wire.CodeDamaged, "restore the object from a copy; nebulaio store scrub names all that is damaged"
	case errs.Cancelled, errs.Closed:
		out.code, out.fix = wire.CodeDraining, "connect again when the server is back"
	default:
		out.code, out.fix = wire.CodeInternal, "the server's log says more"
	}
	return out
}

// text returns the error's text without its fix, which is a field of its own.
func text(err error) string {
	var e *errs.Error
	if errors.As(err, &e) && e.Fix != "" {
		c := *e
		c.Fix = ""
		return c.Error()
	}
	return err.Error()
}

// cut shortens a text to at most most bytes, between characters.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return strings.Clone(s[:most])
}
