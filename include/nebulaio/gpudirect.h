/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpudirect.h opens objects of a NebulaIO server as NVIDIA cuFile handles. The header is
 * for C++17 programs that include <cufile.h> and link the shared libcufile.
 *
 * @code{.cpp} snippet: needs gpu
 * #include <nebulaio/gpudirect.h>
 *
 * #include <cuda_runtime.h>
 *
 * int main()   // with NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY set, and a bucket "my-bucket"
 * {
 *     const size_t size = 1 << 20;
 *     void *gpu_buffer = nullptr;
 *     if (cudaMalloc(&gpu_buffer, size) != cudaSuccess)
 *         return 1;
 *     CUfileDescr_t descr;
 *     CUfileHandle_t handle;
 *     nebulaio::GPUDirectInit(&descr, "localhost:9000");
 *     nebulaio::GPUDirectCreate(&handle, "my-bucket", "data.bin", size);
 *     cuFileWrite(handle, gpu_buffer, size, 0, 0);
 *     nebulaio::GPUDirectCommit(handle, size);          // durable and visible
 *
 *     nebulaio::GPUDirectOpen(&handle, "my-bucket", "data.bin");
 *     const ssize_t n = cuFileRead(handle, gpu_buffer, size, 0, 0);
 *     cuFileWrite(handle, gpu_buffer, 4096, 0, 0);      // into a private copy
 *     cuFileHandleDeregister(handle);                   // the copy becomes the object
 *     return n == static_cast<ssize_t>(size) ? 0 : 1;
 * }
 * @endcode
 *
 * The program must run on the host of the server. The server's door sends a descriptor of
 * the object's file, and cuFile reads that file like any other. Reads through cuFile are
 * not verified with checksums; nebulaio::client::read verifies them.
 *
 * Writes: the first write to a handle makes a private copy of the object, which shares its
 * blocks with the object if the file system can. Later reads of the handle see the copy,
 * and nobody else sees it. cuFileHandleDeregister, GPUDirectClose and the normal end of the
 * process commit the copy as the new object; other handles keep the old bytes. If the
 * process is killed, the server removes the copy and the old object stays. If the account
 * may not write the object, the write returns -1 with errno EACCES, and GPUDirectLastError
 * has the text. If somebody replaced or deleted the object after it was opened, the commit
 * fails and the newer object stays. The option {"replace":true} makes the last writer win.
 * If a write failed and was not repeated, the commit fails too.
 *
 * A commit that fails throws nebulaio::error, also from cuFileHandleDeregister. During
 * another exception, and at the end of the process, the message goes to standard error.
 *
 * To make handles writable, this header redirects cuFileRead, cuFileWrite, their variants
 * for streams and batches, and cuFileHandleDeregister; see gpudirect_calls.hpp. Define
 * NEBULAIO_GPUDIRECT_NO_REDIRECT before all includes to leave libcufile's functions alone.
 * Then a handle without a mode is for reading, and GPUDirectClose commits.
 *
 * Handles do not outlive fork: in the child, every call fails and exit commits nothing.
 *
 * A failed call throws nebulaio::error. All functions are thread-safe. For calls in which
 * cuFile needs a current CUDA context, the calling thread must have one.
 */
#ifndef NEBULAIO_GPUDIRECT_H
#define NEBULAIO_GPUDIRECT_H

#include <cufile.h>

#include "nebulaio/gpudirect_calls.hpp"
#include "nebulaio/gpudirect_handle.hpp"
#include "nebulaio/nebulaio.hpp"

#include <memory>
#include <mutex>
#include <utility>

namespace nebulaio {

namespace detail {

/* Registers an object's file with cuFile and stores the object. The caller holds the mutex
 * of the registry. */
inline void gpudirect_register(gpudirect &all, CUfileHandle_t *handle, const std::shared_ptr<lent_object> &one)
{
	const bool drafted = one->draft.number() != 0;
	CUfileDescr_t descr = describe(drafted ? one->draft : one->file);
	CUfileHandle_t made{};
	cufile_must(cuFileHandleRegister(&made, &descr), "register " + one->name);
	one->token = made;
	one->registered = true;
	if (drafted)
		one->writer = made;
	try {
		all.put(made, one);
	} catch (...) {
		one->deregister();
		throw;
	}
	*all.descr = descr;
	*handle = made;
}

inline gpudirect &gpudirect_ready(const char *what)
{
	gpudirect &all = gpudirect::only();
	if (all.forked)
		throw of_the_parent(what);
	if (!all.server)
		throw error(NEBULAIO_ERR_INVALID,
		            std::string("nebulaio: ") + what + ": there is no server (fix: call GPUDirectInit first)");
	return all;
}

inline std::shared_ptr<lent_object> gpudirect_must(const char *what, std::shared_ptr<lent_object> one)
{
	if (one == nullptr)
		throw error(NEBULAIO_ERR_CLOSED, std::string("nebulaio: ") + what +
		                                     ": the handle is not open (fix: use a handle of GPUDirectOpen or "
		                                     "GPUDirectCreate, once)");
	if (gpudirect::only().forked)
		throw of_the_parent("use " + one->name);
	return one;
}

inline std::shared_ptr<lent_object> gpudirect_take(const char *what, CUfileHandle_t handle)
{
	return gpudirect_must(what, gpudirect::only().take(handle));
}

} // namespace detail

/* Sets the server and opens the cuFile driver. A second call ends the handles of the
 * earlier server as GPUDirectShutdown does. *descr receives the cuFile descriptor of each
 * object that is opened, so descr must stay valid until the last call of GPUDirectOpen or
 * GPUDirectCreate. endpoint is "host:port" or "http://host:port". If the access key and the
 * secret key are empty, they are taken from the environment; see nebulaio_client_open. */
inline void GPUDirectInit(CUfileDescr_t *descr, const std::string &endpoint, const std::string &access_key = "",
                          const std::string &secret_key = "")
{
	if (descr == nullptr)
		throw error(NEBULAIO_ERR_INVALID, "nebulaio: GPUDirectInit: the descriptor is NULL");
	if (detail::gpudirect::only().forked)
		throw detail::of_the_parent("GPUDirectInit");
	*descr = CUfileDescr_t{};
	descr->type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr->handle.fd = -1;
	std::string options = "{\"door\":\"require\",\"endpoint\":" + quote(endpoint);
	if (!access_key.empty() || !secret_key.empty())
		options += ",\"access_key\":" + quote(access_key) + ",\"secret_key\":" + quote(secret_key);
	auto sys = std::make_unique<nebulaio::system>();
	auto server = std::make_unique<nebulaio::client>(*sys, options + "}");
	detail::gpudirect &all = detail::gpudirect::only();
	const std::lock_guard<std::mutex> lock(all.mutex);
	const std::string failed = all.end();
	if (!failed.empty())
		throw error(NEBULAIO_ERR_IO, failed);
	detail::cufile_must(cuFileDriverOpen(), "open cuFile's driver");
	all.driver = true;
	all.sys = std::move(sys);
	all.server = std::move(server);
	all.descr = descr;
}

/* Opens an object in a mode and stores its cuFile handle in *handle. version is for the
 * modes automatic and read. options: see nebulaio_object_edit. */
inline void GPUDirectOpen(CUfileHandle_t *handle, const std::string &bucket, const std::string &key, GPUDirectMode mode,
                          const std::string &version = "", const std::string &options = "")
{
	const auto one = std::make_shared<detail::lent_object>();
	one->name = "s3://" + bucket + "/" + key;
	one->options = options;
	one->mode = mode;
	detail::gpudirect &all = detail::gpudirect::only();
	const std::lock_guard<std::mutex> lock(all.mutex);
	detail::gpudirect_ready("GPUDirectOpen");
	if (mode == GPUDirectMode::automatic || mode == GPUDirectMode::read)
		one->file = all.server->open(bucket, key, version);
	else if (!version.empty())
		throw error(NEBULAIO_ERR_INVALID, "nebulaio: GPUDirectOpen: " + one->name + " version " + version +
		                                      " can only be read (fix: open it without a mode, or for reading)");
	else
		one->drafted(all.server->draft(bucket, key,
		                               mode == GPUDirectMode::read_write ? "r+"
		                               : mode == GPUDirectMode::write    ? "w"
		                                                                 : "x",
		                               options));
	detail::gpudirect_register(all, handle, one);
}

/* Opens an object for cuFileRead and cuFileWrite, and stores its cuFile handle in *handle.
 * The first write makes a private copy of the object. */
inline void GPUDirectOpen(CUfileHandle_t *handle, const std::string &bucket, const std::string &key,
                          const std::string &version = "")
{
	GPUDirectOpen(handle, bucket, key, GPUDirectMode::automatic, version);
}

/* Returns the size in bytes of the object behind a handle, with what the handle has
 * written. */
inline uint64_t GPUDirectSize(CUfileHandle_t handle)
{
	return detail::gpudirect_must("GPUDirectSize", detail::gpudirect::only().find(handle))->size();
}

/* Begins a new object of at most size bytes and stores a cuFile handle for cuFileWrite in
 * *handle. The server reserves the disk space. The object becomes visible with
 * GPUDirectCommit. options: see nebulaio_object_create. */
inline void GPUDirectCreate(CUfileHandle_t *handle, const std::string &bucket, const std::string &key, uint64_t size,
                            const std::string &options = "")
{
	const auto one = std::make_shared<detail::lent_object>();
	one->name = "s3://" + bucket + "/" + key;
	one->sized = true;
	detail::gpudirect &all = detail::gpudirect::only();
	const std::lock_guard<std::mutex> lock(all.mutex);
	detail::gpudirect_ready("GPUDirectCreate");
	one->drafted(all.server->create(bucket, key, size, options));
	detail::gpudirect_register(all, handle, one);
}

/* Releases the object of a handle that the program has deregistered itself. A new object
 * of GPUDirectCreate that was not committed is discarded. A handle that is not open is no
 * error. */
inline void GPUDirectRelease(CUfileHandle_t handle) { detail::gpudirect::only().take(handle); }

/* Deregisters a handle and releases its object, without a commit. What the handle has
 * written is lost. */
inline void GPUDirectDiscard(CUfileHandle_t handle)
{
	const std::shared_ptr<detail::lent_object> one = detail::gpudirect_take("GPUDirectDiscard", handle);
	const std::unique_lock<std::shared_mutex> lock(one->mutex);
	one->deregister();
	one->drafted(object());
}

/* Deregisters a handle, commits what was written to it, and releases its object. A new
 * object of GPUDirectCreate is discarded. */
inline void GPUDirectClose(CUfileHandle_t handle)
{
	const std::shared_ptr<detail::lent_object> one = detail::gpudirect_take("GPUDirectClose", handle);
	if (one->sized)
		one->deregister();
	else
		one->commit(NEBULAIO_WHOLE);
}

/* Deregisters a handle and publishes the first size bytes that were written to it. Without
 * a size, it publishes all bytes; a handle of GPUDirectCreate needs one. On return the
 * object is durable and visible. Returns the object's properties as JSON, or "" if nothing
 * was written. */
inline std::string GPUDirectCommit(CUfileHandle_t handle, uint64_t size = NEBULAIO_WHOLE)
{
	return detail::gpudirect_take("GPUDirectCommit", handle)->commit(size);
}

/* Ends all handles as GPUDirectClose does, and closes the client and the cuFile driver. If
 * a commit fails, the other handles are ended before the call throws. After
 * GPUDirectShutdown, the program may call GPUDirectInit again. */
inline void GPUDirectShutdown()
{
	detail::gpudirect &all = detail::gpudirect::only();
	const std::lock_guard<std::mutex> lock(all.mutex);
	const std::string failed = all.end();
	if (!failed.empty())
		throw error(NEBULAIO_ERR_IO, failed);
}

} // namespace nebulaio

#endif /* NEBULAIO_GPUDIRECT_H */
