/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions below take addresses and streams and pass them to Go as numbers. Go must
 * not hold them as pointers, because its garbage collector would follow them, and they
 * may be device addresses or invalid.
 */
#include "_cgo_export.h"

int32_t nebulaio_load_start(uint64_t model, const nebulaio_buffer *dst, size_t ndst, nebulaio_stream stream,
                            const char *options_json, uint64_t *load, char *err, size_t errcap)
{
	return nebulaio_go_load_start(model, dst, ndst, (uint64_t)(uintptr_t)stream, options_json, load, err, errcap);
}

int32_t nebulaio_save_start(uint64_t system, const char *path, const nebulaio_tensor *tensors, size_t count,
                            nebulaio_stream stream, const char *options_json, uint64_t *job, char *err, size_t errcap)
{
	return nebulaio_go_save_start(system, path, tensors, count, (uint64_t)(uintptr_t)stream, options_json, job, err,
	                              errcap);
}

int32_t nebulaio_gather_start(uint64_t system, const char *const *files, size_t nfiles,
                              const nebulaio_segment *segments, size_t nsegments, nebulaio_stream stream,
                              const char *options_json, uint64_t *job, char *err, size_t errcap)
{
	return nebulaio_go_gather_start(system, files, nfiles, segments, nsegments, (uint64_t)(uintptr_t)stream,
	                                options_json, job, err, errcap);
}

int32_t nebulaio_write_start(uint64_t system, const char *path, const nebulaio_piece *pieces, size_t count,
                             nebulaio_stream stream, const char *options_json, uint64_t *job, char *err,
                             size_t errcap)
{
	return nebulaio_go_write_start(system, path, pieces, count, (uint64_t)(uintptr_t)stream, options_json, job, err,
	                               errcap);
}

int32_t nebulaio_file_read_start(uint64_t file, void *address, uint64_t size, uint64_t file_offset,
                                 nebulaio_stream stream, const char *options_json, uint64_t *job, char *err,
                                 size_t errcap)
{
	return nebulaio_go_file_start(file, 0, (uint64_t)(uintptr_t)address, size, file_offset,
	                              (uint64_t)(uintptr_t)stream, options_json, job, err, errcap);
}

int32_t nebulaio_file_write_start(uint64_t file, const void *address, uint64_t size, uint64_t file_offset,
                                  nebulaio_stream stream, const char *options_json, uint64_t *job, char *err,
                                  size_t errcap)
{
	return nebulaio_go_file_start(file, 1, (uint64_t)(uintptr_t)address, size, file_offset,
	                              (uint64_t)(uintptr_t)stream, options_json, job, err, errcap);
}

int32_t nebulaio_batch_free(uint64_t batch, nebulaio_stream stream, char *err, size_t errcap)
{
	return nebulaio_go_batch_free(batch, (uint64_t)(uintptr_t)stream, err, errcap);
}
