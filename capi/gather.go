// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
typedef const char *const nebulaio_ctext;
typedef const nebulaio_segment nebulaio_csegment;
typedef const nebulaio_piece nebulaio_cpiece;
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/abi"
)

// mostSegments is the largest accepted number of segments or pieces: a checkpoint has several for each tensor.
const mostSegments = 16 << 20

//export nebulaio_go_gather_start
func nebulaio_go_gather_start(system C.uint64_t, files *C.nebulaio_ctext, nfiles C.size_t,
	segments *C.nebulaio_csegment, nsegments C.size_t, stream C.uint64_t, options *C.nebulaio_cchar, job *C.uint64_t,
	err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "gather"}
	o := a.options(options)
	a.result("job", unsafe.Pointer(job))
	names := make([]string, a.array("files", unsafe.Pointer(files), uint64(nfiles), mostStructs))
	for i, p := range unsafe.Slice((**C.nebulaio_cchar)(unsafe.Pointer(files)), len(names)) {
		names[i] = a.path(fmt.Sprintf("file %d", i), p)
	}
	all := make([]nebulaio.GatherSegment, a.array("segments", unsafe.Pointer(segments), uint64(nsegments), mostSegments))
	given := unsafe.Slice((*C.nebulaio_segment)(unsafe.Pointer(segments)), len(all))
	for i := range given {
		s := &given[i]
		all[i] = nebulaio.GatherSegment{File: int(s.file), Offset: int64(s.offset), Size: int64(s.size),
			Width: int64(s.width), Stride: int64(s.stride), Ptr: address(unsafe.Pointer(&s.address))}
		if s.label != nil {
			all[i].Label = a.text(fmt.Sprintf("label of segment %d", i), s.label)
		}
	}
	if a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := abi.Ranges{Table: &table}.StartGather(uint64(system), names, all, uint64(stream), o)
	return number(h, e, job, err, errcap)
}

//export nebulaio_go_write_start
func nebulaio_go_write_start(system C.uint64_t, path *C.nebulaio_cchar, pieces *C.nebulaio_cpiece, count C.size_t,
	stream C.uint64_t, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "write"}
	p, o := a.path("path", path), a.options(options)
	a.result("job", unsafe.Pointer(job))
	all := make([]nebulaio.Piece, a.array("pieces", unsafe.Pointer(pieces), uint64(count), mostSegments))
	given := unsafe.Slice((*C.nebulaio_piece)(unsafe.Pointer(pieces)), len(all))
	for i := range given {
		g := &given[i]
		all[i] = nebulaio.Piece{Ptr: address(unsafe.Pointer(&g.address)), Size: int64(g.size),
			Device: a.text(fmt.Sprintf("device of piece %d", i), g.device)}
		if a.err != nil {
			break
		}
	}
	if a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := abi.Ranges{Table: &table}.StartWritePieces(uint64(system), p, all, uint64(stream), o)
	return number(h, e, job, err, errcap)
}
