// SPDX-License-Identifier: Apache-2.0

package main

// #include "nebulaio/nebulaio.h"
// typedef const char nebulaio_cchar;
import "C"

import "unsafe"

//export nebulaio_model_count
func nebulaio_model_count(model C.uint64_t, files, tensors *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	f, n, e := table.Count(uint64(model))
	if e == nil && files != nil {
		*files = C.uint64_t(f)
	}
	if e == nil && tensors != nil {
		*tensors = C.uint64_t(n)
	}
	return status(e, err, errcap)
}

//export nebulaio_model_destination
func nebulaio_model_destination(model, file C.uint64_t, out *C.nebulaio_destination, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "describe destination"}
	if a.result("out", unsafe.Pointer(out)); a.err != nil {
		return status(a.err, err, errcap)
	}
	f, e := table.File(uint64(model), uint64(file))
	if e == nil {
		*out = C.nebulaio_destination{size: C.uint64_t(f.DestSize), align: C.uint64_t(f.DestAlign),
			file_size: C.uint64_t(f.Size)}
	}
	return status(e, err, errcap)
}

//export nebulaio_model_tensor
func nebulaio_model_tensor(model, index C.uint64_t, out *C.nebulaio_place, name *C.char, capacity C.size_t,
	need *C.size_t, err *C.char, errcap C.size_t) C.int32_t {
	t, e := table.Tensor(uint64(model), uint64(index))
	if e == nil && out != nil {
		*out = C.nebulaio_place{file: C.uint64_t(t.File), offset: C.uint64_t(t.Offset), size: C.uint64_t(t.Size),
			rank: C.uint32_t(len(t.Shape))}
		for i, d := range t.Shape[:min(len(t.Shape), len(out.shape))] {
			out.shape[i] = C.int64_t(d)
		}
		for i := range min(len(t.DType), len(out.dtype)-1) {
			out.dtype[i] = C.char(t.DType[i])
		}
	}
	return give([]byte(t.Name), e, name, capacity, need, err, errcap)
}

//export nebulaio_model_find
func nebulaio_model_find(model C.uint64_t, name *C.nebulaio_cchar, index *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "find tensor"}
	n := a.text("name", name)
	if a.result("index", unsafe.Pointer(index)); a.err != nil {
		return status(a.err, err, errcap)
	}
	i, e := table.Find(uint64(model), n)
	return number(uint64(i), e, index, err, errcap)
}
