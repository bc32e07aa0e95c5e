/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nebulaio.h is the interface of the C library libnebulaio.so. The library moves bytes
 * between files or S3 objects and GPU or host memory. The header works with C99 and later
 * and with C++11 and later.
 *
 * A load takes these calls, in this order:
 *
 *   nebulaio_system_open      starts the library; looks for no device yet
 *   nebulaio_model_open       reads and checks the headers of a model
 *   nebulaio_model_files      returns, as JSON, the size of each destination
 *   cudaMalloc, for example   the program itself allocates one destination for each file
 *   nebulaio_load_start       starts to read; returns at once
 *   nebulaio_model_describe   returns, as JSON, the offset of each tensor in its destination
 *   nebulaio_wait             waits for the end, for a limited time if asked to
 *   nebulaio_report           returns, as JSON, the route of every byte and the reason
 *   nebulaio_release          releases each handle, once
 *
 * nebulaio_gather_start reads many ranges of many files into memory of one device, and
 * nebulaio_write_start writes pieces of memory to one file, as checkpoints need.
 *
 * nebulaio_client_open and nebulaio_object_* move objects of any S3 server.
 *
 * nebulaio_data_open_start, nebulaio_loader_open and nebulaio_loader_next read batches of
 * training data into device memory that the library owns.
 *
 * These rules hold for every function:
 *
 * Errors. A function returns NEBULAIO_OK or one of NEBULAIO_ERR_*. If a function fails,
 *   it writes a message to `err`. The message is UTF-8, ends with NUL, and is cut to
 *   `errcap` bytes. `err` may be NULL. A function that fails changes none of its other
 *   outputs, except where its comment says so.
 * Arguments. A pointer must not be NULL unless a comment allows it. A call with a NULL
 *   pointer, with text that is not UTF-8, or with a count without an array fails with
 *   NEBULAIO_ERR_INVALID. Options are a JSON object; NULL or "" means no options. All
 *   keys of options are optional, and an unknown key is an error. Paths are bytes and
 *   need not be UTF-8.
 * Text results. `need` (may be NULL) receives the length of the text without the NUL.
 *   The text is copied to `buf` only if `cap` is larger than this length. If `cap` is
 *   too small, the call fails with NEBULAIO_ERR_INVALID and copies nothing. If `cap` is
 *   0, the call returns NEBULAIO_OK, so that a program can ask for the length first.
 * Ownership. A call reads its text and struct arguments before it returns, and the
 *   program may free them afterwards. Memory that is passed to a job by its address
 *   belongs to the job until the job has ended: until then the program must not change
 *   or free it.
 * Handles. A handle is a number, never 0. The program releases each handle once. A call
 *   with a released handle, or with a handle of the wrong kind, fails with
 *   NEBULAIO_ERR_CLOSED.
 * Addresses. An address is a pointer as malloc, cudaMalloc or cudaMallocHost returns
 *   it. A CUdeviceptr ptr of the driver API is passed as (void *)(uintptr_t)ptr. A
 *   stream is a cudaStream_t or CUstream.
 * Threads. All functions are thread-safe, even for calls on the same handle. No call
 *   changes the current CUDA context of the calling thread.
 * Fork. After fork(), the child process must not call the library that its parent has
 *   loaded.
 */
#ifndef NEBULAIO_H
#define NEBULAIO_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. Every change of the interface increments the version. An
 * incompatible change also increments the number in the library's file name
 * (libnebulaio.so.3). Programs call nebulaio_check_abi before any other function. */
#define NEBULAIO_ABI_VERSION 6

/* The status codes. The number of a code never changes; new codes are added at the
 * end. */
enum {
	NEBULAIO_RUNNING = -1,        /* the time ran out, and the job is still running */
	NEBULAIO_OK = 0,
	NEBULAIO_ERR_OTHER = 1,       /* a defect, or an unknown cause */
	NEBULAIO_ERR_INVALID = 2,     /* an argument or option is wrong, or the call is not allowed now */
	NEBULAIO_ERR_NOT_FOUND = 3,   /* no such file, object, tensor or device */
	NEBULAIO_ERR_PERMISSION = 4,  /* the system or the server denies access */
	NEBULAIO_ERR_CORRUPT = 5,     /* content breaks its format or its checksum */
	NEBULAIO_ERR_IO = 6,          /* a read, a write or a connection failed */
	NEBULAIO_ERR_DEVICE = 7,      /* a call into a device driver failed */
	NEBULAIO_ERR_NO_MEMORY = 8,   /* not enough host or device memory */
	NEBULAIO_ERR_UNSUPPORTED = 9, /* this build, kernel, driver or device lacks the feature */
	NEBULAIO_ERR_CANCELLED = 10,  /* the job was cancelled */
	NEBULAIO_ERR_CLOSED = 11      /* the handle is not open */
};

/* A CUDA stream. The type is CUDA's own, so that a cudaStream_t or CUstream needs no
 * cast. NULL means the legacy default stream. This header needs no CUDA header. */
typedef struct CUstream_st *nebulaio_stream;

/* Memory of the program that a file is loaded into. The memory must stay allocated until
 * nebulaio_wait returns something other than NEBULAIO_RUNNING. */
typedef struct nebulaio_buffer {
	void *address; /* in device memory, or in host memory for the device "host" */
	uint64_t size; /* size of the memory at address, in bytes */
} nebulaio_buffer;

/* The largest number of dimensions of a tensor. */
#define NEBULAIO_MAX_RANK 64

/* The memory that the destination of one file needs. */
typedef struct nebulaio_destination {
	uint64_t size;      /* size of the destination, in bytes */
	uint64_t align;     /* recommended alignment of the destination's address, in bytes */
	uint64_t file_size; /* size of the file in bytes, for information */
} nebulaio_destination;

/* A tensor and its place in the destinations of a load. */
typedef struct nebulaio_place {
	uint64_t file;   /* index of the destination, from 0 */
	uint64_t offset; /* offset of the tensor in the destination, in bytes */
	uint64_t size;   /* size of the tensor, in bytes */
	int64_t shape[NEBULAIO_MAX_RANK];
	uint32_t rank;   /* number of dimensions in shape */
	char dtype[20];  /* name of the type as in safetensors: "BF16", "F8_E4M3" */
} nebulaio_place;

/* The progress of a job. */
typedef struct nebulaio_progress {
	uint64_t bytes_done;
	uint64_t bytes_total;
} nebulaio_progress;

/* Returns the ABI version of the loaded library. This function cannot fail. */
int32_t nebulaio_abi_version(void);

/* Checks that the loaded library has the ABI version of this header. If the versions
 * differ, nebulaio_check_abi returns NEBULAIO_ERR_UNSUPPORTED and a message with both
 * numbers. The program must then call no other function. nebulaio.hpp and the Python
 * package call nebulaio_check_abi automatically. */
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

/* Returns the version of NebulaIO, such as "0.1.0", as a text result. */
int32_t nebulaio_version(char *buf, size_t cap, size_t *need);

/* Opens a system: the devices, worker threads and staging memory of the process. A
 * program opens one system and shares it among its threads. The system looks for devices
 * when a device is first needed. It allocates staging memory with the first model for a
 * GPU, or with the first load. Options:
 *   "devices"            "auto" | "require" | "off": whether GPUs are used
 *   "buffer_pool_size"   bytes of staging memory, default 134217728
 *   "max_transfer_size"  largest single read or copy in bytes, default 2097152
 *   "queue_depth"        largest number of direct reads in flight, 0 = chosen for this machine
 *   "workers"            number of threads that copy from the page cache, 0 = chosen
 *   "io"                 "auto" | "uring" | "pread"
 *   "write_block_size"   largest single write of a save in bytes, default 1048576
 *   "write_depth"        largest number of writes of saves in flight, 0 = chosen
 *   "cufile"             "sync" | "async" | "batch": interface of libcufile that
 *                        the route "cufile" uses
 *   "verify_on"          "auto" | "host" | "device": where checksums are computed
 *   "device_ids"         array of the numbers of the GPUs that will be used. These GPUs
 *                        share the staging memory. Default: all visible GPUs
 *   "enable_p2p"         bool: bytes for several GPUs may be copied from one GPU to
 *                        the next, default true
 *   "cuda_library", "nvml_library", "cufile_library"  library files to load in place
 *                        of NVIDIA's; for tests
 * Release the system after all handles that were opened from it, and before the process
 * ends. Otherwise libcufile may crash at exit. While a job runs, the release of the
 * system fails with NEBULAIO_ERR_INVALID, and the system stays open. If handles remain
 * after the release, every move with them fails with NEBULAIO_ERR_CLOSED, and the program
 * must still release them. */
int32_t nebulaio_system_open(const char *options_json, uint64_t *system, char *err, size_t errcap);

/* Returns, as JSON, the devices that were found, and the missing libraries with their
 * fixes. */
int32_t nebulaio_devices(uint64_t system, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Opens a model and reads its headers. path is a .safetensors file, an index.json, a
 * model directory, or "s3://bucket/key". For "s3://", environment variables name the
 * server and the keys; see nebulaio_client_open. Options:
 *   "device"   "auto" (default) | "host" | "cuda" | "cuda:N"
 *   "tensors"  array of globs: only tensors that match are read
 *   "slices"   array of {"tensor": glob or name, "ranges": [[start, stop], null, ...]}:
 *              only these ranges of the dimensions of matching tensors are read.
 *              stop is not included, and -1 means the end. null, or a missing entry,
 *              means the whole dimension
 *   "shards"   array of {"tensor", "dim", "rank", "world"}: only the indices from
 *              size*rank/world up to size*(rank+1)/world of dim are read. It is an
 *              error if a tensor matches two slices or shards
 *   "lenient"  bool: accept headers that only the reference reader accepts
 *   "more"     array of further paths of the model; their files follow those of path
 * If a header is damaged, the call fails with NEBULAIO_ERR_CORRUPT. Release the model
 * after its loads and before the system. */
int32_t nebulaio_model_open(uint64_t system, const char *path, const char *options_json,
                            uint64_t *model, char *err, size_t errcap);

/* Returns the files of a model as JSON:
 * {"device":"cuda:0","files":[{"path","size","dest_size","dest_align"}]}. A load needs no
 * more than this to start. The longer result of nebulaio_model_describe can be read while
 * the load runs. */
int32_t nebulaio_model_files(uint64_t model, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Returns the files, tensors and metadata of a model as JSON:
 * {"device","files","tensors":[{"name","dtype","shape","file","offset","file_offset",
 * "size"}],"metadata":{}}. "offset" is relative to the start of the destination of "file",
 * and "file_offset" is relative to the start of the file. If only a part of a tensor is
 * read, "shape" and "size" describe the part, and "file_offset" is the place of its first
 * byte. The entry then also has "whole_shape" and "start", the first index of each
 * dimension. */
int32_t nebulaio_model_describe(uint64_t model, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Returns the number of files and of tensors of a model. Each of the two outputs may be
 * NULL. */
int32_t nebulaio_model_count(uint64_t model, uint64_t *files, uint64_t *tensors, char *err, size_t errcap);

/* Returns the size and alignment of the destination of one file. `file` is the number of
 * the file, counted from 0. */
int32_t nebulaio_model_destination(uint64_t model, uint64_t file, nebulaio_destination *out, char *err, size_t errcap);

/* Returns the name and the place of one tensor. `index` is the number of the tensor,
 * counted from 0 in order of file and offset. The name is a text result. out may be
 * NULL. */
int32_t nebulaio_model_tensor(uint64_t model, uint64_t index, nebulaio_place *out, char *name, size_t cap, size_t *need,
                              char *err, size_t errcap);

/* Returns the number of the tensor with the given name. If there is none, the call fails
 * with NEBULAIO_ERR_NOT_FOUND. */
int32_t nebulaio_model_find(uint64_t model, const char *name, uint64_t *index, char *err, size_t errcap);

/* Creates a second model of the same open files with another selection of tensors. The
 * headers are not read again. Release the second model before the first. Options:
 *   "tensors", "slices", "shards"  as in nebulaio_model_open
 *   "names"    array of exact tensor names in place of globs; fast for many tensors
 *   "files"    array of file numbers: only tensors of these files are selected. A
 *              glob that matches no tensor is then no error */
int32_t nebulaio_model_select(uint64_t model, const char *options_json, uint64_t *selection, char *err, size_t errcap);

/* Starts a load into dst[0..ndst) and returns at once. dst has one destination for each
 * file, in order. The destinations belong to the job until the job has ended, and the
 * model must stay open until then. Copies begin after the work that is queued on
 * `stream`; for host memory the stream is ignored. Options:
 *   "route"  "auto" | "buffered" | "direct" | "cufile"
 *   "cache"  "auto" | "keep" | "bypass": whether bytes stay in the page cache
 *   "verify" bool: compare every block with its checksum in FILE.crc64nvme. If a
 *            block differs, the load fails with NEBULAIO_ERR_CORRUPT. If there is no
 *            FILE.crc64nvme, the call fails with NEBULAIO_ERR_NOT_FOUND. The command
 *            "nebulaio inspect PATH --checksum" writes it */
int32_t nebulaio_load_start(uint64_t model, const nebulaio_buffer *dst, size_t ndst, nebulaio_stream stream,
                            const char *options_json, uint64_t *load, char *err, size_t errcap);

/* Waits until more than `known` tensors of a load are complete. `ready` (may be NULL)
 * receives the number of complete tensors, counted in the order of nebulaio_model_tensor.
 * The program can use complete tensors at once, and they do not change even if the load
 * fails later. timeout_ms limits the wait; a negative value means no limit. Returns
 *   NEBULAIO_OK       more than `known` tensors are complete, or the load has succeeded
 *   NEBULAIO_RUNNING  the time ran out
 *   an error          the load has failed, and no further tensor becomes complete
 * `ready` is set in all three cases. Always call nebulaio_wait afterwards, because only
 * the end of the load proves that no file changed during the load. */
int32_t nebulaio_load_ready(uint64_t job, uint64_t known, int32_t timeout_ms, uint64_t *ready, char *err,
                            size_t errcap);

/* Starts a job that computes the checksums of a model, for loads with "verify". The job
 * reads every file of the model and writes FILE.crc64nvme beside the file. Call this
 * function only for a model that is known to be undamaged. The model must stay open until
 * the job has ended. The job's report is {"files":[{"path",
 * "block_size","blocks"}],"bytes","seconds"}. If the job fails before it has computed all
 * checksums, it writes none. */
int32_t nebulaio_checksum_start(uint64_t model, uint64_t *job, char *err, size_t errcap);

/* A tensor to save. Its bytes are contiguous and in row-major order. */
typedef struct nebulaio_tensor {
	const char *name;
	const char *dtype;    /* name of the type as in safetensors: "F32", "BF16", "F8_E4M3" */
	const int64_t *shape; /* size of each dimension; may be NULL if rank is 0 */
	size_t rank;          /* number of dimensions, at most NEBULAIO_MAX_RANK */
	const void *address;  /* in device memory, or in host memory for the device "host" */
	uint64_t size;        /* size in bytes; must match dtype and shape */
	const char *device;   /* "host" | "cuda" | "cuda:N" */
} nebulaio_tensor;

/* Starts to save tensors[0..count) to one .safetensors file, or to "s3://bucket/key". The
 * tensors may be on several devices. The memory of the tensors must stay allocated and
 * unchanged until the job has ended. If the job succeeds, the file is complete and
 * durable, with FILE.crc64nvme beside it. If the job fails or is cancelled, an existing
 * file is unchanged. A symbolic link at path is followed. The tensors of the first GPU
 * are read after the work that is queued on `stream`. Options:
 *   "metadata"  object of strings: "__metadata__" of the file, default none
 *   "checksum"  bool: write FILE.crc64nvme, default true. With false, an existing
 *               FILE.crc64nvme is removed
 *   "align"     alignment of the first data byte in the file, in bytes; a multiple of
 *               8, default 4096
 *   "route"     "auto" | "buffered" | "direct"
 *   "streams"   object of streams as numbers by device, {"cuda:1": 1234}, for tensors
 *               on several GPUs. Default: the legacy default stream
 *   "client"    object of the options of nebulaio_client_open, for "s3://bucket/key".
 *               Default: taken from the environment */
int32_t nebulaio_save_start(uint64_t system, const char *path, const nebulaio_tensor *tensors, size_t count,
                            nebulaio_stream stream, const char *options_json, uint64_t *job, char *err, size_t errcap);

/* A range of one file and its destination in the memory of the program. */
typedef struct nebulaio_segment {
	uint64_t file;     /* number of the file in the call's array of files, from 0 */
	uint64_t offset;   /* offset of the range in the file, in bytes */
	uint64_t size;     /* size of the range in the file, in bytes */
	uint64_t width;    /* with stride: bytes that are wanted out of every stride bytes */
	uint64_t stride;   /* 0: every byte is wanted. Else only the first width bytes of every
	                    * stride bytes, counted from offset, are wanted; they are packed
	                    * without gaps at address */
	void *address;     /* in device memory, or in host memory for the device "host" */
	const char *label; /* name of the content in errors, such as a tensor's; may be NULL */
} nebulaio_segment;

/* Starts to read segments[0..nsegments) of files[0..nfiles) into memory of one device, and
 * returns at once. A file is a path or "s3://bucket/key". The segments may be in any order.
 * Segments that are near each other in a file are read together. A file without a segment
 * is not opened. The destinations belong to the job until the job has ended. Copies begin
 * after the work that is queued on `stream`; for host memory the stream is ignored. The
 * call fails if an argument is wrong; the job fails if a file is missing or damaged.
 * Options:
 *   "device"  device of all destinations: "auto" (default) | "host" | "cuda" | "cuda:N"
 *   "route"   "auto" | "buffered" | "direct" | "cufile"
 *   "cache"   "auto" | "keep" | "bypass": whether bytes stay in the page cache
 *   "verify"  bool: compare every block that has a wanted byte with its checksum. For a
 *             file, the checksums are in FILE.crc64nvme. For an object, the server's
 *             door or the object KEY.crc64nvme has them. If a block differs, the job
 *             fails with NEBULAIO_ERR_CORRUPT, and its error names the file and the
 *             labels. If there are no checksums, it fails with NEBULAIO_ERR_NOT_FOUND
 *   "gap"     smallest number of unwanted bytes in a file across which nothing is read,
 *             default 65536: a smaller one reads fewer bytes in more reads
 *   "client"  object of the options of nebulaio_client_open, for "s3://bucket/key".
 *             Default: taken from the environment */
int32_t nebulaio_gather_start(uint64_t system, const char *const *files, size_t nfiles,
                              const nebulaio_segment *segments, size_t nsegments, nebulaio_stream stream,
                              const char *options_json, uint64_t *job, char *err, size_t errcap);

/* A range of memory that a write puts into a file. */
typedef struct nebulaio_piece {
	const void *address; /* in device memory, or in host memory for the device "host" */
	uint64_t size;       /* size in bytes; may be 0 */
	const char *device;  /* "host" | "cuda" | "cuda:N" */
} nebulaio_piece;

/* Starts to write pieces[0..count), one behind the other, to one file or to
 * "s3://bucket/key". The pieces may be on several devices. The memory of the pieces must
 * stay allocated and unchanged until the job has ended. If the job succeeds, the file is
 * complete and durable under its name, with FILE.crc64nvme beside it. If the job fails or
 * is cancelled, an existing file is unchanged. A symbolic link at path is followed. The
 * pieces of the first GPU are read after the work that is queued on `stream`. The report
 * of the job has "crc64nvme", the checksum of the whole file as 16 hexadecimal digits.
 * Options:
 *   "checksum"  bool: write FILE.crc64nvme, or after an object the object
 *               KEY.crc64nvme, default true. With false, an existing FILE.crc64nvme is
 *               removed, and an existing object KEY.crc64nvme stays
 *   "route"     "auto" | "buffered" | "direct"
 *   "streams"   object of streams as numbers by device, {"cuda:1": 1234}, for pieces on
 *               several GPUs. Default: the legacy default stream
 *   "client"    object of the options of nebulaio_client_open, for "s3://bucket/key".
 *               Default: taken from the environment */
int32_t nebulaio_write_start(uint64_t system, const char *path, const nebulaio_piece *pieces, size_t count,
                             nebulaio_stream stream, const char *options_json, uint64_t *job, char *err,
                             size_t errcap);

/* Opens a file for reads and writes in place, at any offset. flags is "r" to read, or
 * "r+" to read and write. "w" and "w+" create the file, or empty an existing one, and
 * open it to read and write. Options:
 *   "device"  default device of the memory: "auto" (default) | "host" | "cuda" | "cuda:N"
 *   "route"   default route: "auto" | "buffered" | "direct" | "cufile"
 * The release of the file waits for its running jobs. */
int32_t nebulaio_file_open(uint64_t system, const char *path, const char *flags, const char *options_json,
                           uint64_t *file, char *err, size_t errcap);

/* Returns the current length of the file in bytes. */
int32_t nebulaio_file_size(uint64_t file, uint64_t *size, char *err, size_t errcap);

/* Starts to read up to size bytes at file_offset of the file into address, and returns at
 * once. The memory belongs to the job until the job has ended. If the file ends before
 * size bytes are read, bytes_done of the progress is smaller than size. The read begins
 * after the work that is queued on `stream`; for host memory the stream is ignored.
 * Options:
 *   "device", "route"  for this read, in place of the file's device and route
 *   "async"   bool: read in the order of the stream, if libcufile can. Work that is
 *             queued on the stream later then sees the bytes. If libcufile cannot, the
 *             job has already ended when this call returns, and its report has the
 *             reason */
int32_t nebulaio_file_read_start(uint64_t file, void *address, uint64_t size, uint64_t file_offset,
                                 nebulaio_stream stream, const char *options_json, uint64_t *job, char *err,
                                 size_t errcap);

/* Starts to write size bytes from address to file_offset of the file, and returns at
 * once. The file grows if needed. The memory must not change until the job has ended. A
 * write is not atomic, and survives a crash only after nebulaio_file_sync. `stream` and
 * the options have the same meaning as in nebulaio_file_read_start. */
int32_t nebulaio_file_write_start(uint64_t file, const void *address, uint64_t size, uint64_t file_offset,
                                  nebulaio_stream stream, const char *options_json, uint64_t *job, char *err,
                                  size_t errcap);

/* Makes all earlier writes to the file durable, and returns when they are. */
int32_t nebulaio_file_sync(uint64_t file, char *err, size_t errcap);

/* Opens a client of an S3 server. The client connects to the server on first use. If this
 * process runs on the host of a NebulaIO server and may use the server's door, the server
 * sends file descriptors of the objects' files. Otherwise the client uses HTTP. Every
 * report says whether the door or HTTP was used, and why. Missing options are taken from
 * the environment. Options:
 *   "endpoint"       "http://host:port" or https; else NEBULAIO_ENDPOINT,
 *                    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, http://localhost:9000
 *   "access_key", "secret_key", "session_token"   else NEBULAIO_ACCESS_KEY and
 *                    NEBULAIO_SECRET_KEY, else AWS_ACCESS_KEY_ID and the like
 *   "region"         else AWS_REGION, else us-east-1
 *   "door"           "auto" (default) | "require": fail if there is no door | "off" |
 *                    the path of the door's socket
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

/* Memory on a further device that receives the same bytes as the destination of a
 * read. */
typedef struct nebulaio_peer {
	void *address;
	const char *device; /* "cuda:N" */
} nebulaio_peer;

/* A read of one object, or of a range of it, into memory of the program. */
typedef struct nebulaio_object_read {
	size_t struct_size;     /* sizeof(nebulaio_object_read); later versions may add fields */
	const char *bucket;
	const char *key;
	const char *version;    /* NULL means the newest version */
	uint64_t offset;        /* offset of the first byte in the object */
	int64_t size;           /* bytes to read; -1 means up to the object's end */
	void *address;          /* in device memory, or in host memory for the device "host" */
	uint64_t capacity;      /* size of the memory at address, in bytes */
	const char *device;     /* NULL means the client's default device */
	nebulaio_stream stream; /* the read begins after the work that is queued on this stream */
	const nebulaio_peer *peers; /* NULL if npeers is 0 */
	size_t npeers;
} nebulaio_object_read;

/* A write of one object from memory of the program. */
typedef struct nebulaio_object_write {
	size_t struct_size;     /* sizeof(nebulaio_object_write); later versions may add fields */
	const char *bucket;
	const char *key;
	const void *address;    /* in device memory, or in host memory for the device "host" */
	uint64_t size;          /* bytes to write */
	const char *device;     /* NULL means the client's default device */
	nebulaio_stream stream; /* the write begins after the work that is queued on this stream */
} nebulaio_object_write;

/* Starts one job that reads all objects of reads[0..count). The memory belongs to the job
 * until the job has ended. If an object is larger than the capacity of its memory, the
 * job fails, unless size limits the read. The first read that fails ends the job, and the
 * error names the object. Options:
 *   "route"   "auto" | "buffered" | "direct" | "cufile"
 *   "cache"   "auto" | "keep" | "bypass"
 *   "verify"  bool, in place of the client's option "verify" */
int32_t nebulaio_object_read_start(uint64_t client, const nebulaio_object_read *reads, size_t count,
                                   const char *options_json, uint64_t *job, char *err, size_t errcap);

/* Starts to write an object, and returns at once. The memory must not change until the
 * job has ended. If the job succeeds, the object is complete, durable and visible. If the
 * job fails or is cancelled, an existing object is unchanged, unless the error says that
 * the server may have stored the new one. Options:
 *   "route"          as in nebulaio_object_read_start
 *   "content_type"   text, the Content-Type of the object
 *   "metadata"       object of strings, the user metadata of the object
 *   "if_match"       ETag that an existing object must have
 *   "if_none_match"  ETag that an existing object must not have; "*" means that no
 *                    object may exist */
int32_t nebulaio_object_write_start(uint64_t client, const nebulaio_object_write *write, const char *options_json,
                                    uint64_t *job, char *err, size_t errcap);

/* Starts a job that queries the properties of an object. The report of the job is the
 * answer: {"bucket","key","version","size","etag","modified","crc64nvme","via"}. A NULL
 * version means the newest. */
int32_t nebulaio_object_stat_start(uint64_t client, const char *bucket, const char *key, const char *version,
                                   uint64_t *job, char *err, size_t errcap);

/* Starts a job that removes an object. A missing object is no error. In a bucket with
 * versions, the job hides the object and keeps its versions. The report of the job is
 * {"bucket","key"}. */
int32_t nebulaio_object_delete_start(uint64_t client, const char *bucket, const char *key, uint64_t *job, char *err,
                                     size_t errcap);

/* Starts a job that lists one page of the keys of a bucket, in order. The report of the
 * job is the answer: {"objects":[{"key","size","etag","modified"}],"prefixes":[],
 * "truncated","next"}. Options:
 *   "prefix", "delimiter"   as in S3
 *   "after"                 list only keys after this one; use "next" of the previous page
 *   "limit"                 largest number of entries on the page, 0 = chosen */
int32_t nebulaio_object_list_start(uint64_t client, const char *bucket, const char *options_json, uint64_t *job,
                                   char *err, size_t errcap);

/* Starts a job that queries the state of the client. The report of the job is the answer:
 * the door, or the reason why there is none, the server's settings, and counters. */
int32_t nebulaio_client_status_start(uint64_t client, uint64_t *job, char *err, size_t errcap);

/* Opens a model that is stored as objects. key is a .safetensors object, an index.json,
 * or the common prefix of the objects. The options are those of nebulaio_model_open.
 * Release the model before the client. */
int32_t nebulaio_client_model_open(uint64_t client, const char *bucket, const char *key, const char *options_json,
                                   uint64_t *model, char *err, size_t errcap);

/* File descriptors of an object's file. The release of the object's handle closes the
 * descriptors. */
typedef struct nebulaio_descriptors {
	size_t struct_size; /* in: sizeof(nebulaio_descriptors) */
	int32_t buffered;   /* out: descriptor that uses the page cache; -1 if there is none */
	int32_t direct;     /* out: descriptor with O_DIRECT; -1 if the file system has no O_DIRECT */
	uint64_t size;      /* out: size of the object in bytes */
} nebulaio_descriptors;

/* Opens the file of an object through the server's door, for programs that read the file
 * with another library, such as cuFile. The file keeps its bytes until the handle is
 * released, even if the object is deleted. The descriptors are read-only. A NULL version
 * means the newest. device is the device that the program reads into; NULL means the
 * client's default. If the client cannot use a door, the call fails with
 * NEBULAIO_ERR_UNSUPPORTED. */
int32_t nebulaio_object_open(uint64_t client, const char *bucket, const char *key, const char *version,
                             const char *device, nebulaio_descriptors *out, uint64_t *object, char *err, size_t errcap);

/* Begins a new object of at most size bytes, and opens its file for writes by the
 * program. The object becomes visible when the job of nebulaio_object_commit_start has
 * succeeded. If the handle is released before, the new object is discarded. Options:
 * "content_type", "metadata", "if_match" and "if_none_match" as in
 * nebulaio_object_write_start, "device" as in nebulaio_object_open. */
int32_t nebulaio_object_create(uint64_t client, const char *bucket, const char *key, uint64_t size,
                               const char *options_json, nebulaio_descriptors *out, uint64_t *object, char *err,
                               size_t errcap);

/* Begins a draft that is a private copy of an open object, so that the program can
 * overwrite a part of the object and extend it. object is a handle of
 * nebulaio_object_open, which keeps the old bytes. The descriptors of the draft read and
 * write. If the server's file system can share blocks between files, the copy takes no
 * time and no space. The committed object keeps the headers, metadata and tags of the old
 * one. out->size receives the largest size that is announced for the new object. If the
 * account may only read the object, the call fails with NEBULAIO_ERR_PERMISSION. The
 * handle of the object may be released before that of the draft. Options:
 *   "size"     largest size of the new object in bytes at first; at least the size of the
 *              object is taken. nebulaio_object_extend raises it
 *   "replace"  true to commit even if the object was replaced or deleted after it was
 *              opened. Without it, such a commit fails with NEBULAIO_ERR_INVALID, and
 *              the newer object stays
 *   "device"   as in nebulaio_object_open */
int32_t nebulaio_object_edit(uint64_t object, const char *options_json, nebulaio_descriptors *out, uint64_t *draft,
                             char *err, size_t errcap);

/* Begins a draft whose file the program reads and writes. mode is one of
 *   "r+"  the draft begins as a private copy of the current object
 *   "w"   the draft begins empty; the commit makes the object or replaces it
 *   "x"   the draft begins empty; the commit fails if the object exists
 * To read an object only, call nebulaio_object_open. The options are those of
 * nebulaio_object_edit. If the handle is released before the commit, the draft is
 * discarded. */
int32_t nebulaio_object_draft(uint64_t client, const char *bucket, const char *key, const char *mode,
                              const char *options_json, nebulaio_descriptors *out, uint64_t *draft, char *err,
                              size_t errcap);

/* Announces that the file of a draft of nebulaio_object_edit or nebulaio_object_draft is
 * going to have up to size bytes. The program calls it before it writes behind the size
 * that was announced last. If the server refuses the size, the call fails with its
 * reason. */
int32_t nebulaio_object_extend(uint64_t draft, uint64_t size, char *err, size_t errcap);

/* Tells a draft of nebulaio_object_edit that the program has overwritten size bytes at
 * offset. The commit then does not compare the old bytes of blocks that are wholly
 * overwritten with their checksums. This call is never necessary. */
int32_t nebulaio_object_wrote(uint64_t draft, uint64_t offset, uint64_t size, char *err, size_t errcap);

/* The size for nebulaio_object_commit_start that publishes the whole file of a draft of
 * nebulaio_object_edit or nebulaio_object_draft. */
#define NEBULAIO_WHOLE UINT64_MAX

/* Starts a job that publishes the first size bytes of a new object's file. The job reads
 * these bytes once to compute their checksums, and closes the handle's descriptors. If
 * the job succeeds, the object is durable and visible. Before this call, the program must
 * end cuFile registrations, duplicated descriptors and mappings of the file. If any of
 * them can still write to the file, the server refuses the commit. After this call, the
 * handle can only be released. */
int32_t nebulaio_object_commit_start(uint64_t object, uint64_t size, uint64_t *job, char *err, size_t errcap);

/* Starts a job that makes a checkpoint complete. The data files of the checkpoint must be
 * written and durable. path is a directory or a prefix such as "s3://bucket/run/step-1".
 * The job writes the manifest, then puts .metadata in place, and then removes the files
 * of older saves from the directory; each step is durable before the next. If a data file
 * is missing, the job fails with NEBULAIO_ERR_NOT_FOUND. If the job fails, an older
 * checkpoint in the directory is still complete. Options:
 *   "manifest"  text of a JSON object: {"id": 16 hex digits, "step": number or null,
 *               "world", "files":[{"name","size","crc64nvme"}], "items":[{"tensor","file",
 *               "offset","size","dtype","shape","at"}]}. The names of the files are
 *               __RANK_NUMBER_ID.distcp. If a file has no "crc64nvme", the job takes it
 *               from FILE.crc64nvme, if there is one
 *   "metadata"  the content of .metadata in base64
 *   "client"    object of the options of nebulaio_client_open, for a prefix of a bucket
 * The job's report is {"path","id","manifest","step","files","bytes","removed","notes"}. */
int32_t nebulaio_checkpoint_commit_start(uint64_t system, const char *path, const char *options_json, uint64_t *job,
                                         char *err, size_t errcap);

/* Starts a job that lists the checkpoints at a path: a root of checkpoints, one checkpoint,
 * or an s3:// prefix of either. Options:
 *   "all"     bool: also list checkpoints that are not complete
 *   "client"  as in nebulaio_checkpoint_commit_start
 * The job's report is a list, sorted by step, then by time: [{"name","path","step",
 * "complete","reason","format","time","bytes","files","world","checksums","id"}]. "format"
 * is "nebulaio", "torch", "safetensors" or "torch-file". */
int32_t nebulaio_checkpoint_list_start(uint64_t system, const char *path, const char *options_json, uint64_t *job,
                                       char *err, size_t errcap);

/* Starts a job that reads all files of one checkpoint and compares them with their
 * checksums. path is a checkpoint, a file of torch.save or .safetensors, or an s3:// URL of
 * either. nebulaio_wait reports the bytes that were compared. Damage is no error of the
 * job. Options: "client" as in nebulaio_checkpoint_commit_start. The job's report has the
 * fields of nebulaio_checkpoint_list_start and {"verdict","problems":[{"kind","file",
 * "message","offset","size","tensors","more_tensors"}],"more_problems","unverified",
 * "foreign","notes","read","seconds"}. "verdict" is "good", "damaged", "incomplete" or
 * "no checksums". */
int32_t nebulaio_checkpoint_verify_start(uint64_t system, const char *path, const char *options_json, uint64_t *job,
                                         char *err, size_t errcap);

/* Starts a job that removes old checkpoints from a root, and what killed saves left there.
 * The job removes only directories named step-<number>, and never the last complete
 * checkpoint, a damaged one, or a directory to which a save may still write. Options:
 *   "keep_last"   number of newest complete checkpoints to keep
 *   "keep_every"  keep checkpoints with a step that is divisible by this number
 *   "dry_run"     bool: remove nothing
 *   "client"      as in nebulaio_checkpoint_commit_start
 * "keep_last" or "keep_every" must be given. The job's report is {"path","removed":[{
 * "name","path","step","bytes","reason"}],"kept":[...],"bytes","dry_run"}. */
int32_t nebulaio_checkpoint_prune_start(uint64_t system, const char *path, const char *options_json, uint64_t *job,
                                        char *err, size_t errcap);

/* Starts to open training data, and returns at once. Each of sources[0..count) is a file,
 * a folder, a prefix such as "s3://bucket/train/", a pattern such as "*.tar", or a name
 * with braces such as "train-{0000..0099}.tar". All sources have the same format and, if
 * they are in buckets, the same server. The handle is a job: nebulaio_wait waits until
 * the indexes are read, nebulaio_cancel stops that, and nebulaio_report then returns the
 * description of the data: {"format","samples","files","bytes","columns":[{"name",
 * "encoding","dtype","fixed","shape"}],"fingerprint","ignored","bad"}. Options:
 *   "format"      "auto" (default) | "tar" | "mds" | "litdata" | "megatron" | "tfrecord" |
 *                 "npy" | "safetensors" | "files" | "groups"
 *   "block"       tokens in a sample, for the tokens of megatron and litdata; 0 (default)
 *                 makes a sample of each document
 *   "max_sample"  most bytes of one part of a sample, 0 = 4 GiB
 *   "verify"      bool: read all data once and compare it with its checksums
 *   "skip_bad"    bool: leave out missing and damaged files and too large samples
 *   "client"      object of the options of nebulaio_client_open, for data in a bucket
 * Release the data after its loaders. While a loader is open, the release fails with
 * NEBULAIO_ERR_INVALID, and the data stays open. */
int32_t nebulaio_data_open_start(uint64_t system, const char *const *sources, size_t count, const char *options_json,
                                 uint64_t *data, char *err, size_t errcap);

/* Returns the places of the parts of one sample as JSON: {"number","key","parts":[
 * {"column","file","offset","size"}]}. number is from 0 to the number of samples. */
int32_t nebulaio_data_sample(uint64_t data, uint64_t number, char *buf, size_t cap, size_t *need, char *err,
                             size_t errcap);

/* Returns the keys of samples[0..count) as a JSON array of strings. If the format has no
 * keys, the number of a sample takes the place of its key. */
int32_t nebulaio_data_keys(uint64_t data, const int64_t *samples, size_t count, char *buf, size_t cap, size_t *need,
                           char *err, size_t errcap);

/* Starts a job that reads one part of a sample. The report of the job is the part itself:
 * its bytes, which need not be text, and a NUL after them. */
int32_t nebulaio_data_read_start(uint64_t data, uint64_t number, const char *column, uint64_t *job, char *err,
                                 size_t errcap);

/* One column of a batch: the samples one after the other. */
typedef struct nebulaio_batch_column {
	void *address;          /* in device memory, or in host memory for the device "host"; NULL if size is 0 */
	uint64_t size;          /* in bytes */
	const int64_t *offsets; /* count + 1 offsets from address in bytes: sample i ends where sample i + 1 begins */
} nebulaio_batch_column;

/* A batch of samples. Its memory belongs to the library and stays valid until the
 * batch is freed. */
typedef struct nebulaio_batch {
	size_t struct_size;       /* in: sizeof(nebulaio_batch) */
	uint64_t count;           /* number of samples; 0 if all of them were left out */
	const int64_t *samples;   /* numbers of the samples */
	const nebulaio_batch_column *columns; /* in the order of nebulaio_loader_describe */
	uint64_t ncolumns;
	int64_t epoch;
	int64_t next_epoch;       /* "epoch" and "position" of the state after this batch */
	int64_t next_position;
	int32_t last;             /* 1 if this is the last batch of the epoch, else 0 */
} nebulaio_batch;

/* Starts a loader, which reads batches of samples ahead of their use. Options:
 *   "batch"     number of samples in a batch; required
 *   "device"    "auto" (default) | "host" | "cuda" | "cuda:N"
 *   "columns"   array of the names of the columns to read, default all
 *   "shuffle"   "full" (default), a random order of all samples | "blocks", a random
 *               order of blocks of neighbouring samples | "stored", the order of the files
 *   "shuffle_block", "shuffle_window"  for "blocks": samples in a block, and blocks that
 *               are mixed with each other; 0 = 256 samples and 64 blocks
 *   "seed"      chooses the random order; every epoch has another order
 *   "rank", "world"      split each step among the processes of a training job
 *   "worker", "workers"  split the batches of one rank among its processes
 *   "tail"      "drop" (default) | "pad" | "short": what happens to samples at the end
 *               of an epoch that do not fill a batch of every rank
 *   "epochs"    number of epochs, 0 (default) = no end
 *   "state"     object of nebulaio_batch_state: where the loader begins
 *   "allow_changed"  bool: begin at "state" even if the data has changed
 *   "ahead"     most bytes of batches that are read ahead, 0 = 1 GiB
 *   "open_files"     most files that stay open without being read, 0 = 256
 *   "skip_bad"  bool: leave out samples of files that are missing or have changed
 *   "route", "cache"  as in nebulaio_load_start
 * Release the loader before the data. Batches that the program has taken stay valid. */
int32_t nebulaio_loader_open(uint64_t data, const char *options_json, uint64_t *loader, char *err, size_t errcap);

/* Returns the device, the columns, the number of batches in an epoch and the state at
 * the start as JSON: {"device":"cuda:0","columns":[],"batches","state"}. */
int32_t nebulaio_loader_describe(uint64_t loader, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Waits for the next batch, fills out, and returns the handle of the batch. After the
 * last batch, *batch is 0. timeout_ms limits the wait; a negative value means no limit.
 * Returns NEBULAIO_RUNNING if the time ran out. A failed read ends the loader: later
 * calls return the error again. Several threads may wait; each gets another batch. */
int32_t nebulaio_loader_next(uint64_t loader, int32_t timeout_ms, nebulaio_batch *out, uint64_t *batch, char *err,
                             size_t errcap);

/* Returns, as JSON, the bytes by route, the time that the program waited for batches and
 * what limited the rate, in total and for each epoch. */
int32_t nebulaio_loader_report(uint64_t loader, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Returns the state with which another loader goes on after this batch, as JSON: {"seed",
 * "epoch","position","fingerprint","samples","shuffle","shuffle_block","shuffle_window"}. */
int32_t nebulaio_batch_state(uint64_t batch, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Releases a batch. The library uses its memory again only after the work that is now
 * queued on `stream` has ended. nebulaio_release frees a batch at once. */
int32_t nebulaio_batch_free(uint64_t batch, nebulaio_stream stream, char *err, size_t errcap);

/* Opens a queue, with which one thread can wait for the end of many jobs. */
int32_t nebulaio_queue_open(uint64_t *queue, char *err, size_t errcap);

/* Adds a job to a queue. A job may be added only once. When the job has ended,
 * nebulaio_queue_next returns the handle of the job, even if the handle has been
 * released. */
int32_t nebulaio_queue_add(uint64_t queue, uint64_t job, char *err, size_t errcap);

/* Waits until a job of the queue has ended, and returns its handle. timeout_ms limits the
 * wait; a negative value means no limit. Returns NEBULAIO_RUNNING if the time ran out,
 * and NEBULAIO_ERR_CLOSED if another thread releases the queue. */
int32_t nebulaio_queue_next(uint64_t queue, int32_t timeout_ms, uint64_t *job, char *err, size_t errcap);

/* Waits until a job has ended. A job is a load, a save, a read or write, a computation of
 * checksums, or a query. timeout_ms limits the wait; a negative value means no limit.
 * Returns NEBULAIO_RUNNING if the time ran out. Otherwise the job has ended, its memory
 * belongs to the program again, and nebulaio_wait returns the status and the message of
 * the job. progress (may be NULL) is set in both cases. nebulaio_wait can be called
 * several times for a job. */
int32_t nebulaio_wait(uint64_t job, int32_t timeout_ms, nebulaio_progress *progress, char *err, size_t errcap);

/* Asks a job to stop and returns at once. nebulaio_wait then returns
 * NEBULAIO_ERR_CANCELLED, unless the job had already ended. */
int32_t nebulaio_cancel(uint64_t job, char *err, size_t errcap);

/* Returns the JSON report of a job that has ended, even if the job failed. While the job
 * runs, the call fails with NEBULAIO_ERR_INVALID. */
int32_t nebulaio_report(uint64_t job, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

/* Releases a handle of any kind. The release of a running job cancels the job and waits
 * for its end. If a system has a running job or an open loader, a model has a load or a
 * selection, or training data has a loader, the handle stays open, and the call fails
 * with NEBULAIO_ERR_INVALID. */
int32_t nebulaio_release(uint64_t handle, char *err, size_t errcap);

/* Judges what holds a training loop back, and returns the verdict as JSON: {"bound","why",
 * "next":[],"step":{"number","title","do"},"agree"}. "bound" is "compute-bound",
 * "storage-bound", "copy-bound", "cpu-bound" or "no clear verdict", and "agree" is the
 * share of the rounds that gave this verdict. loop_json has the measured times of the loop,
 * in seconds: {"rounds":[{"batches","wait","copy","step"}],"variants":[{"name","alone",
 * "together","wait","copy","step"}],"loader_alone","in_process","decode","read",
 * "step_alone","copy_alone","copy_pinned","copy_pageable","tolerated_idle"}. The times of a
 * round are sums over its batches, and all other times are means per batch. A time that was
 * not measured is null. The first variant is the loop as configured. */
int32_t nebulaio_judge_loop(const char *loop_json, char *buf, size_t cap, size_t *need, char *err, size_t errcap);

#ifdef __cplusplus
}
#endif

#endif /* NEBULAIO_H */
