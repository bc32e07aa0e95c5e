// SPDX-License-Identifier: Apache-2.0
//
// Memory of a device for the examples: host memory, or a GPU's through the CUDA
// driver, which is found at run time. A program that has the CUDA toolkit uses
// cudaMalloc and cudaFree instead.
#ifndef EXAMPLES_DEVICE_MEMORY_HPP
#define EXAMPLES_DEVICE_MEMORY_HPP

#include <cstdint>
#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>
#include <string>
#include <utility>

class device_memory {
  public:
	device_memory(const std::string &device, std::size_t size, std::size_t align) : gpu_(device != "host")
	{
		size = (size + align) / align * align;
		if (!gpu_)
			address_ = reinterpret_cast<uint64_t>(std::aligned_alloc(align, size));
		else {
			const driver &d = driver::use(device);
			if (d.alloc(&address_, size) != 0)
				address_ = 0;
		}
		if (address_ == 0)
			throw std::bad_alloc();
	}
	device_memory(device_memory &&other) noexcept : gpu_(other.gpu_), address_(std::exchange(other.address_, 0)) {}
	device_memory(const device_memory &) = delete;
	device_memory &operator=(const device_memory &) = delete;
	~device_memory()
	{
		if (address_ == 0)
			return;
		if (gpu_)
			driver::use("").release(address_);
		else
			std::free(reinterpret_cast<void *>(address_));
	}
	uint64_t address() const { return address_; }

  private:
	struct driver {
		int (*alloc)(uint64_t *, std::size_t) = nullptr;
		int (*release)(uint64_t) = nullptr;

		// The driver with the primary context of the device that was asked for first.
		static const driver &use(const std::string &device)
		{
			static const driver only(device);
			return only;
		}

	  private:
		explicit driver(const std::string &device)
		{
			void *library = dlopen("libcuda.so.1", RTLD_NOW);
			if (!library)
				throw std::runtime_error(dlerror());
			int (*init)(unsigned) = nullptr;
			int (*get)(int *, int) = nullptr;
			int (*retain)(void **, int) = nullptr;
			int (*set)(void *) = nullptr;
			find(library, "cuInit", init);
			find(library, "cuDeviceGet", get);
			find(library, "cuDevicePrimaryCtxRetain", retain);
			find(library, "cuCtxSetCurrent", set);
			find(library, "cuMemAlloc_v2", alloc);
			find(library, "cuMemFree_v2", release);
			int number = 0;
			void *context = nullptr;
			const std::size_t colon = device.find(':');
			const int index = colon == std::string::npos ? 0 : std::stoi(device.substr(colon + 1));
			if (init(0) || get(&number, index) || retain(&context, number) || set(context))
				throw std::runtime_error("CUDA does not start on " + device);
		}
		template <typename Function> static void find(void *library, const char *name, Function &out)
		{
			void *at = dlsym(library, name);
			if (!at)
				throw std::runtime_error(std::string("the CUDA driver has no ") + name);
			out = reinterpret_cast<Function>(at);
		}
	};

	bool gpu_;
	uint64_t address_ = 0;
};

#endif
