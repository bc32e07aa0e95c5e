/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpudirect_handle.hpp keeps the objects behind the cuFile handles of gpudirect.h: what a
 * handle reads, and the private copy that it writes. Programs include gpudirect.h.
 */
#ifndef NEBULAIO_GPUDIRECT_HANDLE_HPP
#define NEBULAIO_GPUDIRECT_HANDLE_HPP

#include <cufile.h>

#include "nebulaio/nebulaio.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace nebulaio {

/* What a program may do with the object behind a handle. */
enum class GPUDirectMode {
	automatic,  /* reads; the first write makes a private copy of the object */
	read,       /* reads; writes fail */
	read_write, /* reads and writes a private copy, which is made at once */
	write,      /* writes a new object, which replaces an old one */
	create      /* writes a new object; the commit fails if the object exists */
};

namespace detail {

/* All copies of this code in a process share one registry of handles. */
#define NEBULAIO_SHARED __attribute__((visibility("default")))

inline void cufile_must(CUfileError_t result, const std::string &what)
{
	if (static_cast<int>(result.err) != 0)
		throw error(NEBULAIO_ERR_DEVICE,
		            "nebulaio: " + what + ": cuFile error " + std::to_string(static_cast<int>(result.err)) +
		                ", CUDA error " + std::to_string(static_cast<int>(result.cu_err)) +
		                " (fix: `nebulaio doctor` shows what cuFile needs on this machine)");
}

/* The functions of libcufile that gpudirect_calls.hpp redirects. A function is null if
 * this libcufile does not have it. */
struct cufile_functions {
	decltype(&::cuFileRead) read;
	decltype(&::cuFileWrite) write;
	decltype(&::cuFileHandleDeregister) deregister;
#ifdef CU_FILE_STREAM_FIXED_BUF_OFFSET
	decltype(&::cuFileReadAsync) read_async;
	decltype(&::cuFileWriteAsync) write_async;
	decltype(&::cuFileBatchIOSubmit) submit;
#endif

	template <typename Function> static void find(void *library, Function &out, const char *name)
	{
		void *const symbol = dlsym(library != nullptr ? library : RTLD_NEXT, name);
		static_assert(sizeof out == sizeof symbol, "a pointer to a function has another size");
		__builtin_memcpy(&out, &symbol, sizeof out);
	}

	cufile_functions()
	{
		void *const library = dlopen("libcufile.so.0", RTLD_LAZY | RTLD_NOLOAD);
		find(library, read, "cuFileRead");
		find(library, write, "cuFileWrite");
		find(library, deregister, "cuFileHandleDeregister");
#ifdef CU_FILE_STREAM_FIXED_BUF_OFFSET
		find(library, read_async, "cuFileReadAsync");
		find(library, write_async, "cuFileWriteAsync");
		find(library, submit, "cuFileBatchIOSubmit");
#endif
	}

	static const cufile_functions &real()
	{
		static const cufile_functions one;
		return one;
	}
};

/* Describes a file for cuFile. A descriptor with O_DIRECT is preferred. */
inline CUfileDescr_t describe(const object &file)
{
	CUfileDescr_t descr{};
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = file.direct() >= 0 ? file.direct() : file.buffered();
	return descr;
}

/* An object behind a cuFile handle. Transfers hold the mutex shared; the private copy is
 * made and committed with the mutex held exclusively. */
struct lent_object {
	std::shared_mutex mutex;
	std::string name;
	std::string options; /* of nebulaio_object_edit */
	GPUDirectMode mode = GPUDirectMode::automatic;
	bool sized = false;       /* of GPUDirectCreate: GPUDirectCommit alone publishes it */
	object file;              /* what is read; empty if the handle began with a draft */
	object draft;             /* what is written; empty before the first write */
	CUfileHandle_t token{};   /* the program's handle */
	CUfileHandle_t writer{};  /* the handle of the draft; null before the first write */
	bool registered = false;  /* whether libcufile knows the token */
	std::atomic<int> fds[2]{{-1}, {-1}}; /* descriptors of the draft, for a forked child */
	std::atomic<bool> changed{false}; /* whether a write has succeeded or was queued */
	std::mutex failures;
	std::map<uint64_t, uint64_t> failed; /* offset and end of writes that failed */

	void drafted(object &&made)
	{
		draft = std::move(made);
		fds[0] = draft.buffered();
		fds[1] = draft.direct();
	}

	/* Makes the private copy. The caller holds the mutex exclusively. */
	void edit()
	{
		drafted(file.edit(options));
		CUfileDescr_t descr = describe(draft);
		try {
			cufile_must(cuFileHandleRegister(&writer, &descr), "register " + name);
		} catch (...) {
			writer = CUfileHandle_t{};
			drafted(object());
			throw;
		}
	}

	/* Notes the result of a write. Bytes that a failed write left unclear must be written
	 * again before the object can be committed. */
	void wrote(off_t offset, size_t size, ssize_t result)
	{
		if (offset < 0 || size == 0)
			return;
		const auto from = static_cast<uint64_t>(offset);
		if (result > 0) {
			draft.wrote(from, static_cast<uint64_t>(result));
			changed = true;
		}
		const std::lock_guard<std::mutex> lock(failures);
		if (result < 0) {
			uint64_t &end = failed[from];
			end = std::max<uint64_t>(end, from + size);
			return;
		}
		for (auto i = failed.lower_bound(from); i != failed.end();)
			i = i->second <= from + static_cast<uint64_t>(result) ? failed.erase(i) : std::next(i);
	}

	/* Ends libcufile's handles. */
	void deregister()
	{
		const cufile_functions &real = cufile_functions::real();
		if (writer != CUfileHandle_t{} && writer != token)
			real.deregister(writer);
		if (registered)
			real.deregister(token);
		writer = CUfileHandle_t{};
		registered = false;
	}

	/* Publishes the draft, if there is one, and returns the object's properties as JSON. */
	std::string commit(uint64_t size)
	{
		const std::unique_lock<std::shared_mutex> lock(mutex);
		deregister();
		if (draft.number() == 0)
			return "";
		if (!failed.empty()) {
			const uint64_t at = failed.begin()->first, end = failed.begin()->second;
			drafted(object());
			throw error(NEBULAIO_ERR_IO, "nebulaio: commit " + name + ": " + std::to_string(end - at) +
			                                 " bytes at offset " + std::to_string(at) +
			                                 " could not be written, so the object was not changed (fix: write them "
			                                 "again before the handle is deregistered)");
		}
		if (mode == GPUDirectMode::automatic && !sized && !changed) {
			drafted(object()); /* nothing was written */
			return "";
		}
		fds[0] = fds[1] = -1;
		object last = std::move(draft);
		return last.commit(size);
	}

	/* Returns the size in bytes that a read sees. */
	uint64_t size()
	{
		const std::shared_lock<std::shared_mutex> lock(mutex);
		struct stat st {};
		if (draft.number() != 0 && !sized && fstat(draft.buffered(), &st) == 0)
			return static_cast<uint64_t>(st.st_size);
		return draft.number() != 0 ? draft.size() : file.size();
	}
};

/* The server of GPUDirectInit, and the open objects. It is never destroyed, because
 * handles may be used by other code until the process has ended. */
struct NEBULAIO_SHARED gpudirect {
	std::mutex mutex;
	std::unique_ptr<nebulaio::system> sys;
	std::unique_ptr<nebulaio::client> server;
	std::map<CUfileHandle_t, std::shared_ptr<lent_object>> lent; /* by token and by writer */
	std::atomic<size_t> count{0};                                /* entries of lent */
	std::atomic<bool> forked{false};                             /* this process is a forked child */
	CUfileDescr_t *descr = nullptr;
	bool driver = false;

	void put(CUfileHandle_t handle, const std::shared_ptr<lent_object> &one)
	{
		lent[handle] = one;
		count = lent.size();
	}

	/* Returns the object of a handle, or nothing for a handle of others. */
	std::shared_ptr<lent_object> find(CUfileHandle_t handle)
	{
		if (count == 0)
			return nullptr;
		const std::lock_guard<std::mutex> lock(mutex);
		const auto found = lent.find(handle);
		return found == lent.end() ? nullptr : found->second;
	}

	/* Returns the object of a handle and forgets it. */
	std::shared_ptr<lent_object> take(CUfileHandle_t handle)
	{
		if (count == 0)
			return nullptr;
		const std::lock_guard<std::mutex> lock(mutex);
		const auto found = lent.find(handle);
		if (found == lent.end())
			return nullptr;
		const std::shared_ptr<lent_object> one = found->second;
		drop(*one);
		return one;
	}

	void drop(const lent_object &one)
	{
		for (auto i = lent.begin(); i != lent.end();)
			i = i->second.get() == &one ? lent.erase(i) : std::next(i);
		count = lent.size();
	}

	/* Commits and releases all objects, and closes the client and cuFile's driver. Returns
	 * the messages of commits that failed. The caller holds the mutex. */
	std::string end() noexcept
	{
		std::string failed;
		while (!lent.empty()) {
			const std::shared_ptr<lent_object> one = lent.begin()->second;
			drop(*one);
			try {
				if (one->sized)
					one->deregister();
				else
					one->commit(NEBULAIO_WHOLE);
			} catch (const std::exception &problem) {
				failed += (failed.empty() ? "" : "; ") + std::string(problem.what());
			}
		}
		server.reset();
		sys.reset();
		descr = nullptr;
		if (driver) {
			driver = false;
			cuFileDriverClose(); /* an open driver that counts may crash at exit */
		}
		return failed;
	}

	static void at_exit()
	{
		gpudirect &all = only();
		if (all.forked)
			return; /* the parent's handles are the parent's */
		const std::lock_guard<std::mutex> lock(all.mutex);
		const std::string failed = all.end();
		if (!failed.empty())
			std::fprintf(stderr, "%s\n", failed.c_str());
	}

	/* Reports whether a descriptor is that of a draft. */
	static bool of_draft(const gpudirect &all, int fd)
	{
		struct stat a {}, b {};
		if (fstat(fd, &a) != 0)
			return false;
		for (const auto &one : all.lent) {
			const int mine = one.second->fds[0] >= 0 ? one.second->fds[0] : one.second->fds[1];
			if (mine >= 0 && mine != fd && fstat(mine, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
				return true;
		}
		return false;
	}

	/* Closes the duplicates of the drafts' descriptors that libcufile holds. The list of
	 * descriptors is read without the C library, whose locks a forked child cannot trust. */
	static void close_duplicates(const gpudirect &all)
	{
		const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (folder < 0)
			return;
		alignas(8) char entries[4096];
		long n;
		while ((n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
			for (long at = 0; at < n;) {
				/* struct linux_dirent64: inode and offset of 8 bytes, the length, the type, the name */
				unsigned short length;
				__builtin_memcpy(&length, entries + at + 16, sizeof length);
				int fd = 0;
				const char *name = entries + at + 19;
				for (; *name >= '0' && *name <= '9'; name++)
					fd = 10 * fd + (*name - '0');
				if (name != entries + at + 19 && fd != folder && of_draft(all, fd))
					close(fd);
				at += length;
			}
		close(folder);
	}

	/* A forked child has no threads of the library and must not commit. It closes its copies
	 * of the drafts' descriptors, which would keep the parent from committing. */
	static void in_child()
	{
		gpudirect &all = only();
		all.forked = true;
		close_duplicates(all);
		for (const auto &one : all.lent)
			for (std::atomic<int> &fd : one.second->fds) {
				const int number = fd.exchange(-1);
				if (number >= 0)
					close(number);
			}
		all.mutex.unlock();
	}

	static gpudirect *made()
	{
		auto *const one = new gpudirect;
		std::atexit(at_exit);
		pthread_atfork([] { only().mutex.lock(); }, [] { only().mutex.unlock(); }, in_child);
		return one;
	}

	static gpudirect &only()
	{
		static gpudirect *const one = made();
		return *one;
	}
};

} // namespace detail

} // namespace nebulaio

#endif /* NEBULAIO_GPUDIRECT_HANDLE_HPP */
