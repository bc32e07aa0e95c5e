// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
*/
import "C"

import (
	"fmt"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostStructs is more than any caller hands over. A count that was not filled in does not make us read what is not
// there.
const mostStructs = 1 << 20

// arguments checks what a C caller gives to one function and keeps the first thing that is wrong. Functions check all
// arguments before they do anything.
type arguments struct {
	op  string
	err error
}

func (a *arguments) refuse(what, why string) {
	if a.err == nil {
		a.err = errs.New(errs.Invalid, a.op, what, why)
	}
}

// path is text of any bytes, as paths of Linux are.
func (a *arguments) path(what string, s *C.nebulaio_cchar) string {
	if s == nil {
		a.refuse(what, "is NULL; expected text")
		return ""
	}
	return C.GoString((*C.char)(unsafe.Pointer(s)))
}

// text is UTF-8.
func (a *arguments) text(what string, s *C.nebulaio_cchar) string {
	out := a.path(what, s)
	if !utf8.ValidString(out) {
		a.refuse(what, "is "+strconv.Quote(out)+"; expected UTF-8")
	}
	return out
}

// optional is UTF-8, or "" for NULL.
func (a *arguments) optional(what string, s *C.nebulaio_cchar) string {
	if s == nil {
		return ""
	}
	return a.text(what, s)
}

// options is JSON, or "" for NULL. Options hold secrets: no error repeats them.
func (a *arguments) options(s *C.nebulaio_cchar) string {
	if s == nil {
		return ""
	}
	out := C.GoString((*C.char)(unsafe.Pointer(s)))
	if !utf8.ValidString(out) {
		a.refuse("options_json", "is not UTF-8")
	}
	return out
}

// result checks that there is a place for what the function gives.
func (a *arguments) result(what string, p unsafe.Pointer) {
	if p == nil {
		a.refuse(what, "is NULL; expected an address for the result")
	}
}

// array checks the length of an array before it is read.
func (a *arguments) array(what string, p unsafe.Pointer, count, most uint64) int {
	switch {
	case count > most:
		a.refuse(what, fmt.Sprintf("has a count of %d; expected at most %d", count, most))
	case p == nil && count > 0:
		a.refuse(what, fmt.Sprintf("is NULL and its count is %d; expected an array of that length", count))
	}
	if a.err != nil {
		return 0
	}
	return int(count)
}

// fits checks the size that a caller says its struct has. Later versions append fields, which an older caller lacks.
func (a *arguments) fits(said C.size_t, has uintptr) bool {
	if uintptr(said) != has && a.err == nil {
		a.err = errs.New(errs.Invalid, a.op, "struct_size", fmt.Sprintf("is %d; expected %d", uint64(said), has)).
			WithFix("set it to sizeof of the struct, of the header that the library was built with")
	}
	return a.err == nil
}

// address reads a pointer of the caller's as a number. It may be of a device, or no address at all: Go must never hold
// it as a pointer, because the collector looks at those.
func address(field unsafe.Pointer) nebulaio.Ptr { return nebulaio.Ptr(*(*uintptr)(field)) }
