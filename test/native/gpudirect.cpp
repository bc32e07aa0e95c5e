// SPDX-License-Identifier: Apache-2.0
//
// Tests objects as handles of cuFile: gpudirect DEVICE. The variables NEBULAIO_ENDPOINT,
// NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY name the server, which has a bucket
// "bucket". On host, a stand-in replaces libcufile; its device memory is host memory.
#include <cufile.h>
#include "nebulaio/gpudirect.h"

#include "check.hpp"

#include <cerrno>
#include <iostream>

namespace {

const memory *place;

// Functions of the CUDA runtime, implemented with the driver.
int cudaMalloc(void **at, size_t size)
{
	*at = memory_take(place, size, 4096);
	return 0;
}
int cudaFree(void *at)
{
	memory_give(place, at);
	return 0;
}

const size_t size = (5 << 20) + 4096;

// The code block of GPUDirect's documentation. Only the endpoint and the last line,
// which fetches the bytes for comparison, differ.
std::string documented(const char *endpoint, ssize_t *read, ssize_t *written)
{
	// Initialize GPUDirect
	CUfileDescr_t cf_descr;
	CUfileHandle_t cf_handle;
	nebulaio::GPUDirectInit(&cf_descr, endpoint);

	// Open object
	nebulaio::GPUDirectOpen(&cf_handle, "my-bucket", "data.bin");

	// Allocate GPU buffer
	void* gpu_buffer;
	cudaMalloc(&gpu_buffer, size);

	// Direct read
	ssize_t bytes_read = cuFileRead(cf_handle, gpu_buffer, size, 0, 0);

	// Process...
	EXPECT(cf_descr.handle.fd >= 0 && nebulaio::GPUDirectSize(cf_handle) == size);
	std::string seen(size, '\0');
	memory_read(place, &seen[0], gpu_buffer, size);

	// Direct write
	ssize_t bytes_written = cuFileWrite(cf_handle, gpu_buffer, size, 0, 0);

	// Cleanup
	cuFileHandleDeregister(cf_handle);
	cudaFree(gpu_buffer);

	*read = bytes_read;
	*written = bytes_written;
	nebulaio::GPUDirectRelease(cf_handle);
	return seen;
}

// Reads the object with the library's own client, which verifies each block's checksum.
std::string content(const nebulaio::system &sys, const char *endpoint, const std::string &key, size_t n)
{
	nebulaio::client server(sys, "{\"endpoint\":" + nebulaio::quote(endpoint) + "}");
	std::string out(n, '\0');
	EXPECT(server.read({"my-bucket", key, &out[0], n}) == n);
	return out;
}

void create(const nebulaio::system &sys, const char *endpoint)
{
	const std::string bytes = random_bytes(size + 100, 31);
	block from(place, bytes);
	void *base = from.address();
	CUfileDescr_t descr;
	CUfileHandle_t handle;
	nebulaio::GPUDirectInit(&descr, endpoint, std::getenv("NEBULAIO_ACCESS_KEY"), std::getenv("NEBULAIO_SECRET_KEY"));

	nebulaio::GPUDirectCreate(&handle, "my-bucket", "made.bin", 2 * size, "{\"content_type\":\"text/plain\"}");
	EXPECT(cuFileWrite(handle, base, size, 0, 0) == static_cast<ssize_t>(size));
	EXPECT(status_of([&] { nebulaio::GPUDirectOpen(&handle, "my-bucket", "made.bin"); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(nebulaio::GPUDirectCommit(handle, size).find("\"etag\"") != std::string::npos);
	EXPECT(content(sys, endpoint, "made.bin", size) == bytes.substr(0, size));
	EXPECT(status_of([&] { nebulaio::GPUDirectCommit(handle, size); }) == NEBULAIO_ERR_CLOSED);

	// Of one that was not committed there is no trace.
	nebulaio::GPUDirectCreate(&handle, "my-bucket", "never.bin", size);
	EXPECT(cuFileWrite(handle, base, size, 0, 0) == static_cast<ssize_t>(size));
	nebulaio::GPUDirectClose(handle);
	EXPECT(status_of([&] { nebulaio::GPUDirectOpen(&handle, "my-bucket", "never.bin"); }) == NEBULAIO_ERR_NOT_FOUND);

	// More than was written is not published.
	nebulaio::GPUDirectCreate(&handle, "my-bucket", "never.bin", size);
	EXPECT(status_of([&] { nebulaio::GPUDirectCommit(handle, size + 1); }) == NEBULAIO_ERR_INVALID);

	// An object that is overwritten stays what it was for those who hold it.
	CUfileHandle_t held;
	nebulaio::GPUDirectOpen(&held, "my-bucket", "made.bin");
	nebulaio::GPUDirectCreate(&handle, "my-bucket", "made.bin", size);
	EXPECT(cuFileWrite(handle, static_cast<char *>(base), size - 4096, 0, 4096) == static_cast<ssize_t>(size - 4096));
	nebulaio::GPUDirectCommit(handle, size - 4096);
	block to(place, size);
	EXPECT(cuFileRead(held, to.address(), size, 0, 0) == static_cast<ssize_t>(size));
	EXPECT(to.read() == bytes.substr(0, size));
	nebulaio::GPUDirectClose(held);
	EXPECT(status_of([&] { nebulaio::GPUDirectClose(held); }) == NEBULAIO_ERR_CLOSED);
	EXPECT(content(sys, endpoint, "made.bin", size - 4096) == bytes.substr(4096, size - 4096));
}

void refusals(const char *endpoint)
{
	CUfileDescr_t descr;
	CUfileHandle_t handle;
	std::string said;
	nebulaio::GPUDirectShutdown();
	EXPECT(status_of([&] { nebulaio::GPUDirectOpen(&handle, "my-bucket", "data.bin"); }, &said) == NEBULAIO_ERR_INVALID);
	EXPECT(said.find("GPUDirectInit") != std::string::npos);
	nebulaio::GPUDirectInit(&descr, endpoint, std::getenv("NEBULAIO_ACCESS_KEY"), "not-the-secret");
	EXPECT(status_of([&] { nebulaio::GPUDirectOpen(&handle, "my-bucket", "data.bin"); }) != NEBULAIO_OK);
	nebulaio::GPUDirectInit(&descr, endpoint);
	EXPECT(status_of([&] { nebulaio::GPUDirectOpen(&handle, "my-bucket", "none.bin"); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(status_of([&] { nebulaio::GPUDirectOpen(&handle, "no-such-bucket", "none.bin"); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(status_of([&] { nebulaio::GPUDirectInit(nullptr, endpoint); }) == NEBULAIO_ERR_INVALID);
}

} // namespace

int main(int argc, char **argv)
{
	const char *endpoint = std::getenv("NEBULAIO_ENDPOINT");
	if (argc != 2 || !endpoint || !std::getenv("NEBULAIO_ACCESS_KEY") || !std::getenv("NEBULAIO_SECRET_KEY"))
		fatal("usage: NEBULAIO_ENDPOINT=... NEBULAIO_ACCESS_KEY=... NEBULAIO_SECRET_KEY=... gpudirect DEVICE");
	const memory here = memory_of(argv[1]);
	place = &here;
	nebulaio::system sys;
	const std::string bytes = random_bytes(size, 30);
	{
		nebulaio::client server(sys);
		server.write({"my-bucket", "data.bin", bytes.data(), size});
	}
	// "localhost:9000" of the documentation has no scheme.
	const std::string host = std::string(endpoint).substr(std::string(endpoint).find("//") + 2);
	ssize_t read = 0, written = 0;
	errno = 0;
	EXPECT(documented(host.c_str(), &read, &written) == bytes && read == static_cast<ssize_t>(size));
	// Objects do not change: the handle is one for reading, and cuFile says so.
	EXPECT(written < 0 && content(sys, endpoint, "data.bin", size) == bytes);
	create(sys, endpoint);
	refusals(endpoint);
	nebulaio::GPUDirectShutdown();
	std::cout << "C++: objects as cuFile's handles on " << argv[1] << ", every byte right\n";
	return 0;
}
