/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpudirect.h opens objects of a NebulaIO server as NVIDIA cuFile handles. The header is
 * for C++17 programs that include <cufile.h> and link libcufile.
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
 *     nebulaio::GPUDirectClose(handle);
 *     return n == static_cast<ssize_t>(size) ? 0 : 1;
 * }
 * @endcode
 *
 * The program must run on the host of the server. The server's door sends a descriptor of
 * the object's file, and cuFile reads that file like any other. A handle of GPUDirectOpen
 * is read-only: cuFileWrite fails on such a handle. Reads through cuFile are not verified
 * with checksums; nebulaio::client::read verifies them.
 *
 * A program may deregister a handle itself with cuFileHandleDeregister and then call
 * GPUDirectRelease. Without GPUDirectRelease, the object's file is kept until the next
 * GPUDirectInit or the end of the process.
 *
 * A failed call throws nebulaio::error. All functions are thread-safe. For calls in which
 * cuFile needs a current CUDA context, the calling thread must have one.
 */
#ifndef NEBULAIO_GPUDIRECT_H
#define NEBULAIO_GPUDIRECT_H

#include <cufile.h>

#include "nebulaio/nebulaio.hpp"

#include <map>
#include <memory>
#include <mutex>

namespace nebulaio {

namespace detail {

/* The server that the functions below use, and the open objects. */
struct gpudirect {
	std::mutex mutex;
	std::unique_ptr<nebulaio::system> sys; /* declared before its client, so destroyed after it */
	std::unique_ptr<nebulaio::client> server;
	std::map<CUfileHandle_t, object> lent; /* open objects; destroyed before the client */
	CUfileDescr_t *descr = nullptr;
	bool driver = false;

	~gpudirect() { end(); }

	void end() noexcept
	{
		lent.clear();
		server.reset();
		sys.reset();
		descr = nullptr;
		if (driver) {
			driver = false;
			cuFileDriverClose(); /* an open driver that counts may crash at exit */
		}
	}

	static gpudirect &only()
	{
		static gpudirect one;
		return one;
	}
};

inline void cufile_must(CUfileError_t result, const std::string &what)
{
	if (static_cast<int>(result.err) != 0)
		throw error(NEBULAIO_ERR_DEVICE,
		            "nebulaio: " + what + ": cuFile error " + std::to_string(static_cast<int>(result.err)) +
		                ", CUDA error " + std::to_string(static_cast<int>(result.cu_err)) +
		                " (fix: `nebulaio doctor` shows what cuFile needs on this machine)");
}

/* Registers an object's file with cuFile and stores the object. */
inline void gpudirect_register(gpudirect &all, CUfileHandle_t *handle, object &&file, const std::string &name)
{
	CUfileDescr_t descr{};
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = file.direct() >= 0 ? file.direct() : file.buffered();
	CUfileHandle_t made{};
	cufile_must(cuFileHandleRegister(&made, &descr), "register " + name);
	try {
		all.lent[made] = std::move(file);
	} catch (...) {
		cuFileHandleDeregister(made);
		throw;
	}
	*all.descr = descr;
	*handle = made;
}

inline gpudirect &gpudirect_ready(const char *what)
{
	gpudirect &all = gpudirect::only();
	if (!all.server)
		throw error(NEBULAIO_ERR_INVALID,
		            std::string("nebulaio: ") + what + ": there is no server (fix: call GPUDirectInit first)");
	return all;
}

inline object gpudirect_take(const char *what, CUfileHandle_t handle)
{
	gpudirect &all = gpudirect::only();
	const std::lock_guard<std::mutex> lock(all.mutex);
	const auto found = all.lent.find(handle);
	if (found == all.lent.end())
		throw error(NEBULAIO_ERR_CLOSED, std::string("nebulaio: ") + what +
		                                     ": the handle is not open (fix: use a handle of GPUDirectOpen or "
		                                     "GPUDirectCreate, once)");
	object file = std::move(found->second);
	all.lent.erase(found);
	return file;
}

} // namespace detail

/* Sets the server and opens the cuFile driver. A second call closes the handles of the
 * earlier server. *descr receives the cuFile descriptor of each object that is opened, so
 * descr must stay valid until the last call of GPUDirectOpen or GPUDirectCreate. endpoint
 * is "host:port" or "http://host:port". If the access key and the secret key are empty,
 * they are taken from the environment; see nebulaio_client_open. */
inline void GPUDirectInit(CUfileDescr_t *descr, const std::string &endpoint, const std::string &access_key = "",
                          const std::string &secret_key = "")
{
	if (descr == nullptr)
		throw error(NEBULAIO_ERR_INVALID, "nebulaio: GPUDirectInit: the descriptor is NULL");
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
	all.end();
	detail::cufile_must(cuFileDriverOpen(), "open cuFile's driver");
	all.driver = true;
	all.sys = std::move(sys);
	all.server = std::move(server);
	all.descr = descr;
}

/* Opens an object for cuFileRead and stores its cuFile handle in *handle. */
inline void GPUDirectOpen(CUfileHandle_t *handle, const std::string &bucket, const std::string &key,
                          const std::string &version = "")
{
	detail::gpudirect &all = detail::gpudirect::only();
	const std::lock_guard<std::mutex> lock(all.mutex);
	detail::gpudirect_ready("GPUDirectOpen");
	detail::gpudirect_register(all, handle, all.server->open(bucket, key, version), "s3://" + bucket + "/" + key);
}

/* Returns the size in bytes of the object behind a handle. */
inline uint64_t GPUDirectSize(CUfileHandle_t handle)
{
	detail::gpudirect &all = detail::gpudirect::only();
	const std::lock_guard<std::mutex> lock(all.mutex);
	const auto found = all.lent.find(handle);
	if (found == all.lent.end())
		throw error(NEBULAIO_ERR_CLOSED, "nebulaio: GPUDirectSize: the handle is not open (fix: use a handle of "
		                                 "GPUDirectOpen or GPUDirectCreate, once)");
	return found->second.size();
}

/* Begins a new object of at most size bytes and stores a cuFile handle for cuFileWrite in
 * *handle. The object becomes visible with GPUDirectCommit. options: see
 * nebulaio_object_create. */
inline void GPUDirectCreate(CUfileHandle_t *handle, const std::string &bucket, const std::string &key, uint64_t size,
                            const std::string &options = "")
{
	detail::gpudirect &all = detail::gpudirect::only();
	const std::lock_guard<std::mutex> lock(all.mutex);
	detail::gpudirect_ready("GPUDirectCreate");
	detail::gpudirect_register(all, handle, all.server->create(bucket, key, size, options), "s3://" + bucket + "/" + key);
}

/* Releases the object of a handle that the program has deregistered itself. A new object
 * that was not committed is discarded. */
inline void GPUDirectRelease(CUfileHandle_t handle) { detail::gpudirect_take("GPUDirectRelease", handle); }

/* Deregisters a handle and releases its object. */
inline void GPUDirectClose(CUfileHandle_t handle)
{
	const object file = detail::gpudirect_take("GPUDirectClose", handle);
	cuFileHandleDeregister(handle);
}

/* Deregisters a handle of GPUDirectCreate and publishes the first size bytes. On return
 * the object is durable and visible. Returns the object's properties as JSON. */
inline std::string GPUDirectCommit(CUfileHandle_t handle, uint64_t size)
{
	object file = detail::gpudirect_take("GPUDirectCommit", handle);
	cuFileHandleDeregister(handle);
	return file.commit(size);
}

/* Releases all objects, the client and the cuFile driver. After GPUDirectShutdown, the
 * program may call GPUDirectInit again. */
inline void GPUDirectShutdown()
{
	detail::gpudirect &all = detail::gpudirect::only();
	const std::lock_guard<std::mutex> lock(all.mutex);
	all.end();
}

} // namespace nebulaio

#endif /* NEBULAIO_GPUDIRECT_H */
