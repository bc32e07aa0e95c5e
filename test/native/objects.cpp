// SPDX-License-Identifier: Apache-2.0
//
// Tests objects of a server with the C++ header: objects MODEL DEVICE. The environment
// names the server, which has a bucket "bucket".
#include "check.hpp"

#include <iostream>
#include <thread>

namespace {

void moves(nebulaio::client &server, const memory *place, const std::string &device)
{
	const std::string bytes = random_bytes((2 << 20) + 77, 51);
	block from(place, bytes), to(place, bytes.size());
	EXPECT(server.write({"bucket", "native/cpp", from.address(), from.size(), device}) == bytes.size());
	EXPECT(server.read({"bucket", "native/cpp", to.address(), to.size(), device}) == bytes.size() && to.read() == bytes);

	nebulaio::object_read part{"bucket", "native/cpp", to.address(), to.size(), device};
	part.offset = 1 << 20;
	part.size = 1000;
	EXPECT(server.read(part) == 1000 && to.read(0, 1000) == bytes.substr(1 << 20, 1000));

	std::vector<nebulaio::object_read> many;
	for (uint64_t i = 0; i < 100; i++) {
		many.push_back({"bucket", "native/cpp", past(to.address(), 20000 * i), 20000, device});
		many.back().offset = 20000 * i;
		many.back().size = 20000;
	}
	nebulaio::job batch = server.read_start(many);
	EXPECT(batch.bytes() == 2000000 && to.read(0, 2000000) == bytes.substr(0, 2000000));
	EXPECT(batch.report().find("\"objects\"") != std::string::npos);

	std::vector<std::thread> threads;
	for (int i = 0; i < 3; i++)
		threads.emplace_back([&] {
			memory_bind(place);
			block mine(place, bytes.size());
			EXPECT(server.read({"bucket", "native/cpp", mine.address(), mine.size(), device}) == bytes.size() && mine.read() == bytes);
		});
	for (std::thread &t : threads)
		t.join();

	EXPECT(server.stat("bucket", "native/cpp").find("\"size\":" + std::to_string(bytes.size())) != std::string::npos);
	EXPECT(server.list("bucket", "{\"prefix\":\"native/cpp\"}").find("native/cpp") != std::string::npos);
	EXPECT(server.status().find("\"door\"") != std::string::npos);
	std::string said;
	EXPECT(status_of([&] { server.read({"bucket", "none", to.address(), to.size(), device}); }, &said) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(said.find("s3://bucket/none") != std::string::npos);
	EXPECT(status_of([&] { server.read({"bucket", "native/cpp", to.address(), 10, device}); }) == NEBULAIO_ERR_INVALID);
	EXPECT(status_of([&] { server.stat("no-such-bucket", "none"); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(status_of([&] { server.stat(std::string("a\0b", 3), "none"); }) == NEBULAIO_ERR_INVALID);

	nebulaio::object file = server.open("bucket", "native/cpp", "", device);
	EXPECT(file.size() == bytes.size() && file.buffered() >= 0);
	nebulaio::object made = server.create("bucket", "native/never", 100, "{\"device\":" + nebulaio::quote(device) + "}");
	EXPECT(made.buffered() >= 0);
	EXPECT(status_of([&] { made.commit(101); }) == NEBULAIO_ERR_INVALID);
	EXPECT(made.buffered() == -1 && made.direct() == -1); // closed: the numbers may be other files' by now
	nebulaio::object moved = std::move(file);
	EXPECT(moved.buffered() >= 0 && file.buffered() == -1); // NOLINT: what is left behind has none
}

void models(nebulaio::system &sys, nebulaio::client &server, const memory *place, const std::string &path, const std::string &device)
{
	const std::string content = read_file(path), options = "{\"device\":" + nebulaio::quote(device) + "}";
	server.write({"bucket", "native/model.safetensors", content.data(), content.size(), "host"});
	nebulaio::model local(sys, path, options), remote = server.open_model("bucket", "native/model.safetensors", options);
	destinations a(place, local), b(place, remote);
	local.load(a.buffers).wait();
	nebulaio::job load = remote.load(b.buffers);
	load.wait();
	const std::vector<nebulaio::tensor> tensors = local.tensors();
	EXPECT(!tensors.empty() && remote.tensors().size() == tensors.size());
	for (const nebulaio::tensor &t : tensors)
		EXPECT(a.read(t) == b.read(remote.tensor(t.name)));
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: objects MODEL DEVICE");
	const memory place = memory_of(argv[2]);
	nebulaio::system sys;
	for (const char *door : {"require", "off"}) {
		nebulaio::client server(sys, std::string("{\"door\":\"") + door + "\"}");
		if (door[0] == 'r')
			moves(server, &place, argv[2]);
		models(sys, server, &place, argv[1], argv[2]);
	}
	std::cout << "C++: objects on " << argv[2] << ", every byte right\n";
	return 0;
}
