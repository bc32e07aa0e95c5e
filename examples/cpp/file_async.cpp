// SPDX-License-Identifier: Apache-2.0
//
// Moves ranges of a file in the order of CUDA streams:
//
//   c++ -std=c++17 -Iinclude examples/cpp/file_async.cpp -o file_async -Lbuild -lnebulaio -ldl -Wl,-rpath,$PWD/build
//   ./file_async FILE cuda:0
//
// What is queued on a stream behind a read sees its bytes. Where libcufile carries
// the read, no thread waits for it; where it does not (here: on host), the read is
// done when the call returns, which keeps the same order, and the report says why.
#include <nebulaio/nebulaio.hpp>

#include "device_memory.hpp"

#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

int main(int argc, char **argv)
try {
	if (argc < 2) {
		std::fprintf(stderr, "usage: file_async FILE [host|cuda:N]\n");
		return 2;
	}
	const std::string device = argc > 2 ? argv[2] : "host";
	constexpr std::size_t parts = 4, length = 1 << 18; // numbers in a part
	constexpr std::size_t size = length * sizeof(uint64_t);
	std::vector<uint64_t> numbers(parts * length), got(numbers.size());
	std::iota(numbers.begin(), numbers.end(), uint64_t{1});

	// What moves use stays until they have ended: the system and the file are made
	// first and go last.
	nebulaio::system sys;
	nebulaio::file file(sys, argv[1], "w+", "{\"device\":" + nebulaio::quote(device) + "}");
	std::vector<std::unique_ptr<device_stream>> streams;
	std::vector<device_memory> memory;
	std::vector<nebulaio::job> moves;
	for (std::size_t i = 0; i < parts; i++) {
		streams.push_back(std::make_unique<device_stream>(device));
		memory.emplace_back(device, size);
	}

	// Each stream brings its part to the device and writes it to the file behind that.
	for (std::size_t i = 0; i < parts; i++) {
		memory[i].upload(&numbers[i * length], size, *streams[i]);
		moves.push_back(file.write_async(memory[i].address(), size, i * size, streams[i]->stream()));
	}
	for (nebulaio::job &move : moves)
		if (move.bytes() != size) // waits, and throws what went wrong
			return 1;
	file.sync();

	// Each stream reads the part of its neighbour and, behind that, copies it out; a
	// program would queue its kernels in the same place.
	moves.clear();
	for (std::size_t i = 0; i < parts; i++) {
		const std::size_t part = (i + 1) % parts;
		moves.push_back(file.read_async(memory[i].address(), size, part * size, streams[i]->stream()));
		memory[i].download(&got[part * length], size, *streams[i]);
	}
	for (const auto &stream : streams)
		stream->wait();
	for (nebulaio::job &move : moves)
		move.wait();
	std::printf("%s\n", moves.back().report().c_str());
	std::printf("%zu parts of %zu bytes by %zu streams on %s, %s\n", parts, size, streams.size(), device.c_str(),
	            got == numbers ? "equal" : "DIFFERENT");
	return got == numbers ? 0 : 1;
} catch (const nebulaio::error &problem) {
	std::fprintf(stderr, "file_async: %s\n", problem.what());
	return problem.status();
}
