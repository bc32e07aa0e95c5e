/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpudirect_calls.hpp redirects the cuFile calls of the process for handles of gpudirect.h,
 * so that a program may write to an object that it opened. Programs include gpudirect.h.
 *
 * The functions below have the names of libcufile's functions, and come before them when
 * the program is linked. For handles of others they only call libcufile.
 */
#ifndef NEBULAIO_GPUDIRECT_CALLS_HPP
#define NEBULAIO_GPUDIRECT_CALLS_HPP

#include "nebulaio/gpudirect_handle.hpp"

namespace nebulaio {

namespace detail {

/* The message of the last cuFile call of this thread that this header refused. */
inline std::string &last_refusal()
{
	thread_local std::string text;
	return text;
}

/* Stores the message of a refusal, and returns its errno. */
inline int refuse(const error &problem)
{
	last_refusal() = problem.what();
	switch (problem.status()) {
	case NEBULAIO_ERR_PERMISSION:
		return EACCES;
	case NEBULAIO_ERR_INVALID:
		return EINVAL;
	case NEBULAIO_ERR_NOT_FOUND:
		return ENOENT;
	case NEBULAIO_ERR_UNSUPPORTED:
		return ENOTSUP;
	case NEBULAIO_ERR_NO_MEMORY:
		return ENOMEM;
	case NEBULAIO_ERR_CLOSED:
		return EBADF;
	default:
		return EIO;
	}
}

inline error of_the_parent(const std::string &what)
{
	return error(NEBULAIO_ERR_CLOSED, "nebulaio: " + what +
	                                      ": the library belongs to the parent of this process (fix: call "
	                                      "GPUDirectInit after fork, not before)");
}

/* Returns the handle to write to, after the private copy is made and large enough. */
inline CUfileHandle_t writer_of(gpudirect &all, const std::shared_ptr<lent_object> &one, off_t offset, size_t size)
{
	if (all.forked)
		throw of_the_parent("use " + one->name);
	if (one->mode == GPUDirectMode::read)
		throw error(NEBULAIO_ERR_CLOSED, "nebulaio: write " + one->name +
		                                     ": the object was opened for reading (fix: open it without a mode, or "
		                                     "with GPUDirectMode::read_write)");
	const uint64_t end = offset < 0 ? 0 : static_cast<uint64_t>(offset) + size;
	CUfileHandle_t made{};
	{
		const std::shared_lock<std::shared_mutex> lock(one->mutex);
		if (one->writer != CUfileHandle_t{} && (one->sized || end <= one->draft.size()))
			return one->writer;
	}
	{
		const std::unique_lock<std::shared_mutex> lock(one->mutex);
		const bool first = one->writer == CUfileHandle_t{};
		if (first)
			one->edit();
		if (!one->sized && end > one->draft.size())
			one->draft.extend(end);
		made = one->writer;
		if (!first)
			return made;
	}
	const std::lock_guard<std::mutex> lock(all.mutex);
	all.put(made, one);
	return made;
}

/* Returns the handle to read from. */
inline CUfileHandle_t reader_of(gpudirect &all, lent_object &one)
{
	if (all.forked)
		throw of_the_parent("use " + one.name);
	const std::shared_lock<std::shared_mutex> lock(one.mutex);
	return one.writer != CUfileHandle_t{} ? one.writer : one.token;
}

/* Deregisters a handle of gpudirect.h and commits what was written to it. */
inline void deregister(gpudirect &all, CUfileHandle_t handle, const std::shared_ptr<lent_object> &one)
{
	if (all.forked)
		return; /* the parent's handle is the parent's */
	if (one->sized) { /* waits for GPUDirectCommit or GPUDirectRelease */
		const std::unique_lock<std::shared_mutex> lock(one->mutex);
		one->deregister();
		return;
	}
	all.take(handle);
	try {
		one->commit(NEBULAIO_WHOLE);
	} catch (const error &problem) {
		last_refusal() = problem.what();
		if (std::uncaught_exceptions() == 0)
			throw;
		std::fprintf(stderr, "%s\n", problem.what()); /* a second exception would end the process */
	}
}

} // namespace detail

/* Returns why the last cuFile call of this thread on a handle of GPUDirectOpen was refused,
 * or "" if none was. Such a call returns -1 and sets errno; the text says what to do. */
inline std::string GPUDirectLastError() { return detail::last_refusal(); }

} // namespace nebulaio

#ifndef NEBULAIO_GPUDIRECT_NO_REDIRECT

extern "C" {

__attribute__((used)) inline ssize_t cuFileRead(CUfileHandle_t fh, void *base, size_t size, off_t file_offset,
                                                off_t base_offset)
{
	using namespace nebulaio::detail;
	gpudirect &all = gpudirect::only();
	const cufile_functions &real = cufile_functions::real();
	const std::shared_ptr<lent_object> one = all.find(fh);
	if (one == nullptr)
		return real.read(fh, base, size, file_offset, base_offset);
	try {
		fh = reader_of(all, *one);
	} catch (const nebulaio::error &problem) {
		errno = refuse(problem);
		return -1;
	}
	return real.read(fh, base, size, file_offset, base_offset);
}

__attribute__((used)) inline ssize_t cuFileWrite(CUfileHandle_t fh, const void *base, size_t size, off_t file_offset,
                                                 off_t base_offset)
{
	using namespace nebulaio::detail;
	gpudirect &all = gpudirect::only();
	const cufile_functions &real = cufile_functions::real();
	const std::shared_ptr<lent_object> one = all.find(fh);
	if (one == nullptr)
		return real.write(fh, base, size, file_offset, base_offset);
	try {
		const CUfileHandle_t writer = writer_of(all, one, file_offset, size);
		const std::shared_lock<std::shared_mutex> lock(one->mutex);
		const ssize_t done = real.write(writer, base, size, file_offset, base_offset);
		const int code = errno;
		one->wrote(file_offset, size, done);
		errno = code;
		return done;
	} catch (const nebulaio::error &problem) {
		errno = refuse(problem);
		return -1;
	}
}

/* If the commit fails, the call throws nebulaio::error. */
__attribute__((used)) inline void cuFileHandleDeregister(CUfileHandle_t fh)
{
	using namespace nebulaio::detail;
	gpudirect &all = gpudirect::only();
	const std::shared_ptr<lent_object> one = all.find(fh);
	if (one == nullptr)
		cufile_functions::real().deregister(fh);
	else
		deregister(all, fh, one);
}

#ifdef CU_FILE_STREAM_FIXED_BUF_OFFSET

__attribute__((used)) inline CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size,
                                                           off_t *file_offset, off_t *base_offset, ssize_t *done,
                                                           CUstream stream)
{
	using namespace nebulaio::detail;
	gpudirect &all = gpudirect::only();
	const std::shared_ptr<lent_object> one = all.find(fh);
	try {
		if (one != nullptr)
			fh = reader_of(all, *one);
	} catch (const nebulaio::error &problem) {
		refuse(problem);
		return CUfileError_t{CU_FILE_PERMISSION_DENIED, {}};
	}
	return cufile_functions::real().read_async(fh, base, size, file_offset, base_offset, done, stream);
}

/* The size and the offset of the call are those that the private copy is made for. */
__attribute__((used)) inline CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size,
                                                            off_t *file_offset, off_t *base_offset, ssize_t *done,
                                                            CUstream stream)
{
	using namespace nebulaio::detail;
	gpudirect &all = gpudirect::only();
	const std::shared_ptr<lent_object> one = all.find(fh);
	try {
		if (one != nullptr) {
			fh = writer_of(all, one, file_offset != nullptr ? *file_offset : 0, size != nullptr ? *size : 0);
			one->changed = true;
		}
	} catch (const nebulaio::error &problem) {
		refuse(problem);
		return CUfileError_t{CU_FILE_PERMISSION_DENIED, {}};
	}
	return cufile_functions::real().write_async(fh, base, size, file_offset, base_offset, done, stream);
}

/* Handles in the requests are replaced by those of private copies. */
__attribute__((used)) inline CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch, unsigned count,
                                                               CUfileIOParams_t *requests, unsigned flags)
{
	using namespace nebulaio::detail;
	gpudirect &all = gpudirect::only();
	try {
		for (unsigned i = 0; requests != nullptr && i < count; i++) {
			CUfileIOParams_t &r = requests[i];
			const std::shared_ptr<lent_object> one = all.find(r.fh);
			if (one == nullptr)
				continue;
			if (r.opcode == CUFILE_READ) {
				r.fh = reader_of(all, *one);
				continue;
			}
			r.fh = writer_of(all, one, r.u.batch.file_offset, r.u.batch.size);
			one->changed = true;
		}
	} catch (const nebulaio::error &problem) {
		refuse(problem);
		return CUfileError_t{CU_FILE_PERMISSION_DENIED, {}};
	}
	return cufile_functions::real().submit(batch, count, requests, flags);
}

#endif /* CU_FILE_STREAM_FIXED_BUF_OFFSET */

} // extern "C"

#endif /* NEBULAIO_GPUDIRECT_NO_REDIRECT */

#endif /* NEBULAIO_GPUDIRECT_CALLS_HPP */
