// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo CFLAGS: -I${SRCDIR}/../include
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
*/
import "C"

import (
	"time"
	"unsafe"
)

//export nebulaio_model_select
func nebulaio_model_select(model C.uint64_t, options *C.nebulaio_cchar, selection *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "select tensors"}
	o := a.options(options)
	if a.result("selection", unsafe.Pointer(selection)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.SelectModel(uint64(model), o)
	return number(h, e, selection, err, errcap)
}

//export nebulaio_load_ready
func nebulaio_load_ready(job, known C.uint64_t, timeout C.int32_t, ready *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	n, running, e := table.LoadReady(uint64(job), uint64(known), time.Duration(timeout)*time.Millisecond)
	if ready != nil {
		*ready = C.uint64_t(n)
	}
	if running {
		return C.NEBULAIO_RUNNING
	}
	return status(e, err, errcap)
}

//export nebulaio_checksum_start
func nebulaio_checksum_start(model C.uint64_t, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "start checksums"}
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartChecksums(uint64(model))
	return number(h, e, job, err, errcap)
}
