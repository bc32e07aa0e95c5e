// SPDX-License-Identifier: Apache-2.0
//
// Tests saves and checksums with the C++ header: save FOLDER DEVICE. A file saved from
// a device is loaded, verified, and saved again from device memory. Damage is found and
// named.
#include "check.hpp"

#include <cerrno>
#include <fcntl.h>
#include <iostream>
#include <sys/stat.h>
#include <unistd.h>

namespace {

std::string folder, device;
const memory *place;

// Tensors in device memory and their content.
struct tensors {
	std::vector<std::string> content;
	std::vector<block> blocks;
	std::vector<nebulaio::tensor_view> views;

	void add(const std::string &name, const std::string &dtype, const std::vector<int64_t> &shape, size_t size)
	{
		content.push_back(random_bytes(size, content.size() + 1));
		blocks.emplace_back(place, content.back());
		views.push_back({name, dtype, shape, blocks.back().address(), size, device});
	}
};

tensors make()
{
	tensors out;
	out.add("a.weight", "BF16", {129, 65}, 129 * 65 * 2);
	out.add("b \"odd\" \\name", "I64", {3}, 24);
	out.add("c.scalar", "F32", {}, 4);
	out.add("d.none", "F32", {0, 7}, 0);
	out.add("e.large", "U8", {2, 1 << 20}, 2 << 20);
	return out;
}

nebulaio::model open(nebulaio::system &sys, const std::string &path)
{
	return nebulaio::model(sys, path, "{\"device\":" + nebulaio::quote(device) + "}");
}

// Loads a file with options and compares it with the saved tensors.
void compare(nebulaio::system &sys, const std::string &path, const tensors &saved, const std::string &options)
{
	nebulaio::model model = open(sys, path);
	destinations dst(place, model);
	model.load(dst.buffers, options).wait();
	EXPECT(model.tensors().size() == saved.views.size());
	for (size_t i = 0; i < saved.views.size(); i++) {
		const nebulaio::tensor t = model.tensor(saved.views[i].name);
		EXPECT(t.dtype == saved.views[i].dtype && t.shape == saved.views[i].shape && dst.read(t) == saved.content[i]);
	}
}

// Saves from temporary objects, with metadata. Then saves the same tensors again from
// the destinations of a load, after the work of a stream.
void round_trip(nebulaio::system &sys, const tensors &saved, const std::string &path)
{
	const std::string said = "say \"x\"\n";
	nebulaio::job job = sys.save(path, std::vector<nebulaio::tensor_view>(saved.views), "{\"metadata\":{\"note\":" + nebulaio::quote(said) + "}}");
	const uint64_t bytes = job.bytes();
	EXPECT(bytes > (2 << 20) && bytes == read_file(path).size());
	EXPECT(job.report().find("\"save\":{\"durable\":") != std::string::npos); // true but on a file system of memory
	EXPECT(status_of([&] { job.ready(0); }) == NEBULAIO_ERR_INVALID);
	compare(sys, path, saved, "{\"verify\":true}");

	nebulaio::model model = open(sys, path);
	EXPECT(model.describe().find("\"note\":\"say \\\"x\\\"\\n\"") != std::string::npos);
	destinations dst(place, model);
	const nebulaio_stream stream = memory_stream(place);
	nebulaio::job load = model.load(dst.buffers, stream);
	load.wait();
	std::vector<nebulaio::tensor_view> loaded;
	for (const nebulaio::tensor &t : model.tensors())
		loaded.push_back(t.in(dst.buffers, device));
	// Content changes on the stream; the save is queued behind that.
	const nebulaio::tensor large = model.tensor("e.large");
	const std::string other = random_bytes(large.size, 77);
	unsigned char *pinned = memory_pinned(place, large.size);
	std::memcpy(pinned, other.data(), large.size);
	memory_put(place, large.at(dst.buffers), pinned, large.size, stream);
	sys.save(path + ".copy", loaded, "", stream).wait();
	memory_stream_wait(place, stream);
	memory_unpin(place, pinned);
	memory_stream_end(place, stream);
	nebulaio::model copy = open(sys, path + ".copy");
	destinations back(place, copy);
	copy.load(back.buffers, "{\"verify\":true}").wait();
	for (size_t i = 0; i < saved.views.size(); i++) {
		const nebulaio::tensor t = copy.tensor(saved.views[i].name);
		EXPECT(back.read(t) == (t.name == "e.large" ? other : saved.content[i]));
	}
}

void refusals(nebulaio::system &sys, const tensors &saved, const std::string &path)
{
	const std::string before = read_file(path);
	const auto refused = [&](void (*change)(nebulaio::tensor_view &)) {
		std::vector<nebulaio::tensor_view> bad = saved.views;
		change(bad[1]);
		return status_of([&] { sys.save(path, bad).wait(); });
	};
	using view = nebulaio::tensor_view;
	EXPECT(refused([](view &t) { t.dtype = "int64"; }) == NEBULAIO_ERR_INVALID);
	EXPECT(refused([](view &t) { t.shape = {4}; }) == NEBULAIO_ERR_INVALID);
	EXPECT(refused([](view &t) { t.shape.assign(65, 1); }) == NEBULAIO_ERR_INVALID);
	EXPECT(refused([](view &t) { t.size++; }) == NEBULAIO_ERR_INVALID);
	EXPECT(refused([](view &t) { t.name = "a.weight"; }) == NEBULAIO_ERR_INVALID);
	EXPECT(refused([](view &t) { t.name.push_back('\0'); }) == NEBULAIO_ERR_INVALID);
	EXPECT(refused([](view &t) { t.device = "auto"; }) == NEBULAIO_ERR_INVALID);
	EXPECT(status_of([&] { sys.save("/nowhere/x.safetensors", saved.views).wait(); }) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(status_of([&] { sys.save("/sys/x.safetensors", saved.views).wait(); }) == NEBULAIO_ERR_UNSUPPORTED);
	EXPECT(status_of([&] { sys.save(path, saved.views, "{\"metadata\":{\"a\":1}}").wait(); }) == NEBULAIO_ERR_INVALID);
	EXPECT(read_file(path) == before);
}

// Computes checksums of a file that another tool wrote. A byte then changes without a
// trace in the file's times.
void damage(nebulaio::system &sys, const tensors &saved, const std::string &path)
{
	sys.save(path, saved.views, "{\"checksum\":false}").wait();
	EXPECT(status_of([&] { compare(sys, path, saved, "{\"verify\":true}"); }) == NEBULAIO_ERR_NOT_FOUND);
	{
		nebulaio::model model = open(sys, path);
		nebulaio::job sums = model.checksums();
		EXPECT(sums.bytes() == read_file(path).size());
		EXPECT(sums.report().find(path + ".crc64nvme") != std::string::npos);
	}
	compare(sys, path, saved, "{\"verify\":true}");
	struct stat before;
	EXPECT(stat(path.c_str(), &before) == 0);
	std::string bytes = read_file(path);
	bytes[bytes.size() - (1 << 20)] ^= 0x10; // the last tensor is 2 MiB
	write_file(path, bytes);
	const struct timespec times[2] = {before.st_atim, before.st_mtim};
	EXPECT(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
	std::string what;
	EXPECT(status_of([&] { compare(sys, path, saved, "{\"verify\":true}"); }, &what) == NEBULAIO_ERR_CORRUPT);
	EXPECT(what.find("e.large") != std::string::npos && what.find(path) != std::string::npos);
}

// A cancelled save, and a save that nobody waits for, leave the old or the new file.
void cancel(const tensors &saved, const std::string &path)
{
	nebulaio::system slow("{\"write_block_size\":65536,\"write_depth\":1}");
	const std::string before = read_file(path);
	nebulaio::job job = slow.save(path, {saved.views[0], saved.views[4]}, "{\"checksum\":false}");
	job.cancel();
	const int32_t status = status_of([&] { job.wait(); });
	EXPECT(status == NEBULAIO_ERR_CANCELLED || status == NEBULAIO_OK);
	EXPECT((read_file(path) == before) == (status == NEBULAIO_ERR_CANCELLED));
	EXPECT(status_of([&] { job.bytes(); }) == status);
	EXPECT(job.report().find("\"direction\":\"save\"") != std::string::npos);
	slow.save(path + ".dropped", saved.views);
	if (access((path + ".dropped").c_str(), F_OK) == 0)
		compare(slow, path + ".dropped", saved, "");
}

// A checkpoint of one written file is committed, listed, verified and kept by a prune.
void checkpoint(nebulaio::system &sys, const tensors &saved)
{
	const std::string root = folder + "/cpp-run", dir = root + "/step-0000000001";
	const std::string name = "__0_0_00000000000000c1.distcp";
	EXPECT(mkdir(root.c_str(), 0755) == 0 || errno == EEXIST);
	EXPECT(mkdir(dir.c_str(), 0755) == 0 || errno == EEXIST);
	sys.save(dir + "/" + name, saved.views).wait();
	const std::string size = std::to_string(read_file(dir + "/" + name).size());
	sys.commit_checkpoint(dir, "{\"metadata\":\"bQ==\",\"manifest\":\"{\\\"id\\\":\\\"00000000000000c1\\\",\\\"world\\\":1,"
	                           "\\\"files\\\":[{\\\"name\\\":\\\"" + name + "\\\",\\\"size\\\":" + size + "}]}\"}").wait();
	const auto says = [](nebulaio::job job, const std::string &text) {
		job.wait();
		return job.report().find(text) != std::string::npos;
	};
	EXPECT(says(sys.list_checkpoints(root), "\"complete\":true"));
	EXPECT(says(sys.verify_checkpoint(dir), "\"verdict\":\"good\""));
	EXPECT(says(sys.prune_checkpoints(root, "{\"keep_last\":1}"), "the last complete checkpoint"));
	EXPECT(status_of([&] { sys.list_checkpoints(root + "/none").wait(); }) == NEBULAIO_ERR_NOT_FOUND);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: save FOLDER DEVICE");
	folder = argv[1];
	device = argv[2];
	const memory opened = memory_of(argv[2]);
	place = &opened;
	nebulaio::system sys;
	const tensors saved = make();
	const std::string path = folder + "/cpp.safetensors";
	round_trip(sys, saved, path);
	refusals(sys, saved, path);
	damage(sys, saved, path);
	cancel(saved, path);
	checkpoint(sys, saved);
	std::cout << "C++: saves from " << device << ", every byte right\n";
	return 0;
}
