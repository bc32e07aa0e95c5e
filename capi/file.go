// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo CFLAGS: -I${SRCDIR}/../include
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
*/
import "C"

import (
	"unsafe"

	"github.com/nebulaio/nebulaio"
)

//export nebulaio_file_open
func nebulaio_file_open(system C.uint64_t, path, flags, options *C.nebulaio_cchar, file *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "open file"}
	p, f, o := a.path("path", path), a.text("flags", flags), a.options(options)
	if a.result("file", unsafe.Pointer(file)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.OpenFile(uint64(system), p, f, o)
	return number(h, e, file, err, errcap)
}

//export nebulaio_file_size
func nebulaio_file_size(file C.uint64_t, size *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "look at file"}
	if a.result("size", unsafe.Pointer(size)); a.err != nil {
		return status(a.err, err, errcap)
	}
	n, e := table.FileSize(uint64(file))
	return number(uint64(n), e, size, err, errcap)
}

//export nebulaio_go_file_start
func nebulaio_go_file_start(file C.uint64_t, write C.int32_t, address, size, offset, stream C.uint64_t,
	options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "read file"}
	if write != 0 {
		a.op = "write file"
	}
	o := a.options(options)
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartMove(uint64(file), write != 0, nebulaio.Ptr(address), uint64(size), uint64(offset), uint64(stream),
		o)
	return number(h, e, job, err, errcap)
}

//export nebulaio_file_sync
func nebulaio_file_sync(file C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(table.SyncFile(uint64(file)), err, errcap)
}
