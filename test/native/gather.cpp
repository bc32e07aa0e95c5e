// SPDX-License-Identifier: Apache-2.0
//
// Tests gathers and writes of pieces with the C++ header: gather FOLDER DEVICE. Pieces are
// written from temporary objects and gathered again. A wrong gather is refused, and a
// cancelled write leaves the old file.
#include "check.hpp"

#include <iostream>

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: gather FOLDER DEVICE");
	const std::string path = std::string(argv[1]) + "/cpp.pieces", device = argv[2];
	const memory place = memory_of(argv[2]);
	nebulaio::system sys;
	const std::string head = random_bytes(4096, 1), body = random_bytes((1 << 20) + 3, 2);
	const block on_device(&place, body);
	nebulaio::job job = sys.write(path, std::vector<nebulaio::piece>{{head.data(), head.size(), "host"},
	                                                                 {nullptr, 0, device},
	                                                                 {on_device.address(), body.size(), device}});
	EXPECT(job.bytes() == head.size() + body.size() && read_file(path) == head + body);
	EXPECT(job.report().find("\"crc64nvme\":\"") != std::string::npos);

	const std::string options = "{\"verify\":true,\"device\":" + nebulaio::quote(device) + "}";
	const block out(&place, body.size() + 512);
	const nebulaio_stream stream = memory_stream(&place);
	sys.gather({path}, {{0, 4096, body.size(), past(out.address(), 512), 0, 0, "body"},
	                    {0, 0, 4096, out.address(), 1, 8, ""}}, options, stream).wait();
	memory_stream_end(&place, stream);
	EXPECT(out.read(512, body.size()) == body);
	const std::string rows = out.read(0, 512);
	for (size_t i = 0; i < 512; i++)
		EXPECT(rows[i] == head[8 * i]);
	sys.gather({}, {}, options).wait();

	std::string what;
	EXPECT(status_of([&] { sys.gather({path}, {{0, 1, head.size() + body.size(), out.address(), 0, 0, "long"}}, options).wait(); },
	                 &what) == NEBULAIO_ERR_INVALID);
	EXPECT(what.find("\"long\"") != std::string::npos && what.find(path) != std::string::npos);
	EXPECT(status_of([&] { sys.gather({path + ".none"}, {{}}, options).wait(); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(status_of([&] { sys.write(path, {{nullptr, 1, "host"}}); }) == NEBULAIO_ERR_INVALID);
	EXPECT(status_of([&] { sys.write(path, {}, "{\"align\":1}"); }) == NEBULAIO_ERR_INVALID);
	EXPECT(read_file(path) == head + body);

	nebulaio::system slow("{\"write_block_size\":65536,\"write_depth\":1}");
	nebulaio::job cancelled = slow.write(path, {{on_device.address(), body.size(), device}});
	cancelled.cancel();
	const int32_t status = status_of([&] { cancelled.wait(); });
	EXPECT(status == NEBULAIO_ERR_CANCELLED || status == NEBULAIO_OK);
	EXPECT(read_file(path) == (status == NEBULAIO_OK ? body : head + body));
	std::cout << "C++: gathers to " << device << " and writes of pieces, every byte right\n";
	return 0;
}
