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
#include <utility>

namespace {

const memory *place;

// What the block below has allocated, and the last content of what it has freed.
void *allocated;
std::string freed;

// Functions of the CUDA runtime, implemented with the driver.
int cudaMalloc(void **at, size_t size)
{
	*at = allocated = memory_take(place, size, 4096);
	return 0;
}

const size_t length = (5 << 20) + 4096;

int cudaFree(void *at)
{
	freed.assign(length, '\0');
	memory_read(place, &freed[0], at, length);
	memory_give(place, at);
	return 0;
}

// The size of the block's buffer. The block asks for the size three times: to allocate,
// to read and to write. Before the write, the buffer is processed: each byte changes.
struct {
	std::string seen;
	int asked = 0;
	operator size_t()
	{
		if (++asked == 3) {
			seen.assign(length, '\0');
			memory_read(place, &seen[0], allocated, length);
			std::string next = seen;
			for (char &c : next)
				c = static_cast<char>(c ^ 0x55);
			memory_write(place, allocated, next.data(), length);
		}
		return length;
	}
} size;

// The block names localhost:9000, and the tests' server has a free port.
std::string served;
#define GPUDirectInit(descr, endpoint) GPUDirectInit(descr, std::string(endpoint) == "localhost:9000" ? served : "")

// The code block of GPUDirect's documentation, unchanged.
void documented(ssize_t *read, ssize_t *written)
{
#include "documented.inc"

	*read = bytes_read;
	*written = bytes_written;
}
#undef GPUDirectInit

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
	const std::string bytes = random_bytes(length + 100, 31);
	block from(place, bytes);
	void *base = from.address();
	CUfileDescr_t descr;
	CUfileHandle_t handle;
	nebulaio::GPUDirectInit(&descr, endpoint, std::getenv("NEBULAIO_ACCESS_KEY"), std::getenv("NEBULAIO_SECRET_KEY"));

	nebulaio::GPUDirectCreate(&handle, "my-bucket", "made.bin", 2 * length, "{\"content_type\":\"text/plain\"}");
	EXPECT(cuFileWrite(handle, base, length, 0, 0) == static_cast<ssize_t>(length));
	EXPECT(status_of([&] { nebulaio::GPUDirectOpen(&handle, "my-bucket", "made.bin"); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(nebulaio::GPUDirectCommit(handle, length).find("\"etag\"") != std::string::npos);
	EXPECT(content(sys, endpoint, "made.bin", length) == bytes.substr(0, length));
	EXPECT(status_of([&] { nebulaio::GPUDirectCommit(handle, length); }) == NEBULAIO_ERR_CLOSED);

	// Of one that was not committed there is no trace.
	nebulaio::GPUDirectCreate(&handle, "my-bucket", "never.bin", length);
	EXPECT(cuFileWrite(handle, base, length, 0, 0) == static_cast<ssize_t>(length));
	nebulaio::GPUDirectClose(handle);
	EXPECT(status_of([&] { nebulaio::GPUDirectOpen(&handle, "my-bucket", "never.bin"); }) == NEBULAIO_ERR_NOT_FOUND);

	// More than was written is not published.
	nebulaio::GPUDirectCreate(&handle, "my-bucket", "never.bin", length);
	EXPECT(status_of([&] { nebulaio::GPUDirectCommit(handle, length + 1); }) == NEBULAIO_ERR_INVALID);

	// An object that is overwritten stays what it was for those who hold it.
	CUfileHandle_t held;
	nebulaio::GPUDirectOpen(&held, "my-bucket", "made.bin");
	nebulaio::GPUDirectCreate(&handle, "my-bucket", "made.bin", length);
	EXPECT(cuFileWrite(handle, static_cast<char *>(base), length - 4096, 0, 4096) == static_cast<ssize_t>(length - 4096));
	nebulaio::GPUDirectCommit(handle, length - 4096);
	block to(place, length);
	EXPECT(cuFileRead(held, to.address(), length, 0, 0) == static_cast<ssize_t>(length));
	EXPECT(to.read() == bytes.substr(0, length));
	nebulaio::GPUDirectClose(held);
	EXPECT(status_of([&] { nebulaio::GPUDirectClose(held); }) == NEBULAIO_ERR_CLOSED);
	EXPECT(content(sys, endpoint, "made.bin", length - 4096) == bytes.substr(4096, length - 4096));
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
	const std::string bytes = random_bytes(length, 30);
	{
		nebulaio::client server(sys);
		server.write({"my-bucket", "data.bin", bytes.data(), length});
	}
	// "localhost:9000" of the documentation has no scheme.
	const std::string host = std::string(endpoint).substr(std::string(endpoint).find("//") + 2);
	served = host;
	nebulaio::client keeper(sys);
	const nebulaio::object old = keeper.open("my-bucket", "data.bin");
	ssize_t read = 0, written = 0;
	documented(&read, &written);
	EXPECT(size.seen == bytes && read == static_cast<ssize_t>(length) && written == read);
	// The handle was deregistered, so what was written is the object now.
	EXPECT(freed != bytes && content(sys, endpoint, "data.bin", length) == freed);
	std::string kept(length, '\0');
	EXPECT(pread(old.buffered(), &kept[0], length, 0) == static_cast<ssize_t>(length) && kept == bytes);
	std::cout << "C++: the documented block read " << read << " bytes, wrote " << written << ", and the object is committed\n";
	create(sys, endpoint);
	refusals(endpoint);
	nebulaio::GPUDirectShutdown();
	std::cout << "C++: objects as cuFile's handles on " << argv[1] << ", every byte right\n";
	return 0;
}
