/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nebulaio.hpp: the C ABI of nebulaio.h for C++17, in one header and nothing else.
 *
 *   nebulaio::system sys;
 *   nebulaio::model model(sys, "model.safetensors", R"({"device":"cuda:0"})");
 *   std::vector<nebulaio_buffer> dst;
 *   for (auto &need : model.destinations())
 *       dst.push_back(allocate(need.size, need.align));   // cudaMalloc, say
 *   nebulaio::job load = model.load(dst, stream);
 *   load.wait();
 *   nebulaio::tensor w = model.tensor("model.norm.weight");
 *   void *weights = (char *)dst[w.file].address + w.offset;
 *   std::puts(load.report().c_str());                      // which path the bytes took
 *
 * Handles are released by their destructors; they move and do not copy. A job
 * that is destroyed while it runs is cancelled and waited for. What fails throws
 * nebulaio::error with the library's message, which says what to do.
 */
#ifndef NEBULAIO_HPP
#define NEBULAIO_HPP

#include "nebulaio/nebulaio.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace nebulaio {

/* A failed call: the status is one of NEBULAIO_ERR_*. */
class error : public std::runtime_error {
  public:
	error(int32_t status, const std::string &message) : std::runtime_error(message), status_(status) {}
	int32_t status() const noexcept { return status_; }

  private:
	int32_t status_;
};

namespace detail {

/* Calls a function that ends in (err, errcap) and throws its error. */
template <typename Function, typename... Arguments> void call(Function function, Arguments... arguments)
{
	char message[4096] = "";
	const int32_t status = function(arguments..., message, sizeof message);
	if (status != NEBULAIO_OK)
		throw error(status, message[0] ? message : "nebulaio: status " + std::to_string(status));
}

/* Calls a function with output text: once for its length, once for the text. */
template <typename Function, typename... Arguments> std::string text(Function function, Arguments... arguments)
{
	size_t need = 0;
	call(function, arguments..., static_cast<char *>(nullptr), size_t{0}, &need);
	std::string out(need + 1, '\0');
	call(function, arguments..., &out[0], out.size(), &need);
	out.resize(need);
	return out;
}

inline const char *or_null(const std::string &options) { return options.empty() ? nullptr : options.c_str(); }

} // namespace detail

/* A handle of the library, released once. */
class handle {
  public:
	handle() = default;
	handle(handle &&other) noexcept : number_(std::exchange(other.number_, 0)) {}
	handle &operator=(handle &&other) noexcept
	{
		if (this != &other) {
			release();
			number_ = std::exchange(other.number_, 0);
		}
		return *this;
	}
	handle(const handle &) = delete;
	handle &operator=(const handle &) = delete;
	~handle() { release(); }

	/* The number that the functions of nebulaio.h take; 0 after a move. */
	uint64_t number() const noexcept { return number_; }

	/* Releases the handle now. A second call does nothing. */
	void release() noexcept
	{
		if (number_ != 0)
			nebulaio_release(std::exchange(number_, 0), nullptr, 0);
	}

  protected:
	uint64_t number_ = 0;
};

/* Work under way: a load, a save, a move of a file's bytes. */
class job : public handle {
  public:
	job() = default;
	explicit job(uint64_t number) { number_ = number; }

	/* Waits up to timeout_ms, without limit if negative. False when the time ran
	 * out; true when the job has succeeded; a job that failed throws its error. */
	bool wait(int32_t timeout_ms = -1, nebulaio_progress *progress = nullptr)
	{
		char message[4096] = "";
		const int32_t status = nebulaio_wait(number_, timeout_ms, progress, message, sizeof message);
		if (status == NEBULAIO_RUNNING)
			return false;
		if (status != NEBULAIO_OK)
			throw error(status, message);
		return true;
	}

	/* Asks the job to stop; wait tells when it has. */
	void cancel() { detail::call(nebulaio_cancel, number_); }

	/* JSON: which route every byte took, how fast, and why no faster one. */
	std::string report() const { return detail::text(nebulaio_report, number_); }
};

/* Devices, workers and staging memory of the process; make one and share it. */
class system : public handle {
  public:
	/* options: see nebulaio_system_open. */
	explicit system(const std::string &options = "")
	{
		detail::call(nebulaio_system_open, detail::or_null(options), &number_);
	}

	/* JSON: what was looked for, found and missing, and what to do. */
	std::string devices() const { return detail::text(nebulaio_devices, number_); }
};

/* A tensor and where it lies. */
struct tensor {
	std::string name;
	std::string dtype;
	std::vector<int64_t> shape;
	uint64_t file = 0;
	uint64_t offset = 0;
	uint64_t size = 0;
};

/* A model whose headers have been read and checked. */
class model : public handle {
  public:
	/* options: see nebulaio_model_open. The system outlives the model. */
	model(const system &sys, const std::string &path, const std::string &options = "")
	{
		detail::call(nebulaio_model_open, sys.number(), path.c_str(), detail::or_null(options), &number_);
	}

	/* JSON: device, files, tensors and metadata. */
	std::string describe() const { return detail::text(nebulaio_model_describe, number_); }

	/* What the caller allocates, one destination per file. */
	std::vector<nebulaio_destination> destinations() const
	{
		uint64_t files = 0;
		detail::call(nebulaio_model_count, number_, &files, static_cast<uint64_t *>(nullptr));
		std::vector<nebulaio_destination> out(files);
		for (uint64_t i = 0; i < files; i++)
			detail::call(nebulaio_model_destination, number_, i, &out[i]);
		return out;
	}

	/* All tensors, in order of file and offset. */
	std::vector<nebulaio::tensor> tensors() const
	{
		uint64_t count = 0;
		detail::call(nebulaio_model_count, number_, static_cast<uint64_t *>(nullptr), &count);
		std::vector<nebulaio::tensor> out;
		out.reserve(count);
		for (uint64_t i = 0; i < count; i++)
			out.push_back(tensor_at(i));
		return out;
	}

	/* The tensor of that name; NEBULAIO_ERR_NOT_FOUND where there is none. */
	nebulaio::tensor tensor(const std::string &name) const
	{
		uint64_t index = 0;
		detail::call(nebulaio_model_find, number_, name.c_str(), &index);
		return tensor_at(index);
	}

	/* Starts to fill dst, one destination per file; they and the model stay until
	 * the job has ended. options: see nebulaio_load_start. */
	job load(const std::vector<nebulaio_buffer> &dst, uint64_t stream = 0, const std::string &options = "")
	{
		uint64_t number = 0;
		detail::call(nebulaio_load_start, number_, dst.data(), dst.size(), stream, detail::or_null(options), &number);
		return job(number);
	}

  private:
	nebulaio::tensor tensor_at(uint64_t index) const
	{
		nebulaio_place place{};
		nebulaio::tensor out;
		out.name = detail::text(nebulaio_model_tensor, number_, index, &place);
		out.dtype = place.dtype;
		out.shape.assign(place.shape, place.shape + place.rank);
		out.file = place.file;
		out.offset = place.offset;
		out.size = place.size;
		return out;
	}
};

} // namespace nebulaio

#endif /* NEBULAIO_HPP */
