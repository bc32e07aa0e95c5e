/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory for the native tests, allocated as a caller of the library would:
 * from aligned_alloc on host, from the CUDA driver on a GPU. The driver is opened
 * at run time, so that one program runs on machines with and without it.
 *
 * A CUDA context is current for a thread, not for a process, so each thread calls
 * memory_bind first. No other function binds the context. If a call of the library
 * leaves another context behind, the next allocation therefore notices it.
 */
#ifndef NEBULAIO_TEST_MEMORY_H
#define NEBULAIO_TEST_MEMORY_H

#include "nebulaio/nebulaio.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memory {
	int cuda;
	void *context;
	int (*bind)(void *);
	int (*alloc)(uint64_t *, size_t);
	int (*release)(uint64_t);
	int (*fetch)(void *, uint64_t, size_t, void *);
	int (*put)(uint64_t, const void *, size_t, void *);
	int (*pin)(void *, size_t, unsigned);
	int (*unpin)(void *);
	int (*stream)(void **, unsigned);
	int (*stream_end)(void *);
	int (*stream_wait)(void *);
} memory;

static inline void fatal(const char *what)
{
	fprintf(stderr, "native test: %s\n", what);
	exit(1);
}

static inline void *symbol(void *library, const char *name)
{
	void *at = dlsym(library, name);
	if (!at)
		fatal(name);
	return at;
}

/* Returns the address n bytes after another, also in device memory. */
static inline void *past(void *address, size_t n) { return (char *)address + n; }

/* Makes the device's context current for the calling thread, once per thread. */
static inline void memory_bind(const memory *m)
{
	if (m->cuda && m->bind(m->context))
		fatal("the context does not become current");
}

/* Opens the memory of "host" or of "cuda:N", for the calling thread. */
static inline memory memory_of(const char *device)
{
	memory m;
	memset(&m, 0, sizeof m);
	if (strcmp(device, "host") == 0)
		return m;
	if (strncmp(device, "cuda:", 5) != 0)
		fatal("the device is neither host nor cuda:N");
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver)
		fatal(dlerror());
	int (*init)(unsigned);
	int (*get)(int *, int);
	int (*retain)(void **, int);
	*(void **)&init = symbol(driver, "cuInit");
	*(void **)&get = symbol(driver, "cuDeviceGet");
	*(void **)&retain = symbol(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&m.bind = symbol(driver, "cuCtxPushCurrent_v2");
	*(void **)&m.alloc = symbol(driver, "cuMemAlloc_v2");
	*(void **)&m.release = symbol(driver, "cuMemFree_v2");
	*(void **)&m.fetch = symbol(driver, "cuMemcpyDtoHAsync_v2");
	*(void **)&m.put = symbol(driver, "cuMemcpyHtoDAsync_v2");
	*(void **)&m.pin = symbol(driver, "cuMemHostRegister_v2");
	*(void **)&m.unpin = symbol(driver, "cuMemHostUnregister");
	*(void **)&m.stream = symbol(driver, "cuStreamCreate");
	*(void **)&m.stream_end = symbol(driver, "cuStreamDestroy_v2");
	*(void **)&m.stream_wait = symbol(driver, "cuStreamSynchronize");
	int number = 0;
	if (init(0) || get(&number, atoi(device + 5)) || retain(&m.context, number))
		fatal("CUDA does not start");
	m.cuda = 1;
	memory_bind(&m);
	return m;
}

static inline void *memory_take(const memory *m, size_t size, size_t align)
{
	uint64_t number = 0;
	void *at = NULL;
	size = size ? (size + align - 1) / align * align : align;
	if (!m->cuda)
		at = aligned_alloc(align, size);
	else if (m->alloc(&number, size))
		fatal("cuMemAlloc fails: out of memory, or no context in this thread");
	else
		at = (void *)(uintptr_t)number;
	if (!at)
		fatal("out of memory");
	return at;
}

static inline void memory_give(const memory *m, void *at)
{
	if (!m->cuda)
		free(at);
	else if (m->release((uint64_t)(uintptr_t)at))
		fatal("cuMemFree fails");
}

/* Returns a stream that does not wait for the default stream; NULL on host. */
static inline nebulaio_stream memory_stream(const memory *m)
{
	void *stream = NULL;
	if (m->cuda && m->stream(&stream, 1))
		fatal("cuStreamCreate fails");
	return (nebulaio_stream)stream;
}

static inline void memory_stream_wait(const memory *m, nebulaio_stream stream)
{
	if (m->cuda && m->stream_wait(stream))
		fatal("cuStreamSynchronize fails");
}

static inline void memory_stream_end(const memory *m, nebulaio_stream stream)
{
	if (m->cuda && m->stream_end(stream))
		fatal("cuStreamDestroy fails");
}

/* Allocates host memory for asynchronous copies of a stream. */
static inline unsigned char *memory_pinned(const memory *m, size_t size)
{
	size = (size + 4095) / 4096 * 4096;
	unsigned char *at = (unsigned char *)aligned_alloc(4096, size);
	if (!at || (m->cuda && m->pin(at, size, 0)))
		fatal("no pinned memory");
	return at;
}

static inline void memory_unpin(const memory *m, unsigned char *at)
{
	if (m->cuda && m->unpin(at))
		fatal("cuMemHostUnregister fails");
	free(at);
}

/* Queues a copy on a stream; on host it copies at once. */
static inline void memory_fetch(const memory *m, void *to, const void *from, size_t n, nebulaio_stream stream)
{
	if (n == 0)
		return;
	if (!m->cuda)
		memcpy(to, from, n);
	else if (m->fetch(to, (uint64_t)(uintptr_t)from, n, stream))
		fatal("copy from the device");
}

static inline void memory_put(const memory *m, void *to, const void *from, size_t n, nebulaio_stream stream)
{
	if (n == 0)
		return;
	if (!m->cuda)
		memcpy(to, from, n);
	else if (m->put((uint64_t)(uintptr_t)to, from, n, stream))
		fatal("copy to the device");
}

/* Copies synchronously. */
static inline void memory_read(const memory *m, void *to, const void *from, size_t n)
{
	memory_fetch(m, to, from, n, NULL);
	memory_stream_wait(m, NULL);
}

static inline void memory_write(const memory *m, void *to, const void *from, size_t n)
{
	memory_put(m, to, from, n, NULL);
	memory_stream_wait(m, NULL);
}

#ifdef __cplusplus
}
#endif

#endif /* NEBULAIO_TEST_MEMORY_H */
