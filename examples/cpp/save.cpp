// SPDX-License-Identifier: Apache-2.0
//
// Saves tensors from memory of a device to a file that is durable when the job has
// ended, and loads them back with every block checked:
//
//   c++ -std=c++17 -Iinclude examples/cpp/save.cpp -o save -Lbuild -lnebulaio -ldl -Wl,-rpath,$PWD/build
//   ./save model.safetensors host
#include <nebulaio/nebulaio.hpp>

#include "device_memory.hpp"

#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

int main(int argc, char **argv)
try {
	if (argc < 2) {
		std::fprintf(stderr, "usage: save FILE [host|cuda:N]\n");
		return 2;
	}
	const std::string path = argv[1], device = argc > 2 ? argv[2] : "host";
	std::vector<float> weight(1024 * 256);
	std::iota(weight.begin(), weight.end(), 0.0f);
	const std::size_t size = weight.size() * sizeof weight[0];

	// The weights come to the device on a stream. The save is told of it and reads
	// them after the copy: nobody has to wait in between.
	device_stream stream(device);
	device_memory memory(device, size);
	memory.upload(weight.data(), size, stream);
	nebulaio::system sys;
	nebulaio::tensor_view view{"layer.weight", "F32", {1024, 256}, memory.address(), size, device};
	nebulaio::job save = sys.save(path, {view}, R"({"metadata":{"format":"pt"}})", stream.stream());
	save.wait(); // the file is whole, synced and has its name; on an error, the old one is as it was
	std::printf("%s\n", save.report().c_str());

	// The save wrote FILE.crc64nvme as well, so the load can check what it reads.
	nebulaio::model model(sys, path, "{\"device\":" + nebulaio::quote(device) + "}");
	const nebulaio_destination need = model.destinations().at(0);
	device_memory again(device, need.size, need.align);
	model.load({{again.address(), need.size}}, R"({"verify":true})").wait();

	const nebulaio::tensor t = model.tensor("layer.weight");
	std::vector<char> all(need.size);
	again.download(all.data(), all.size(), stream);
	stream.wait();
	const bool equal = std::memcmp(all.data() + t.offset, weight.data(), size) == 0;
	std::printf("%s: %zu bytes saved from %s and loaded back, %s\n", t.name.c_str(), size, device.c_str(), equal ? "equal" : "DIFFERENT");
	return equal ? 0 : 1;
} catch (const nebulaio::error &problem) {
	std::fprintf(stderr, "save: %s\n", problem.what());
	return problem.status();
}
