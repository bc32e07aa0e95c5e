// SPDX-License-Identifier: Apache-2.0
//
// What the C++ tests share in addition to check.h: the status of a call that throws,
// and device memory that is freed at the end of its scope.
#ifndef NEBULAIO_TEST_CHECK_HPP
#define NEBULAIO_TEST_CHECK_HPP

#include "check.h"

#include "nebulaio/nebulaio.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

// Returns the status that a call throws, with its message in what, or NEBULAIO_OK.
template <typename Call> int32_t status_of(Call call, std::string *what = nullptr)
{
	try {
		call();
	} catch (const nebulaio::error &problem) {
		EXPECT(std::string(problem.what()).size() > 10);
		if (what)
			*what = problem.what();
		return problem.status();
	}
	return NEBULAIO_OK;
}

inline std::string read_file(const std::string &path)
{
	std::ifstream in(path, std::ios::binary);
	return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

inline void write_file(const std::string &path, const std::string &bytes)
{
	std::ofstream out(path, std::ios::binary);
	EXPECT(out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush());
}

inline std::string random_bytes(size_t n, uint64_t seed)
{
	std::string out(n, '\0');
	fill(reinterpret_cast<unsigned char *>(&out[0]), n, seed);
	return out;
}

// Device memory, allocated by size or with content.
class block {
  public:
	block(const memory *place, size_t size, size_t align = 4096)
	    : place_(place), size_(size), address_(memory_take(place, size, align))
	{
	}
	block(const memory *place, const std::string &content) : block(place, content.size())
	{
		memory_write(place_, address_, content.data(), content.size());
	}
	block(const block &) = delete;
	block &operator=(const block &) = delete;
	block(block &&other) noexcept
	    : place_(other.place_), size_(other.size_), address_(std::exchange(other.address_, nullptr))
	{
	}
	~block()
	{
		if (address_)
			memory_give(place_, address_);
	}
	void *address() const { return address_; }
	uint64_t size() const { return size_; }
	std::string read(uint64_t offset, uint64_t n) const
	{
		EXPECT(offset + n <= size_);
		std::string out(n, '\0');
		memory_read(place_, &out[0], past(address_, offset), n);
		return out;
	}
	std::string read() const { return read(0, size_); }

  private:
	const memory *place_;
	uint64_t size_;
	void *address_;
};

// The destinations of a model.
struct destinations {
	std::vector<block> blocks;
	std::vector<nebulaio_buffer> buffers;

	destinations(const memory *place, const nebulaio::model &model)
	{
		for (const nebulaio_destination &need : model.destinations()) {
			blocks.emplace_back(place, need.size, need.align);
			buffers.push_back({blocks.back().address(), need.size});
		}
	}
	std::string read(const nebulaio::tensor &t) const { return blocks[t.file].read(t.offset, t.size); }
};

#endif
