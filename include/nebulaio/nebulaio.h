/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nebulaio.h: the C ABI of libnebulaio.so, storage that ends in GPU memory.
 *
 * The flow of a load:
 *
 *   nebulaio_system_open      nothing is looked for or allocated yet
 *   nebulaio_model_open       headers are read and checked, the layout is made
 *   nebulaio_model_files      JSON: how many bytes each destination needs
 *   (the caller allocates one destination per file, with its own allocator)
 *   nebulaio_load_start       bytes begin to flow; returns at once
 *   nebulaio_model_describe   JSON: where in it each tensor will lie
 *   nebulaio_wait             in slices, so that the caller can be interrupted
 *   nebulaio_report           JSON: which route every byte took, and why
 *   nebulaio_release          each handle, once
 *
 * Objects of a server, of ours or of any other that speaks S3, move by
 * nebulaio_client_open and nebulaio_object_*, between the server's files or
 * sockets and the caller's memory.
 *
 * Conventions, true for every function:
 *   - Returns a status: NEBULAIO_OK, or one of NEBULAIO_ERR_* below.
 *   - `err` (may be NULL) receives a NUL-terminated UTF-8 message of at most
 *     `errcap` bytes when the status is an error; it is cut, never overrun.
 *   - Output text: `need` (may be NULL) receives the full length without the
 *     NUL; the text is copied only if `cap` exceeds it, else the call returns
 *     NEBULAIO_ERR_INVALID with nothing copied, so that cap = 0 asks the size
 *     (and then the status is NEBULAIO_OK).
 *   - Handles are numbers, never pointers; 0 is never a handle; a released or
 *     foreign handle gives NEBULAIO_ERR_CLOSED.
 *   - Safe to call from any thread. A thread's current CUDA context is left as
 *     it was found.
 *   - A process that forked after loading this library must not call it in the
 *     child; the Python package loads a private copy there.
 */
#ifndef NEBULAIO_H
#define NEBULAIO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NEBULAIO_ABI_VERSION 3

/* Status codes; the numbers never change, new ones are appended. */
enum {
	NEBULAIO_RUNNING = -1,        /* nebulaio_wait: the time slice ended first */
	NEBULAIO_OK = 0,
	NEBULAIO_ERR_OTHER = 1,
	NEBULAIO_ERR_INVALID = 2,     /* a bad argument or option */
	NEBULAIO_ERR_NOT_FOUND = 3,
	NEBULAIO_ERR_PERMISSION = 4,
	NEBULAIO_ERR_CORRUPT = 5,     /* content breaks its format */
	NEBULAIO_ERR_IO = 6,
	NEBULAIO_ERR_DEVICE = 7,      /* a driver call failed */
	NEBULAIO_ERR_NO_MEMORY = 8,
	NEBULAIO_ERR_UNSUPPORTED = 9,
	NEBULAIO_ERR_CANCELLED = 10,
	NEBULAIO_ERR_CLOSED = 11
};

/* A destination: memory of the caller, on the load's device, that must stay
 * allocated until nebulaio_wait has returned something other than RUNNING. */
typedef struct nebulaio_buffer {
	uint64_t address; /* device pointer, or host address for `host` */
	uint64_t size;    /* bytes available from address */
} nebulaio_buffer;

/* The largest number of dimensions of a tensor. */
#define NEBULAIO_MAX_RANK 64

/* What the destination of one file needs. */
typedef struct nebulaio_destination {
	uint64_t size;      /* bytes */
	uint64_t align;     /* alignment that its address should have */
	uint64_t file_size; /* of the file, for information */
} nebulaio_destination;

/* A tensor and where it will lie. */
typedef struct nebulaio_place {
	uint64_t file;   /* which destination */
	uint64_t offset; /* of its first byte in that destination */
	uint64_t size;   /* bytes */
	int64_t shape[NEBULAIO_MAX_RANK];
	uint32_t rank;   /* dimensions in shape */
	char dtype[20];  /* by its safetensors name: "BF16", "F8_E4M3" */
} nebulaio_place;

typedef struct nebulaio_progress {
	uint64_t bytes_done;
	uint64_t bytes_total;
} nebulaio_progress;

/* The ABI this library was built with; compare with NEBULAIO_ABI_VERSION. */
int32_t nebulaio_abi_version(void);

/* The project's version, such as "0.1.0". */
int32_t nebulaio_version(char *buf, size_t cap, size_t *need);

/* Opens a system. Devices are looked for when they are first asked for; staging
 * memory and workers come with the first model that is opened for a GPU, or the
 * first load. options_json: NULL or an object; all keys optional, unknown keys
 * refused:
 *   "devices"            "auto" | "require" | "off"  (CUDA)
 *   "buffer_pool_size"   bytes of staging, default 134217728
 *   "max_transfer_size"  largest single read or copy in bytes, default 4194304
 *   "queue_depth"        cold reads in flight, 0 = chosen for this machine
 *   "workers"            threads for page-cache copies, 0 = chosen
 *   "io"                 "auto" | "uring" | "pread"
 *   "write_block_size"   largest single write of a save in bytes, default 1048576
 *   "write_depth"        writes of saves in flight, 0 = chosen
 *   "cufile"             "sync" | "async" | "batch": which interface of libcufile
 *                        the route "cufile" uses
 *   "verify_on"          "auto" | "host" | "device": where verified bytes are summed
 *   "device_ids"         array of the GPUs that will be used, by number: the staging
 *                        is divided among them; default all that are visible
 *   "enable_p2p"         bool: a read for several GPUs may be copied from one to the
 *                        next; default true
 *   "cuda_library", "nvml_library", "cufile_library"  files to open in place of
 *                        the driver's own; for tests
 * Release it after everything opened from it, and before the process ends: where
 * libcufile was used it may crash in its own end while it still counts. */
int32_t nebulaio_system_open(const char *options_json, uint64_t *system, char *err, size_t errcap);

/* JSON: what was looked for, found and missing, and what to do. */
int32_t nebulaio_devices(uint64_t system, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Reads and checks the headers at path: a .safetensors file, an index.json, or
 * a model directory; or "s3://bucket/key" of the server and with the keys that the
 * environment tells, see nebulaio_client_open. options_json: NULL or an object:
 *   "device"   "auto" (default) | "host" | "cuda" | "cuda:N"
 *   "tensors"  array of globs; only matching tensors are laid out and read
 *   "slices"   array of {"tensor": glob or name, "ranges": [[start, stop], null, ...]}:
 *              of matching tensors only that box is laid out and read; stop is
 *              not in it, -1 is the dimension's end, null and what is not given
 *              are all of a dimension
 *   "shards"   array of {"tensor", "dim", "rank", "world"}: of matching tensors
 *              the indices size*rank/world up to size*(rank+1)/world of dim
 *              A tensor that two slices or shards match is an error.
 *   "lenient"  bool, see docs of the safetensors reader
 *   "more"     array of further paths, whose files follow those of the first in
 *              order: one load of all of them goes from front to back */
int32_t nebulaio_model_open(uint64_t system, const char *path, const char *options_json,
                            uint64_t *model, char *err, size_t errcap);

/* JSON: {"device":"cuda:0","files":[{"path","size","dest_size","dest_align"}]}:
 * the part of describe that a load needs to start, so that the rest can be read
 * while bytes flow. */
int32_t nebulaio_model_files(uint64_t model, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* JSON: {"device","files",
 * "tensors":[{"name","dtype","shape","file","offset","size"}],"metadata":{}}
 * where offset is inside the destination of that file. A tensor of which a part
 * was chosen also has "whole_shape" and "start", the first index of each
 * dimension; shape and size are those of the part. */
int32_t nebulaio_model_describe(uint64_t model, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* The same without JSON, piece by piece: how many files and tensors; what file
 * number `file` needs; tensor number `index` in order of file and offset, its
 * name by the rules of output text; the number of the tensor of that name. */
int32_t nebulaio_model_count(uint64_t model, uint64_t *files, uint64_t *tensors, char *err, size_t errcap);
int32_t nebulaio_model_destination(uint64_t model, uint64_t file, nebulaio_destination *out, char *err, size_t errcap);
int32_t nebulaio_model_tensor(uint64_t model, uint64_t index, nebulaio_place *out, char *name, size_t cap, size_t *need,
                              char *err, size_t errcap);
int32_t nebulaio_model_find(uint64_t model, const char *name, uint64_t *index, char *err, size_t errcap);

/* Makes a model of the same open files without reading their headers again, for
 * another choice of tensors than the first; it is released before the model that
 * it was made from. options_json: NULL or an object:
 *   "tensors", "slices", "shards"  as in nebulaio_model_open
 *   "names"    array of exact names in place of globs; quick in files of many
 *   "files"    array of places in the list of files: only these are listed and
 *              their tensors chosen; globs may then match nothing */
int32_t nebulaio_model_select(uint64_t model, const char *options_json, uint64_t *selection, char *err, size_t errcap);

/* Starts to fill dst[0..ndst), one per file in the order of describe.
 * stream: the CUDA stream (as a number; 0 = legacy default) whose queued work
 * may still use the destinations: copies begin after it. Ignored on host.
 * options_json: NULL or an object:
 *   "route"  "auto" | "buffered" | "direct" | "cufile"
 *   "cache"  "auto" | "keep" | "bypass"
 *   "verify" bool: check every block that holds a byte of a chosen tensor or of
 *            a header against FILE.crc64nvme beside each file, which "nebulaio
 *            inspect PATH --checksum" writes. A block that differs ends the load
 *            with NEBULAIO_ERR_CORRUPT and is named; without checksums the start
 *            fails with NEBULAIO_ERR_NOT_FOUND */
int32_t nebulaio_load_start(uint64_t model, const nebulaio_buffer *dst, size_t ndst, uint64_t stream,
                            const char *options_json, uint64_t *load, char *err, size_t errcap);

/* Waits up to timeout_ms (negative: without limit) until more than `known` tensors
 * of a load, counted in the order of describe, are final in the destinations,
 * and tells in `ready` how many are; they may be used and are not touched any
 * more, however the load ends. NEBULAIO_OK: more than `known`, or the load has
 * ended well. NEBULAIO_RUNNING: the time ran out. Else the load has failed and no
 * more will come. Ask nebulaio_wait for the end of the load in any case: that no
 * file changed while it was read is known only then. */
int32_t nebulaio_load_ready(uint64_t job, uint64_t known, int32_t timeout_ms, uint64_t *ready, char *err, size_t errcap);

/* Begins to read every file of a model whole and to write FILE.crc64nvme beside
 * each, which loads with "verify" compare with: do it with a copy that is known to
 * be good. Its report: {"files":[{"path","block_size","blocks"}],"bytes",
 * "seconds"}. A job that fails or is cancelled before all sums are made writes none. */
int32_t nebulaio_checksum_start(uint64_t model, uint64_t *job, char *err, size_t errcap);

/* A tensor of the caller that is to be saved: contiguous, in row-major order. */
typedef struct nebulaio_tensor {
	const char *name;
	const char *dtype;    /* as safetensors names it: "F32", "BF16", "F8_E4M3" */
	const int64_t *shape; /* rank extents; not read where rank is 0 */
	size_t rank;
	uint64_t address;     /* device pointer, or host address for "host" */
	uint64_t size;        /* bytes; must be what dtype and shape say */
	const char *device;   /* "host" | "cuda" | "cuda:N" */
} nebulaio_tensor;

/* Starts to write tensors[0..count) to one .safetensors file, which may lie on
 * several devices. The structs are read before the call returns; the memory they
 * point to belongs to the job, and does not change, until nebulaio_wait has
 * returned something other than RUNNING. When the job has succeeded the file is
 * whole, durable and in place, with FILE.crc64nvme beside it; when it has failed
 * or was cancelled, what was there before is as it was. A link at path is
 * followed.
 * stream: the CUDA stream (as a number; 0 = legacy default) whose queued work may
 * still write the tensors of the first GPU among them: they are read after it.
 * options_json: NULL or an object:
 *   "metadata"  object of strings, the file's "__metadata__"; default none
 *   "checksum"  bool, whether FILE.crc64nvme is written; default true. With
 *               false, one that is there is removed: it is not of this file
 *   "align"     alignment of the first data byte, a multiple of 8; default 4096
 *   "route"     "auto" | "buffered" | "direct"
 *   "streams"   object of streams by device, {"cuda:1": 1234}, for tensors on
 *               several GPUs; where a GPU has none, the legacy default stream */
int32_t nebulaio_save_start(uint64_t system, const char *path, const nebulaio_tensor *tensors, size_t count,
                            uint64_t stream, const char *options_json, uint64_t *job, char *err, size_t errcap);

/* Opens a file whose bytes are moved between storage and memory in place, at any
 * offset. flags: "r" read, "r+" read and write, "w" and "w+" the same of a file
 * that is made or emptied first. options_json: NULL or an object:
 *   "device"  where memory lies that a move does not say otherwise of:
 *             "auto" (default) | "host" | "cuda" | "cuda:N"
 *   "route"   of moves that do not say otherwise:
 *             "auto" | "buffered" | "direct" | "cufile"
 * Releasing it waits for its moves. */
int32_t nebulaio_file_open(uint64_t system, const char *path, const char *flags, const char *options_json,
                           uint64_t *file, char *err, size_t errcap);

/* The file's length now. */
int32_t nebulaio_file_size(uint64_t file, uint64_t *size, char *err, size_t errcap);

/* Starts to read up to size bytes at file_offset to address, memory of the
 * caller on the device that stays allocated until the job has ended. Fewer bytes
 * in progress.bytes_done at the end mean that the file ended.
 * stream: the CUDA stream whose queued work may still use the memory: the move
 * begins after it. Ignored on host. options_json: NULL or an object:
 *   "device", "route"  as of nebulaio_file_open, for this move
 *   "async"   bool: move in the order of the stream where libcufile can; work
 *             queued on it later then sees the effect, and the job ends when the
 *             stream has passed. Where libcufile cannot, the job has ended when
 *             this returns, and its report says why. */
int32_t nebulaio_file_read_start(uint64_t file, uint64_t address, uint64_t size, uint64_t file_offset, uint64_t stream,
                                 const char *options_json, uint64_t *job, char *err, size_t errcap);

/* Starts to write size bytes at address to file_offset, in place: not atomic,
 * and safe from a crash only after nebulaio_file_sync. Else as reading. */
int32_t nebulaio_file_write_start(uint64_t file, uint64_t address, uint64_t size, uint64_t file_offset, uint64_t stream,
                                  const char *options_json, uint64_t *job, char *err, size_t errcap);

/* Makes what was written survive a crash. */
int32_t nebulaio_file_sync(uint64_t file, char *err, size_t errcap);

/* Opens a client of an S3 endpoint. Nothing is connected or asked before the first
 * use. On the endpoint's own host, where its door is open to this process, objects
 * come as descriptors that this process reads and writes by itself; elsewhere by
 * ranged GETs and multipart uploads over HTTP. Every report says which it was and why.
 * options_json: NULL or an object; what is not given comes from the environment:
 *   "endpoint"       "http://host:port" or https; else NEBULAIO_ENDPOINT,
 *                    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, http://localhost:9000
 *   "access_key", "secret_key", "session_token"   else NEBULAIO_ACCESS_KEY and
 *                    NEBULAIO_SECRET_KEY, else AWS_ACCESS_KEY_ID and its likes
 *   "region"         else AWS_REGION, else us-east-1
 *   "door"           "auto" (default) | "require": an error where it is not there |
 *                    "off" | the path of its socket
 *   "device"         where memory lies that a move does not say otherwise of:
 *                    "auto" (default) | "host" | "cuda" | "cuda:N"
 *   "connections"    most connections for HTTP, 0 = chosen
 *   "verify"         bool: compare every block with its checksum; default true
 *   "ca_file"        certificates to trust for https, besides the system's
 *   "insecure_tls"   bool: trust every certificate; default false
 *   "timeout_ms"     how long a single request may give no sign of life, 0 = chosen
 *   "retries"        how often a failed request is made again, 0 = chosen
 * Release it when its moves, objects and models have been. */
int32_t nebulaio_client_open(uint64_t system, const char *options_json, uint64_t *client, char *err, size_t errcap);

/* Memory on a further device that receives the same bytes. */
typedef struct nebulaio_peer {
	uint64_t address;
	const char *device; /* "cuda:N" */
} nebulaio_peer;

/* A read of one object, or of a range of it, into memory of the caller. struct_size
 * tells later versions, which may have more fields, what this caller knows of. */
typedef struct nebulaio_object_read {
	size_t struct_size;    /* sizeof(nebulaio_object_read) */
	const char *bucket;
	const char *key;
	const char *version;   /* NULL: the newest */
	uint64_t offset;       /* of the first byte in the object */
	int64_t size;          /* bytes; -1: up to the object's end */
	uint64_t address;      /* device pointer, or host address for "host" */
	uint64_t capacity;     /* bytes available from address */
	const char *device;    /* NULL: the client's */
	uint64_t stream;       /* CUDA stream whose queued work comes first; 0: the legacy default */
	const nebulaio_peer *peers;
	size_t npeers;
} nebulaio_object_read;

/* A write of one object from memory of the caller; see nebulaio_object_read. */
typedef struct nebulaio_object_write {
	size_t struct_size;    /* sizeof(nebulaio_object_write) */
	const char *bucket;
	const char *key;
	uint64_t address;
	uint64_t size;
	const char *device;    /* NULL: the client's */
	uint64_t stream;
} nebulaio_object_write;

/* Starts to read reads[0..count) as one job; several are opened together, a window
 * ahead of those that are being read. The structs are read before the call returns;
 * the memory belongs to the job until it has ended. An object that has more bytes
 * from its offset on than its memory is an error unless size says how many are
 * wanted. options_json: NULL or an object:
 *   "route"   "auto" | "buffered" | "direct" | "cufile"
 *   "cache"   "auto" | "keep" | "bypass"
 *   "verify"  bool, in place of the client's */
int32_t nebulaio_object_read_start(uint64_t client, const nebulaio_object_read *reads, size_t count,
                                   const char *options_json, uint64_t *job, char *err, size_t errcap);

/* Starts to write an object. When the job has succeeded it is whole, durable and
 * visible; when it has failed or was cancelled, what was there before is as it was,
 * unless the error says that the server may have taken it. options_json: NULL or an
 * object:
 *   "route"          as of nebulaio_object_read_start
 *   "content_type"   text
 *   "metadata"       object of strings
 *   "if_match", "if_none_match"   the ETag that is, or is not, to be replaced; "*" */
int32_t nebulaio_object_write_start(uint64_t client, const nebulaio_object_write *write, const char *options_json,
                                    uint64_t *job, char *err, size_t errcap);

/* Starts to ask for what an object is; the job's report is the answer: {"bucket",
 * "key","version","size","etag","modified","crc64nvme","via"}. version may be NULL. */
int32_t nebulaio_object_stat_start(uint64_t client, const char *bucket, const char *key, const char *version,
                                   uint64_t *job, char *err, size_t errcap);

/* Starts to ask for one page of a bucket's keys in order; the job's report is the
 * answer: {"objects":[{"key","size","etag","modified"}],"prefixes":[],"truncated",
 * "next"}. options_json: NULL or an object:
 *   "prefix", "delimiter"   as S3 knows them
 *   "after"                 only what follows: "next" of the page before
 *   "limit"                 most entries of the page, 0 = chosen */
int32_t nebulaio_object_list_start(uint64_t client, const char *bucket, const char *options_json, uint64_t *job,
                                   char *err, size_t errcap);

/* Starts to ask how the client reaches its server; the job's report is the answer:
 * whether by the door or why not, what the server allows, and what was moved so far. */
int32_t nebulaio_client_status_start(uint64_t client, uint64_t *job, char *err, size_t errcap);

/* nebulaio_model_open of objects: key is a .safetensors object, an index.json, or
 * the prefix that a model's objects share. Released before the client. */
int32_t nebulaio_client_model_open(uint64_t client, const char *bucket, const char *key, const char *options_json,
                                   uint64_t *model, char *err, size_t errcap);

/* Descriptors of an object's file. They belong to the object's handle, and are
 * closed when it is released. */
typedef struct nebulaio_descriptors {
	size_t struct_size; /* sizeof(nebulaio_descriptors), of the caller */
	int32_t buffered;   /* through the page cache; -1: none */
	int32_t direct;     /* past it, O_DIRECT; -1: the file system has no such way */
	uint64_t size;      /* of the object */
} nebulaio_descriptors;

/* Opens an object through the door for programs that read its file by themselves,
 * with cuFile, say. The file keeps its bytes and its name until the handle is
 * released, whatever becomes of the object. Objects do not change: the
 * descriptors cannot write. NEBULAIO_ERR_UNSUPPORTED where there is no door.
 * version may be NULL. device: where the bytes are to go, NULL for the client's;
 * the server allows some. */
int32_t nebulaio_object_open(uint64_t client, const char *bucket, const char *key, const char *version,
                             const char *device, nebulaio_descriptors *out, uint64_t *object, char *err, size_t errcap);

/* Begins an object of at most size bytes whose file the program writes by itself.
 * Nothing is visible before nebulaio_object_commit_start has ended well; releasing
 * the handle before leaves no trace. options_json: NULL or an object:
 * "content_type", "metadata", "if_match", "if_none_match" as of
 * nebulaio_object_write_start, "device" as of nebulaio_object_open. */
int32_t nebulaio_object_create(uint64_t client, const char *bucket, const char *key, uint64_t size,
                               const char *options_json, nebulaio_descriptors *out, uint64_t *object, char *err,
                               size_t errcap);

/* Starts to publish the first size bytes that were written: they are read once for
 * their checksums, the handle's own descriptors are closed, and the object is
 * durable and visible when the job has succeeded. Everything else that can write
 * the file, such as a registration with cuFile, a duplicate or a mapping, is gone
 * by then or the server refuses. The handle is used up; it is still to be released. */
int32_t nebulaio_object_commit_start(uint64_t object, uint64_t size, uint64_t *job, char *err, size_t errcap);

/* A queue tells which of many jobs has ended, to one thread for all of them. */
int32_t nebulaio_queue_open(uint64_t *queue, char *err, size_t errcap);

/* Adds a job, once; the queue will tell its handle when it has ended. Releasing the
 * job meanwhile does not take it off. */
int32_t nebulaio_queue_add(uint64_t queue, uint64_t job, char *err, size_t errcap);

/* Waits up to timeout_ms (negative: without limit) for a job that has ended and was
 * not told of yet. NEBULAIO_RUNNING when the time ran out; NEBULAIO_ERR_CLOSED when
 * the queue was released meanwhile. */
int32_t nebulaio_queue_next(uint64_t queue, int32_t timeout_ms, uint64_t *job, char *err, size_t errcap);

/* A job is work under way: a load, a save, a move of a file's or an object's bytes,
 * sums, a question to a server. */

/* Waits up to timeout_ms (negative: without limit). NEBULAIO_RUNNING when the
 * time ran out; else the job has ended, no copy is queued any more, and the
 * status and err are the job's own. progress may be NULL. */
int32_t nebulaio_wait(uint64_t job, int32_t timeout_ms, nebulaio_progress *progress, char *err, size_t errcap);

/* Asks the job to stop; nebulaio_wait then ends with NEBULAIO_ERR_CANCELLED,
 * unless it had finished. */
int32_t nebulaio_cancel(uint64_t job, char *err, size_t errcap);

/* JSON report of a job that has ended, failed ones included. */
int32_t nebulaio_report(uint64_t job, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Releases a handle. A running job is cancelled and waited for first. */
int32_t nebulaio_release(uint64_t handle, char *err, size_t errcap);

#ifdef __cplusplus
}
#endif

#endif /* NEBULAIO_H */
