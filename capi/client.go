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
	"time"
	"unsafe"

	"github.com/nebulaio/nebulaio"
)

// maxPeers is the largest accepted number of peers. It protects against a count that was not initialised.
const maxPeers = 1024

//export nebulaio_client_open
func nebulaio_client_open(system C.uint64_t, options *C.nebulaio_cchar, client *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "open client"}
	o := a.options(options)
	if a.result("client", unsafe.Pointer(client)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.OpenClient(uint64(system), o)
	return number(h, e, client, err, errcap)
}

//export nebulaio_client_status_start
func nebulaio_client_status_start(client C.uint64_t, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "ask for status"}
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartStatus(uint64(client))
	return number(h, e, job, err, errcap)
}

//export nebulaio_client_model_open
func nebulaio_client_model_open(client C.uint64_t, bucket, key, options *C.nebulaio_cchar, model *C.uint64_t,
	err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "open model"}
	b, k, o := a.text("bucket", bucket), a.text("key", key), a.options(options)
	if a.result("model", unsafe.Pointer(model)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.OpenClientModel(uint64(client), b, k, o)
	return number(h, e, model, err, errcap)
}

//export nebulaio_object_read_start
func nebulaio_object_read_start(client C.uint64_t, reads *C.nebulaio_cobject_read, count C.size_t,
	options *C.nebulaio_cchar, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "read objects"}
	o := a.options(options)
	a.result("job", unsafe.Pointer(job))
	all := make([]nebulaio.ObjectRead, a.array("reads", unsafe.Pointer(reads), uint64(count), mostStructs))
	given := unsafe.Slice((*C.nebulaio_object_read)(unsafe.Pointer(reads)), len(all))
	for i := range given {
		r := &given[i]
		if !a.fits(r.struct_size, unsafe.Sizeof(*r)) {
			break
		}
		all[i] = nebulaio.ObjectRead{Bucket: a.text("bucket", r.bucket), Key: a.text("key", r.key),
			Version: a.optional("version", r.version),
			Off:     int64(r.offset), Size: int64(r.size), Dst: address(unsafe.Pointer(&r.address)), DstSize: int64(r.capacity),
			Device: a.optional("device", r.device), Stream: uint64(address(unsafe.Pointer(&r.stream)))}
		peers := unsafe.Slice((*C.nebulaio_peer)(unsafe.Pointer(r.peers)),
			a.array("peers", unsafe.Pointer(r.peers), uint64(r.npeers), maxPeers))
		for k := range peers {
			p := &peers[k]
			all[i].Peers = append(all[i].Peers, nebulaio.PeerDestination{Device: a.text("device of a peer", p.device),
				Dst: address(unsafe.Pointer(&p.address))})
		}
		if a.err != nil {
			break
		}
	}
	if a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartObjectReads(uint64(client), all, o)
	return number(h, e, job, err, errcap)
}

//export nebulaio_object_write_start
func nebulaio_object_write_start(client C.uint64_t, write *C.nebulaio_cobject_write, options *C.nebulaio_cchar,
	job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "write object"}
	o := a.options(options)
	a.result("job", unsafe.Pointer(job))
	w := (*C.nebulaio_object_write)(unsafe.Pointer(write))
	var one nebulaio.ObjectWrite
	if w == nil {
		a.refuse("write", "is NULL; expected a struct")
	} else if a.fits(w.struct_size, unsafe.Sizeof(*w)) {
		one = nebulaio.ObjectWrite{Bucket: a.text("bucket", w.bucket), Key: a.text("key", w.key),
			Src: address(unsafe.Pointer(&w.address)), Size: int64(w.size),
			Device: a.optional("device", w.device), Stream: uint64(address(unsafe.Pointer(&w.stream)))}
	}
	if a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartObjectWrite(uint64(client), one, o)
	return number(h, e, job, err, errcap)
}

//export nebulaio_object_stat_start
func nebulaio_object_stat_start(client C.uint64_t, bucket, key, version *C.nebulaio_cchar, job *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "stat object"}
	b, k, v := a.text("bucket", bucket), a.text("key", key), a.optional("version", version)
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartStat(uint64(client), b, k, v)
	return number(h, e, job, err, errcap)
}

//export nebulaio_object_delete_start
func nebulaio_object_delete_start(client C.uint64_t, bucket, key *C.nebulaio_cchar, job *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "delete object"}
	b, k := a.text("bucket", bucket), a.text("key", key)
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartDelete(uint64(client), b, k)
	return number(h, e, job, err, errcap)
}

//export nebulaio_object_list_start
func nebulaio_object_list_start(client C.uint64_t, bucket, options *C.nebulaio_cchar, job *C.uint64_t, err *C.char,
	errcap C.size_t) C.int32_t {
	a := arguments{op: "list objects"}
	b, o := a.text("bucket", bucket), a.options(options)
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartList(uint64(client), b, o)
	return number(h, e, job, err, errcap)
}

// room checks that out can receive descriptors, which would leak otherwise.
func (a *arguments) room(out *C.nebulaio_descriptors) {
	if a.result("out", unsafe.Pointer(out)); out != nil {
		a.fits(out.struct_size, unsafe.Sizeof(*out))
	}
}

//export nebulaio_object_open
func nebulaio_object_open(client C.uint64_t, bucket, key, version, device *C.nebulaio_cchar,
	out *C.nebulaio_descriptors, object *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "open object"}
	b, k, v, d := a.text("bucket", bucket), a.text("key", key), a.optional("version", version),
		a.optional("device", device)
	a.room(out)
	if a.result("object", unsafe.Pointer(object)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, f, e := table.OpenObject(uint64(client), b, k, v, d)
	if e == nil {
		out.buffered, out.direct, out.size = C.int32_t(f.Buffered()), C.int32_t(f.Direct()), C.uint64_t(f.Size())
	}
	return number(h, e, object, err, errcap)
}

//export nebulaio_object_create
func nebulaio_object_create(client C.uint64_t, bucket, key *C.nebulaio_cchar, size C.uint64_t,
	options *C.nebulaio_cchar, out *C.nebulaio_descriptors, object *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "create object"}
	b, k, o := a.text("bucket", bucket), a.text("key", key), a.options(options)
	a.room(out)
	if a.result("object", unsafe.Pointer(object)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, f, e := table.CreateObject(uint64(client), b, k, uint64(size), o)
	if e == nil {
		out.buffered, out.direct, out.size = C.int32_t(f.Buffered()), C.int32_t(f.Direct()), size
	}
	return number(h, e, object, err, errcap)
}

//export nebulaio_object_commit_start
func nebulaio_object_commit_start(object, size C.uint64_t, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "commit object"}
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, e := table.StartCommit(uint64(object), uint64(size))
	return number(h, e, job, err, errcap)
}

//export nebulaio_queue_open
func nebulaio_queue_open(queue *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "open queue"}
	if a.result("queue", unsafe.Pointer(queue)); a.err != nil {
		return status(a.err, err, errcap)
	}
	return number(table.OpenQueue(), nil, queue, err, errcap)
}

//export nebulaio_queue_add
func nebulaio_queue_add(queue, job C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	return status(table.QueueJob(uint64(queue), uint64(job)), err, errcap)
}

//export nebulaio_queue_next
func nebulaio_queue_next(queue C.uint64_t, timeout C.int32_t, job *C.uint64_t, err *C.char, errcap C.size_t) C.int32_t {
	a := arguments{op: "wait for a job"} // checked first: on an error the ended job stays in the queue
	if a.result("job", unsafe.Pointer(job)); a.err != nil {
		return status(a.err, err, errcap)
	}
	h, running, e := table.NextJob(uint64(queue), time.Duration(timeout)*time.Millisecond)
	if running {
		return C.NEBULAIO_RUNNING
	}
	return number(h, e, job, err, errcap)
}
