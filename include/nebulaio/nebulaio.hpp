/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nebulaio.hpp: nebulaio.h for C++11 and later, in one header: loads, saves,
 * selections, checksums, ranges of files, and objects of a server.
 *
 * @code{.cpp}
 * #include <nebulaio/nebulaio.hpp>
 *
 * #include <cstdio>
 *
 * int main()
 * {
 *     nebulaio::system sys;
 *     std::vector<float> weights(1024, 1.0f), back(1024);          // or memory of cudaMalloc, with "cuda:0" for "host"
 *     sys.save("model.safetensors", {{"w", "F32", {1024}, weights.data(), 4096, "host"}}).wait();   // durable, or not there
 *
 *     nebulaio::model model(sys, "model.safetensors", R"({"device":"host"})");
 *     nebulaio::job load = model.load({{back.data(), 4096}});           // one destination for each of model.destinations()
 *     load.wait();                                                 // throws what went wrong
 *     std::puts(load.report().c_str());                            // which path the bytes took
 *
 *     nebulaio::file data(sys, "model.safetensors", "r", R"({"device":"host"})");
 *     return data.read(back.data(), 4096, 8) == 4096 && back != weights ? 0 : 1;   // any range; less only at the end
 * }
 * @endcode
 *
 * Objects of a server, the one that NEBULAIO_ENDPOINT names for example, move by
 * nebulaio::client: client.read({"bucket", "key", address, size, "host"}), and
 * client.write the other way.
 *
 * Handles are released by their destructors. They can be moved and not copied. A job
 * that is destroyed while it runs is cancelled and waited for. A call that fails
 * throws nebulaio::error with the library's message, which says what to do. Text,
 * shapes and lists are read before a call returns; the memory whose addresses are
 * given belongs to the job until it has ended. Options are JSON, "" for none.
 * Addresses are pointers as cudaMalloc gives them, and a stream is a cudaStream_t.
 * Any thread may use any object, but not while another thread moves or destroys it.
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

/* Calls a function with output text: once for its length, once for the text, and
 * again where the text has grown between the two. */
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

/* The text as C reads it; one that C would cut short at a zero byte is refused. */
inline const char *c_text(const std::string &text)
{
	const size_t zero = text.find('\0');
	if (zero != std::string::npos)
		throw error(NEBULAIO_ERR_INVALID, "nebulaio: the text \"" + text.substr(0, zero) + "\" goes on after a zero byte; expected none");
	return text.c_str();
}

/* The number, which is 0 from then on. */
inline uint64_t take(uint64_t &number) noexcept
{
	const uint64_t was = number;
	number = 0;
	return was;
}

inline const char *or_null(const std::string &options) { return options.empty() ? nullptr : c_text(options); }

} // namespace detail

/* The text as a JSON string with its quotation marks, for names, paths and
 * metadata in options: "{\"names\":[" + quote(name) + "]}". */
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

/* A handle of the library, released once. */
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

	/* The number that the functions of nebulaio.h take; 0 after a move. */
	uint64_t number() const noexcept { return number_; }

	/* Releases the handle now. A second call does nothing. What others were opened
	 * from outlives them: a system or model that is still in use stays open until
	 * the process ends. */
	void release() noexcept
	{
		if (number_ != 0)
			nebulaio_release(detail::take(number_), nullptr, 0);
	}

  protected:
	uint64_t number_ = 0;
};

/* Work under way: a load, a save, a move of a file's bytes, sums. */
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

	/* Waits until more than `known` tensors of a load are final where they lie, and
	 * returns how many are, counted in the order of model::tensors. No more than
	 * `known` means that timeout_ms (negative: without limit) ran out, or that the
	 * load has ended well and there are no more. Throws the error of a load that
	 * failed, and NEBULAIO_ERR_INVALID for a job that is no load. Wait for the job
	 * in any case: that no file changed meanwhile is known only then. */
	uint64_t ready(uint64_t known, int32_t timeout_ms = -1)
	{
		char message[4096] = "";
		uint64_t count = 0;
		const int32_t status = nebulaio_load_ready(number_, known, timeout_ms, &count, message, sizeof message);
		if (status != NEBULAIO_OK && status != NEBULAIO_RUNNING)
			throw error(status, message);
		return count;
	}

	/* Waits for the job and returns how many bytes it moved; for reads of a file,
	 * fewer than asked for mean that the file ended. */
	uint64_t bytes()
	{
		nebulaio_progress progress{};
		wait(-1, &progress);
		return progress.bytes_done;
	}

	/* Asks the job to stop; wait tells when it has. */
	void cancel() { detail::call(nebulaio_cancel, number_); }

	/* JSON of a job that has ended, also by an error: which route every byte took,
	 * how fast, and why no faster one. */
	std::string report() const { return detail::text(nebulaio_report, number_); }
};

/* A tensor in memory of the caller, as it is saved: contiguous, in row-major order. */
struct tensor_view {
	std::string name;
	std::string dtype; /* by its safetensors name: "F32", "BF16", "F8_E4M3" */
	std::vector<int64_t> shape;
	const void *address = nullptr; /* of device memory, or of host memory for "host" */
	uint64_t size = 0;             /* bytes; what dtype and shape say */
	std::string device = "host"; /* "host", "cuda" or "cuda:N" */
};

/* A tensor of a model and where it will lie. */
struct tensor {
	std::string name;
	std::string dtype;
	std::vector<int64_t> shape;
	uint64_t file = 0;   /* which destination */
	uint64_t offset = 0; /* of its first byte in that destination */
	uint64_t size = 0;   /* bytes */

	/* The tensor where it lies in dst, the destinations of its load on device, ready
	 * to be saved. std::out_of_range where dst lacks its file. */
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

	/* The address of the tensor in dst, the destinations of its load. std::out_of_range
	 * where dst lacks its file. */
	void *at(const std::vector<nebulaio_buffer> &dst) const
	{
		return static_cast<char *>(dst.at(static_cast<size_t>(file)).address) + offset;
	}
};

/* Devices, workers and staging memory of the process; make one and share it. */
class system : public handle {
  public:
	/* options: see nebulaio_system_open. A library of another release than this header
	 * throws NEBULAIO_ERR_UNSUPPORTED. */
	explicit system(const std::string &options = "")
	{
		detail::call(nebulaio_check_abi);
		detail::call(nebulaio_system_open, detail::or_null(options), &number_);
	}

	/* JSON: what was looked for, found and missing, and what to do. */
	std::string devices() const { return detail::text(nebulaio_devices, number_); }

	/* Starts to write tensors, which may lie on several devices, to one .safetensors
	 * file. When the job has succeeded the file is whole, durable and in place; else
	 * what was there before is as it was. Their memory belongs to the job, and does
	 * not change, until it has ended. They are read after what is queued on stream,
	 * which is of the first GPU among them. options: see nebulaio_save_start. */
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

/* A model whose headers have been read and checked. */
class model : public handle {
  public:
	/* options: see nebulaio_model_open. The system outlives the model. */
	model(const system &sys, const std::string &path, const std::string &options = "")
	{
		detail::call(nebulaio_model_open, sys.number(), detail::c_text(path), detail::or_null(options), &number_);
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

	/* All tensors, in order of file and offset, in which they also become ready. */
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
		detail::call(nebulaio_model_find, number_, detail::c_text(name), &index);
		return tensor_at(index);
	}

	/* Starts to fill dst, one destination per file; they and the model stay until
	 * the job has ended. Copies begin after what is queued on stream. options: see
	 * nebulaio_load_start. */
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

	/* A model of the same open files with another choice of tensors; no header is
	 * read again. It is released before the model that it was made from, so it does
	 * not replace it in the same variable. options: see nebulaio_model_select. */
	model select(const std::string &options) const
	{
		model out;
		detail::call(nebulaio_model_select, number_, detail::or_null(options), &out.number_);
		return out;
	}

	/* Starts to write FILE.crc64nvme beside every file, which loads with "verify"
	 * compare with: of a copy that is known to be good. The model stays until the
	 * job has ended. See nebulaio_checksum_start. */
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

/* An open file whose bytes are moved between storage and memory of a device in
 * place, at any offset. Safe for use by several threads at once. Writes are not
 * atomic, and safe from a crash only after sync. */
class file : public handle {
  public:
	/* flags: "r" read, "r+" read and write, "w" and "w+" the same of a file that is
	 * made or emptied first. options: see nebulaio_file_open. The system outlives the
	 * file; its release waits for moves that run. */
	file(const system &sys, const std::string &path, const std::string &flags = "r", const std::string &options = "")
	{
		detail::call(nebulaio_file_open, sys.number(), detail::c_text(path), detail::c_text(flags),
		             detail::or_null(options), &number_);
	}

	/* The file's length now. */
	uint64_t size() const
	{
		uint64_t bytes = 0;
		detail::call(nebulaio_file_size, number_, &bytes);
		return bytes;
	}

	/* Makes what was written survive a crash. */
	void sync() { detail::call(nebulaio_file_sync, number_); }

	/* Reads up to size bytes at offset to address and returns how many there were:
	 * fewer only where the file ended. Begins after what is queued on stream.
	 * options: see nebulaio_file_read_start. */
	uint64_t read(void *address, uint64_t size, uint64_t offset, const std::string &options = "", nebulaio_stream stream = nullptr)
	{
		return read_start(address, size, offset, options, stream).bytes();
	}

	/* Writes size bytes at address to offset, where the file grows if it must, and
	 * returns how many were written. Else as read. */
	uint64_t write(const void *address, uint64_t size, uint64_t offset, const std::string &options = "", nebulaio_stream stream = nullptr)
	{
		return write_start(address, size, offset, options, stream).bytes();
	}

	/* read as a job, which owns the memory until it has ended; job::bytes tells how
	 * many there were. */
	job read_start(void *address, uint64_t size, uint64_t offset, const std::string &options = "", nebulaio_stream stream = nullptr)
	{
		return start(nebulaio_file_read_start, address, size, offset, options, stream);
	}

	/* write as a job. */
	job write_start(const void *address, uint64_t size, uint64_t offset, const std::string &options = "", nebulaio_stream stream = nullptr)
	{
		return start(nebulaio_file_write_start, address, size, offset, options, stream);
	}

	/* Reads in the order of stream, with the file's device and route: what is queued
	 * on it later sees the bytes, and no thread waits where libcufile carries the
	 * move. Where it does not, on host among others, the move has ended when this
	 * returns and the job's report says why. Not cancelled once it is queued. */
	job read_async(void *address, uint64_t size, uint64_t offset, nebulaio_stream stream)
	{
		return read_start(address, size, offset, "{\"async\":true}", stream);
	}

	/* Writes in the order of stream: what is queued on it later may change the
	 * memory. Else as read_async. */
	job write_async(const void *address, uint64_t size, uint64_t offset, nebulaio_stream stream)
	{
		return write_start(address, size, offset, "{\"async\":true}", stream);
	}

  private:
	template <typename Function, typename Address>
	job start(Function function, Address address, uint64_t size, uint64_t offset, const std::string &options, nebulaio_stream stream)
	{
		uint64_t number = 0;
		detail::call(function, number_, address, size, offset, stream, detail::or_null(options), &number);
		return job(number);
	}
};

/* One object, or a range of it, and the memory that it goes to. */
struct object_read {
	std::string bucket;
	std::string key;
	void *address = nullptr; /* of device memory, or of host memory for "host" */
	uint64_t capacity = 0;   /* bytes available from address */
	std::string device = "host"; /* "host", "cuda" or "cuda:N" */
	uint64_t offset = 0;   /* of the first byte in the object */
	int64_t size = -1;     /* bytes; -1: up to the object's end */
	std::string version = ""; /* "": the newest */
	nebulaio_stream stream = nullptr; /* CUDA stream whose queued work comes first */
};

/* One object and the memory that it is made of. */
struct object_write {
	std::string bucket;
	std::string key;
	const void *address = nullptr;
	uint64_t size = 0;
	std::string device = "host";
	nebulaio_stream stream = nullptr;
};

/* An object's file, lent by the server's door to a program that reads or writes it
 * by itself. Its descriptors are closed with it. */
class object : public handle {
  public:
	object() = default;

	/* The descriptor through the page cache, and the one past it; -1 for none, and
	 * once they are closed: with the object, or by a commit. */
	int buffered() const noexcept { return number_ ? files_.buffered : -1; }
	int direct() const noexcept { return number_ ? files_.direct : -1; }

	/* Bytes: of the object, or as many as a new one was said to have at most. */
	uint64_t size() const noexcept { return files_.size; }

	/* Starts to publish the first size bytes of a new object; see
	 * nebulaio_object_commit_start. */
	job commit_start(uint64_t size)
	{
		uint64_t number = 0;
		detail::call(nebulaio_object_commit_start, number_, size, &number);
		files_.buffered = files_.direct = -1; /* their numbers may soon be other files' */
		return job(number);
	}

	/* Publishes them, and returns as JSON what the object is. */
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

/* A server, of ours or any that speaks S3, and who asks it. Safe for use by several
 * threads at once. It outlives its jobs, models and objects. */
class client : public handle {
  public:
	/* options: see nebulaio_client_open. The system outlives the client. */
	explicit client(const system &sys, const std::string &options = "")
	{
		detail::call(nebulaio_client_open, sys.number(), detail::or_null(options), &number_);
	}

	/* Starts to read objects into memory, as one job, which owns the memory until it
	 * has ended. options: see nebulaio_object_read_start. */
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

	/* Reads one object and returns how many bytes there were. */
	uint64_t read(const object_read &one, const std::string &options = "")
	{
		return read_start({one}, options).bytes();
	}

	/* Starts to write an object; when the job has succeeded it is whole, durable and
	 * visible. options: see nebulaio_object_write_start. */
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

	/* Writes an object and returns how many bytes it has. */
	uint64_t write(const object_write &one, const std::string &options = "") { return write_start(one, options).bytes(); }

	/* JSON: what an object is; a page of a bucket's keys; how the server is reached. */
	std::string stat(const std::string &bucket, const std::string &key, const std::string &version = "") const
	{
		return ask(nebulaio_object_stat_start, detail::c_text(bucket), detail::c_text(key), detail::or_null(version));
	}
	std::string list(const std::string &bucket, const std::string &options = "") const
	{
		return ask(nebulaio_object_list_start, detail::c_text(bucket), detail::or_null(options));
	}
	std::string status() const { return ask(nebulaio_client_status_start); }

	/* A model of objects: key is a .safetensors object, an index.json, or the prefix
	 * of a model. options: see nebulaio_model_open. */
	model open_model(const std::string &bucket, const std::string &key, const std::string &options = "") const
	{
		model out;
		detail::call(nebulaio_client_model_open, number_, detail::c_text(bucket), detail::c_text(key),
		             detail::or_null(options), &out.number_);
		return out;
	}

	/* Borrows an object's file, for reading to device; see nebulaio_object_open. */
	object open(const std::string &bucket, const std::string &key, const std::string &version = "",
	            const std::string &device = "") const
	{
		object out;
		detail::call(nebulaio_object_open, number_, detail::c_text(bucket), detail::c_text(key), detail::or_null(version),
		             detail::or_null(device), &out.files_, &out.number_);
		return out;
	}

	/* Begins an object of at most size bytes and borrows its file, for writing;
	 * nothing is visible before object::commit. options: see nebulaio_object_create. */
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
