// SPDX-License-Identifier: Apache-2.0
//
// Loads a model into memory of the program and prints which path the bytes took:
//
//   c++ -std=c++17 -Iinclude examples/cpp/load.cpp -o load -Lbuild -lnebulaio -Wl,-rpath,$PWD/build
//   ./load model.safetensors host
//
// On a GPU the destination comes from cudaMalloc; here it is taken from the CUDA
// driver, found at run time, so that the example builds without a toolkit.
#include <nebulaio/nebulaio.hpp>

#include "device_memory.hpp"

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char **argv)
try {
	if (argc < 2) {
		std::fprintf(stderr, "usage: load MODEL [host|cuda:N]\n");
		return 2;
	}
	const std::string device = argc > 2 ? argv[2] : "host";
	nebulaio::system sys;
	nebulaio::model model(sys, argv[1], "{\"device\":\"" + device + "\"}");

	std::vector<device_memory> memory; // one destination per file
	std::vector<nebulaio_buffer> dst;
	for (const nebulaio_destination &need : model.destinations()) {
		memory.emplace_back(device, need.size, need.align);
		dst.push_back({memory.back().address(), need.size});
	}
	nebulaio::job load = model.load(dst);

	nebulaio_progress progress{};
	while (!load.wait(100, &progress))
		std::fprintf(stderr, "\r%llu of %llu bytes", static_cast<unsigned long long>(progress.bytes_done),
		             static_cast<unsigned long long>(progress.bytes_total));

	for (const nebulaio::tensor &t : model.tensors())
		std::printf("%-48s %-5s %zu dimensions at %p\n", t.name.c_str(), t.dtype.c_str(), t.shape.size(), t.at(dst));
	std::printf("%s\n", load.report().c_str());
	return 0;
} catch (const nebulaio::error &problem) {
	std::fprintf(stderr, "load: %s\n", problem.what());
	return problem.status();
}
