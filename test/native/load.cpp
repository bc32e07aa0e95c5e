// SPDX-License-Identifier: Apache-2.0
//
// Tests the C++ header as a C++ program uses it: load PATH DEVICE. Loads, streams,
// selects, moves handles, catches errors, cancels, and compares with the file.
#include "check.hpp"

#include <iostream>

namespace {

void loads(nebulaio::system &sys, memory *place, const std::string &path, const std::string &device)
{
	nebulaio::model opened(sys, path, "{\"device\":\"" + device + "\"}");
	nebulaio::model model = std::move(opened);
	EXPECT(opened.number() == 0 && model.number() != 0);
	destinations dst(place, model);
	nebulaio::job job = model.load(dst.buffers);
	nebulaio_progress progress{};
	while (!job.wait(10, &progress)) {
	}
	EXPECT(progress.bytes_done == progress.bytes_total);
	const std::string report = job.report();
	EXPECT(report.find("\"routes\"") != std::string::npos && report.find("\"id\":\"" + device + "\"") != std::string::npos);

	const std::string file = read_file(path);
	uint64_t header = 0;
	std::memcpy(&header, file.data(), sizeof header);
	size_t at = 8 + static_cast<size_t>(header);
	for (const nebulaio::tensor &t : model.tensors()) {
		EXPECT(dst.read(t) == file.substr(at, t.size));
		const nebulaio::tensor same = model.tensor(t.name);
		EXPECT(same.offset == t.offset && same.shape == t.shape && same.dtype == t.dtype && !t.dtype.empty());
		at += t.size;
	}
	EXPECT(at == file.size());
	EXPECT(model.describe().find("\"metadata\"") != std::string::npos);

	// Tensors are right when they are said to be final, while others still arrive.
	{
		destinations later(place, model);
		const std::vector<nebulaio::tensor> all = model.tensors();
		nebulaio::job streamed = model.load(later.buffers, "{\"route\":\"buffered\"}");
		for (uint64_t known = 0, n = 0; known < all.size(); known = n) {
			while ((n = streamed.ready(known, 20)) == known) {
			}
			EXPECT(n > known && n <= all.size());
			for (uint64_t i = known; i < n; i++)
				EXPECT(later.read(all[i]) == dst.read(all[i]));
		}
		EXPECT(streamed.ready(all.size()) == all.size());
		EXPECT(streamed.wait());
	}

	// A choice of what is open, by names that JSON must not misread.
	{
		const nebulaio::tensor last = model.tensors().back();
		nebulaio::model one = model.select("{\"names\":[" + nebulaio::quote(last.name) + "]}");
		EXPECT(one.tensors().size() == 1 && one.tensor(last.name).size == last.size);
		destinations small(place, one);
		one.load(small.buffers).wait();
		EXPECT(small.read(one.tensor(last.name)) == dst.read(last));
		EXPECT(status_of([&] { model.select("{\"names\":[" + nebulaio::quote("\\no\"body\n") + "]}"); }) == NEBULAIO_ERR_NOT_FOUND);
	}

	// A job that nobody waits for is stopped and waited for by its destructor.
	{
		nebulaio::job dropped = model.load(dst.buffers);
	}
	nebulaio::job stopped = model.load(dst.buffers);
	stopped.cancel();
	const int32_t status = status_of([&] { stopped.wait(); });
	EXPECT(status == NEBULAIO_ERR_CANCELLED || status == NEBULAIO_OK);
}

void errors(nebulaio::system &sys, const std::string &path)
{
	EXPECT(status_of([&] { nebulaio::model(sys, "/nonexistent.safetensors"); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(status_of([&] { nebulaio::model(sys, path, "{\"tensors\":[\"no.such.*\"]}"); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(status_of([] { nebulaio::system("{\"workers\":-1}"); }) == NEBULAIO_ERR_INVALID);
	nebulaio::model model(sys, path, "{\"device\":\"host\"}");
	EXPECT(status_of([&] { model.tensor("nobody"); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(status_of([&] { model.load({}); }) == NEBULAIO_ERR_INVALID);
	EXPECT(status_of([&] { model.select("{\"device\":\"host\"}"); }) == NEBULAIO_ERR_INVALID);
	// C would read half of these and find the file, or the tensor.
	EXPECT(status_of([&] { nebulaio::model(sys, path + std::string("\0x", 2)); }) == NEBULAIO_ERR_INVALID);
	EXPECT(status_of([&] { model.tensor(model.tensors()[0].name + std::string("\0x", 2)); }) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio::quote("a\"b\\c\n\x01") == "\"a\\\"b\\\\c\\u000a\\u0001\"");
	model.release();
	EXPECT(status_of([&] { model.describe(); }) == NEBULAIO_ERR_CLOSED);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: load PATH DEVICE");
	const std::string path = argv[1], device = argv[2];
	memory place = memory_of(device.c_str());
	nebulaio::system sys;
	EXPECT(sys.devices().find("\"host\"") != std::string::npos);
	loads(sys, &place, path, device);
	errors(sys, path);
	std::cout << "C++: " << path << " on " << device << ", every byte right\n";
	return 0;
}
