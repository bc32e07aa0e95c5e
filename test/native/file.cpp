// SPDX-License-Identifier: Apache-2.0
//
// Tests ranges of files with the C++ header: file FOLDER DEVICE.
#include "check.hpp"

#include <iostream>
#include <thread>

namespace {

std::string options_of(const std::string &device) { return "{\"device\":" + nebulaio::quote(device) + "}"; }

// Writes and reads at unaligned offsets with unaligned lengths, and at ends of files.
void ranges(nebulaio::system &sys, const memory *place, const std::string &path, const std::string &device)
{
	nebulaio::file file(sys, path, "w+", options_of(device));
	EXPECT(file.size() == 0);
	std::string model = random_bytes((1 << 20) + 13, 5);
	block all(place, model);
	EXPECT(file.write(all.address(), model.size(), 0) == model.size());
	const std::string patch = random_bytes(70001, 6);
	block part(place, patch);
	EXPECT(file.write(part.address(), patch.size(), 4095, "{\"route\":\"buffered\"}") == patch.size());
	model.replace(4095, patch.size(), patch);
	EXPECT(file.write(past(part.address(), 1), 999, model.size()) == 999); // grows
	model += patch.substr(1, 999);
	file.sync();
	EXPECT(file.size() == model.size() && read_file(path) == model);

	block to(place, model.size());
	for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{4095}, uint64_t{65537}, uint64_t{model.size() - 1}}) {
		const uint64_t n = file.read(to.address(), model.size(), offset);
		EXPECT(n == model.size() - offset && to.read(0, n) == model.substr(offset));
	}
	EXPECT(file.read(to.address(), 100, model.size()) == 0);

	// Two at once, waited for in the other order; a job that is moved stays one.
	nebulaio::job first = file.read_start(to.address(), 500001, 0);
	nebulaio::job second = file.read_start(past(to.address(), 500001), 500000, 500001, "{\"route\":\"buffered\"}");
	nebulaio::job moved = std::move(second);
	EXPECT(moved.bytes() == 500000 && first.bytes() == 500001 && second.number() == 0);
	EXPECT(to.read(0, 1000001) == model.substr(0, 1000001));
	EXPECT(moved.report().find("\"op\":\"read\"") != std::string::npos);

	// Threads share a file. Each binds the device's context for its own copies.
	std::vector<std::thread> threads;
	for (uint64_t i = 0; i < 3; i++)
		threads.emplace_back([&, i] {
			memory_bind(place);
			block mine(place, 200003);
			EXPECT(file.read(mine.address(), mine.size(), 7 + 200003 * i) == mine.size());
			EXPECT(mine.read() == model.substr(7 + 200003 * i, mine.size()));
		});
	for (std::thread &t : threads)
		t.join();

	nebulaio::job last = file.read_start(to.address(), model.size(), 0);
	file.release(); // waits for it
	EXPECT(last.wait(0) && to.read() == model);
	EXPECT(status_of([&] { file.size(); }) == NEBULAIO_ERR_CLOSED);
}

// Tests work before and after a move on one stream. On host the move has ended when it
// is returned.
void in_stream(nebulaio::system &sys, const memory *place, const std::string &path, const std::string &device)
{
	nebulaio::file file(sys, path, "w", options_of(device));
	const std::string one = random_bytes(3 << 20, 11), two = random_bytes(3 << 20, 12);
	unsigned char *a = memory_pinned(place, one.size()), *b = memory_pinned(place, one.size());
	std::memcpy(a, one.data(), one.size());
	std::memcpy(b, two.data(), two.size());
	block from(place, one.size()), to(place, one.size());
	const nebulaio_stream stream = memory_stream(place);
	memory_put(place, from.address(), a, one.size(), stream);
	nebulaio::job put = file.write_async(from.address(), from.size(), 0, stream);
	memory_put(place, from.address(), b, two.size(), stream);
	nebulaio::job get = file.read_async(to.address(), to.size(), 0, stream);
	memory_fetch(place, b, to.address(), to.size(), stream);
	if (!place->cuda)
		EXPECT(put.wait(0) && get.wait(0));
	memory_stream_wait(place, stream);
	EXPECT(std::memcmp(b, one.data(), one.size()) == 0);
	EXPECT(put.bytes() == one.size() && get.bytes() == one.size() && to.read() == one && from.read() == two);
	const std::string report = get.report();
	EXPECT(report.find("\"what\":\"cufile\"") != std::string::npos || report.find("\"route\":\"cufile_") != std::string::npos);
	memory_stream_end(place, stream);
	memory_unpin(place, a);
	memory_unpin(place, b);
}

void refusals(nebulaio::system &sys, const memory *place, const std::string &path, const std::string &device)
{
	block some(place, 100);
	EXPECT(status_of([&] { nebulaio::file(sys, path + ".none"); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(status_of([&] { nebulaio::file(sys, path, "a"); }) == NEBULAIO_ERR_INVALID);
	EXPECT(status_of([&] { nebulaio::file(sys, path + std::string("\0", 1)); }) == NEBULAIO_ERR_INVALID);
	nebulaio::file file(sys, path, "r", options_of(device));
	EXPECT(status_of([&] { file.write(some.address(), 1, 0); }) == NEBULAIO_ERR_PERMISSION);
	EXPECT(status_of([&] { file.read(0, 1, 0); }) == NEBULAIO_ERR_INVALID);
	EXPECT(status_of([&] { file.read(some.address(), 1, 0, "{\"device\":\"gpu\"}"); }) == NEBULAIO_ERR_INVALID);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: file FOLDER DEVICE");
	const std::string path = std::string(argv[1]) + "/cpp.bytes", device = argv[2];
	const memory place = memory_of(argv[2]);
	nebulaio::system sys;
	ranges(sys, &place, path, device);
	in_stream(sys, &place, path, device);
	refusals(sys, &place, path, device);
	std::cout << "C++: ranges of files on " << device << ", every byte right\n";
	return 0;
}
