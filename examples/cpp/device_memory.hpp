// SPDX-License-Identifier: Apache-2.0
//
// Memory and streams of a device for the examples: host memory, or a GPU's through
// the CUDA driver, which is found at run time. A program that has the CUDA toolkit
// uses cudaMalloc, cudaMemcpyAsync and cudaStreamCreate instead.
//
// A CUDA context is current for a thread. So every call here makes that of its
// device current and puts back what was: objects may be used in any thread, and
// those of several GPUs beside each other.
#ifndef EXAMPLES_DEVICE_MEMORY_HPP
#define EXAMPLES_DEVICE_MEMORY_HPP

#include <nebulaio/nebulaio.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

// The functions of the driver that the examples use.
class cuda_driver {
  public:
	int (*init)(unsigned) = nullptr;
	int (*device)(int *, int) = nullptr;
	int (*retain)(void **, int) = nullptr;
	int (*push)(void *) = nullptr;
	int (*pop)(void **) = nullptr;
	int (*alloc)(uint64_t *, std::size_t) = nullptr;
	int (*release)(uint64_t) = nullptr;
	int (*download)(void *, uint64_t, std::size_t, void *) = nullptr;
	int (*upload)(uint64_t, const void *, std::size_t, void *) = nullptr;
	int (*stream)(void **, unsigned) = nullptr;
	int (*end_stream)(void *) = nullptr;
	int (*wait)(void *) = nullptr;

	// Opened and started once, when a GPU is first asked for.
	static const cuda_driver &get()
	{
		static const cuda_driver only;
		return only;
	}

  private:
	cuda_driver()
	{
		void *library = dlopen("libcuda.so.1", RTLD_NOW);
		if (!library)
			throw std::runtime_error(dlerror());
		find(library, "cuInit", init);
		find(library, "cuDeviceGet", device);
		find(library, "cuDevicePrimaryCtxRetain", retain);
		find(library, "cuCtxPushCurrent_v2", push);
		find(library, "cuCtxPopCurrent_v2", pop);
		find(library, "cuMemAlloc_v2", alloc);
		find(library, "cuMemFree_v2", release);
		find(library, "cuMemcpyDtoHAsync_v2", download);
		find(library, "cuMemcpyHtoDAsync_v2", upload);
		find(library, "cuStreamCreate", stream);
		find(library, "cuStreamDestroy_v2", end_stream);
		find(library, "cuStreamSynchronize", wait);
		if (init(0) != 0)
			throw std::runtime_error("CUDA does not start");
	}
	template <typename Function> static void find(void *library, const char *name, Function &out)
	{
		void *at = dlsym(library, name);
		if (!at)
			throw std::runtime_error(std::string("the CUDA driver has no ") + name);
		out = reinterpret_cast<Function>(at);
	}
};

// "host", or a GPU by its primary context, which is the one of the CUDA runtime.
class device_context {
  public:
	explicit device_context(const std::string &name)
	{
		if (name == "host")
			return;
		const std::size_t colon = name.find(':');
		int number = 0;
		if (cuda().device(&number, colon == std::string::npos ? 0 : std::stoi(name.substr(colon + 1))) != 0 ||
		    cuda().retain(&context_, number) != 0)
			throw std::runtime_error("CUDA has no device " + name);
	}
	bool gpu() const { return context_ != nullptr; }
	static const cuda_driver &cuda() { return cuda_driver::get(); }

	// Calls a function of the driver in the device's context; false if it fails.
	template <typename Call> bool run(Call call) const noexcept
	{
		void *ours = nullptr;
		if (cuda().push(context_) != 0)
			return false;
		const bool good = call(cuda()) == 0;
		return cuda().pop(&ours) == 0 && good;
	}

  private:
	void *context_ = nullptr;
};

// A CUDA stream; on host there is none, and it is null.
class device_stream {
  public:
	explicit device_stream(const std::string &device) : context_(device)
	{
		if (context_.gpu() && !context_.run([&](const cuda_driver &d) { return d.stream(&stream_, 1); }))
			throw std::runtime_error("no stream on " + device);
	}
	device_stream(const device_stream &) = delete;
	device_stream &operator=(const device_stream &) = delete;
	~device_stream()
	{
		if (stream_)
			context_.run([&](const cuda_driver &d) { return d.end_stream(stream_); });
	}
	// As the library takes it; a cudaStream_t is the same type.
	nebulaio_stream stream() const { return static_cast<nebulaio_stream>(stream_); }
	// Waits until all that was queued is done.
	void wait() const
	{
		if (stream_ && !context_.run([&](const cuda_driver &d) { return d.wait(stream_); }))
			throw std::runtime_error("work on the stream failed");
	}

  private:
	device_context context_;
	void *stream_ = nullptr;
};

// Memory of a device, freed at the end.
class device_memory {
  public:
	device_memory(const std::string &device, std::size_t size, std::size_t align = 4096) : context_(device)
	{
		size = (size + align) / align * align;
		if (!context_.gpu())
			address_ = std::aligned_alloc(align, size);
		else if (uint64_t number = 0; context_.run([&](const cuda_driver &d) { return d.alloc(&number, size); }))
			address_ = reinterpret_cast<void *>(number);
		if (!address_)
			throw std::bad_alloc();
	}
	device_memory(device_memory &&other) noexcept : context_(other.context_), address_(std::exchange(other.address_, nullptr)) {}
	device_memory(const device_memory &) = delete;
	device_memory &operator=(const device_memory &) = delete;
	~device_memory()
	{
		if (!address_)
			return;
		if (context_.gpu())
			context_.run([&](const cuda_driver &d) { return d.release(number()); });
		else
			std::free(address_);
	}
	void *address() const { return address_; }

	// Queue copies from and to host memory on a stream; on host they are made at once.
	void upload(const void *from, std::size_t size, const device_stream &stream)
	{
		if (!context_.gpu())
			std::memcpy(address_, from, size);
		else if (!context_.run([&](const cuda_driver &d) { return d.upload(number(), from, size, stream.stream()); }))
			throw std::runtime_error("the copy to the GPU failed");
	}
	void download(void *to, std::size_t size, const device_stream &stream) const
	{
		if (!context_.gpu())
			std::memcpy(to, address_, size);
		else if (!context_.run([&](const cuda_driver &d) { return d.download(to, number(), size, stream.stream()); }))
			throw std::runtime_error("the copy from the GPU failed");
	}

  private:
	// As the driver takes it; the CUDA runtime takes the pointer.
	uint64_t number() const { return reinterpret_cast<uint64_t>(address_); }

	device_context context_;
	void *address_ = nullptr;
};

#endif
