// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
typedef const nebulaio_tensor nebulaio_ctensor;
*/
import "C"

import (
	"strconv"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// maxRank is more dimensions than any tensor may have; a rank that was not
// filled in does not make us read what is not there.
const maxRank = 64

// mostStructs is more than any caller hands over; a length that was not filled
// in does not make us read what is not there.
const mostStructs = 1 << 20

//export nebulaio_save_start
func nebulaio_save_start(system C.uint64_t, path *C.nebulaio_cchar, tensors *C.nebulaio_ctensor, count C.size_t, stream C.uint64_t, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	var all []nebulaio.SaveTensor
	if tensors == nil && count > 0 {
		return status(errs.New(errs.Invalid, "save", text(path), "the tensors are NULL and their count is "+strconv.FormatUint(uint64(count), 10)+"; expected an array of that length"), err, errcap)
	}
	if count > mostStructs {
		return status(errs.New(errs.Invalid, "save", text(path), "the count of tensors is "+strconv.FormatUint(uint64(count), 10)+"; expected at most 1048576"), err, errcap)
	}
	if tensors != nil {
		for _, t := range unsafe.Slice((*C.nebulaio_tensor)(unsafe.Pointer(tensors)), int(count)) {
			name := text(t.name)
			if t.rank > maxRank || (t.rank > 0 && t.shape == nil) {
				return status(errs.New(errs.Invalid, "save tensor", name, "has a rank above 64 or no shape"), err, errcap)
			}
			tensor := nebulaio.SaveTensor{Name: name, DType: nebulaio.DType(text(t.dtype)), Device: text(t.device), Ptr: nebulaio.Ptr(t.address), Size: int64(t.size)}
			if t.rank > 0 {
				for _, n := range unsafe.Slice((*int64)(unsafe.Pointer(t.shape)), int(t.rank)) {
					tensor.Shape = append(tensor.Shape, n)
				}
			}
			all = append(all, tensor)
		}
	}
	h, e := table.StartSave(uint64(system), text(path), all, uint64(stream), text(options))
	return handle(h, e, job, err, errcap)
}
