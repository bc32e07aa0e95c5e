/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver without a GPU, strict where the real one is: every call that
 * needs a context checks the calling thread's, copies happen later, in the
 * order of their stream, on a thread of the stream, and a copy outside an
 * allocation fails. Device memory is host memory at its own address.
 *
 * The fake_* functions at the end are for tests: they fail calls and copies,
 * hold copies back, and count. One mutex guards everything.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef FAKE_DEVICES
#define FAKE_DEVICES 1
#endif
#ifndef FAKE_VERSION
#define FAKE_VERSION 13000
#endif
#ifndef FAKE_INIT
#define FAKE_INIT 0
#endif
#define MAX_DEVICES 8

enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201, INVALID_PTX = 218, NO_JIT = 221, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_FOUND = 500, NOT_READY = 600, PEER_UNSUPPORTED = 217, PEER_ENABLED = 704, LAUNCH_TIMEOUT = 702, LAUNCH_FAILED = 719, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713,
	NOT_SUPPORTED = 801, SYSTEM_NOT_READY = 802, DRIVER_MISMATCH = 803, UNKNOWN = 999,
};

static const struct { int code; const char *name, *text; } errors[] = {
	{SUCCESS, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	{NO_JIT, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
	{NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
	{NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{PEER_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
	{PEER_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	{ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
	{NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
	{LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
	{DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
	{UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

struct context { int dev, retained, error, moving; long retains; struct stream *null; };
struct event { struct context *ctx; unsigned long recorded, reached; int error, refs, untimed; uint64_t time; };
struct op {
	enum { COPY, ABORTED, RECORD, WAIT, SPIN, SUM } kind;
	uint64_t ns;
	uint64_t first, size, tiles; /* of a sum, which reads n bytes at src and writes to dst */
	void *dst; const void *src; size_t n;
	struct event *ev; unsigned long point;
	struct op *next;
};
/* now is the stream's clock. It is made up: a kernel moves it by the time it is
 * told to take, a copy by copy_ns, an event that is waited for to its own time,
 * and nothing else, so that what tests measure is exact. */
struct stream { struct context *ctx; struct op *head, *tail; int busy, held, closing, error; uint64_t now; pthread_t thread; struct stream *next; };
struct module { struct context *ctx; int spins, sums; struct module *next; };
struct range { uintptr_t lo, hi; struct context *ctx; int foreign, portable, mapped; struct range *next; };
struct failure { char fn[48]; long skip, times; int code; struct failure *next; };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int initialised;
static struct context contexts[MAX_DEVICES];
static struct stream *streams;
static struct range *device_memory, *registered;
static struct failure *failures;
static struct module *modules;
static uint64_t copy_ns;
static int no_peer[MAX_DEVICES][MAX_DEVICES], peer_enabled[MAX_DEVICES][MAX_DEVICES];
static int steps_gate;              /* kernels wait */
static long kernel_at; static int kernel_code, kernel_sticky;
static long gate = -1;              /* copies that may still pass; -1: all */
static long async_at; static int async_code, async_sticky;
static int sums_gate;               /* sums wait */
static long sum_at; static int sum_code, sum_sticky;
static long flip_copy_at, flip_sum_at;
static _Thread_local struct { struct context *stack[32]; int depth; } current;

static struct {
	long copies_queued, copies_done, copies_failed, copies_in_flight, copies_held, pageable_copies, bytes_in, bytes_out, batches;
	long streams, events, allocations, registered_ranges, pushed, context_errors, event_waits, waiting_for_event, used_after_free, failures, drains;
	long peer_copies, peer_through_host, peers_enabled;
	long modules, steps_queued, steps_done, steps_failed, steps_in_flight, steps_held;
	long sums_queued, sums_done, sums_failed, sums_in_flight, sums_held, bytes_summed;
} n;

static const struct { const char *name; long *value; } counters[] = {
#define C(x) {#x, &n.x}
	C(copies_queued), C(copies_done), C(copies_failed), C(copies_in_flight), C(copies_held), C(pageable_copies), C(bytes_in), C(bytes_out), C(batches),
	C(streams), C(events), C(allocations), C(registered_ranges), C(pushed), C(context_errors), C(event_waits), C(waiting_for_event), C(used_after_free), C(failures), C(drains),
	C(peer_copies), C(peer_through_host), C(peers_enabled),
	C(modules), C(steps_queued), C(steps_done), C(steps_failed), C(steps_in_flight), C(steps_held),
	C(sums_queued), C(sums_done), C(sums_failed), C(sums_in_flight), C(sums_held), C(bytes_summed),
#undef C
};

static void count(long *c, long by) { *c += by; pthread_cond_broadcast(&changed); }

/* injected is the code that a test wants the next call of fn to return. */
static int injected(const char *fn)
{
	for (struct failure *f = failures; f; f = f->next) {
		if (strcmp(f->fn, fn) || f->times == 0)
			continue;
		if (f->skip > 0) { f->skip--; continue; }
		f->times--;
		count(&n.failures, 1);
		return f->code;
	}
	return 0;
}

#define ENTER(fn) pthread_mutex_lock(&mu); int r = injected(fn); if (r) LEAVE(r)
#define LEAVE(code) do { int code_ = (code); pthread_mutex_unlock(&mu); return code_; } while (0)

/* The calling thread's context, or NULL, which the caller answers with INVALID_CONTEXT. */
static struct context *ctx_of_thread(void)
{
	struct context *c = current.depth ? current.stack[current.depth - 1] : NULL;
	if (!c || !c->retained) { count(&n.context_errors, 1); return NULL; }
	return c;
}
#define NEED_CONTEXT(c) struct context *c = ctx_of_thread(); if (!c) LEAVE(INVALID_CONTEXT); if (c->error) LEAVE(c->error)
#define SAME_CONTEXT(c, obj) if ((obj)->ctx != (c)) { count(&n.context_errors, 1); LEAVE(INVALID_CONTEXT); }

static struct range *inside(struct range *list, uintptr_t lo, size_t size)
{
	for (; list; list = list->next)
		if (lo >= list->lo && lo + size <= list->hi && lo + size >= lo)
			return list;
	return NULL;
}

static struct range *add_range(struct range **list, uintptr_t lo, size_t size, struct context *c, int foreign, int portable)
{
	struct range *g = calloc(1, sizeof *g);
	*g = (struct range){.lo = lo, .hi = lo + size, .ctx = c, .foreign = foreign, .portable = portable, .next = *list};
	*list = g;
	return g;
}

static int remove_range(struct range **list, uintptr_t lo)
{
	for (struct range **p = list; *p; p = &(*p)->next)
		if ((*p)->lo == lo) { struct range *g = *p; *p = g->next; free(g); return 1; }
	return 0;
}

static int meets(uintptr_t a, size_t size, uintptr_t lo, uintptr_t hi) { return a < hi && a + size > lo; }

/* Does a queued copy or sum still use memory in [lo, hi)? In a context that has ended none does any more. */
static int in_use(uintptr_t lo, uintptr_t hi)
{
	for (struct stream *s = streams; s; s = s->next)
		for (struct op *o = s->ctx->error ? NULL : s->head; o; o = o->next)
			if ((o->kind == COPY || o->kind == SUM) && (meets((uintptr_t)o->dst, o->kind == SUM ? 8 * o->tiles : o->n, lo, hi) || meets((uintptr_t)o->src, o->n, lo, hi)))
				return 1;
	return 0;
}

static void unref(struct event *e) { if (--e->refs == 0) free(e); }

/* A sticky error ends the context: what is queued in it is never executed. What is being copied or summed ends first:
 * a caller that sees the error may unmap the memory at once. */
static void end_context(struct context *c, int code)
{
	while (c->moving)
		pthread_cond_wait(&changed, &mu);
	c->error = code;
	for (struct stream *s = streams; s; s = s->next)
		for (struct op *o = s->ctx == c && s->head ? s->head->next : NULL; o; o = o->next)
			if (o->kind == COPY) { o->kind = ABORTED; n.copies_failed++; n.copies_in_flight--; }
			else if (o->kind == SUM) { o->kind = ABORTED; n.sums_failed++; n.sums_in_flight--; }
	pthread_cond_broadcast(&changed);
}

/* The kernel nebulaio_crc64 made simple: four bits at a time, and nothing shared with the real one. */
static uint64_t crc64(const unsigned char *p, size_t size)
{
	static const uint64_t table[16] = { /* of half a byte */
		0x0000000000000000, 0x78e0ff3b88be6f81, 0xf1c1fe77117cdf02, 0x8921014c99c2b083,
		0xd75adabd7a6e2d6f, 0xafba2586f2d042ee, 0x269b24ca6b12f26d, 0x5e7bdbf1e3ac9dec,
		0x9a6c9329ac4bc9b5, 0xe28c6c1224f5a634, 0x6bad6d5ebd3716b7, 0x134d926535897936,
		0x4d364994d625e4da, 0x35d6b6af5e9b8b5b, 0xbcf7b7e3c7593bd8, 0xc41748d84fe75459,
	};
	uint64_t c = ~0ull;
	for (; size; size--) {
		c ^= *p++;
		c = table[c & 15] ^ c >> 4;
		c = table[c & 15] ^ c >> 4;
	}
	return ~c;
}

static void sum_tiles(const struct op *o)
{
	uint64_t *out = o->dst, at = 0;
	for (uint64_t i = 0; i < o->tiles; i++) {
		uint64_t len = i ? o->size : o->first;
		if (len > o->n - at) len = o->n - at;
		out[i] = crc64((const unsigned char *)o->src + at, len);
		at += len;
	}
}

/* wait_at waits while a test holds the gate closed, and counts the operations that wait. */
static void wait_at(struct stream *s, int *closed, long *held)
{
	if (!*closed)
		return;
	count(held, 1);
	while (*closed && !s->ctx->error)
		pthread_cond_wait(&changed, &mu);
	count(held, -1);
}

/* fails is whether this operation fails: a test chose it by its number, or the context has ended. */
static int fails(struct stream *s, long *at, int code, int sticky)
{
	if (*at > 0 && --*at == 0) {
		if (sticky) end_context(s->ctx, code); else s->error = code;
		return 1;
	}
	return s->ctx->error != 0;
}

/* An operation stays at the head of its stream until it is done. */
static void execute(struct stream *s, struct op *o)
{
	switch (o->kind) {
	case COPY:
		if (gate == 0 || s->held) {
			count(&n.copies_held, 1);
			while ((gate == 0 || s->held) && !s->ctx->error)
				pthread_cond_wait(&changed, &mu);
			count(&n.copies_held, -1);
		}
		if (gate > 0) gate--;
		if (fails(s, &async_at, async_code, async_sticky)) {
			n.copies_failed++;
		} else {
			s->ctx->moving++;
			pthread_mutex_unlock(&mu);
			memcpy(o->dst, o->src, o->n);
			pthread_mutex_lock(&mu);
			s->ctx->moving--;
			if (flip_copy_at > 0 && --flip_copy_at == 0) ((char *)o->dst)[o->n / 2] ^= 1;
			n.copies_done++;
			s->now += copy_ns;
		}
		count(&n.copies_in_flight, -1);
		break;
	case ABORTED:
		break;
	case RECORD:
		if (o->point > o->ev->reached) o->ev->reached = o->point;
		o->ev->error = s->error;
		o->ev->time = s->now;
		s->error = 0;
		unref(o->ev);
		break;
	case WAIT:
		if (o->ev->reached < o->point) {
			count(&n.waiting_for_event, 1);
			while (o->ev->reached < o->point && !s->ctx->error)
				pthread_cond_wait(&changed, &mu);
			count(&n.waiting_for_event, -1);
		}
		if (o->ev->time > s->now) s->now = o->ev->time;
		unref(o->ev);
		break;
	case SPIN:
		wait_at(s, &steps_gate, &n.steps_held);
		if (fails(s, &kernel_at, kernel_code, kernel_sticky)) {
			n.steps_failed++;
		} else {
			s->now += o->ns;
			n.steps_done++;
		}
		count(&n.steps_in_flight, -1);
		break;
	case SUM:
		wait_at(s, &sums_gate, &n.sums_held);
		if (fails(s, &sum_at, sum_code, sum_sticky)) {
			n.sums_failed++;
		} else {
			s->ctx->moving++;
			pthread_mutex_unlock(&mu);
			sum_tiles(o);
			pthread_mutex_lock(&mu);
			s->ctx->moving--;
			if (flip_sum_at > 0 && --flip_sum_at == 0) *(uint64_t *)o->dst ^= 1ull << 40;
			n.sums_done++;
			n.bytes_summed += o->n;
		}
		count(&n.sums_in_flight, -1);
		break;
	}
}

static void *run(void *arg)
{
	struct stream *s = arg;
	pthread_mutex_lock(&mu);
	for (;;) {
		while (!s->head && !s->closing)
			pthread_cond_wait(&changed, &mu);
		if (!s->head)
			break;
		struct op *o = s->head;
		execute(s, o);
		s->head = o->next;
		if (!s->head) s->tail = NULL;
		free(o);
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&mu);
	return NULL;
}

static void push_op(struct stream *s, struct op op)
{
	struct op *o = malloc(sizeof *o);
	*o = op;
	o->next = NULL;
	if (s->tail) s->tail->next = o; else s->head = o;
	s->tail = o;
	pthread_cond_broadcast(&changed);
}

static struct stream *new_stream(struct context *c)
{
	struct stream *s = calloc(1, sizeof *s);
	s->ctx = c;
	s->next = streams;
	streams = s;
	pthread_create(&s->thread, NULL, run, s);
	return s;
}

/* Stream 0 is the context's own. An unknown handle is NULL. */
static struct stream *stream_of(struct context *c, struct stream *h)
{
	if (!h) {
		if (!c->null) c->null = new_stream(c);
		return c->null;
	}
	for (struct stream *s = streams; s; s = s->next)
		if (s == h && !s->closing) return s;
	return NULL;
}

int cuDriverGetVersion(int *v) { *v = FAKE_VERSION; return 0; }

int cuInit(unsigned flags)
{
	ENTER("cuInit");
	if (FAKE_INIT) LEAVE(FAKE_INIT);
	initialised = 1;
	LEAVE(flags ? INVALID_VALUE : 0);
}

static int error_text(int code, const char **out, int text)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == code) { *out = text ? errors[i].text : errors[i].name; return 0; }
	*out = NULL;
	return INVALID_VALUE;
}
int cuGetErrorName(int code, const char **out) { return error_text(code, out, 0); }
int cuGetErrorString(int code, const char **out) { return error_text(code, out, 1); }

#define NEED_DEVICE(d) if (!initialised) LEAVE(NOT_INITIALIZED); if ((d) < 0 || (d) >= FAKE_DEVICES) LEAVE(INVALID_DEVICE)

int cuDeviceGetCount(int *out) { ENTER("cuDeviceGetCount"); if (!initialised) LEAVE(NOT_INITIALIZED); *out = FAKE_DEVICES; LEAVE(0); }
int cuDeviceGet(int *out, int i) { ENTER("cuDeviceGet"); NEED_DEVICE(i); *out = i; LEAVE(0); }
int cuDeviceGetName(char *out, int len, int d) { ENTER("cuDeviceGetName"); NEED_DEVICE(d); snprintf(out, len, "Fake GPU %d", d); LEAVE(0); }
int cuDeviceGetUuid_v2(char *out, int d) { ENTER("cuDeviceGetUuid_v2"); NEED_DEVICE(d); memset(out, 0x10 + d, 16); LEAVE(0); }
int cuDeviceGetPCIBusId(char *out, int len, int d) { ENTER("cuDeviceGetPCIBusId"); NEED_DEVICE(d); snprintf(out, len, "0000FFFF:%02X:00.0", 0xa0 + d); LEAVE(0); }
int cuDeviceTotalMem_v2(size_t *out, int d) { ENTER("cuDeviceTotalMem_v2"); NEED_DEVICE(d); *out = 1ul << 30; LEAVE(0); }
int cuDeviceGetAttribute(int *out, int attr, int d) { ENTER("cuDeviceGetAttribute"); NEED_DEVICE(d); *out = attr == 40 ? 2 : 0; LEAVE(0); }

int cuDevicePrimaryCtxRetain(struct context **out, int d)
{
	ENTER("cuDevicePrimaryCtxRetain");
	NEED_DEVICE(d);
	contexts[d].dev = d;
	contexts[d].retained++;
	contexts[d].retains++;
	*out = &contexts[d];
	LEAVE(0);
}

int cuDevicePrimaryCtxRelease_v2(int d)
{
	ENTER("cuDevicePrimaryCtxRelease_v2");
	NEED_DEVICE(d);
	if (!contexts[d].retained) LEAVE(INVALID_CONTEXT);
	contexts[d].retained--;
	LEAVE(0);
}

int cuCtxPushCurrent_v2(struct context *c)
{
	ENTER("cuCtxPushCurrent_v2");
	if (!c || !c->retained || current.depth == 32) { count(&n.context_errors, 1); LEAVE(INVALID_CONTEXT); }
	current.stack[current.depth++] = c;
	count(&n.pushed, 1);
	LEAVE(0);
}

int cuCtxPopCurrent_v2(struct context **out)
{
	ENTER("cuCtxPopCurrent_v2");
	if (!current.depth) { count(&n.context_errors, 1); LEAVE(INVALID_CONTEXT); }
	*out = current.stack[--current.depth];
	count(&n.pushed, -1);
	LEAVE(0);
}

int cuMemAlloc_v2(uint64_t *out, size_t size)
{
	ENTER("cuMemAlloc_v2");
	NEED_CONTEXT(c);
	void *p = NULL;
	if (!size) LEAVE(INVALID_VALUE);
	if (posix_memalign(&p, 512, size)) LEAVE(OUT_OF_MEMORY);
	memset(p, 0xee, size);
	add_range(&device_memory, (uintptr_t)p, size, c, 0, 0);
	count(&n.allocations, 1);
	*out = (uintptr_t)p;
	LEAVE(0);
}

int cuMemFree_v2(uint64_t p)
{
	ENTER("cuMemFree_v2");
	struct context *c = ctx_of_thread();
	if (!c) LEAVE(INVALID_CONTEXT);
	struct range *g = inside(device_memory, p, 1);
	if (!g || g->lo != p || g->foreign) LEAVE(INVALID_VALUE);
	SAME_CONTEXT(c, g);
	if (in_use(g->lo, g->hi)) n.used_after_free++; /* the memory is kept: the count is the verdict */
	else free((void *)(uintptr_t)p);
	remove_range(&device_memory, p);
	count(&n.allocations, -1);
	LEAVE(c->error);
}

int cuMemHostRegister_v2(void *p, size_t size, unsigned flags)
{
	ENTER("cuMemHostRegister_v2");
	NEED_CONTEXT(c);
	uintptr_t lo = (uintptr_t)p;
	if (!size || lo % 4096 || size % 4096) LEAVE(INVALID_VALUE);
	for (struct range *g = registered; g; g = g->next)
		if (g->lo < lo + size && g->hi > lo) LEAVE(ALREADY_REGISTERED);
	add_range(&registered, lo, size, c, 0, flags & 1)->mapped = flags & 2;
	count(&n.registered_ranges, 1);
	LEAVE(0);
}

int cuMemHostGetDevicePointer_v2(uint64_t *out, void *p, unsigned flags)
{
	ENTER("cuMemHostGetDevicePointer_v2");
	NEED_CONTEXT(c);
	struct range *g = inside(registered, (uintptr_t)p, 1);
	if (flags || !g || !g->mapped || (!g->portable && g->ctx != c)) LEAVE(INVALID_VALUE);
	*out = (uintptr_t)p;
	LEAVE(0);
}

int cuMemHostUnregister(void *p)
{
	ENTER("cuMemHostUnregister");
	struct context *c = ctx_of_thread();
	if (!c) LEAVE(INVALID_CONTEXT);
	struct range *g = inside(registered, (uintptr_t)p, 1);
	if (!g || g->lo != (uintptr_t)p) LEAVE(NOT_REGISTERED);
	if (in_use(g->lo, g->hi)) n.used_after_free++;
	remove_range(&registered, g->lo);
	count(&n.registered_ranges, -1);
	LEAVE(c->error);
}

static int copy(struct context *c, void *dst, const void *src, size_t size, struct stream *h, uintptr_t dev, uintptr_t host, long *bytes)
{
	struct stream *s = stream_of(c, h);
	if (!s) return INVALID_HANDLE;
	if (s->ctx != c) { count(&n.context_errors, 1); return INVALID_CONTEXT; }
	struct range *g = inside(device_memory, dev, size);
	if (!g || g->ctx != c) return INVALID_VALUE;
	struct range *pin = inside(registered, host, size);
	int refused = bytes == &n.bytes_in ? injected("copy to device") : 0;
	if (refused) return refused;
	if (!pin || (!pin->portable && pin->ctx != c)) n.pageable_copies++;
	*bytes += size;
	n.copies_queued++;
	count(&n.copies_in_flight, 1);
	push_op(s, (struct op){.kind = COPY, .dst = dst, .src = src, .n = size});
	return 0;
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t size, struct stream *h)
{
	ENTER("cuMemcpyHtoDAsync_v2");
	NEED_CONTEXT(c);
	LEAVE(copy(c, (void *)(uintptr_t)dst, src, size, h, dst, (uintptr_t)src, &n.bytes_in));
}

/* All copies of a batch, or none if one of them is wrong. */
static int copies(struct context *c, uint64_t *dsts, uint64_t *srcs, size_t *sizes, size_t count_, void *attrs, size_t *index, size_t kinds, size_t *failed, struct stream *h)
{
	if (!h || !count_ || !attrs || kinds != 1 || index[0] != 0 || *(int *)attrs != 1) return INVALID_VALUE;
	for (size_t i = 0; i < count_; i++)
		if (!sizes[i] || !inside(device_memory, dsts[i], sizes[i]) || !inside(registered, srcs[i], sizes[i])) {
			if (failed) *failed = i;
			return INVALID_VALUE;
		}
	for (size_t i = 0; i < count_; i++) {
		int r = copy(c, (void *)(uintptr_t)dsts[i], (void *)(uintptr_t)srcs[i], sizes[i], h, dsts[i], srcs[i], &n.bytes_in);
		if (r) return r;
	}
	n.batches++;
	return 0;
}

int cuMemcpyBatchAsync_v2(uint64_t *dsts, uint64_t *srcs, size_t *sizes, size_t count_, void *attrs, size_t *index, size_t kinds, struct stream *h)
{
	ENTER("cuMemcpyBatchAsync_v2");
	NEED_CONTEXT(c);
	LEAVE(copies(c, dsts, srcs, sizes, count_, attrs, index, kinds, NULL, h));
}

int cuMemcpyBatchAsync(uint64_t *dsts, uint64_t *srcs, size_t *sizes, size_t count_, void *attrs, size_t *index, size_t kinds, size_t *failed, struct stream *h)
{
	ENTER("cuMemcpyBatchAsync");
	NEED_CONTEXT(c);
	if (!failed) LEAVE(INVALID_VALUE);
	LEAVE(copies(c, dsts, srcs, sizes, count_, attrs, index, kinds, failed, h));
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t size, struct stream *h)
{
	ENTER("cuMemcpyDtoHAsync_v2");
	NEED_CONTEXT(c);
	LEAVE(copy(c, dst, (void *)(uintptr_t)src, size, h, src, (uintptr_t)dst, &n.bytes_out));
}

/* What the driver knows of an address; zeros where it knows nothing of it. */
int cuPointerGetAttributes(unsigned count_, const int *attrs, void **data, uint64_t p)
{
	ENTER("cuPointerGetAttributes");
	NEED_CONTEXT(c);
	(void)c;
	struct range *g = inside(device_memory, p, 1), *h = g ? NULL : inside(registered, p, 1);
	struct range *x = g ? g : h;
	for (unsigned i = 0; i < count_; i++)
		switch (attrs[i]) {
		case 2: *(unsigned *)data[i] = g ? 2 : h ? 1 : 0; break;
		case 8: *(unsigned char *)data[i] = 0; break;
		case 9: *(int *)data[i] = x ? x->ctx->dev : -2; break;
		case 11: *(uint64_t *)data[i] = x ? x->lo : 0; break;
		case 12: *(size_t *)data[i] = x ? x->hi - x->lo : 0; break;
		default: LEAVE(INVALID_VALUE);
		}
	LEAVE(0);
}

int cuDeviceCanAccessPeer(int *out, int d, int peer)
{
	ENTER("cuDeviceCanAccessPeer");
	NEED_DEVICE(d);
	NEED_DEVICE(peer);
	*out = d != peer && !no_peer[d][peer];
	LEAVE(0);
}

/* Lets the calling thread's context reach the memory of another one. */
int cuCtxEnablePeerAccess(struct context *peer, unsigned flags)
{
	ENTER("cuCtxEnablePeerAccess");
	NEED_CONTEXT(c);
	if (flags || !peer || !peer->retained) LEAVE(INVALID_VALUE);
	if (peer == c || no_peer[c->dev][peer->dev]) LEAVE(PEER_UNSUPPORTED);
	if (peer_enabled[c->dev][peer->dev]) LEAVE(PEER_ENABLED);
	peer_enabled[c->dev][peer->dev] = 1;
	count(&n.peers_enabled, 1);
	LEAVE(0);
}

int cuMemcpyPeerAsync(uint64_t dst, struct context *to, uint64_t src, struct context *from, size_t size, struct stream *h)
{
	ENTER("cuMemcpyPeerAsync");
	NEED_CONTEXT(c);
	struct stream *s = stream_of(c, h);
	if (!s) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, s);
	struct range *a = inside(device_memory, src, size), *b = inside(device_memory, dst, size);
	if (!a || a->ctx != from || !b || b->ctx != to) LEAVE(INVALID_VALUE);
	n.peer_copies++;
	if (!peer_enabled[from->dev][to->dev]) n.peer_through_host++;
	n.copies_queued++;
	count(&n.copies_in_flight, 1);
	push_op(s, (struct op){.kind = COPY, .dst = (void *)(uintptr_t)dst, .src = (void *)(uintptr_t)src, .n = size});
	LEAVE(0);
}

int cuStreamCreate(struct stream **out, unsigned flags)
{
	ENTER("cuStreamCreate");
	NEED_CONTEXT(c);
	(void)flags;
	*out = new_stream(c);
	count(&n.streams, 1);
	LEAVE(0);
}

static void drain(struct stream *s) { while (s->head) pthread_cond_wait(&changed, &mu); }

int cuStreamDestroy_v2(struct stream *h)
{
	ENTER("cuStreamDestroy_v2");
	struct context *c = ctx_of_thread();
	if (!c) LEAVE(INVALID_CONTEXT);
	struct stream *s = h ? stream_of(c, h) : NULL;
	if (!s) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, s);
	s->closing = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
	pthread_join(s->thread, NULL);
	pthread_mutex_lock(&mu);
	for (struct stream **p = &streams; *p; p = &(*p)->next)
		if (*p == s) { *p = s->next; break; }
	free(s);
	count(&n.streams, -1);
	LEAVE(c->error);
}

int cuStreamSynchronize(struct stream *h)
{
	ENTER("cuStreamSynchronize");
	NEED_CONTEXT(c);
	struct stream *s = stream_of(c, h);
	if (!s) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, s);
	count(&n.drains, 1);
	drain(s);
	int e = s->error ? s->error : c->error;
	s->error = 0;
	LEAVE(e);
}

int cuStreamWaitEvent(struct stream *h, struct event *e, unsigned flags)
{
	ENTER("cuStreamWaitEvent");
	NEED_CONTEXT(c);
	struct stream *s = stream_of(c, h);
	if (!s || !e || flags) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, s);
	e->refs++;
	push_op(s, (struct op){.kind = WAIT, .ev = e, .point = e->recorded});
	count(&n.event_waits, 1);
	LEAVE(0);
}

int cuEventCreate(struct event **out, unsigned flags)
{
	ENTER("cuEventCreate");
	NEED_CONTEXT(c);
	struct event *e = calloc(1, sizeof *e);
	e->ctx = c;
	e->refs = 1;
	e->untimed = flags & 2;
	count(&n.events, 1);
	*out = e;
	LEAVE(0);
}

int cuEventDestroy_v2(struct event *e)
{
	ENTER("cuEventDestroy_v2");
	struct context *c = ctx_of_thread();
	if (!c) LEAVE(INVALID_CONTEXT);
	if (!e) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, e);
	unref(e);
	count(&n.events, -1);
	LEAVE(c->error);
}

int cuEventRecord(struct event *e, struct stream *h)
{
	ENTER("cuEventRecord");
	NEED_CONTEXT(c);
	struct stream *s = stream_of(c, h);
	if (!s || !e) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, s);
	SAME_CONTEXT(c, e);
	e->refs++;
	push_op(s, (struct op){.kind = RECORD, .ev = e, .point = ++e->recorded});
	LEAVE(0);
}

int cuEventSynchronize(struct event *e)
{
	ENTER("cuEventSynchronize");
	NEED_CONTEXT(c);
	if (!e) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, e);
	unsigned long point = e->recorded;
	while (e->reached < point)
		pthread_cond_wait(&changed, &mu);
	LEAVE(e->error ? e->error : c->error);
}

int cuEventQuery(struct event *e)
{
	ENTER("cuEventQuery");
	NEED_CONTEXT(c);
	if (!e) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, e);
	LEAVE(e->reached < e->recorded ? NOT_READY : e->error ? e->error : c->error);
}

int cuEventElapsedTime_v2(float *ms, struct event *a, struct event *b)
{
	ENTER("cuEventElapsedTime_v2");
	NEED_CONTEXT(c);
	if (!a || !b || a->untimed || b->untimed || !a->recorded || !b->recorded) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, a);
	SAME_CONTEXT(c, b);
	if (a->reached < a->recorded || b->reached < b->recorded) LEAVE(NOT_READY);
	*ms = (float)((double)(int64_t)(b->time - a->time) / 1e6);
	LEAVE(0);
}

/* A module is PTX text; the one kernel in it is known by its name. */
int cuModuleLoadData(struct module **out, const char *image)
{
	ENTER("cuModuleLoadData");
	NEED_CONTEXT(c);
	if (!image || !strstr(image, ".version ") || !strstr(image, ".target sm_") || !strstr(image, ".address_size 64")) LEAVE(INVALID_PTX);
	struct module *m = calloc(1, sizeof *m);
	*m = (struct module){.ctx = c, .spins = strstr(image, ".entry nebulaio_spin(") != NULL, .sums = strstr(image, ".entry nebulaio_crc64(") != NULL, .next = modules};
	modules = m;
	count(&n.modules, 1);
	*out = m;
	LEAVE(0);
}

static struct module **module_at(struct module *m)
{
	struct module **p = &modules;
	while (*p && *p != m) p = &(*p)->next;
	return p;
}

/* A function is its module: there is one kernel in it. */
int cuModuleGetFunction(struct module **out, struct module *m, const char *name)
{
	ENTER("cuModuleGetFunction");
	NEED_CONTEXT(c);
	if (!m || !*module_at(m)) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, m);
	if (!(m->spins && !strcmp(name, "nebulaio_spin")) && !(m->sums && !strcmp(name, "nebulaio_crc64"))) LEAVE(NOT_FOUND);
	*out = m;
	LEAVE(0);
}

int cuModuleUnload(struct module *m)
{
	ENTER("cuModuleUnload");
	struct context *c = ctx_of_thread();
	if (!c) LEAVE(INVALID_CONTEXT);
	struct module **p = module_at(m);
	if (!m || !*p) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, m);
	*p = m->next;
	free(m);
	count(&n.modules, -1);
	LEAVE(c->error);
}

int cuLaunchKernel(struct module *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, struct stream *h, void **params, void **extra)
{
	ENTER("cuLaunchKernel");
	NEED_CONTEXT(c);
	if (!f || !*module_at(f)) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, f);
	struct stream *s = stream_of(c, h);
	if (!s) LEAVE(INVALID_HANDLE);
	SAME_CONTEXT(c, s);
	if (f->sums) {
		if (!gx || gy != 1 || gz != 1 || bx != 256 || by != 1 || bz != 1 || shared || !params || extra) LEAVE(INVALID_VALUE);
		uint64_t a[5];
		for (int i = 0; i < 5; i++) a[i] = *(uint64_t *)params[i];
		/* The real one would write past the cells, or fault. */
		struct range *data = inside(device_memory, a[0], a[1]), *out = inside(registered, a[4], 8ul * gx);
		if (!data || data->ctx != c || !out || !out->mapped || !a[1] || !a[2] || a[2] > a[3] || a[3] > 65536) LEAVE(INVALID_VALUE);
		if (gx != 1 + (a[1] > a[2] ? (a[1] - a[2] + a[3] - 1) / a[3] : 0)) LEAVE(INVALID_VALUE);
		n.sums_queued++;
		count(&n.sums_in_flight, 1);
		push_op(s, (struct op){.kind = SUM, .src = (void *)a[0], .n = a[1], .first = a[2], .size = a[3], .tiles = gx, .dst = (void *)a[4]});
		LEAVE(0);
	}
	if (gx != 1 || gy != 1 || gz != 1 || bx != 1 || by != 1 || bz != 1 || shared || !params || !params[0] || extra) LEAVE(INVALID_VALUE);
	n.steps_queued++;
	count(&n.steps_in_flight, 1);
	push_op(s, (struct op){.kind = SPIN, .ns = *(uint64_t *)params[0]});
	LEAVE(0);
}

/*
 * Other processes. A test says which there are and how much memory of which GPU they hold; that memory is ours. The
 * argument structures are read strictly: what has no meaning must be zero.
 */
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
struct gpu_memory { unsigned char *p; size_t size; struct stream *stream; };
struct region { uint64_t ptr; size_t size; struct stream *stream; };
struct storage { struct process *handle; struct region *regions; unsigned count; };
struct process {
	int pid, state, stored, mapped, next_state, breaks, busy;
	struct gpu_memory mem[MAX_DEVICES];
	struct storage info; struct region regions[MAX_DEVICES];
	struct process *next;
};
static struct process *processes;
static void (*memory_hook)(int pid, int dev, long bytes); /* tells the management library */
static char held_call[48];
static long calls_held;

static struct process *process_of(int pid)
{
	for (struct process *p = processes; p; p = p->next)
		if (p->pid == pid) return p;
	return NULL;
}

static void tell_memory(struct process *p, int there)
{
	for (int d = 0; memory_hook && d < MAX_DEVICES; d++)
		if (p->mem[d].size) memory_hook(p->pid, d, there ? (long)p->mem[d].size : 0);
}

static int nonzero(const void *from, size_t size)
{
	for (const unsigned char *p = from; size; size--)
		if (*p++) return 1;
	return 0;
}

/* begin_call finds the process, and waits while a test holds calls of fn back. */
static struct process *begin_call(const char *fn, int pid, int *r)
{
	while (!strcmp(held_call, fn)) {
		calls_held++;
		pthread_cond_broadcast(&changed);
		pthread_cond_wait(&changed, &mu);
		calls_held--;
	}
	struct process *p = process_of(pid);
	*r = injected(fn);
	if (!*r && !initialised) *r = NOT_INITIALIZED;
	if (!*r && !p) *r = INVALID_VALUE;
	if (*r && p && p->breaks) p->state = FAILED;
	return p;
}
#define PROCESS(fn) pthread_mutex_lock(&mu); int r; struct process *p = begin_call(fn, pid, &r); if (r) LEAVE(r)

int cuCheckpointProcessGetState(int pid, int *state) { PROCESS("cuCheckpointProcessGetState"); *state = p->state; LEAVE(0); }
int cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) { PROCESS("cuCheckpointProcessGetRestoreThreadId"); *tid = p->pid + 1; LEAVE(0); }

int cuCheckpointProcessLock(int pid, const unsigned *args)
{
	PROCESS("cuCheckpointProcessLock");
	if (p->state != RUNNING) LEAVE(ILLEGAL_STATE);
	if (args && nonzero(args + 1, 60)) LEAVE(INVALID_VALUE);
	if (p->busy > 0 && args && args[0]) { p->busy--; LEAVE(NOT_READY); }
	p->state = LOCKED;
	LEAVE(0);
}

int cuCheckpointProcessUnlock(int pid, const void *args)
{
	PROCESS("cuCheckpointProcessUnlock");
	if (p->state != LOCKED || p->mapped) LEAVE(ILLEGAL_STATE);
	if (args && nonzero(args, 64)) LEAVE(INVALID_VALUE);
	p->state = RUNNING;
	LEAVE(0);
}

/* Shows the memory of the process to the caller until the operation is completed. */
static void map_memory(struct process *p, int next_state)
{
	p->info = (struct storage){.handle = p, .regions = p->regions};
	for (int d = 0; d < MAX_DEVICES; d++)
		if (p->mem[d].size) {
			contexts[d].dev = d;
			p->mem[d].stream = new_stream(&contexts[d]);
			add_range(&device_memory, (uintptr_t)p->mem[d].p, p->mem[d].size, &contexts[d], 1, 0);
			p->regions[p->info.count++] = (struct region){(uintptr_t)p->mem[d].p, p->mem[d].size, p->mem[d].stream};
		}
	p->mapped = 1;
	p->next_state = next_state;
}

int cuCheckpointProcessCheckpoint(int pid, const uintptr_t *args)
{
	PROCESS("cuCheckpointProcessCheckpoint");
	if (p->state != LOCKED || p->mapped) LEAVE(ILLEGAL_STATE);
	int custom = args && args[0];
	if (args && nonzero(args + 1, 56)) LEAVE(INVALID_VALUE);
	if (custom && FAKE_VERSION < 13040) LEAVE(INVALID_VALUE);
	p->stored = custom;
	if (custom) {
		map_memory(p, CHECKPOINTED);
		*(struct storage **)args[0] = &p->info;
		LEAVE(0);
	}
	p->state = CHECKPOINTED;
	tell_memory(p, 0);
	LEAVE(0);
}

int cuCheckpointProcessRestore(int pid, const uintptr_t *args)
{
	PROCESS("cuCheckpointProcessRestore");
	if (p->state != CHECKPOINTED || p->mapped) LEAVE(ILLEGAL_STATE);
	int custom = args && args[2];
	if (args && (args[1] >> 32 || nonzero(args + 3, 40))) LEAVE(INVALID_VALUE);
	if (custom && FAKE_VERSION < 13040) LEAVE(INVALID_VALUE);
	if (custom != p->stored) LEAVE(INVALID_VALUE); /* the content is elsewhere */
	if (args && args[1]) { /* the pairs have every GPU of the process */
		struct gpu_memory moved[MAX_DEVICES] = {{0}};
		const unsigned char (*pairs)[32] = (void *)args[0];
		for (int d = 0; d < MAX_DEVICES; d++) {
			int to = -1;
			for (unsigned i = 0; i < (unsigned)args[1]; i++)
				if (pairs[i][0] == 0x10 + d && pairs[i][15] == 0x10 + d) to = pairs[i][16] - 0x10;
			if (!p->mem[d].size) continue;
			if (to < 0 || to >= FAKE_DEVICES || moved[to].size) LEAVE(INVALID_VALUE);
			moved[to] = p->mem[d];
		}
		memcpy(p->mem, moved, sizeof moved);
	}
	if (custom) {
		for (int d = 0; d < MAX_DEVICES; d++) memset(p->mem[d].p, 0xdd, p->mem[d].size); /* new memory */
		map_memory(p, LOCKED);
		*(struct storage **)args[2] = &p->info;
		LEAVE(0);
	}
	p->state = LOCKED;
	tell_memory(p, 1);
	LEAVE(0);
}

int cuCheckpointOperationComplete(struct process *handle)
{
	pthread_mutex_lock(&mu);
	int r = injected("cuCheckpointOperationComplete");
	struct process *p = processes;
	while (p && p != handle) p = p->next;
	if (!r && (!p || !p->mapped)) r = INVALID_HANDLE;
	if (r) { if (p && p->breaks) p->state = FAILED; LEAVE(r); }
	for (int d = 0; d < MAX_DEVICES; d++)
		if (p->mem[d].size) {
			struct stream *s = p->mem[d].stream;
			s->closing = 1;
			pthread_cond_broadcast(&changed);
			pthread_mutex_unlock(&mu);
			pthread_join(s->thread, NULL);
			pthread_mutex_lock(&mu);
			for (struct stream **at = &streams; *at; at = &(*at)->next)
				if (*at == s) { *at = s->next; break; }
			free(s);
			if (in_use((uintptr_t)p->mem[d].p, (uintptr_t)p->mem[d].p + p->mem[d].size)) n.used_after_free++;
			remove_range(&device_memory, (uintptr_t)p->mem[d].p);
			if (p->next_state == CHECKPOINTED) memset(p->mem[d].p, 0xdd, p->mem[d].size); /* it is free now */
		}
	p->mapped = 0;
	p->state = p->next_state;
	tell_memory(p, p->state == LOCKED);
	LEAVE(0);
}

int cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *status)
{
	ENTER("cuGetProcAddress_v2");
	*out = NULL;
	if (flags || version > FAKE_VERSION) LEAVE(INVALID_VALUE);
	*status = 1; /* not found */
	if (!strcmp(symbol, "cuCheckpointOperationComplete")) {
		*status = version < 13040 ? 2 : 0;
		if (version >= 13040) *out = (void *)cuCheckpointOperationComplete;
	}
	LEAVE(0);
}

/* What follows is for tests. */

/* Makes a process hold size bytes of a GPU. Their address is the result. */
void *fake_process(int pid, int dev, size_t size)
{
	pthread_mutex_lock(&mu);
	struct process *p = process_of(pid);
	if (!p) {
		p = calloc(1, sizeof *p);
		p->pid = pid;
		p->next = processes;
		processes = p;
	}
	if (size) {
		p->mem[dev].p = calloc(1, size);
		p->mem[dev].size = size;
		if (memory_hook) memory_hook(pid, dev, (long)size);
	}
	pthread_mutex_unlock(&mu);
	return p->mem[dev].p;
}

/* The memory that a process holds on a GPU now. */
void *fake_process_memory(int pid, int dev, size_t *size)
{
	pthread_mutex_lock(&mu);
	struct process *p = process_of(pid);
	void *out = p ? p->mem[dev].p : NULL;
	*size = p ? p->mem[dev].size : 0;
	pthread_mutex_unlock(&mu);
	return out;
}

/* The next locks calls of cuCheckpointProcessLock time out; breaks: a call that a test makes fail ends the process's use. */
void fake_process_trouble(int pid, int locks, int breaks)
{
	pthread_mutex_lock(&mu);
	struct process *p = process_of(pid);
	if (p) { p->busy = locks; p->breaks = breaks; }
	pthread_mutex_unlock(&mu);
}

/* Holds the calls of a function about processes back; "" lets them go. */
void fake_hold_call(const char *fn)
{
	pthread_mutex_lock(&mu);
	snprintf(held_call, sizeof held_call, "%s", fn);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
}

/* Blocks until a call is held back. */
void fake_await_held(void)
{
	pthread_mutex_lock(&mu);
	while (!calls_held) pthread_cond_wait(&changed, &mu);
	pthread_mutex_unlock(&mu);
}

void fake_memory_hook(void (*hook)(int, int, long)) { memory_hook = hook; }

/* The value of a counter, or -1 for a name there is none of. */
long fake_count(const char *name)
{
	long v = -1;
	pthread_mutex_lock(&mu);
	for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
		if (!strcmp(counters[i].name, name)) v = *counters[i].value;
	pthread_mutex_unlock(&mu);
	return v;
}

/* Blocks until the counter is from lo to hi; returns 0 when that takes longer than the seconds. */
static long await_range(const char *name, long lo, long hi, long seconds)
{
	long ok = 1;
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += seconds;
	pthread_mutex_lock(&mu);
	for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
		if (!strcmp(counters[i].name, name))
			while ((*counters[i].value < lo || *counters[i].value > hi) && ok)
				ok = !pthread_cond_timedwait(&changed, &mu, &until);
	pthread_mutex_unlock(&mu);
	return ok;
}

/* Blocks until the counter is at least v; returns 0 when that takes so many
 * seconds that it will never be. */
long fake_await(const char *name, long v, long seconds)
{
	return await_range(name, v, LONG_MAX, seconds);
}

/* Blocks until the counter is 0, as long as fake_await does. */
long fake_settle(const char *name, long seconds)
{
	return await_range(name, 0, 0, seconds);
}

/* After skip more calls of fn, the next times of them return code and do nothing. */
void fake_fail(const char *fn, long skip, long times, int code)
{
	struct failure *f = calloc(1, sizeof *f);
	snprintf(f->fn, sizeof f->fn, "%s", fn);
	f->skip = skip; f->times = times; f->code = code;
	pthread_mutex_lock(&mu);
	f->next = failures;
	failures = f;
	pthread_mutex_unlock(&mu);
}

/* Ends all failures that fake_fail has arranged. */
void fake_heal(void)
{
	pthread_mutex_lock(&mu);
	for (struct failure *f = failures; f; f = f->next)
		f->times = 0;
	pthread_mutex_unlock(&mu);
}

/* The nth copy executed from now on fails instead; sticky: its context with it. */
void fake_fail_copy(long nth, int code, int sticky)
{
	pthread_mutex_lock(&mu);
	async_at = nth; async_code = code; async_sticky = sticky;
	pthread_mutex_unlock(&mu);
}

/* The nth kernel executed from now on fails instead; sticky: its context with it. */
void fake_fail_step(long nth, int code, int sticky)
{
	pthread_mutex_lock(&mu);
	kernel_at = nth; kernel_code = code; kernel_sticky = sticky;
	pthread_mutex_unlock(&mu);
}

/* The same for sums. */
void fake_fail_sum(long nth, int code, int sticky)
{
	pthread_mutex_lock(&mu);
	sum_at = nth; sum_code = code; sum_sticky = sticky;
	pthread_mutex_unlock(&mu);
}

/* The nth copy, or sum, executed from now on comes out with a bit flipped. */
void fake_flip(long copy_nth, long sum_nth)
{
	pthread_mutex_lock(&mu);
	flip_copy_at = copy_nth; flip_sum_at = sum_nth;
	pthread_mutex_unlock(&mu);
}

/* Holds sums, or lets them go. */
void fake_hold_sums(int held)
{
	pthread_mutex_lock(&mu);
	sums_gate = held;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
}

/* Holds kernels, or lets them go. */
void fake_hold_steps(int held)
{
	pthread_mutex_lock(&mu);
	steps_gate = held;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
}

/* What each copy takes on its stream's clock. */
void fake_copy_takes(uint64_t ns)
{
	pthread_mutex_lock(&mu);
	copy_ns = ns;
	pthread_mutex_unlock(&mu);
}

/* Lets so many copies pass and holds the others; -1 lets all pass. */
void fake_gate(long pass)
{
	pthread_mutex_lock(&mu);
	gate = pass;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
}

/* Says whether device a may reach the memory of device b. */
void fake_peer(int a, int b, int may)
{
	pthread_mutex_lock(&mu);
	no_peer[a][b] = !may;
	pthread_mutex_unlock(&mu);
}

/* Holds the copies of one stream, or lets them go. */
void fake_hold(struct stream *s, int held)
{
	pthread_mutex_lock(&mu);
	s->held = held;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mu);
}

/* Makes memory of the test a destination on device d, as another user of the
 * primary context could have allocated it. */
void fake_adopt(void *p, size_t size, int d)
{
	pthread_mutex_lock(&mu);
	add_range(&device_memory, (uintptr_t)p, size, &contexts[d], 1, 0);
	pthread_mutex_unlock(&mu);
}

/* How often the context of device d is retained now, and was ever. */
long fake_retained(int d) { pthread_mutex_lock(&mu); long v = contexts[d].retained; pthread_mutex_unlock(&mu); return v; }
long fake_retains(int d) { pthread_mutex_lock(&mu); long v = contexts[d].retains; pthread_mutex_unlock(&mu); return v; }

/* The calling thread's contexts: how many are pushed, and which is current. */
long fake_depth(void) { return current.depth; }
struct context *fake_current(void) { return current.depth ? current.stack[current.depth - 1] : NULL; }
