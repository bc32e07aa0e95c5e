// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
*/
import "C"

import (
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/abi"
)

// aboutCheckpoint checks the arguments of a call about checkpoints and starts its job.
func aboutCheckpoint(op string, start func(t abi.Checkpoints, system uint64, path, options string) (uint64, error),
	system C.uint64_t, path, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: op}
	p, o := a.path("path", path), a.options(options)
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := start(abi.Checkpoints{Table: &table}, uint64(system), p, o)
	return number(h, e, job, err, errcap)
}

//export nebulaio_checkpoint_commit_start
func nebulaio_checkpoint_commit_start(system C.uint64_t, path, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	return aboutCheckpoint("commit checkpoint", abi.Checkpoints.StartCommit, system, path, options, job, err, errcap)
}

//export nebulaio_checkpoint_list_start
func nebulaio_checkpoint_list_start(system C.uint64_t, path, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	return aboutCheckpoint("list checkpoints", abi.Checkpoints.StartList, system, path, options, job, err, errcap)
}

//export nebulaio_checkpoint_verify_start
func nebulaio_checkpoint_verify_start(system C.uint64_t, path, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	return aboutCheckpoint("verify checkpoint", abi.Checkpoints.StartVerify, system, path, options, job, err, errcap)
}

//export nebulaio_checkpoint_prune_start
func nebulaio_checkpoint_prune_start(system C.uint64_t, path, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	return aboutCheckpoint("prune checkpoints", abi.Checkpoints.StartPrune, system, path, options, job, err, errcap)
}
