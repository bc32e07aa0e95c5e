// SPDX-License-Identifier: Apache-2.0

package main

/*
#include "nebulaio/nebulaio.h"

typedef const char nebulaio_cchar;
typedef const nebulaio_object_read nebulaio_cobject_read;
typedef const nebulaio_object_write nebulaio_cobject_write;
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// fits checks the size that a caller says its struct has; later versions append
// fields, which an older caller does not have.
func fits(said C.size_t, has uintptr, what string) error {
	if uintptr(said) == has {
		return nil
	}
	return errs.New(errs.Invalid, what, "struct_size", fmt.Sprintf("is %d; expected %d", uint64(said), has)).WithFix("set it to sizeof of the struct, of the header that the library was built with")
}

//export nebulaio_client_open
func nebulaio_client_open(system C.uint64_t, options *C.nebulaio_cchar, client *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.OpenClient(uint64(system), text(options))
	return handle(h, e, client, err, errcap)
}

//export nebulaio_client_status_start
func nebulaio_client_status_start(client C.uint64_t, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.StartStatus(uint64(client))
	return handle(h, e, job, err, errcap)
}

//export nebulaio_client_model_open
func nebulaio_client_model_open(client C.uint64_t, bucket, key, options *C.nebulaio_cchar, model *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.OpenClientModel(uint64(client), text(bucket), text(key), text(options))
	return handle(h, e, model, err, errcap)
}

//export nebulaio_object_read_start
func nebulaio_object_read_start(client C.uint64_t, reads *C.nebulaio_cobject_read, count C.size_t, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	if count > mostStructs || (reads == nil && count > 0) {
		return status(errs.New(errs.Invalid, "read objects", "", fmt.Sprintf("a count of %d, or no reads; expected an array of at most 1048576", uint64(count))), err, errcap)
	}
	all := make([]nebulaio.ObjectRead, 0, int(count))
	for _, r := range unsafe.Slice((*C.nebulaio_object_read)(unsafe.Pointer(reads)), int(count)) {
		if e := fits(r.struct_size, unsafe.Sizeof(r), "read objects"); e != nil {
			return status(e, err, errcap)
		}
		one := nebulaio.ObjectRead{Bucket: text(r.bucket), Key: text(r.key), Version: text(r.version), Off: int64(r.offset), Size: int64(r.size),
			Dst: nebulaio.Ptr(r.address), DstSize: int64(r.capacity), Device: text(r.device), Stream: uint64(r.stream)}
		if r.npeers > maxPeers || (r.peers == nil && r.npeers > 0) {
			return status(errs.New(errs.Invalid, "read object", one.Bucket+"/"+one.Key, fmt.Sprintf("%d peers, or none where some are said to be; expected at most %d", uint64(r.npeers), maxPeers)), err, errcap)
		}
		for _, p := range unsafe.Slice((*C.nebulaio_peer)(unsafe.Pointer(r.peers)), int(r.npeers)) {
			one.Peers = append(one.Peers, nebulaio.PeerDst{Device: text(p.device), Dst: nebulaio.Ptr(p.address)})
		}
		all = append(all, one)
	}
	h, e := table.StartObjectReads(uint64(client), all, text(options))
	return handle(h, e, job, err, errcap)
}

// maxPeers is more devices than a machine has; a length that was not filled in
// does not make us read what is not there.
const maxPeers = 1024

//export nebulaio_object_write_start
func nebulaio_object_write_start(client C.uint64_t, write *C.nebulaio_cobject_write, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	w := (*C.nebulaio_object_write)(unsafe.Pointer(write))
	if w == nil {
		return status(errs.New(errs.Invalid, "write object", "", "the write is NULL"), err, errcap)
	}
	if e := fits(w.struct_size, unsafe.Sizeof(*w), "write object"); e != nil {
		return status(e, err, errcap)
	}
	h, e := table.StartObjectWrite(uint64(client), nebulaio.ObjectWrite{Bucket: text(w.bucket), Key: text(w.key), Src: nebulaio.Ptr(w.address), Size: int64(w.size),
		Device: text(w.device), Stream: uint64(w.stream)}, text(options))
	return handle(h, e, job, err, errcap)
}

//export nebulaio_object_stat_start
func nebulaio_object_stat_start(client C.uint64_t, bucket, key, version *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.StartStat(uint64(client), text(bucket), text(key), text(version))
	return handle(h, e, job, err, errcap)
}

//export nebulaio_object_list_start
func nebulaio_object_list_start(client C.uint64_t, bucket, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.StartList(uint64(client), text(bucket), text(options))
	return handle(h, e, job, err, errcap)
}

//export nebulaio_object_open
func nebulaio_object_open(client C.uint64_t, bucket, key, version, device *C.nebulaio_cchar, out *C.nebulaio_descriptors, object *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	if e := room(out); e != nil {
		return status(e, err, errcap)
	}
	h, f, e := table.OpenObject(uint64(client), text(bucket), text(key), text(version), text(device))
	if e == nil {
		out.buffered, out.direct, out.size = C.int32_t(f.Buffered()), C.int32_t(f.Direct()), C.uint64_t(f.Size())
	}
	return handle(h, e, object, err, errcap)
}

//export nebulaio_object_create
func nebulaio_object_create(client C.uint64_t, bucket, key *C.nebulaio_cchar, size C.uint64_t, options *C.nebulaio_cchar, out *C.nebulaio_descriptors, object *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	if e := room(out); e != nil {
		return status(e, err, errcap)
	}
	h, f, e := table.CreateObject(uint64(client), text(bucket), text(key), uint64(size), text(options))
	if e == nil {
		out.buffered, out.direct, out.size = C.int32_t(f.Buffered()), C.int32_t(f.Direct()), size
	}
	return handle(h, e, object, err, errcap)
}

// room checks that there is somewhere to put descriptors: they would leak else.
func room(out *C.nebulaio_descriptors) error {
	if out == nil {
		return errs.New(errs.Invalid, "open object", "", "the descriptors are NULL")
	}
	return fits(out.struct_size, unsafe.Sizeof(*out), "open object")
}

//export nebulaio_object_commit_start
func nebulaio_object_commit_start(object, size C.uint64_t, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	h, e := table.StartCommit(uint64(object), uint64(size))
	return handle(h, e, job, err, errcap)
}

//export nebulaio_queue_open
func nebulaio_queue_open(queue *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return handle(table.OpenQueue(), nil, queue, err, errcap)
}

//export nebulaio_queue_add
func nebulaio_queue_add(queue, job C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(table.QueueJob(uint64(queue), uint64(job)), err, errcap)
}

//export nebulaio_queue_next
func nebulaio_queue_next(queue C.uint64_t, timeout C.int32_t, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	if job == nil { // the job is the caller's, and stays in the queue
		return status(errs.New(errs.Invalid, "wait for a job", "", "the place for its handle is NULL"), err, errcap)
	}
	h, running, e := table.NextJob(uint64(queue), time.Duration(timeout)*time.Millisecond)
	if running {
		return C.NEBULAIO_RUNNING
	}
	return handle(h, e, job, err, errcap)
}
