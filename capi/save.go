// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
typedef const nebulaio_tensor nebulaio_ctensor;
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/nebulaio/nebulaio"
)

//export nebulaio_go_save_start
func nebulaio_go_save_start(system C.uint64_t, path *C.nebulaio_cchar, tensors *C.nebulaio_ctensor, count C.size_t,
	stream C.uint64_t, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "save"}
	p, o := a.path("path", path), a.options(options)
	a.result("job", unsafe.Pointer(job))
	all := make([]nebulaio.SaveTensor, a.array("tensors", unsafe.Pointer(tensors), uint64(count), mostStructs))
	given := unsafe.Slice((*C.nebulaio_tensor)(unsafe.Pointer(tensors)), len(all))
	a.op = "save tensor"
	for i := range given {
		t := &given[i]
		name := a.text("name", t.name)
		all[i] = nebulaio.SaveTensor{Name: name, DType: nebulaio.DType(a.text("dtype of "+name, t.dtype)),
			Device: a.text("device of "+name, t.device),
			Ptr:    address(unsafe.Pointer(&t.address)), Size: int64(t.size)}
		if t.rank > C.NEBULAIO_MAX_RANK {
			a.refuse(name, fmt.Sprintf("has a rank of %d; expected at most %d", uint64(t.rank), C.NEBULAIO_MAX_RANK))
		}
		rank := a.array("shape of "+name, unsafe.Pointer(t.shape), uint64(t.rank), C.NEBULAIO_MAX_RANK)
		all[i].Shape = append(all[i].Shape, unsafe.Slice((*int64)(unsafe.Pointer(t.shape)), rank)...)
		if a.err != nil {
			break
		}
	}
	if a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartSave(uint64(system), p, all, uint64(stream), o)
	return number(h, e, job, err, errcap)
}
