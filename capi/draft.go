// SPDX-License-Identifier: Apache-2.0

package main

// #include "nebulaio/nebulaio.h"
// typedef const char nebulaio_cchar;
import "C"

import (
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/abi"
)

// lend stores the descriptors of a draft in out.
func lend(out *C.nebulaio_descriptors, d *nebulaio.ObjectDraft, e error) {
	if e == nil {
		out.buffered, out.direct, out.size = C.int32_t(d.Buffered()), C.int32_t(d.Direct()), C.uint64_t(d.Size())
	}
}

//export nebulaio_object_edit
func nebulaio_object_edit(object C.uint64_t, options *C.nebulaio_cchar, out *C.nebulaio_descriptors,
	draft *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "edit object"}
	o := a.options(options)
	a.room(out)
	if a.result("draft", unsafe.Pointer(draft)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, d, e := abi.EditObject(&table, uint64(object), o)
	lend(out, d, e)
	return number(h, e, draft, err, errcap)
}

//export nebulaio_object_draft
func nebulaio_object_draft(client C.uint64_t, bucket, key, mode, options *C.nebulaio_cchar,
	out *C.nebulaio_descriptors, draft *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "open draft"}
	b, k, m, o := a.text("bucket", bucket), a.text("key", key), a.text("mode", mode), a.options(options)
	a.room(out)
	if a.result("draft", unsafe.Pointer(draft)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, d, e := abi.DraftObject(&table, uint64(client), b, k, m, o)
	lend(out, d, e)
	return number(h, e, draft, err, errcap)
}

//export nebulaio_object_extend
func nebulaio_object_extend(draft, size C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(abi.ExtendObject(&table, uint64(draft), uint64(size)), err, errcap)
}

//export nebulaio_object_wrote
func nebulaio_object_wrote(draft, offset, size C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(abi.NoteWrite(&table, uint64(draft), uint64(offset), uint64(size)), err, errcap)
}
