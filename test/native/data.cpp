// SPDX-License-Identifier: Apache-2.0
//
// Tests training data with the C++ header: data FOLDER DEVICE.
#include "check.hpp"

#include <iostream>
#include <set>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: data FOLDER DEVICE");
	const std::string folder = std::string(argv[1]) + "/samples-cpp", device = argv[2];
	EXPECT(mkdir(folder.c_str(), 0700) == 0);
	std::vector<std::string> samples;
	for (int i = 0; i < 12; i++) {
		samples.push_back(random_bytes(static_cast<size_t>(1000 + i * 7), static_cast<uint64_t>(i + 1)));
		write_file(folder + "/" + std::to_string(100 + i) + ".bin", samples.back());
	}
	const memory place = memory_of(device.c_str());
	nebulaio::system sys;
	EXPECT(status_of([&] { nebulaio::data(sys, {folder + "/none"}); }) == NEBULAIO_ERR_NOT_FOUND);
	const nebulaio::data all(sys, {folder + "/*.bin"}, R"({"format":"files"})");
	EXPECT(all.info().find("\"samples\":12") != std::string::npos && all.sample(1).find("101.bin") != std::string::npos);
	const std::string column = all.info().substr(all.info().find("{\"name\":\"") + 9);
	EXPECT(all.read(5, column.substr(0, column.find('"'))) == samples[5]);

	std::set<int64_t> seen;
	std::string state;
	nebulaio::batch kept;
	{
		nebulaio::loader first(all, R"({"batch":5,"epochs":1,"seed":9,"tail":"short","device":)" + nebulaio::quote(device) + "}");
		EXPECT(first.describe().find("\"batches\":3") != std::string::npos);
		kept = first.next();
		state = kept.state();
	}
	nebulaio::loader rest(all, R"({"batch":3,"epochs":1,"tail":"short","state":)" + state + R"(,"device":)" +
	                               nebulaio::quote(device) + "}");
	const nebulaio_stream stream = memory_stream(&place);
	for (nebulaio::batch b = std::move(kept); b; b = rest.next()) {
		const nebulaio_batch &v = b.view();
		for (uint64_t i = 0; i < v.count; i++) {
			const nebulaio_batch_column &c = v.columns[0];
			std::string got(static_cast<size_t>(c.offsets[i + 1] - c.offsets[i]), '\0');
			memory_read(&place, &got[0], past(c.address, static_cast<size_t>(c.offsets[i])), got.size());
			EXPECT(got == samples[static_cast<size_t>(v.samples[i])] && seen.insert(v.samples[i]).second);
		}
		b.free(stream);
		EXPECT(!b);
	}
	EXPECT(seen.size() == samples.size() && rest.report().find("\"batches\":3") != std::string::npos);
	nebulaio::batch none;
	EXPECT(rest.next(none, 1000) && !none);
	memory_stream_end(&place, stream);
	std::cout << "C++: training data on " << device << std::endl;
	return 0;
}
