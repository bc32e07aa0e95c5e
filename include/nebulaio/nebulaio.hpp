/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nebulaio.hpp wraps nebulaio.h for C++11 and later in one header: loads, saves,
 * selections, checksums, file ranges and objects of a server.
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
 * nebulaio::client moves objects of a server, for example the one that
 * NEBULAIO_ENDPOINT names: client.read({"bucket", "key", address, size, "host"}), and
 * client.write in the other direction.
 *
 * Ownership: destructors release handles. Handles can be moved but not copied. A running
 * job that is destroyed is cancelled and waited for. Text, shapes and lists are read
 * before a call returns. Memory whose address is given to a job belongs to the job until
 * it has ended.
 *
 * Errors: a failed call throws nebulaio::error. Its message says what to do.
 *
 * Arguments: options are JSON, "" for none. Addresses are pointers as cudaMalloc returns
 * them, and a stream is a cudaStream_t.
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

/* Calls a function with a text result: first for the length, then for the text. If the
 * text has grown between the two calls, it repeats the second. */
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

/* Returns the number and sets it to 0. */
inline uint64_t take(uint64_t &number) noexcept
{
	const uint64_t was = number;
	number = 0;
	return was;
}

inline const char *or_null(const std::string &options) { return options.empty() ? nullptr : c_text(options); }

} // namespace detail

/* Returns the text as a JSON string with quotation marks, for names, paths and metadata
 * in options: "{\"names\":[" + quote(name) + "]}". */
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

/* A handle of the library. Its destructor releases it. */
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

	/* Returns the handle for the functions of nebulaio.h; 0 after a move. */
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

	/* Waits until more than `known` tensors of a load are complete, and returns their
	 * number, counted in the order of model::tensors. A result of at most `known` means
	 * that timeout_ms ran out (negative: no limit), or that the load has succeeded and
	 * there are no more. Throws the error of a failed load, and NEBULAIO_ERR_INVALID for
	 * a job that is not a load. Always call wait() afterwards: only the end of the load
	 * proves that no file changed while it was read. */
	uint64_t ready(uint64_t known, int32_t timeout_ms = -1)
	{
		char message[4096] = "";
		uint64_t count = 0;
		const int32_t status = nebulaio_load_ready(number_, known, timeout_ms, &count, message, sizeof message);
		if (status != NEBULAIO_OK && status != NEBULAIO_RUNNING)
			throw error(status, message);
		return count;
	}

	/* Waits for the job and returns the number of bytes that it moved. For a read of a
	 * file, a smaller number than requested means that the file ended. */
	uint64_t bytes()
	{
		nebulaio_progress progress{};
		wait(-1, &progress);
		return progress.bytes_done;
	}

	/* Asks the job to stop and returns at once. wait() throws when it has stopped. */
	void cancel() { detail::call(nebulaio_cancel, number_); }

	/* Returns the JSON report of a job that has ended, even if it failed: the route of
	 * every byte, the rates, and the reasons why faster routes were not used. */
	std::string report() const { return detail::text(nebulaio_report, number_); }
};

/* A tensor in memory of the program, for saving: contiguous and in row-major order. */
struct tensor_view {
	std::string name;
	std::string dtype; /* safetensors name: "F32", "BF16", "F8_E4M3" */
	std::vector<int64_t> shape;
	const void *address = nullptr; /* of device memory, or of host memory for "host" */
	uint64_t size = 0;             /* bytes; must match dtype and shape */
	std::string device = "host"; /* "host", "cuda" or "cuda:N" */
};

/* A tensor of a model and its place in the destinations. */
struct tensor {
	std::string name;
	std::string dtype;
	std::vector<int64_t> shape;
	uint64_t file = 0;   /* index of the destination */
	uint64_t offset = 0; /* of its first byte in that destination */
	uint64_t size = 0;   /* bytes */

	/* Returns a view of the tensor in dst, ready to be saved. dst are the destinations
	 * of its load on device. Throws std::out_of_range if dst lacks its file. */
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

	/* Returns the address of the tensor in dst, the destinations of its load. Throws
	 * std::out_of_range if dst lacks its file. */
	void *at(const std::vector<nebulaio_buffer> &dst) const
	{
		return static_cast<char *>(dst.at(static_cast<size_t>(file)).address) + offset;
	}
};

/* The devices, workers and staging memory of the process. Create one and share it. */
class system : public handle {
  public:
	/* Opens the system. options: see nebulaio_system_open. Throws
	 * NEBULAIO_ERR_UNSUPPORTED if the library is of another release than this header. */
	explicit system(const std::string &options = "")
	{
		detail::call(nebulaio_check_abi);
		detail::call(nebulaio_system_open, detail::or_null(options), &number_);
	}

	/* Returns, as JSON, the devices that were found, what is missing, and the fixes. */
	std::string devices() const { return detail::text(nebulaio_devices, number_); }

	/* Starts to save tensors to one .safetensors file. The tensors may be on several
	 * devices. If the job succeeds, the file is complete and durable. If it fails, an
	 * existing file is unchanged. The tensors' memory belongs to the job, and must not
	 * change, until the job has ended. The tensors of the first GPU are read after the
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
};

/* An open model. Its headers have been read and checked. */
class model : public handle {
  public:
	/* Opens a model. options: see nebulaio_model_open. The system must outlive it. */
	model(const system &sys, const std::string &path, const std::string &options = "")
	{
		detail::call(nebulaio_model_open, sys.number(), detail::c_text(path), detail::or_null(options), &number_);
	}

	/* Returns, as JSON, the device, files, tensors and metadata. */
	std::string describe() const { return detail::text(nebulaio_model_describe, number_); }

	/* Returns the size and alignment of each destination, one per file. The program
	 * allocates them. */
	std::vector<nebulaio_destination> destinations() const
	{
		uint64_t files = 0;
		detail::call(nebulaio_model_count, number_, &files, static_cast<uint64_t *>(nullptr));
		std::vector<nebulaio_destination> out(files);
		for (uint64_t i = 0; i < files; i++)
			detail::call(nebulaio_model_destination, number_, i, &out[i]);
		return out;
	}

	/* Returns all tensors in order of file and offset. They become ready in this order. */
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

	/* Returns the tensor with that name. Throws NEBULAIO_ERR_NOT_FOUND if there is none. */
	nebulaio::tensor tensor(const std::string &name) const
	{
		uint64_t index = 0;
		detail::call(nebulaio_model_find, number_, detail::c_text(name), &index);
		return tensor_at(index);
	}

	/* Starts a load into dst, one destination per file. The destinations and the model
	 * must stay until the job has ended. Copies begin after the work that is queued on
	 * stream. options: see nebulaio_load_start. */
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

	/* Returns a model of the same open files with another choice of tensors. It reads no
	 * header again. Release it before this model; do not assign it to the same variable.
	 * options: see nebulaio_model_select. */
	model select(const std::string &options) const
	{
		model out;
		detail::call(nebulaio_model_select, number_, detail::or_null(options), &out.number_);
		return out;
	}

	/* Starts to write FILE.crc64nvme beside every file, for loads with "verify". Use it
	 * on a copy that is known to be good. The model must stay until the job has ended.
	 * See nebulaio_checksum_start. */
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

/* An open file for reads and writes in place, at any offset, between storage and device
 * memory. It is thread-safe. Writes are not atomic, and they survive a crash only after
 * sync. */
class file : public handle {
  public:
	/* Opens a file. flags: "r" reads, "r+" reads and writes, "w" and "w+" read and write
	 * a file that is created or emptied first. options: see nebulaio_file_open. The
	 * system must outlive the file. The release waits for running jobs. */
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

	/* Makes all earlier writes durable, and waits for that. */
	void sync() { detail::call(nebulaio_file_sync, number_); }

	/* Reads up to size bytes at offset into address and returns their number. It is
	 * smaller than size only at the end of the file. The read begins after the work that
	 * is queued on stream. options: see nebulaio_file_read_start. */
	uint64_t read(void *address, uint64_t size, uint64_t offset, const std::string &options = "",
	              nebulaio_stream stream = nullptr)
	{
		return read_start(address, size, offset, options, stream).bytes();
	}

	/* Writes size bytes from address to offset and returns the number written. The file
	 * grows if needed. Stream and options are those of read. */
	uint64_t write(const void *address, uint64_t size, uint64_t offset, const std::string &options = "",
	               nebulaio_stream stream = nullptr)
	{
		return write_start(address, size, offset, options, stream).bytes();
	}

	/* Starts a read as a job. The memory belongs to the job until it has ended.
	 * job::bytes returns the number of bytes. */
	job read_start(void *address, uint64_t size, uint64_t offset, const std::string &options = "",
	               nebulaio_stream stream = nullptr)
	{
		return start(nebulaio_file_read_start, address, size, offset, options, stream);
	}

	/* Starts a write as a job. The memory must not change until it has ended. */
	job write_start(const void *address, uint64_t size, uint64_t offset, const std::string &options = "",
	                nebulaio_stream stream = nullptr)
	{
		return start(nebulaio_file_write_start, address, size, offset, options, stream);
	}

	/* Reads in the order of stream, with the file's device and route. Work queued on
	 * stream later sees the bytes. If libcufile carries the read, no thread waits. If it
	 * cannot, for example into host memory, the job has ended when this returns, and its
	 * report gives the reason. A queued read cannot be cancelled. */
	job read_async(void *address, uint64_t size, uint64_t offset, nebulaio_stream stream)
	{
		return read_start(address, size, offset, "{\"async\":true}", stream);
	}

	/* Writes in the order of stream. Work queued on stream later may change the memory.
	 * Otherwise like read_async. */
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
	void *address = nullptr; /* of device memory, or of host memory for "host" */
	uint64_t capacity = 0;   /* bytes available from address */
	std::string device = "host"; /* "host", "cuda" or "cuda:N" */
	uint64_t offset = 0;   /* of the first byte in the object */
	int64_t size = -1;     /* bytes; -1: up to the object's end */
	std::string version = ""; /* "": the newest */
	nebulaio_stream stream = nullptr; /* the read begins after the work that is queued on it */
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

/* An object's file, opened through the server's door for a program that reads or writes
 * it itself. The destructor closes its descriptors. */
class object : public handle {
  public:
	object() = default;

	/* Return the descriptor through the page cache, and the one with O_DIRECT. -1 means
	 * that there is none, or that a release or a commit has closed it. */
	int buffered() const noexcept { return number_ ? files_.buffered : -1; }
	int direct() const noexcept { return number_ ? files_.direct : -1; }

	/* Returns the bytes of the object; for a new object, the largest size that was given. */
	uint64_t size() const noexcept { return files_.size; }

	/* Starts to publish the first size bytes of a new object. See
	 * nebulaio_object_commit_start. */
	job commit_start(uint64_t size)
	{
		uint64_t number = 0;
		detail::call(nebulaio_object_commit_start, number_, size, &number);
		files_.buffered = files_.direct = -1; /* the system may reuse the numbers */
		return job(number);
	}

	/* Publishes the first size bytes, waits, and returns the object's properties as JSON. */
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

/* A client of an S3 server. It is thread-safe. It must outlive its jobs, models and
 * objects. */
class client : public handle {
  public:
	/* Opens a client. options: see nebulaio_client_open. The system must outlive it. */
	explicit client(const system &sys, const std::string &options = "")
	{
		detail::call(nebulaio_client_open, sys.number(), detail::or_null(options), &number_);
	}

	/* Starts to read objects into memory as one job. The memory belongs to the job until
	 * it has ended. options: see nebulaio_object_read_start. */
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

	/* Reads one object and returns the number of bytes. */
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

	/* Writes an object and returns the number of bytes. */
	uint64_t write(const object_write &one, const std::string &options = "") { return write_start(one, options).bytes(); }

	/* Return as JSON the properties of an object, one page of a bucket's keys, and how
	 * the client reaches its server. */
	std::string stat(const std::string &bucket, const std::string &key, const std::string &version = "") const
	{
		return ask(nebulaio_object_stat_start, detail::c_text(bucket), detail::c_text(key), detail::or_null(version));
	}
	std::string list(const std::string &bucket, const std::string &options = "") const
	{
		return ask(nebulaio_object_list_start, detail::c_text(bucket), detail::or_null(options));
	}
	std::string status() const { return ask(nebulaio_client_status_start); }

	/* Opens a model of objects. key is a .safetensors object, an index.json, or the
	 * common prefix of the objects. options: see nebulaio_model_open. */
	model open_model(const std::string &bucket, const std::string &key, const std::string &options = "") const
	{
		model out;
		detail::call(nebulaio_client_model_open, number_, detail::c_text(bucket), detail::c_text(key),
		             detail::or_null(options), &out.number_);
		return out;
	}

	/* Opens an object's file for reads into device. See nebulaio_object_open. */
	object open(const std::string &bucket, const std::string &key, const std::string &version = "",
	            const std::string &device = "") const
	{
		object out;
		detail::call(nebulaio_object_open, number_, detail::c_text(bucket), detail::c_text(key), detail::or_null(version),
		             detail::or_null(device), &out.files_, &out.number_);
		return out;
	}

	/* Begins an object of at most size bytes and opens its file for writes. The object
	 * becomes visible with object::commit. options: see nebulaio_object_create. */
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

} // namespace nebulaio

#endif /* NEBULAIO_HPP */
