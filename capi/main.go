// SPDX-License-Identifier: Apache-2.0

// Command capi builds libnebulaio.so, the C library of include/nebulaio/nebulaio.h. The C functions in capi convert
// their arguments and call package internal/abi. Since capi includes the header, a C function with a wrong signature
// does not compile. Only capi uses cgo in this project.
package main

/*
#cgo CFLAGS: -I${SRCDIR}/../include
#include <string.h>
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
typedef const nebulaio_buffer nebulaio_cbuffer;
*/
import "C"

import (
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// table holds the handles, the only state of the C library.
var table abi.Table

func main() {}

// status writes the message of err to the caller's buffer and returns the status code. A message that is too long is
// cut between characters.
func status(err error, buf *C.char, capacity C.size_t) C.int32_t {
	if err == nil {
		return C.NEBULAIO_OK
	}
	if buf != nil && capacity > 0 {
		msg := err.Error()
		n := int(min(uint64(len(msg)), uint64(capacity)-1))
		for n < len(msg) && n > 0 && !utf8.RuneStart(msg[n]) {
			n--
		}
		out := unsafe.Slice((*byte)(unsafe.Pointer(buf)), n+1)
		out[copy(out[:n], msg)] = 0
	}
	return C.int32_t(abi.Status(err))
}

// give copies a text result to the caller, by the rules in the header.
func give(b []byte, err error, buf *C.char, capacity C.size_t, need *C.size_t, msg *C.char, msgCap C.size_t) C.int32_t {
	if err != nil {
		return status(err, msg, msgCap)
	}
	if need != nil {
		*need = C.size_t(len(b))
	}
	switch {
	case capacity == 0:
		return C.NEBULAIO_OK
	case buf == nil:
		return status(errs.New(errs.Invalid, "copy text", "", "the buffer is NULL and its capacity is not 0"), msg, msgCap)
	case uint64(capacity) <= uint64(len(b)):
		return status(errs.New(errs.Invalid, "copy text", "",
			"the buffer is too small").WithFix("call with cap 0 to learn the length"), msg, msgCap)
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(buf)), len(b)+1)
	out[copy(out, b)] = 0
	return C.NEBULAIO_OK
}

// number stores a handle or a size in *out, which arguments.result has checked.
func number(n uint64, err error, out *C.uint64_t, msg *C.char, msgCap C.size_t) C.int32_t {
	if err == nil {
		*out = C.uint64_t(n)
	}
	return status(err, msg, msgCap)
}

//export nebulaio_abi_version
func nebulaio_abi_version() C.int32_t { return abi.Version }

//export nebulaio_version
func nebulaio_version(buf *C.char, capacity C.size_t, need *C.size_t) C.int32_t {
	return give([]byte(nebulaio.Version()), nil, buf, capacity, need, nil, 0)
}

//export nebulaio_system_open
func nebulaio_system_open(options *C.nebulaio_cchar, system *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "open system"}
	o := a.options(options)
	if a.result("system", unsafe.Pointer(system)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.OpenSystem(o)
	return number(h, e, system, err, errcap)
}

//export nebulaio_devices
func nebulaio_devices(system C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char,
	errcap C.size_t) C.int32_t {
	b, e := table.Devices(uint64(system))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_model_open
func nebulaio_model_open(system C.uint64_t, path, options *C.nebulaio_cchar, model *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "open model"}
	p, o := a.path("path", path), a.options(options)
	if a.result("model", unsafe.Pointer(model)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.OpenModel(uint64(system), p, o)
	return number(h, e, model, err, errcap)
}

//export nebulaio_model_files
func nebulaio_model_files(model C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char,
	errcap C.size_t) C.int32_t {
	b, e := table.Files(uint64(model))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_model_describe
func nebulaio_model_describe(model C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char,
	errcap C.size_t) C.int32_t {
	b, e := table.Describe(uint64(model))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_go_load_start
func nebulaio_go_load_start(model C.uint64_t, dst *C.nebulaio_cbuffer, ndst C.size_t, stream C.uint64_t,
	options *C.nebulaio_cchar, load *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "load"}
	o := a.options(options)
	a.result("load", unsafe.Pointer(load))
	all := make([]nebulaio.Destination, a.array("dst", unsafe.Pointer(dst), uint64(ndst), mostStructs))
	if a.err != nil {
		return status(a.err, err, errcap)
	}
	given := unsafe.Slice((*C.nebulaio_buffer)(unsafe.Pointer(dst)), len(all))
	for i := range given {
		d := &given[i]
		all[i] = nebulaio.Destination{Ptr: address(unsafe.Pointer(&d.address)), Size: int64(d.size)}
	}
	h, e := table.StartLoad(uint64(model), all, uint64(stream), o)
	return number(h, e, load, err, errcap)
}

//export nebulaio_wait
func nebulaio_wait(job C.uint64_t, timeout C.int32_t, progress *C.nebulaio_progress, err *C.char,
	errcap C.size_t) C.int32_t {
	running, done, total, e := table.Wait(uint64(job), time.Duration(timeout)*time.Millisecond)
	if progress != nil {
		progress.bytes_done, progress.bytes_total = C.uint64_t(done), C.uint64_t(total)
	}
	if running {
		return C.NEBULAIO_RUNNING
	}
	return status(e, err, errcap)
}

//export nebulaio_cancel
func nebulaio_cancel(job C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(table.Cancel(uint64(job)), err, errcap)
}

//export nebulaio_report
func nebulaio_report(job C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char,
	errcap C.size_t) C.int32_t {
	b, e := table.Report(uint64(job))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_release
func nebulaio_release(handle C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(table.Release(uint64(handle)), err, errcap)
}
