/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nebulaio.h is the interface of the C library libnebulaio.so. The library moves
 * bytes between files or S3 objects and GPU or host memory. It works with C99 and
 * later and with C++11 and later.
 *
 * A load, call by call:
 *
 *   nebulaio_system_open      starts the library; looks for no device yet
 *   nebulaio_model_open       reads and checks the headers of a model
 *   nebulaio_model_files      gives, as JSON, the size of each destination
 *   cudaMalloc, for example   the program itself allocates one destination for each file
 *   nebulaio_load_start       starts to read; returns at once
 *   nebulaio_model_describe   gives, as JSON, the place of each tensor
 *   nebulaio_wait             waits for the end, for a limited time if asked to
 *   nebulaio_report           gives, as JSON, the route of every byte and the reason
 *   nebulaio_release          releases each handle, once
 *
 * nebulaio_client_open and nebulaio_object_* move objects of any S3 server.
 *
 * These rules hold for every function:
 *
 * Errors. A function returns NEBULAIO_OK or one of NEBULAIO_ERR_*. If it fails, it
 *   writes a message to `err`: UTF-8, ended by NUL, cut to `errcap` bytes. `err` may
 *   be NULL. If a function fails, it changes none of its other outputs, except
 *   where its comment says so.
 * Arguments. A pointer must not be NULL unless a comment allows it. A NULL pointer,
 *   text that is not UTF-8 or a count without an array gives NEBULAIO_ERR_INVALID.
 *   Options are a JSON object; NULL or "" means none. All keys are optional, and an
 *   unknown key is an error. Paths are bytes and need not be UTF-8.
 * Text results. `need` (may be NULL) receives the length without the NUL. The text
 *   is copied only if `cap` is larger than that. Else the call returns
 *   NEBULAIO_ERR_INVALID and copies nothing. With cap 0 it returns NEBULAIO_OK, so
 *   that a program can ask for the length first.
 * Ownership. A call reads its text and struct arguments before it returns, and the
 *   program may free them then. Memory whose address is given to a job belongs to the
 *   job until the job has ended.
 * Handles. A handle is a number, never 0. The program releases each handle once. A
 *   released handle or a handle of another kind gives NEBULAIO_ERR_CLOSED.
 * Addresses. An address is a pointer as malloc, cudaMalloc or cudaMallocHost returns
 *   it. A CUdeviceptr of the driver API is a number; write (void *)(uintptr_t)ptr. A
 *   stream is a cudaStream_t or CUstream.
 * Threads. All functions are thread-safe, also for calls on the same handle. A call
 *   does not change the thread's current CUDA context.
 * Fork. A child process must not call a library that its parent has loaded.
 */
#ifndef NEBULAIO_H
#define NEBULAIO_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. Every change increments it. An incompatible change
 * also increments the number in the library's name (libnebulaio.so.3). Programs call
 * nebulaio_check_abi before anything else. */
#define NEBULAIO_ABI_VERSION 4

/* Status codes. The numbers never change; new ones are added at the end. */
enum {
	NEBULAIO_RUNNING = -1,        /* the time ran out and the job still runs */
	NEBULAIO_OK = 0,
	NEBULAIO_ERR_OTHER = 1,       /* a defect, or an unknown cause */
	NEBULAIO_ERR_INVALID = 2,     /* a bad argument or option, or a bad moment for the call */
	NEBULAIO_ERR_NOT_FOUND = 3,   /* no such file, object, tensor or device */
	NEBULAIO_ERR_PERMISSION = 4,  /* the system or the server denies access */
	NEBULAIO_ERR_CORRUPT = 5,     /* content breaks its format or its checksum */
	NEBULAIO_ERR_IO = 6,          /* a read, a write or a connection failed */
	NEBULAIO_ERR_DEVICE = 7,      /* a call into a device driver failed */
	NEBULAIO_ERR_NO_MEMORY = 8,   /* not enough host or device memory */
	NEBULAIO_ERR_UNSUPPORTED = 9, /* this build, kernel, driver or device cannot do it */
	NEBULAIO_ERR_CANCELLED = 10,  /* the job was cancelled */
	NEBULAIO_ERR_CLOSED = 11      /* the handle is not open */
};

/* CUDA's own type, so that a cudaStream_t or CUstream needs no cast. NULL is the
 * legacy default stream. No CUDA header is needed. */
typedef struct CUstream_st *nebulaio_stream;

/* Memory of the program that a file is loaded into. It must stay allocated until
 * nebulaio_wait returns something other than NEBULAIO_RUNNING. */
typedef struct nebulaio_buffer {
	void *address; /* of device memory, or of host memory for "host" */
	uint64_t size; /* bytes available from address */
} nebulaio_buffer;

/* The largest number of dimensions of a tensor. */
#define NEBULAIO_MAX_RANK 64

/* The memory that the destination of one file needs. */
typedef struct nebulaio_destination {
	uint64_t size;      /* bytes */
	uint64_t align;     /* recommended alignment of its address */
	uint64_t file_size; /* bytes of the file, for information */
} nebulaio_destination;

/* A tensor and its place in the destinations of a load. */
typedef struct nebulaio_place {
	uint64_t file;   /* number of the destination */
	uint64_t offset; /* of its first byte in that destination */
	uint64_t size;   /* bytes */
	int64_t shape[NEBULAIO_MAX_RANK];
	uint32_t rank;   /* dimensions in shape */
	char dtype[20];  /* safetensors name: "BF16", "F8_E4M3" */
} nebulaio_place;

/* The progress of a job. */
typedef struct nebulaio_progress {
	uint64_t bytes_done;
	uint64_t bytes_total;
} nebulaio_progress;

/* Returns the ABI number of the loaded library. It cannot fail. */
int32_t nebulaio_abi_version(void);

/* Checks that the loaded library has the ABI of this header. If not, it returns
 * NEBULAIO_ERR_UNSUPPORTED and a message with both numbers, and no other function may
 * be called. nebulaio.hpp and the Python package call it automatically. */
static inline int32_t nebulaio_check_abi(char *err, size_t errcap)
{
	const int32_t found = nebulaio_abi_version();
	if (found == NEBULAIO_ABI_VERSION)
		return NEBULAIO_OK;
	if (err && errcap)
		snprintf(err, errcap,
		         "load libnebulaio.so: its ABI version is %d, this program was built for %d "
		         "(fix: install the library and the headers of the same release, and build again)",
		         (int)found, NEBULAIO_ABI_VERSION);
	return NEBULAIO_ERR_UNSUPPORTED;
}

/* Gives the version of the project, such as "0.1.0", as a text result. */
int32_t nebulaio_version(char *buf, size_t cap, size_t *need);

/* Opens a system: the devices, worker threads and staging memory of the process.
 * Programs open one and share it. Devices are looked for when one is first needed.
 * Staging memory is taken with the first model for a GPU, or with the first load.
 * Options:
 *   "devices"            "auto" | "require" | "off": whether GPUs are used
 *   "buffer_pool_size"   bytes of staging memory, default 134217728
 *   "max_transfer_size"  largest single read or copy in bytes, default 4194304
 *   "queue_depth"        direct reads in flight, 0 = chosen for this machine
 *   "workers"            threads that copy from the page cache, 0 = chosen
 *   "io"                 "auto" | "uring" | "pread"
 *   "write_block_size"   largest single write of a save in bytes, default 1048576
 *   "write_depth"        writes of saves in flight, 0 = chosen
 *   "cufile"             "sync" | "async" | "batch": interface of libcufile that
 *                        the route "cufile" uses
 *   "verify_on"          "auto" | "host" | "device": where checksums are computed
 *   "device_ids"         array of the GPUs that will be used, by number. They share
 *                        the staging memory. Default: all visible GPUs
 *   "enable_p2p"         bool: a read for several GPUs may be copied from one GPU to
 *                        the next, default true
 *   "cuda_library", "nvml_library", "cufile_library"  files to open in place of
 *                        the driver's own; for tests
 * Release the system after all handles that were opened from it and before the process
 * ends; otherwise libcufile may crash at exit. While a job runs, the release fails with
 * NEBULAIO_ERR_INVALID and the handle stays open. After the release, remaining handles
 * give NEBULAIO_ERR_CLOSED for every move, and the program must still release them. */
int32_t nebulaio_system_open(const char *options_json, uint64_t *system, char *err, size_t errcap);

/* Gives, as JSON, the devices that were found, what is missing, and the fixes. */
int32_t nebulaio_devices(uint64_t system, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Opens a model and reads its headers. path is a .safetensors file, an index.json, a
 * model directory, or "s3://bucket/key". For s3:// the environment names the server
 * and the keys, see nebulaio_client_open. Options:
 *   "device"   "auto" (default) | "host" | "cuda" | "cuda:N"
 *   "tensors"  array of globs: only tensors that match are read
 *   "slices"   array of {"tensor": glob or name, "ranges": [[start, stop], null, ...]}:
 *              only this part of matching tensors is read. stop is not included, and
 *              -1 means the end. null, or no entry, means the whole dimension
 *   "shards"   array of {"tensor", "dim", "rank", "world"}: only the indices from
 *              size*rank/world up to size*(rank+1)/world of dim are read
 *              A tensor that two slices or shards match is an error.
 *   "lenient"  bool: accept headers that only the reference reader accepts
 *   "more"     array of further paths; their files follow those of the first
 * A damaged header gives NEBULAIO_ERR_CORRUPT. Release the model after its loads and
 * before the system. */
int32_t nebulaio_model_open(uint64_t system, const char *path, const char *options_json,
                            uint64_t *model, char *err, size_t errcap);

/* Gives, as JSON, {"device":"cuda:0","files":[{"path","size","dest_size","dest_align"}]}.
 * A load can start with this alone. The longer nebulaio_model_describe can be read
 * while the load runs. */
int32_t nebulaio_model_files(uint64_t model, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Gives, as JSON, {"device","files","tensors":[{"name","dtype","shape","file","offset",
 * "size"}],"metadata":{}}. offset is relative to the start of that file's destination.
 * For a part of a tensor, shape and size describe the part, and "whole_shape" and
 * "start" (the first index of each dimension) are present too. */
int32_t nebulaio_model_describe(uint64_t model, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Counts the files and tensors of a model. Either output may be NULL. */
int32_t nebulaio_model_count(uint64_t model, uint64_t *files, uint64_t *tensors, char *err, size_t errcap);

/* Gives the size and alignment of the destination of file number `file`, from 0. */
int32_t nebulaio_model_destination(uint64_t model, uint64_t file, nebulaio_destination *out, char *err, size_t errcap);

/* Describes tensor number `index`, from 0, in order of file and offset. The name is a
 * text result. out may be NULL. */
int32_t nebulaio_model_tensor(uint64_t model, uint64_t index, nebulaio_place *out, char *name, size_t cap, size_t *need,
                              char *err, size_t errcap);

/* Gives the number of the tensor with that name, or fails with NEBULAIO_ERR_NOT_FOUND. */
int32_t nebulaio_model_find(uint64_t model, const char *name, uint64_t *index, char *err, size_t errcap);

/* Makes a second model of the same open files with another choice of tensors. It reads
 * no header again. Release it before the first model. Options:
 *   "tensors", "slices", "shards"  as in nebulaio_model_open
 *   "names"    array of exact names in place of globs; fast in files of many tensors
 *   "files"    array of file numbers: only tensors of these files are chosen, and a
 *              glob may match nothing */
int32_t nebulaio_model_select(uint64_t model, const char *options_json, uint64_t *selection, char *err, size_t errcap);

/* Starts a load into dst[0..ndst), one destination per file in order, and returns at
 * once. The destinations belong to the job until it has ended. The model must stay open
 * that long. Copies begin after the work that is queued on `stream`; for host memory
 * the stream is ignored. Options:
 *   "route"  "auto" | "buffered" | "direct" | "cufile"
 *   "cache"  "auto" | "keep" | "bypass": what may stay in the page cache
 *   "verify" bool: compare every block that is read with FILE.crc64nvme beside its
 *            file. A block that differs ends the load with NEBULAIO_ERR_CORRUPT. If
 *            there are no checksums, the call fails with NEBULAIO_ERR_NOT_FOUND.
 *            "nebulaio inspect PATH --checksum" makes them */
int32_t nebulaio_load_start(uint64_t model, const nebulaio_buffer *dst, size_t ndst, nebulaio_stream stream,
                            const char *options_json, uint64_t *load, char *err, size_t errcap);

/* Waits until more than `known` tensors of a load are complete. `ready` (may be NULL)
 * receives their number, counted in the order of nebulaio_model_tensor. Complete tensors
 * can be used and do not change, even if the load fails later. timeout_ms limits the
 * wait; a negative value means no limit. Returns
 *   NEBULAIO_OK       more than `known` are complete, or the load has succeeded
 *   NEBULAIO_RUNNING  the time ran out
 *   else              the load has failed, and no more will be complete
 * `ready` is set in each case. Always call nebulaio_wait afterwards: only the end of the
 * load proves that no file changed while it was read. */
int32_t nebulaio_load_ready(uint64_t job, uint64_t known, int32_t timeout_ms, uint64_t *ready, char *err,
                            size_t errcap);

/* Starts to write checksums for loads with "verify". The job reads every file of a model
 * and writes FILE.crc64nvme beside it. Use it on a copy that is known to be good. The
 * model must stay open until the job has ended. The report is {"files":[{"path",
 * "block_size","blocks"}],"bytes","seconds"}. If the job fails before all checksums are
 * computed, it writes none. */
int32_t nebulaio_checksum_start(uint64_t model, uint64_t *job, char *err, size_t errcap);

/* A tensor to save: contiguous and in row-major order. */
typedef struct nebulaio_tensor {
	const char *name;
	const char *dtype;    /* safetensors name: "F32", "BF16", "F8_E4M3" */
	const int64_t *shape; /* rank sizes; may be NULL if rank is 0 */
	size_t rank;          /* dimensions, at most NEBULAIO_MAX_RANK */
	const void *address;  /* of device memory, or of host memory for "host" */
	uint64_t size;        /* bytes; must match dtype and shape */
	const char *device;   /* "host" | "cuda" | "cuda:N" */
} nebulaio_tensor;

/* Starts to save tensors[0..count) to one .safetensors file, or to "s3://bucket/key".
 * The tensors may be on several devices. Their memory belongs to the job, and must not
 * change, until the job has ended. If the job succeeds, the file is complete and
 * durable, with FILE.crc64nvme beside it. If the job fails or is cancelled, an existing
 * file is unchanged. A symbolic link at path is followed. The tensors of the
 * first GPU are read after the work that is queued on `stream`. Options:
 *   "metadata"  object of strings: "__metadata__" of the file, default none
 *   "checksum"  bool: write FILE.crc64nvme, default true. With false, an old one is
 *               removed
 *   "align"     alignment of the first data byte, a multiple of 8, default 4096
 *   "route"     "auto" | "buffered" | "direct"
 *   "streams"   object of streams as numbers by device, {"cuda:1": 1234}, for tensors
 *               on several GPUs. Default: the legacy default stream
 *   "client"    object of the options of nebulaio_client_open, for "s3://bucket/key".
 *               Default: what the environment says */
int32_t nebulaio_save_start(uint64_t system, const char *path, const nebulaio_tensor *tensors, size_t count,
                            nebulaio_stream stream, const char *options_json, uint64_t *job, char *err, size_t errcap);

/* Opens a file for reads and writes in place, at any offset. flags: "r" reads, "r+"
 * reads and writes, "w" and "w+" read and write a file that is created or emptied
 * first. Options:
 *   "device"  default device of the memory: "auto" (default) | "host" | "cuda" | "cuda:N"
 *   "route"   default route: "auto" | "buffered" | "direct" | "cufile"
 * The release of the file waits for its running jobs. */
int32_t nebulaio_file_open(uint64_t system, const char *path, const char *flags, const char *options_json,
                           uint64_t *file, char *err, size_t errcap);

/* Gives the current length of the file in bytes. */
int32_t nebulaio_file_size(uint64_t file, uint64_t *size, char *err, size_t errcap);

/* Starts to read up to size bytes at file_offset into address, and returns at once. The
 * memory belongs to the job until it has ended. If the file is shorter, bytes_done of
 * the progress is smaller than size. The read begins after the work that is queued on
 * `stream`; for host memory the stream is ignored. Options:
 *   "device", "route"  in place of the file's, for this read
 *   "async"   bool: read in the order of the stream if libcufile can. Work queued on the
 *             stream later then sees the bytes. If libcufile cannot, the job has ended
 *             when this call returns, and its report gives the reason */
int32_t nebulaio_file_read_start(uint64_t file, void *address, uint64_t size, uint64_t file_offset,
                                 nebulaio_stream stream, const char *options_json, uint64_t *job, char *err,
                                 size_t errcap);

/* Starts to write size bytes from address to file_offset. The file grows if needed. The
 * memory must not change until the job has ended. A write is not atomic, and it
 * survives a crash only after nebulaio_file_sync. Stream and options are those of
 * nebulaio_file_read_start. */
int32_t nebulaio_file_write_start(uint64_t file, const void *address, uint64_t size, uint64_t file_offset,
                                  nebulaio_stream stream, const char *options_json, uint64_t *job, char *err,
                                  size_t errcap);

/* Makes all earlier writes durable, and waits for that. */
int32_t nebulaio_file_sync(uint64_t file, char *err, size_t errcap);

/* Opens a client of an S3 server. It connects on first use. On the server's own host,
 * objects come through the server's door as file descriptors if this process may use
 * it. Otherwise they come over HTTP. Every report names the way and the reason.
 * Options; the environment supplies missing ones:
 *   "endpoint"       "http://host:port" or https; else NEBULAIO_ENDPOINT,
 *                    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, http://localhost:9000
 *   "access_key", "secret_key", "session_token"   else NEBULAIO_ACCESS_KEY and
 *                    NEBULAIO_SECRET_KEY, else AWS_ACCESS_KEY_ID and the like
 *   "region"         else AWS_REGION, else us-east-1
 *   "door"           "auto" (default) | "require": an error without a door | "off" |
 *                    the path of its socket
 *   "device"         default device of the memory: "auto" (default) | "host" | "cuda" |
 *                    "cuda:N"
 *   "connections"    largest number of HTTP connections, 0 = chosen
 *   "verify"         bool: compare every block with its checksum, default true
 *   "ca_file"        certificates to trust for https, in addition to the system's
 *   "insecure_tls"   bool: trust every certificate, default false
 *   "timeout_ms"     longest time without an answer from the server, 0 = chosen
 *   "retries"        how often a failed request is repeated, 0 = chosen
 * Release the client after its jobs, objects and models. */
int32_t nebulaio_client_open(uint64_t system, const char *options_json, uint64_t *client, char *err, size_t errcap);

/* Memory on a further device that receives the same bytes. */
typedef struct nebulaio_peer {
	void *address;
	const char *device; /* "cuda:N" */
} nebulaio_peer;

/* A read of one object, or of a range of it, into memory of the program. */
typedef struct nebulaio_object_read {
	size_t struct_size;     /* sizeof(nebulaio_object_read): later versions add fields */
	const char *bucket;
	const char *key;
	const char *version;    /* NULL: the newest */
	uint64_t offset;        /* of the first byte in the object */
	int64_t size;           /* bytes; -1: up to the object's end */
	void *address;          /* of device memory, or of host memory for "host" */
	uint64_t capacity;      /* bytes available from address */
	const char *device;     /* NULL: the client's */
	nebulaio_stream stream; /* the read begins after the work that is queued on it */
	const nebulaio_peer *peers; /* NULL if npeers is 0 */
	size_t npeers;
} nebulaio_object_read;

/* A write of one object from memory of the program. */
typedef struct nebulaio_object_write {
	size_t struct_size;     /* sizeof(nebulaio_object_write): later versions add fields */
	const char *bucket;
	const char *key;
	const void *address;    /* of device memory, or of host memory for "host" */
	uint64_t size;          /* bytes */
	const char *device;     /* NULL: the client's */
	nebulaio_stream stream; /* the write begins after the work that is queued on it */
} nebulaio_object_write;

/* Starts to read reads[0..count) as one job. The memory belongs to the job until it has
 * ended. If an object is larger than its memory, the job fails unless size limits the
 * read. The first object that fails ends the job, and the error names it. Options:
 *   "route"   "auto" | "buffered" | "direct" | "cufile"
 *   "cache"   "auto" | "keep" | "bypass"
 *   "verify"  bool, in place of the client's */
int32_t nebulaio_object_read_start(uint64_t client, const nebulaio_object_read *reads, size_t count,
                                   const char *options_json, uint64_t *job, char *err, size_t errcap);

/* Starts to write an object. The memory must not change until the job has ended. If the
 * job succeeds, the object is complete, durable and visible. If it fails or is
 * cancelled, an existing object is unchanged, unless the error says that the server
 * may have stored the new one. Options:
 *   "route"          as in nebulaio_object_read_start
 *   "content_type"   text
 *   "metadata"       object of strings
 *   "if_match"       ETag that the object must have
 *   "if_none_match"  ETag that the object must not have; "*": it must not exist */
int32_t nebulaio_object_write_start(uint64_t client, const nebulaio_object_write *write, const char *options_json,
                                    uint64_t *job, char *err, size_t errcap);

/* Starts to query the properties of an object. The report of the job is the answer:
 * {"bucket","key","version","size","etag","modified","crc64nvme","via"}. A NULL version
 * means the newest. */
int32_t nebulaio_object_stat_start(uint64_t client, const char *bucket, const char *key, const char *version,
                                   uint64_t *job, char *err, size_t errcap);

/* Starts to list one page of the keys of a bucket, in order. The report of the job is
 * the answer: {"objects":[{"key","size","etag","modified"}],"prefixes":[],
 * "truncated","next"}. Options:
 *   "prefix", "delimiter"   as in S3
 *   "after"                 list the keys after this one: "next" of the previous page
 *   "limit"                 largest number of entries on the page, 0 = chosen */
int32_t nebulaio_object_list_start(uint64_t client, const char *bucket, const char *options_json, uint64_t *job,
                                   char *err, size_t errcap);

/* Starts to query how the client reaches its server. The report of the job is the
 * answer: the door or the reason for none, the server's settings, and counters. */
int32_t nebulaio_client_status_start(uint64_t client, uint64_t *job, char *err, size_t errcap);

/* Opens a model of objects. key is a .safetensors object, an index.json, or the common
 * prefix of the objects. Options are those of nebulaio_model_open. Release the model
 * before the client. */
int32_t nebulaio_client_model_open(uint64_t client, const char *bucket, const char *key, const char *options_json,
                                   uint64_t *model, char *err, size_t errcap);

/* File descriptors of an object's file. The object's handle owns them, and its release
 * closes them. */
typedef struct nebulaio_descriptors {
	size_t struct_size; /* in: sizeof(nebulaio_descriptors) */
	int32_t buffered;   /* out: through the page cache; -1: none */
	int32_t direct;     /* out: O_DIRECT; -1: the file system cannot do it */
	uint64_t size;      /* out: bytes of the object */
} nebulaio_descriptors;

/* Opens the file of an object through the door, for programs that read it with their own
 * library, such as cuFile. The file keeps its bytes until the handle is released, even if
 * the object is deleted. The descriptors are read-only. A NULL version means the newest.
 * device is the destination of the bytes; NULL means the client's. Without a door the
 * call fails with NEBULAIO_ERR_UNSUPPORTED. */
int32_t nebulaio_object_open(uint64_t client, const char *bucket, const char *key, const char *version,
                             const char *device, nebulaio_descriptors *out, uint64_t *object, char *err, size_t errcap);

/* Begins an object of at most size bytes whose file the program writes itself. The
 * object becomes visible when nebulaio_object_commit_start has succeeded. A release
 * before that discards it. Options: "content_type", "metadata", "if_match" and
 * "if_none_match" as in nebulaio_object_write_start, "device" as in nebulaio_object_open. */
int32_t nebulaio_object_create(uint64_t client, const char *bucket, const char *key, uint64_t size,
                               const char *options_json, nebulaio_descriptors *out, uint64_t *object, char *err,
                               size_t errcap);

/* Starts to publish the first size bytes that were written. The job reads them once for
 * their checksums and closes the handle's descriptors. If it succeeds, the object is
 * durable and visible. Before this call, the program must end everything else that can
 * write the file: cuFile registrations, duplicated descriptors and mappings. Otherwise
 * the server refuses. After this call, the handle can only be released. */
int32_t nebulaio_object_commit_start(uint64_t object, uint64_t size, uint64_t *job, char *err, size_t errcap);

/* Opens a queue. One thread can wait on it for the end of many jobs. */
int32_t nebulaio_queue_open(uint64_t *queue, char *err, size_t errcap);

/* Adds a job to a queue, once. When the job has ended, nebulaio_queue_next gives its
 * handle, even if that handle has been released. */
int32_t nebulaio_queue_add(uint64_t queue, uint64_t job, char *err, size_t errcap);

/* Waits for the next job that has ended and gives its handle. timeout_ms limits the
 * wait; a negative value means no limit. Returns NEBULAIO_RUNNING if the time ran out
 * and NEBULAIO_ERR_CLOSED if another thread releases the queue. */
int32_t nebulaio_queue_next(uint64_t queue, int32_t timeout_ms, uint64_t *job, char *err, size_t errcap);

/* Waits for a job: a load, a save, a read or write, checksums, or a query. timeout_ms
 * limits the wait; a negative value means no limit. Returns NEBULAIO_RUNNING if the time
 * ran out. Otherwise the job has ended, its memory belongs to the program again, and
 * status and message are the job's own. progress (may be NULL) is set in each case. The
 * call can be repeated. */
int32_t nebulaio_wait(uint64_t job, int32_t timeout_ms, nebulaio_progress *progress, char *err, size_t errcap);

/* Asks a job to stop and returns at once. nebulaio_wait then ends with
 * NEBULAIO_ERR_CANCELLED, unless the job had ended before. */
int32_t nebulaio_cancel(uint64_t job, char *err, size_t errcap);

/* Gives the JSON report of a job that has ended, even if it failed. While the job runs,
 * the call fails with NEBULAIO_ERR_INVALID. */
int32_t nebulaio_report(uint64_t job, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Releases a handle of any kind. A running job is cancelled and waited for. A system with
 * a running job, or a model with a load or a selection, stays open, and the call fails
 * with NEBULAIO_ERR_INVALID. */
int32_t nebulaio_release(uint64_t handle, char *err, size_t errcap);

#ifdef __cplusplus
}
#endif

#endif /* NEBULAIO_H */
