// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo CFLAGS: -I${SRCDIR}/../include
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
typedef const char *const nebulaio_ctext;
typedef const int64_t nebulaio_cint64;
*/
import "C"

import (
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/abi"
)

// feeds returns the functions of training data.
func feeds() abi.Feeds { return abi.Feeds{Table: &table} }

//export nebulaio_data_open_start
func nebulaio_data_open_start(system C.uint64_t, sources *C.nebulaio_ctext, count C.size_t, options *C.nebulaio_cchar,
	data *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "open data set"}
	o := a.options(options)
	a.result("data", unsafe.Pointer(data))
	given := unsafe.Slice((**C.nebulaio_cchar)(unsafe.Pointer(sources)),
		a.array("sources", unsafe.Pointer(sources), uint64(count), mostStructs))
	all := make([]string, len(given))
	for i, source := range given {
		all[i] = a.path("source", source)
	}
	if a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := feeds().StartData(uint64(system), all, o)
	return number(h, e, data, err, errcap)
}

//export nebulaio_data_sample
func nebulaio_data_sample(data, sample C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char,
	errcap C.size_t) C.int32_t {
	b, e := feeds().Sample(uint64(data), uint64(sample))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_data_keys
func nebulaio_data_keys(data C.uint64_t, samples *C.nebulaio_cint64, count C.size_t, buf *C.char, capacity C.size_t,
	need *C.size_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "find keys"}
	const most = 1 << 24 // the most samples of a batch
	n := a.array("samples", unsafe.Pointer(samples), uint64(count), most)
	if a.err != nil {
		return status(a.err, err, errcap)
	}
	b, e := feeds().Keys(uint64(data), unsafe.Slice((*int64)(unsafe.Pointer(samples)), n))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_data_read_start
func nebulaio_data_read_start(data, sample C.uint64_t, column *C.nebulaio_cchar, job *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "read sample"}
	c := a.text("column", column)
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := feeds().StartSampleRead(uint64(data), uint64(sample), c)
	return number(h, e, job, err, errcap)
}

//export nebulaio_loader_open
func nebulaio_loader_open(data C.uint64_t, options *C.nebulaio_cchar, loader *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "open loader"}
	o := a.options(options)
	if a.result("loader", unsafe.Pointer(loader)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := feeds().OpenLoader(uint64(data), o)
	return number(h, e, loader, err, errcap)
}

//export nebulaio_loader_describe
func nebulaio_loader_describe(loader C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char,
	errcap C.size_t) C.int32_t {
	b, e := feeds().DescribeLoader(uint64(loader))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_loader_next
func nebulaio_loader_next(loader C.uint64_t, timeout C.int32_t, out *C.nebulaio_batch, batch *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "wait for batch"} // checked first, because a batch that was taken would be lost
	if a.result("out", unsafe.Pointer(out)); out != nil {
		a.fits(out.struct_size, unsafe.Sizeof(*out))
	}
	if a.result("batch", unsafe.Pointer(batch)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, b, running, e := feeds().Next(uint64(loader), time.Duration(timeout)*time.Millisecond)
	if running {
		return C.NEBULAIO_RUNNING
	}
	if b != nil {
		// Samples and Columns are pinned until the batch is released.
		*out = C.nebulaio_batch{struct_size: out.struct_size, count: C.uint64_t(len(b.Samples)),
			samples:  (*C.nebulaio_cint64)(unsafe.Pointer(unsafe.SliceData(b.Samples))),
			columns:  (*C.nebulaio_batch_column)(unsafe.Pointer(unsafe.SliceData(b.Columns))),
			ncolumns: C.uint64_t(len(b.Columns)), epoch: C.int64_t(b.Epoch), next_epoch: C.int64_t(b.State.Epoch),
			next_position: C.int64_t(b.State.Position)}
		if b.Last {
			out.last = 1
		}
	}
	return number(h, e, batch, err, errcap)
}

//export nebulaio_loader_report
func nebulaio_loader_report(loader C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char,
	errcap C.size_t) C.int32_t {
	b, e := feeds().LoaderReport(uint64(loader))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_batch_state
func nebulaio_batch_state(batch C.uint64_t, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char,
	errcap C.size_t) C.int32_t {
	b, e := feeds().BatchState(uint64(batch))
	return give(b, e, buf, capacity, need, err, errcap)
}

//export nebulaio_go_batch_free
func nebulaio_go_batch_free(batch, stream C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(feeds().FreeBatch(uint64(batch), uint64(stream)), err, errcap)
}
