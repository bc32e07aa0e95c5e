/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory on a device for the native tests, as a caller of the library has it:
 * from aligned_alloc on host, from the CUDA driver on a GPU. The driver is opened
 * at run time, so that one program runs on machines with and without it.
 */
#ifndef NEBULAIO_TEST_MEMORY_H
#define NEBULAIO_TEST_MEMORY_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct memory {
	int (*alloc)(uint64_t *, size_t);
	int (*release)(uint64_t);
	int (*fetch)(void *, uint64_t, size_t);
	int (*put)(uint64_t, const void *, size_t);
	int cuda;
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

/* Opens the memory of "host" or of "cuda:N", whose primary context becomes current. */
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
	int (*set)(void *);
	*(void **)&init = symbol(driver, "cuInit");
	*(void **)&get = symbol(driver, "cuDeviceGet");
	*(void **)&retain = symbol(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&set = symbol(driver, "cuCtxSetCurrent");
	*(void **)&m.alloc = symbol(driver, "cuMemAlloc_v2");
	*(void **)&m.release = symbol(driver, "cuMemFree_v2");
	*(void **)&m.fetch = symbol(driver, "cuMemcpyDtoH_v2");
	*(void **)&m.put = symbol(driver, "cuMemcpyHtoD_v2");
	int number = 0;
	void *context = NULL;
	if (init(0) || get(&number, atoi(device + 5)) || retain(&context, number) || set(context))
		fatal("CUDA does not start");
	m.cuda = 1;
	return m;
}

static inline uint64_t memory_take(const memory *m, size_t size, size_t align)
{
	uint64_t at = 0;
	size = size ? (size + align - 1) / align * align : align;
	if (!m->cuda)
		at = (uint64_t)(uintptr_t)aligned_alloc(align, size);
	else if (m->alloc(&at, size))
		at = 0;
	if (!at)
		fatal("out of memory");
	return at;
}

static inline void memory_give(const memory *m, uint64_t at)
{
	if (!m->cuda)
		free((void *)(uintptr_t)at);
	else
		m->release(at);
}

static inline void memory_read(const memory *m, void *to, uint64_t from, size_t n)
{
	if (n == 0)
		return;
	if (!m->cuda)
		memcpy(to, (const void *)(uintptr_t)from, n);
	else if (m->fetch(to, from, n))
		fatal("copy from the device");
}

static inline void memory_write(const memory *m, uint64_t to, const void *from, size_t n)
{
	if (n == 0)
		return;
	if (!m->cuda)
		memcpy((void *)(uintptr_t)to, from, n);
	else if (m->put(to, from, n))
		fatal("copy to the device");
}

#ifdef __cplusplus
}
#endif

#endif /* NEBULAIO_TEST_MEMORY_H */
