// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
*/
import "C"

import "github.com/nebulaio/nebulaio/internal/abi"

//export nebulaio_judge_loop
func nebulaio_judge_loop(loop *C.nebulaio_cchar, buf *C.char, capacity C.size_t, need *C.size_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "judge"}
	text := a.text("loop_json", loop)
	if a.err != nil {
		return status(a.err, err, errcap)
	}
	b, e := abi.JudgeLoop(text)
	return give(b, e, buf, capacity, need, err, errcap)
}
