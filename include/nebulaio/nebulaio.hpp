/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nebulaio.hpp wraps the C library of nebulaio.h in classes for C++11 and later: loads,
 * saves, gathers, writes of pieces, selections, checksums, file ranges, objects of a
 * server and training data.
 *
 * @code{.cpp}
 * #include <nebulaio/nebulaio.hpp>
 *
 * #include <cstdio>
 *
 * int main()
 * {
 *     nebulaio::system sys;
 *     std::vector<float> weights(1024, 1.0f), back(1024); // or memory of cudaMalloc, and "cuda:0" for "host"
 *     sys.save("model.safetensors", {{"w", "F32", {1024}, weights.data(), 4096, "host"}}).wait(); // atomic, durable
 *
 *     nebulaio::model model(sys, "model.safetensors", R"({"device":"host"})");
 *     nebulaio::job load = model.load({{back.data(), 4096}}); // one destination per entry of model.destinations()
 *     load.wait();                                            // throws the error of a failed load
 *     std::puts(load.report().c_str());                       // the route of every byte
 *
 *     nebulaio::file data(sys, "model.safetensors", "r", R"({"device":"host"})");
 *     return data.read(back.data(), 4096, 8) == 4096 && back != weights ? 0 : 1; // any range
 * }
 * @endcode
 *
 * nebulaio::client reads and writes objects of a server, by default the server that
 * NEBULAIO_ENDPOINT names: client.read({"bucket", "key", address, size, "host"}).
 *
 * Ownership: destructors release handles. Handles can be moved but not copied. The
 * destructor of a running job cancels the job and waits for its end. Text, shapes and
 * lists are read before a call returns. Memory that is passed to a job by its address
 * belongs to the job until the job has ended.
 *
 * Errors: a failed call throws nebulaio::error, with a message that says what to do.
 *
 * Arguments: options are a JSON object, or "" for none. Addresses are pointers as
 * cudaMalloc returns them, and a stream is a cudaStream_t.
 *
 * Threads: any thread may use any object, but not while another thread moves or destroys
 * that object.
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

/* The error of a failed call. status() is one of NEBULAIO_ERR_*. */
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

/* Calls a function with a text result, first for the length, then for the text. If the
 * text has grown between the two calls, the second call is repeated. */
template <typename Function, typename... Arguments> std::string text(Function function, Arguments... arguments)
{
	size_t need = 0;
	call(function, arguments..., static_cast<char *>(nullptr), size_t{0}, &need);
	for (;;) {
		std::string out(need + 1, '\0');
		try {
			call(function, arguments..., &out[0], out.size(), &need);
		} catch (const error &) {
			if (need < out.size())
				throw;
			continue;
		}
		out.resize(need);
		return out;
	}
}

/* Returns the text as a C string. Throws if the text contains a zero byte. */
inline const char *c_text(const std::string &text)
{
	const size_t zero = text.find('\0');
	if (zero != std::string::npos)
		throw error(NEBULAIO_ERR_INVALID,
		            "nebulaio: the text \"" + text.substr(0, zero) + "\" contains a zero byte; expected none");
	return text.c_str();
}

/* Returns the handle number and sets the variable to 0. */
inline uint64_t take(uint64_t &number) noexcept
{
	const uint64_t was = number;
	number = 0;
	return was;
}

inline const char *or_null(const std::string &options) { return options.empty() ? nullptr : c_text(options); }

} // namespace detail

/* Returns the text as a JSON string with quotation marks, for use in options, such as
 * "{\"names\":[" + quote(name) + "]}". */
inline std::string quote(const std::string &text)
{
	static const char digits[] = "0123456789abcdef";
	std::string out = "\"";
	for (const char c : text) {
		const unsigned char byte = static_cast<unsigned char>(c);
		if (c == '"' || c == '\\')
			(out += '\\') += c;
		else if (byte < 0x20)
			((out += "\\u00") += digits[byte >> 4]) += digits[byte & 15];
		else
			out += c;
	}
	return out += '"';
}

/* A handle of the library. The destructor releases the handle. */
class handle {
  public:
	handle() = default;
	handle(handle &&other) noexcept : number_(detail::take(other.number_)) {}
	handle &operator=(handle &&other) noexcept
	{
		if (this != &other) {
			release();
			number_ = detail::take(other.number_);
		}
		return *this;
	}
	handle(const handle &) = delete;
	handle &operator=(const handle &) = delete;
	~handle() { release(); }

	/* Returns the handle number for the functions of nebulaio.h, or 0 if the object was
	 * moved from or released. */
	uint64_t number() const noexcept { return number_; }

	/* Releases the handle now. A second call does nothing. Release dependent handles
	 * first: a system or model that is still in use stays open until the process ends. */
	void release() noexcept
	{
		if (number_ != 0)
			nebulaio_release(detail::take(number_), nullptr, 0);
	}

  protected:
	uint64_t number_ = 0;
};

/* A running operation: a load, a save, a read or write, or checksums. */
class job : public handle {
  public:
	job() = default;
	explicit job(uint64_t number) { number_ = number; }

	/* Waits up to timeout_ms; a negative value means no limit. Returns true if the job
	 * has succeeded and false if the time ran out. Throws the error of a failed job. */
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

	/* Waits until more than `known` tensors of a load are complete, and returns the
	 * number of complete tensors, counted in the order of model::tensors. timeout_ms
	 * limits the wait; a negative value means no limit. If the result is not larger than
	 * `known`, the time ran out, or the load has succeeded and has no more tensors.
	 * Throws the error of a failed load, and NEBULAIO_ERR_INVALID for a job that is not a
	 * load. Always call wait() afterwards, because only the end of the load proves that
	 * no file changed during the load. */
	uint64_t ready(uint64_t known, int32_t timeout_ms = -1)
	{
		char message[4096] = "";
		uint64_t count = 0;
		const int32_t status = nebulaio_load_ready(number_, known, timeout_ms, &count, message, sizeof message);
		if (status != NEBULAIO_OK && status != NEBULAIO_RUNNING)
			throw error(status, message);
		return count;
	}

	/* Waits for the job and returns the number of bytes that the job moved. If a read of
	 * a file returns fewer bytes than requested, the file ended. */
	uint64_t bytes()
	{
		nebulaio_progress progress{};
		wait(-1, &progress);
		return progress.bytes_done;
	}

	/* Asks the job to stop and returns at once. wait() throws when the job has
	 * stopped. */
	void cancel() { detail::call(nebulaio_cancel, number_); }

	/* Returns the JSON report of a job that has ended, even if the job failed. The report
	 * has the route of every byte, the rates, and the reasons why faster routes were not
	 * used. */
	std::string report() const { return detail::text(nebulaio_report, number_); }
};

/* A tensor in memory of the program that can be saved. Its bytes are contiguous and in
 * row-major order. */
struct tensor_view {
	std::string name;
	std::string dtype; /* name of the type as in safetensors: "F32", "BF16", "F8_E4M3" */
	std::vector<int64_t> shape;
	const void *address = nullptr; /* in device memory, or in host memory for the device "host" */
	uint64_t size = 0;             /* size in bytes; must match dtype and shape */
	std::string device = "host"; /* "host", "cuda" or "cuda:N" */
};

/* A range of one file, and the memory of the program that receives it. */
struct segment {
	uint64_t file = 0;       /* number of the file in the list of files, from 0 */
	uint64_t offset = 0;     /* offset of the range in the file, in bytes */
	uint64_t size = 0;       /* size of the range in the file, in bytes */
	void *address = nullptr; /* in device memory, or in host memory for the device "host" */
	uint64_t width = 0;      /* with stride: bytes that are wanted out of every stride bytes */
	uint64_t stride = 0;     /* 0: every byte is wanted; else the wanted bytes are packed at address */
	std::string label;       /* name of the content in errors, such as a tensor's; may be empty */
};

/* A range of memory of the program that a write puts into a file. */
struct piece {
	const void *address = nullptr; /* in device memory, or in host memory for the device "host" */
	uint64_t size = 0;             /* size in bytes; may be 0 */
	std::string device = "host";   /* "host", "cuda" or "cuda:N" */
};

/* A tensor of a model and its place in the destinations. */
struct tensor {
	std::string name;
	std::string dtype;
	std::vector<int64_t> shape;
	uint64_t file = 0;   /* index of the destination, from 0 */
	uint64_t offset = 0; /* offset of the tensor in the destination, in bytes */
	uint64_t size = 0;   /* size of the tensor, in bytes */

	/* Returns a view of the loaded tensor, which can be saved. dst are the destinations
	 * of the load, and device is their device. Throws std::out_of_range if dst has no
	 * destination for the tensor's file. */
	tensor_view in(const std::vector<nebulaio_buffer> &dst, const std::string &device) const
	{
		tensor_view out;
		out.name = name;
		out.dtype = dtype;
		out.shape = shape;
		out.address = at(dst);
		out.size = size;
		out.device = device;
		return out;
	}

	/* Returns the address of the loaded tensor. dst are the destinations of the load.
	 * Throws std::out_of_range if dst has no destination for the tensor's file. */
	void *at(const std::vector<nebulaio_buffer> &dst) const
	{
		return static_cast<char *>(dst.at(static_cast<size_t>(file)).address) + offset;
	}
};

/* The devices, worker threads and staging memory of the process. A program creates one
 * system and shares it. */
class system : public handle {
  public:
	/* Opens the system. options: see nebulaio_system_open. Throws
	 * NEBULAIO_ERR_UNSUPPORTED if the library is of another release than this header. */
	explicit system(const std::string &options = "")
	{
		detail::call(nebulaio_check_abi);
		detail::call(nebulaio_system_open, detail::or_null(options), &number_);
	}

	/* Returns, as JSON, the devices that were found, and the missing libraries with their
	 * fixes. */
	std::string devices() const { return detail::text(nebulaio_devices, number_); }

	/* Starts to save tensors to one .safetensors file. The tensors may be on several
	 * devices. If the job succeeds, the file is complete and durable. If the job fails,
	 * an existing file is unchanged. The memory of the tensors must stay allocated and
	 * unchanged until the job has ended. The tensors of the first GPU are read after the
	 * work that is queued on stream. options: see nebulaio_save_start. */
	job save(const std::string &path, const std::vector<tensor_view> &tensors, const std::string &options = "",
	         nebulaio_stream stream = nullptr)
	{
		std::vector<nebulaio_tensor> all;
		all.reserve(tensors.size());
		for (const tensor_view &t : tensors) {
			nebulaio_tensor one{};
			one.name = detail::c_text(t.name);
			one.dtype = detail::c_text(t.dtype);
			one.shape = t.shape.data();
			one.rank = t.shape.size();
			one.address = t.address;
			one.size = t.size;
			one.device = detail::c_text(t.device);
			all.push_back(one);
		}
		uint64_t number = 0;
		detail::call(nebulaio_save_start, number_, detail::c_text(path), all.data(), all.size(), stream,
		             detail::or_null(options), &number);
		return job(number);
	}

	/* Starts to read segments of files into memory of one device. The files are paths or
	 * "s3://bucket/key". The destinations must stay allocated until the job has ended.
	 * Copies begin after the work that is queued on stream. options: see
	 * nebulaio_gather_start. */
	job gather(const std::vector<std::string> &files, const std::vector<segment> &segments,
	           const std::string &options = "", nebulaio_stream stream = nullptr)
	{
		std::vector<const char *> names;
		names.reserve(files.size());
		for (const std::string &name : files)
			names.push_back(detail::c_text(name));
		std::vector<nebulaio_segment> all;
		all.reserve(segments.size());
		for (const segment &s : segments) {
			nebulaio_segment one{};
			one.file = s.file;
			one.offset = s.offset;
			one.size = s.size;
			one.width = s.width;
			one.stride = s.stride;
			one.address = s.address;
			one.label = s.label.empty() ? nullptr : detail::c_text(s.label);
			all.push_back(one);
		}
		uint64_t number = 0;
		detail::call(nebulaio_gather_start, number_, names.data(), names.size(), all.data(), all.size(), stream,
		             detail::or_null(options), &number);
		return job(number);
	}

	/* Starts to write pieces of memory, one behind the other, to one file or to
	 * "s3://bucket/key". The pieces may be on several devices. If the job succeeds, the
	 * file is complete and durable. If the job fails, an existing file is unchanged. The
	 * memory must stay allocated and unchanged until the job has ended. The pieces of the
	 * first GPU are read after the work that is queued on stream. options: see
	 * nebulaio_write_start. */
	job write(const std::string &path, const std::vector<piece> &pieces, const std::string &options = "",
	          nebulaio_stream stream = nullptr)
	{
		std::vector<nebulaio_piece> all;
		all.reserve(pieces.size());
		for (const piece &p : pieces) {
			nebulaio_piece one{};
			one.address = p.address;
			one.size = p.size;
			one.device = detail::c_text(p.device);
			all.push_back(one);
		}
		uint64_t number = 0;
		detail::call(nebulaio_write_start, number_, detail::c_text(path), all.data(), all.size(), stream,
		             detail::or_null(options), &number);
		return job(number);
	}

	/* Starts to make a checkpoint complete whose data files are written. The path is a
	 * directory or "s3://bucket/prefix". options: see nebulaio_checkpoint_commit_start. */
	job commit_checkpoint(const std::string &path, const std::string &options)
	{
		return about_checkpoint(nebulaio_checkpoint_commit_start, path, options);
	}

	/* Starts to list the checkpoints at a path. The report of the job is the list. options:
	 * see nebulaio_checkpoint_list_start. */
	job list_checkpoints(const std::string &path, const std::string &options = "")
	{
		return about_checkpoint(nebulaio_checkpoint_list_start, path, options);
	}

	/* Starts to compare all files of a checkpoint with their checksums. The report of the
	 * job has the verdict; damage is no error of the job. options: see
	 * nebulaio_checkpoint_verify_start. */
	job verify_checkpoint(const std::string &path, const std::string &options = "")
	{
		return about_checkpoint(nebulaio_checkpoint_verify_start, path, options);
	}

	/* Starts to remove old checkpoints from a root. The report of the job lists the removed
	 * and the kept ones. options: see nebulaio_checkpoint_prune_start. */
	job prune_checkpoints(const std::string &path, const std::string &options)
	{
		return about_checkpoint(nebulaio_checkpoint_prune_start, path, options);
	}

  private:
	template <typename Function> job about_checkpoint(Function start, const std::string &path, const std::string &options)
	{
		uint64_t number = 0;
		detail::call(start, number_, detail::c_text(path), detail::or_null(options), &number);
		return job(number);
	}
};

/* An open model. The constructor reads and checks the model's headers. */
class model : public handle {
  public:
	/* Opens a model. options: see nebulaio_model_open. The system must outlive the
	 * model. */
	model(const system &sys, const std::string &path, const std::string &options = "")
	{
		detail::call(nebulaio_model_open, sys.number(), detail::c_text(path), detail::or_null(options), &number_);
	}

	/* Returns, as JSON, the device, files, tensors and metadata of the model. */
	std::string describe() const { return detail::text(nebulaio_model_describe, number_); }

	/* Returns the size and alignment of each destination, one per file. The program
	 * allocates the destinations. */
	std::vector<nebulaio_destination> destinations() const
	{
		uint64_t files = 0;
		detail::call(nebulaio_model_count, number_, &files, static_cast<uint64_t *>(nullptr));
		std::vector<nebulaio_destination> out(files);
		for (uint64_t i = 0; i < files; i++)
			detail::call(nebulaio_model_destination, number_, i, &out[i]);
		return out;
	}

	/* Returns all tensors in order of file and offset. Tensors of a load become ready in
	 * this order. */
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

	/* Returns the tensor with the given name. Throws NEBULAIO_ERR_NOT_FOUND if there is
	 * none. */
	nebulaio::tensor tensor(const std::string &name) const
	{
		uint64_t index = 0;
		detail::call(nebulaio_model_find, number_, detail::c_text(name), &index);
		return tensor_at(index);
	}

	/* Starts a load into dst, one destination per file. The destinations and the model
	 * must stay valid until the job has ended. Copies begin after the work that is queued
	 * on stream. options: see nebulaio_load_start. */
	job load(const std::vector<nebulaio_buffer> &dst, const std::string &options, nebulaio_stream stream = nullptr)
	{
		uint64_t number = 0;
		detail::call(nebulaio_load_start, number_, dst.data(), dst.size(), stream, detail::or_null(options), &number);
		return job(number);
	}
	job load(const std::vector<nebulaio_buffer> &dst, nebulaio_stream stream = nullptr, const std::string &options = "")
	{
		return load(dst, options, stream);
	}

	/* Returns a second model of the same open files with another selection of tensors.
	 * The headers are not read again. Release the second model before this model, and do
	 * not assign it to the same variable. options: see nebulaio_model_select. */
	model select(const std::string &options) const
	{
		model out;
		detail::call(nebulaio_model_select, number_, detail::or_null(options), &out.number_);
		return out;
	}

	/* Starts a job that computes the checksums of every file and writes FILE.crc64nvme
	 * beside it, for loads with "verify". Call it only for a model that is known to be
	 * undamaged. The model must stay valid until the job has ended. See
	 * nebulaio_checksum_start. */
	job checksums()
	{
		uint64_t number = 0;
		detail::call(nebulaio_checksum_start, number_, &number);
		return job(number);
	}

  private:
	friend class client;
	model() = default;

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

/* An open file for reads and writes between storage and device memory, in place and at
 * any offset. All methods are thread-safe. A write is not atomic, and survives a crash
 * only after sync. */
class file : public handle {
  public:
	/* Opens a file. flags is "r" to read, or "r+" to read and write. "w" and "w+" create
	 * the file, or empty an existing one, and open it to read and write. options: see
	 * nebulaio_file_open. The system must outlive the file. The release of the file waits
	 * for its running jobs. */
	file(const system &sys, const std::string &path, const std::string &flags = "r", const std::string &options = "")
	{
		detail::call(nebulaio_file_open, sys.number(), detail::c_text(path), detail::c_text(flags),
		             detail::or_null(options), &number_);
	}

	/* Returns the current length of the file in bytes. */
	uint64_t size() const
	{
		uint64_t bytes = 0;
		detail::call(nebulaio_file_size, number_, &bytes);
		return bytes;
	}

	/* Makes all earlier writes to the file durable, and returns when they are. */
	void sync() { detail::call(nebulaio_file_sync, number_); }

	/* Reads up to size bytes at offset of the file into address, and returns the number
	 * of bytes read. The number is smaller than size only at the end of the file. The
	 * read begins after the work that is queued on stream. options: see
	 * nebulaio_file_read_start. */
	uint64_t read(void *address, uint64_t size, uint64_t offset, const std::string &options = "",
	              nebulaio_stream stream = nullptr)
	{
		return read_start(address, size, offset, options, stream).bytes();
	}

	/* Writes size bytes from address to offset of the file, and returns the number of
	 * bytes written. The file grows if needed. stream and options have the same meaning
	 * as in read. */
	uint64_t write(const void *address, uint64_t size, uint64_t offset, const std::string &options = "",
	               nebulaio_stream stream = nullptr)
	{
		return write_start(address, size, offset, options, stream).bytes();
	}

	/* Starts a read as a job. The memory belongs to the job until the job has ended.
	 * job::bytes returns the number of bytes read. */
	job read_start(void *address, uint64_t size, uint64_t offset, const std::string &options = "",
	               nebulaio_stream stream = nullptr)
	{
		return start(nebulaio_file_read_start, address, size, offset, options, stream);
	}

	/* Starts a write as a job. The memory must not change until the job has ended. */
	job write_start(const void *address, uint64_t size, uint64_t offset, const std::string &options = "",
	                nebulaio_stream stream = nullptr)
	{
		return start(nebulaio_file_write_start, address, size, offset, options, stream);
	}

	/* Reads in the order of stream, with the file's device and route. Work that is queued
	 * on stream later sees the bytes. If libcufile can do the read, no thread waits for
	 * it. If libcufile cannot, for example into host memory, the job has already ended
	 * when read_async returns, and its report has the reason. A queued read cannot be
	 * cancelled. */
	job read_async(void *address, uint64_t size, uint64_t offset, nebulaio_stream stream)
	{
		return read_start(address, size, offset, "{\"async\":true}", stream);
	}

	/* Writes in the order of stream. Work that is queued on stream later may change the
	 * memory. In all other respects write_async works like read_async. */
	job write_async(const void *address, uint64_t size, uint64_t offset, nebulaio_stream stream)
	{
		return write_start(address, size, offset, "{\"async\":true}", stream);
	}

  private:
	template <typename Function, typename Address>
	job start(Function function, Address address, uint64_t size, uint64_t offset, const std::string &options,
	          nebulaio_stream stream)
	{
		uint64_t number = 0;
		detail::call(function, number_, address, size, offset, stream, detail::or_null(options), &number);
		return job(number);
	}
};

/* A read of one object, or of a range of it, into memory. */
struct object_read {
	std::string bucket;
	std::string key;
	void *address = nullptr; /* in device memory, or in host memory for the device "host" */
	uint64_t capacity = 0;   /* size of the memory at address, in bytes */
	std::string device = "host"; /* "host", "cuda" or "cuda:N" */
	uint64_t offset = 0;   /* offset of the first byte in the object */
	int64_t size = -1;     /* bytes to read; -1 means up to the object's end */
	std::string version = ""; /* "" means the newest version */
	nebulaio_stream stream = nullptr; /* the read begins after the work that is queued on this stream */
};

/* A write of one object from memory. */
struct object_write {
	std::string bucket;
	std::string key;
	const void *address = nullptr;
	uint64_t size = 0;
	std::string device = "host";
	nebulaio_stream stream = nullptr;
};

/* File descriptors of an object's file, which the server's door sent. The program reads
 * or writes the file itself. The destructor closes the descriptors. */
class object : public handle {
  public:
	object() = default;

	/* Return the descriptor that uses the page cache, and the descriptor with O_DIRECT.
	 * -1 means that there is no such descriptor, or that a release or a commit has closed
	 * it. */
	int buffered() const noexcept { return number_ ? files_.buffered : -1; }
	int direct() const noexcept { return number_ ? files_.direct : -1; }

	/* Returns the size of the object in bytes. For a new object, this is the largest
	 * size, as passed to create. */
	uint64_t size() const noexcept { return files_.size; }

	/* Begins a draft that is a private copy of an object of client::open. See
	 * nebulaio_object_edit. */
	object edit(const std::string &options = "") const
	{
		object out;
		detail::call(nebulaio_object_edit, number_, detail::or_null(options), &out.files_, &out.number_);
		return out;
	}

	/* Announces that the file of a draft is going to have up to size bytes. See
	 * nebulaio_object_extend. */
	void extend(uint64_t size)
	{
		detail::call(nebulaio_object_extend, number_, size);
		if (size > files_.size)
			files_.size = size;
	}

	/* Tells a draft that the program has overwritten size bytes at offset. See
	 * nebulaio_object_wrote. */
	void wrote(uint64_t offset, uint64_t size) { detail::call(nebulaio_object_wrote, number_, offset, size); }

	/* Starts to publish the first size bytes of a new object, or the whole file of a
	 * draft if size is NEBULAIO_WHOLE. See nebulaio_object_commit_start. */
	job commit_start(uint64_t size)
	{
		uint64_t number = 0;
		detail::call(nebulaio_object_commit_start, number_, size, &number);
		files_.buffered = files_.direct = -1; /* the system may reuse the numbers */
		return job(number);
	}

	/* Publishes the first size bytes of a new object, waits until the object is durable
	 * and visible, and returns the object's properties as JSON. */
	std::string commit(uint64_t size)
	{
		job publishing = commit_start(size);
		publishing.wait();
		return publishing.report();
	}

  private:
	friend class client;
	nebulaio_descriptors files_{sizeof(nebulaio_descriptors), -1, -1, 0};
};

/* A client of an S3 server. All methods are thread-safe. A client must outlive its jobs,
 * models and objects. */
class client : public handle {
  public:
	/* Opens a client. options: see nebulaio_client_open. The system must outlive the
	 * client. */
	explicit client(const system &sys, const std::string &options = "")
	{
		detail::call(nebulaio_client_open, sys.number(), detail::or_null(options), &number_);
	}

	/* Starts one job that reads several objects into memory. The memory belongs to the
	 * job until the job has ended. options: see nebulaio_object_read_start. */
	job read_start(const std::vector<object_read> &reads, const std::string &options = "")
	{
		std::vector<nebulaio_object_read> all;
		all.reserve(reads.size());
		for (const object_read &r : reads) {
			nebulaio_object_read one{};
			one.struct_size = sizeof one;
			one.bucket = detail::c_text(r.bucket);
			one.key = detail::c_text(r.key);
			one.version = detail::or_null(r.version);
			one.offset = r.offset;
			one.size = r.size;
			one.address = r.address;
			one.capacity = r.capacity;
			one.device = detail::c_text(r.device);
			one.stream = r.stream;
			all.push_back(one);
		}
		uint64_t number = 0;
		detail::call(nebulaio_object_read_start, number_, all.data(), all.size(), detail::or_null(options), &number);
		return job(number);
	}

	/* Reads one object and returns the number of bytes read. */
	uint64_t read(const object_read &one, const std::string &options = "")
	{
		return read_start({one}, options).bytes();
	}

	/* Starts to write an object. If the job succeeds, the object is complete, durable
	 * and visible. options: see nebulaio_object_write_start. */
	job write_start(const object_write &w, const std::string &options = "")
	{
		nebulaio_object_write one{};
		one.struct_size = sizeof one;
		one.bucket = detail::c_text(w.bucket);
		one.key = detail::c_text(w.key);
		one.address = w.address;
		one.size = w.size;
		one.device = detail::c_text(w.device);
		one.stream = w.stream;
		uint64_t number = 0;
		detail::call(nebulaio_object_write_start, number_, &one, detail::or_null(options), &number);
		return job(number);
	}

	/* Writes an object and returns the number of bytes written. */
	uint64_t write(const object_write &one, const std::string &options = "") { return write_start(one, options).bytes(); }

	/* stat returns the properties of an object, list one page of a bucket's keys, and
	 * status the state of the client, each as JSON. */
	std::string stat(const std::string &bucket, const std::string &key, const std::string &version = "") const
	{
		return ask(nebulaio_object_stat_start, detail::c_text(bucket), detail::c_text(key), detail::or_null(version));
	}
	/* Removes an object. A missing object is no error. */
	void remove(const std::string &bucket, const std::string &key) const
	{
		ask(nebulaio_object_delete_start, detail::c_text(bucket), detail::c_text(key));
	}
	std::string list(const std::string &bucket, const std::string &options = "") const
	{
		return ask(nebulaio_object_list_start, detail::c_text(bucket), detail::or_null(options));
	}
	std::string status() const { return ask(nebulaio_client_status_start); }

	/* Opens a model that is stored as objects. key is a .safetensors object, an
	 * index.json, or the common prefix of the objects. options: see
	 * nebulaio_model_open. */
	model open_model(const std::string &bucket, const std::string &key, const std::string &options = "") const
	{
		model out;
		detail::call(nebulaio_client_model_open, number_, detail::c_text(bucket), detail::c_text(key),
		             detail::or_null(options), &out.number_);
		return out;
	}

	/* Opens the file of an object for reads by the program. device is the device that the
	 * program reads into. See nebulaio_object_open. */
	object open(const std::string &bucket, const std::string &key, const std::string &version = "",
	            const std::string &device = "") const
	{
		object out;
		detail::call(nebulaio_object_open, number_, detail::c_text(bucket), detail::c_text(key), detail::or_null(version),
		             detail::or_null(device), &out.files_, &out.number_);
		return out;
	}

	/* Begins a draft whose file the program reads and writes: "r+" changes the object, "w"
	 * makes or replaces it, and "x" makes it. The draft becomes visible with
	 * object::commit. options: see nebulaio_object_edit. */
	object draft(const std::string &bucket, const std::string &key, const std::string &mode,
	             const std::string &options = "") const
	{
		object out;
		detail::call(nebulaio_object_draft, number_, detail::c_text(bucket), detail::c_text(key), detail::c_text(mode),
		             detail::or_null(options), &out.files_, &out.number_);
		return out;
	}

	/* Begins a new object of at most size bytes, and opens its file for writes by the
	 * program. The object becomes visible with object::commit. options: see
	 * nebulaio_object_create. */
	object create(const std::string &bucket, const std::string &key, uint64_t size, const std::string &options = "") const
	{
		object out;
		detail::call(nebulaio_object_create, number_, detail::c_text(bucket), detail::c_text(key), size,
		             detail::or_null(options), &out.files_, &out.number_);
		return out;
	}

  private:
	template <typename Function, typename... Arguments> std::string ask(Function function, Arguments... arguments) const
	{
		uint64_t number = 0;
		detail::call(function, number_, arguments..., &number);
		job question(number);
		question.wait();
		return question.report();
	}
};

/* Training data whose indexes have been read: a numbered list of samples. Loaders must be
 * destroyed before their data. */
class data : public handle {
  public:
	/* Opens training data and waits until its indexes are read. options: see
	 * nebulaio_data_open_start. */
	data(const system &sys, const std::vector<std::string> &sources, const std::string &options = "")
	{
		std::vector<const char *> all;
		all.reserve(sources.size());
		for (const std::string &source : sources)
			all.push_back(detail::c_text(source));
		detail::call(nebulaio_data_open_start, sys.number(), all.data(), all.size(), detail::or_null(options), &number_);
		try {
			detail::call(nebulaio_wait, number_, int32_t{-1}, static_cast<nebulaio_progress *>(nullptr));
		} catch (...) {
			release();
			throw;
		}
	}

	/* Returns the description of the data as JSON: format, number of samples, columns. */
	std::string info() const { return detail::text(nebulaio_report, number_); }

	/* Returns the places of the parts of a sample as JSON. */
	std::string sample(uint64_t number) const { return detail::text(nebulaio_data_sample, number_, number); }

	/* Returns the bytes of one part of a sample. */
	std::string read(uint64_t number, const std::string &column) const
	{
		uint64_t reading = 0;
		detail::call(nebulaio_data_read_start, number_, number, detail::c_text(column), &reading);
		job part(reading);
		part.wait();
		return part.report();
	}
};

/* A batch of samples in device memory. The destructor frees the memory at once; free
 * does so after the work on a stream. */
class batch : public handle {
  public:
	batch() = default;

	/* Returns whether there is a batch. loader::next returns none after the last one. */
	explicit operator bool() const noexcept { return number_ != 0; }

	/* Returns the samples, the columns and the epoch. They are valid until the batch is
	 * freed. */
	const nebulaio_batch &view() const noexcept { return view_; }

	/* Returns the state with which another loader goes on after this batch, as JSON. */
	std::string state() const { return detail::text(nebulaio_batch_state, number_); }

	/* Frees the batch. The library uses its memory again only after the work that is now
	 * queued on stream has ended. */
	void free(nebulaio_stream stream) { detail::call(nebulaio_batch_free, detail::take(number_), stream); }

  private:
	friend class loader;
	nebulaio_batch view_{sizeof(nebulaio_batch), 0, nullptr, nullptr, 0, 0, 0, 0, 0};
};

/* Reads batches of samples ahead of their use. Batches may outlive their loader. */
class loader : public handle {
  public:
	/* Starts to read. options: see nebulaio_loader_open; "batch" is required. */
	loader(const data &from, const std::string &options)
	{
		detail::call(nebulaio_loader_open, from.number(), detail::or_null(options), &number_);
	}

	/* Returns the device, the columns and the number of batches in an epoch as JSON. */
	std::string describe() const { return detail::text(nebulaio_loader_describe, number_); }

	/* Waits for the next batch. After the last batch, the result is empty. */
	batch next()
	{
		batch out;
		detail::call(nebulaio_loader_next, number_, int32_t{-1}, &out.view_, &out.number_);
		return out;
	}

	/* Waits up to timeout_ms for the next batch. Returns false if the time ran out. */
	bool next(batch &out, int32_t timeout_ms)
	{
		char message[4096] = "";
		batch found;
		const int32_t status =
		    nebulaio_loader_next(number_, timeout_ms, &found.view_, &found.number_, message, sizeof message);
		if (status == NEBULAIO_RUNNING)
			return false;
		if (status != NEBULAIO_OK)
			throw error(status, message);
		out = std::move(found);
		return true;
	}

	/* Returns the bytes by route, the time of waits and what limited the rate, as JSON. */
	std::string report() const { return detail::text(nebulaio_loader_report, number_); }
};

} // namespace nebulaio

#endif /* NEBULAIO_HPP */
