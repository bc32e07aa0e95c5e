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

// mostStructs is the largest accepted length of an array. It protects against a count that was not initialised.
const mostStructs = 1 << 20

// arguments checks the arguments of one call and keeps the first error. Functions check all arguments before they do
// anything.
type arguments struct {
	op  string
	err error
}

func (a *arguments) refuse(what, why string) {
	if a.err == nil {
		a.err = errs.New(errs.Invalid, a.op, what, why)
	}
}

// path reads a path, which may have any bytes.
func (a *arguments) path(what string, s *C.nebulaio_cchar) string {
	if s == nil {
		a.refuse(what, "is NULL; expected text")
		return ""
	}
	return C.GoString((*C.char)(unsafe.Pointer(s)))
}

// text reads a text, which must be UTF-8.
func (a *arguments) text(what string, s *C.nebulaio_cchar) string {
	out := a.path(what, s)
	if !utf8.ValidString(out) {
		a.refuse(what, "is "+strconv.Quote(out)+"; expected UTF-8")
	}
	return out
}

// optional reads a text, which must be UTF-8. NULL means "".
func (a *arguments) optional(what string, s *C.nebulaio_cchar) string {
	if s == nil {
		return ""
	}
	return a.text(what, s)
}

// options reads the JSON options. NULL means "". Errors do not repeat the options, which may hold secrets.
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

// result checks that the pointer to an output is not NULL.
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

// fits checks struct_size of a caller's struct. Later versions append fields, which older callers lack.
func (a *arguments) fits(said C.size_t, has uintptr) bool {
	if uintptr(said) != has && a.err == nil {
		a.err = errs.New(errs.Invalid, a.op, "struct_size", fmt.Sprintf("is %d; expected %d", uint64(said), has)).
			WithFix("set it to sizeof of the struct, of the header that the library was built with")
	}
	return a.err == nil
}

// address reads a pointer of the caller as a number. The pointer may be a device address or invalid, so Go must never
// hold it as a pointer, which the garbage collector would follow.
func address(field unsafe.Pointer) nebulaio.Ptr { return nebulaio.Ptr(*(*uintptr)(field)) }
