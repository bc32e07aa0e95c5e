// SPDX-License-Identifier: Apache-2.0
//
// The C++ header as a C++ program uses it: load PATH DEVICE FOLDER. Loads, moves
// handles about, catches errors, cancels, and compares with the file.
#include "memory.h"

#include "nebulaio/nebulaio.hpp"

#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

namespace {

#define EXPECT(what)                                                                                                   \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			std::cerr << __FILE__ << ":" << __LINE__ << ": not so: " << #what << "\n";                      \
			std::exit(1);                                                                                  \
		}                                                                                                      \
	} while (0)

template <typename Call> int32_t status_of(Call call)
{
	try {
		call();
	} catch (const nebulaio::error &problem) {
		EXPECT(std::string(problem.what()).size() > 10);
		return problem.status();
	}
	return NEBULAIO_OK;
}

std::string read_file(const std::string &path)
{
	std::ifstream in(path, std::ios::binary);
	return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

// Destinations of a model, freed at the end.
struct destinations {
	memory *place;
	std::vector<nebulaio_buffer> buffers;

	destinations(memory *m, const nebulaio::model &model) : place(m)
	{
		for (const nebulaio_destination &need : model.destinations())
			buffers.push_back({memory_take(place, need.size, need.align), need.size});
	}
	destinations(const destinations &) = delete;
	destinations &operator=(const destinations &) = delete;
	~destinations()
	{
		for (const nebulaio_buffer &b : buffers)
			memory_give(place, b.address);
	}
	std::string read(const nebulaio::tensor &t) const
	{
		std::string out(t.size, '\0');
		memory_read(place, &out[0], buffers[t.file].address + t.offset, t.size);
		return out;
	}
};

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
	model.release();
	EXPECT(status_of([&] { model.describe(); }) == NEBULAIO_ERR_CLOSED);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 4)
		fatal("usage: load PATH DEVICE FOLDER");
	const std::string path = argv[1], device = argv[2];
	memory place = memory_of(device.c_str());
	nebulaio::system sys;
	EXPECT(sys.devices().find("\"host\"") != std::string::npos);
	loads(sys, &place, path, device);
	errors(sys, path);
	std::cout << "C++: " << path << " on " << device << ", every byte right\n";
	return 0;
}
