// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo CFLAGS: -I${SRCDIR}/../include
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
*/
import "C"

import "time"

//export nebulaio_model_select
func nebulaio_model_select(model C.uint64_t, options *C.nebulaio_cchar, selection *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.SelectModel(uint64(model), text(options))
	return handle(h, e, selection, err, errcap)
}

//export nebulaio_load_ready
func nebulaio_load_ready(job, known C.uint64_t, timeout C.int32_t, ready *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
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
	h, e := table.StartChecksums(uint64(model))
	return handle(h, e, job, err, errcap)
}
