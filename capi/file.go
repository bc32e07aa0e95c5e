// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo CFLAGS: -I${SRCDIR}/../include
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
*/
import "C"

import "github.com/nebulaio/nebulaio"

//export nebulaio_file_open
func nebulaio_file_open(system C.uint64_t, path, flags, options *C.nebulaio_cchar, file *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.OpenFile(uint64(system), text(path), text(flags), text(options))
	return handle(h, e, file, err, errcap)
}

//export nebulaio_file_size
func nebulaio_file_size(file C.uint64_t, size *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	n, e := table.FileSize(uint64(file))
	return handle(uint64(n), e, size, err, errcap)
}

//export nebulaio_file_read_start
func nebulaio_file_read_start(file, address, size, offset, stream C.uint64_t, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.StartMove(uint64(file), false, nebulaio.Ptr(address), uint64(size), uint64(offset), uint64(stream), text(options))
	return handle(h, e, job, err, errcap)
}

//export nebulaio_file_write_start
func nebulaio_file_write_start(file, address, size, offset, stream C.uint64_t, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.StartMove(uint64(file), true, nebulaio.Ptr(address), uint64(size), uint64(offset), uint64(stream), text(options))
	return handle(h, e, job, err, errcap)
}

//export nebulaio_file_sync
func nebulaio_file_sync(file C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(table.SyncFile(uint64(file)), err, errcap)
}
