// SPDX-License-Identifier: Apache-2.0

// Command capi is libnebulaio.so: the functions of include/nebulaio/nebulaio.h
// as shims over internal/abi. The header is included here, so a signature that
// differs from it does not compile. It is the only cgo of the project.
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
	"errors"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// table is the one piece of state a C ABI with plain functions needs.
var table abi.Table

func main() {}

// text is a C string that may be NULL.
func text(s *C.nebulaio_cchar) string {
	if s == nil {
		return ""
	}
	return C.GoString((*C.char)(unsafe.Pointer(s)))
}

// status writes the message of err to the caller's buffer and returns the code.
func status(err error, buf *C.char, capacity C.size_t) C.int32_t {
	if err == nil {
		return C.NEBULAIO_OK
	}
	if buf != nil && capacity > 0 {
		out := unsafe.Slice((*byte)(unsafe.Pointer(buf)), int(capacity))
		n := copy(out[:len(out)-1], err.Error())
		out[n] = 0
	}
	return C.int32_t(abi.Status(err))
}

// give copies text to the caller by the rules of the header.
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
	case buf == nil || int(capacity) <= len(b):
		return status(errs.New(errs.Invalid, "copy text", "", "the buffer is too small").WithFix("call with cap 0 to learn the length"), msg, msgCap)
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(buf)), int(capacity))
	out[copy(out, b)] = 0
	return C.NEBULAIO_OK
}

// handle gives a handle to the caller. Who has no place for it could never
// release it: it is released here.
func handle(h uint64, err error, out *C.uint64_t, msg *C.char, msgCap C.size_t) C.int32_t {
	if err == nil && out == nil {
		err = errors.Join(errs.New(errs.Invalid, "give a handle", "", "the place for it is NULL"), table.Release(h))
	}
	if err == nil {
		*out = C.uint64_t(h)
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
	h, e := table.OpenSystem(text(options))
	return handle(h, e, system, err, errcap)
}

//export nebulaio_devices
func nebulaio_devices(system C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char, errcap C.size_t) C.int32_t {
	b, e := table.Devices(uint64(system))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_model_open
func nebulaio_model_open(system C.uint64_t, path, options *C.nebulaio_cchar, model *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.OpenModel(uint64(system), text(path), text(options))
	return handle(h, e, model, err, errcap)
}

//export nebulaio_model_files
func nebulaio_model_files(model C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char, errcap C.size_t) C.int32_t {
	b, e := table.Files(uint64(model))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_model_describe
func nebulaio_model_describe(model C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char, errcap C.size_t) C.int32_t {
	b, e := table.Describe(uint64(model))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_load_start
func nebulaio_load_start(model C.uint64_t, dst *C.nebulaio_cbuffer, ndst C.size_t, stream C.uint64_t, options *C.nebulaio_cchar, load *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	var ds []nebulaio.Destination
	if ndst > mostStructs {
		return status(errs.New(errs.Invalid, "load", "", "the count of destinations is above 1048576").WithFix("give one per file of the model"), err, errcap)
	}
	if dst != nil {
		for _, d := range unsafe.Slice((*C.nebulaio_buffer)(unsafe.Pointer(dst)), int(ndst)) {
			ds = append(ds, nebulaio.Destination{Ptr: nebulaio.Ptr(d.address), Size: int64(d.size)})
		}
	}
	h, e := table.StartLoad(uint64(model), ds, uint64(stream), text(options))
	return handle(h, e, load, err, errcap)
}

//export nebulaio_wait
func nebulaio_wait(job C.uint64_t, timeout C.int32_t, progress *C.nebulaio_progress, err *C.char, errcap C.size_t) C.int32_t {
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
func nebulaio_report(job C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char, errcap C.size_t) C.int32_t {
	b, e := table.Report(uint64(job))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_release
func nebulaio_release(handle C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(table.Release(uint64(handle)), err, errcap)
}
