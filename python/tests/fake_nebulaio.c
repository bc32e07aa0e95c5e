/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnebulaio.so with the same header, for what the real library
 * cannot be made to do on demand: an ABI mismatch, each error code at each
 * step, a load that runs for ever, a library that is slow to stop.
 *
 * The path given to model_open is the script: words separated by commas.
 *   open=N select=N files=N describe=N start=N wait=N   that step fails with status N
 *   size=N                             the one tensor "t" has N bytes of U8
 *   dtype=X shape=a:b                  another type and shape (size still in bytes)
 *   align=N                            dest_align
 *   slow                               runs until cancelled, then 3 waits longer
 *   late                               the tensor is ready before the load has ended
 *   longname=N                         the tensor's name has N bytes
 *   device=X                           what describe calls the device
 *
 * The path given to file_open is a script too; the words start=N, wait=N and
 * slow are those of a move. A read fills its memory as a load does, a write
 * looks at it. The end of the file is not modelled.
 *
 * The key of an object is a script too, with the words of a move.
 *
 * fake_log gives the calls made so far, fake_live the handles not released.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nebulaio/nebulaio.h"

#ifndef FAKE_ABI
#define FAKE_ABI NEBULAIO_ABI_VERSION
#endif

#define MAX_HANDLES 1024

struct handle {
	int kind; /* 0 free, 1 system, 2 model, 3 load or move, 4 file, 5 client, 6 queue */
	char script[4096];
	int cancelled, waits_left, ended, status, write;
	nebulaio_buffer dst;
};

static struct handle handles[MAX_HANDLES + 1];
static char log_text[1 << 16];

static void note(const char *what)
{
	strncat(log_text, what, sizeof log_text - strlen(log_text) - 1);
	strncat(log_text, " ", sizeof log_text - strlen(log_text) - 1);
}

static const char *word(const char *script, const char *key)
{
	const char *at = strstr(script, key);
	return at ? at + strlen(key) : NULL;
}

static long number(const char *script, const char *key, long otherwise)
{
	const char *at = word(script, key);
	return at ? atol(at) : otherwise;
}

static void text_until_comma(const char *script, const char *key, const char *otherwise, char *out, size_t cap)
{
	const char *at = word(script, key);
	if (!at)
		at = otherwise;
	size_t n = strcspn(at, ",");
	snprintf(out, cap, "%.*s", (int)n, at);
}

static int32_t fail(int32_t status, const char *message, char *err, size_t errcap)
{
	if (err && errcap)
		snprintf(err, errcap, "%s", message);
	return status;
}

static int32_t give(const char *text, char *buf, size_t cap, size_t *need)
{
	size_t n = strlen(text);
	if (need)
		*need = n;
	if (cap == 0)
		return NEBULAIO_OK;
	if (cap <= n)
		return NEBULAIO_ERR_INVALID;
	memcpy(buf, text, n + 1);
	return NEBULAIO_OK;
}

/* Numbers come again, as those of the library never do, but late. */
static uint64_t make(int kind, const char *script)
{
	static uint64_t last;
	for (uint64_t n = 0; n < MAX_HANDLES; n++) {
		uint64_t i = last = last % MAX_HANDLES + 1;
		if (!handles[i].kind) {
			memset(&handles[i], 0, sizeof handles[i]);
			handles[i].kind = kind;
			snprintf(handles[i].script, sizeof handles[i].script, "%s", script);
			return i;
		}
	}
	abort();
}

static struct handle *get(uint64_t id, int kind)
{
	return id && id <= MAX_HANDLES && handles[id].kind == kind ? &handles[id] : NULL;
}

int fake_live(void)
{
	int n = 0;
	for (int i = 1; i <= MAX_HANDLES; i++)
		n += handles[i].kind > 1 && handles[i].kind != 6; /* the queue of a process is never released */
	return n;
}

const char *fake_log(void) { return log_text; }

void fake_forget(void) { log_text[0] = 0; }

int32_t nebulaio_abi_version(void) { return FAKE_ABI; }

int32_t nebulaio_version(char *buf, size_t cap, size_t *need) { return give("0.0.0-fake", buf, cap, need); }

int32_t nebulaio_system_open(const char *options, uint64_t *system, char *err, size_t errcap)
{
	if (options && strstr(options, "require"))
		return fail(NEBULAIO_ERR_DEVICE, "require a GPU: the fake has none", err, errcap);
	*system = make(1, options ? options : "{}");
	return NEBULAIO_OK;
}

int32_t nebulaio_devices(uint64_t system, char *buf, size_t cap, size_t *need, char *err, size_t errcap)
{
	struct handle *h = get(system, 1);
	char text[4200];
	if (!h)
		return fail(NEBULAIO_ERR_CLOSED, "devices: handle is closed", err, errcap);
	snprintf(text, sizeof text, "{\"fake\":true,\"options\":%s}", h->script);
	return give(text, buf, cap, need);
}

int32_t nebulaio_model_open(uint64_t system, const char *path, const char *options, uint64_t *model, char *err,
                            size_t errcap)
{
	long status = number(path, "open=", 0);
	if (!get(system, 1))
		return fail(NEBULAIO_ERR_CLOSED, "open model: the system is closed", err, errcap);
	if (status)
		return fail((int32_t)status, "open model: scripted", err, errcap);
	(void)options;
	*model = make(2, path);
	return NEBULAIO_OK;
}

int32_t nebulaio_model_files(uint64_t model, char *buf, size_t cap, size_t *need, char *err, size_t errcap)
{
	struct handle *h = get(model, 2);
	char device[64], text[512];
	if (!h)
		return fail(NEBULAIO_ERR_CLOSED, "files: handle is closed", err, errcap);
	long status = number(h->script, "files=", 0), size = number(h->script, "size=", 16);
	if (status)
		return fail((int32_t)status, "files: scripted", err, errcap);
	text_until_comma(h->script, "device=", "host", device, sizeof device);
	snprintf(text, sizeof text,
	         "{\"device\":\"%s\",\"files\":[{\"path\":\"fake\",\"size\":%ld,\"dest_size\":%ld,\"dest_align\":%ld}]}",
	         device, size, size, number(h->script, "align=", 4096));
	return give(text, buf, cap, need);
}

int32_t nebulaio_model_describe(uint64_t model, char *buf, size_t cap, size_t *need, char *err, size_t errcap)
{
	struct handle *h = get(model, 2);
	char dtype[64], shape[64], device[64];
	if (!h)
		return fail(NEBULAIO_ERR_CLOSED, "describe: handle is closed", err, errcap);
	long status = number(h->script, "describe=", 0), size = number(h->script, "size=", 16);
	if (status)
		return fail((int32_t)status, "describe: scripted", err, errcap);
	text_until_comma(h->script, "dtype=", "U8", dtype, sizeof dtype);
	text_until_comma(h->script, "shape=", "", shape, sizeof shape);
	text_until_comma(h->script, "device=", "host", device, sizeof device);
	if (!shape[0])
		snprintf(shape, sizeof shape, "%ld", size);
	for (char *c = shape; *c; c++)
		if (*c == ':')
			*c = ',';
	size_t longname = (size_t)number(h->script, "longname=", 1);
	char *name = malloc(longname + 1), *text = malloc(longname + 1024);
	memset(name, 't', longname);
	name[longname] = 0;
	sprintf(text,
	        "{\"device\":\"%s\",\"files\":[{\"path\":\"fake\",\"size\":%ld,\"dest_size\":%ld,\"dest_align\":%ld}],"
	        "\"tensors\":[{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[%s],\"file\":0,\"offset\":0,\"size\":%ld}],"
	        "\"metadata\":{}}",
	        device, size, size, number(h->script, "align=", 4096), name, dtype, shape, size);
	int32_t rc = give(text, buf, cap, need);
	free(name);
	free(text);
	return rc;
}

int32_t nebulaio_model_select(uint64_t model, const char *options, uint64_t *selection, char *err, size_t errcap)
{
	struct handle *h = get(model, 2);
	if (!h)
		return fail(NEBULAIO_ERR_CLOSED, "select: handle is closed", err, errcap);
	long status = number(h->script, "select=", 0);
	if (status)
		return fail((int32_t)status, "select: scripted", err, errcap);
	(void)options;
	*selection = make(2, h->script);
	return NEBULAIO_OK;
}

int32_t nebulaio_load_start(uint64_t model, const nebulaio_buffer *dst, size_t ndst, nebulaio_stream stream,
                            const char *options, uint64_t *load, char *err, size_t errcap)
{
	struct handle *m = get(model, 2);
	(void)stream, (void)options;
	if (!m)
		return fail(NEBULAIO_ERR_CLOSED, "start: handle is closed", err, errcap);
	long status = number(m->script, "start=", 0), size = number(m->script, "size=", 16);
	if (status)
		return fail((int32_t)status, "start: scripted", err, errcap);
	if (ndst != 1 || dst->size < (uint64_t)size || (uintptr_t)dst->address % (uintptr_t)number(m->script, "align=", 4096))
		return fail(NEBULAIO_ERR_INVALID, "start: the destination is short or not aligned", err, errcap);
	note("start");
	*load = make(3, m->script);
	handles[*load].dst = *dst;
	handles[*load].waits_left = 3;
	return NEBULAIO_OK;
}

/* The path is the script, as of model_open; what is saved is looked at only by its count. */
int32_t nebulaio_save_start(uint64_t system, const char *path, const nebulaio_tensor *tensors, size_t count,
                            nebulaio_stream stream, const char *options, uint64_t *job, char *err, size_t errcap)
{
	static unsigned char sink[1 << 16];
	(void)stream, (void)options;
	if (!get(system, 1))
		return fail(NEBULAIO_ERR_CLOSED, "save: the system is closed", err, errcap);
	long status = number(path, "start=", 0);
	if (status)
		return fail((int32_t)status, "save: scripted", err, errcap);
	if (count && (!tensors[0].name || !tensors[0].dtype || !tensors[0].device))
		return fail(NEBULAIO_ERR_INVALID, "save: a tensor has no name, dtype or device", err, errcap);
	note("save");
	*job = make(3, path);
	handles[*job].dst = (nebulaio_buffer){.address = sink, .size = sizeof sink};
	handles[*job].waits_left = 3;
	return NEBULAIO_OK;
}

/* The first file is the script, as of model_open; no byte is delivered. */
int32_t nebulaio_gather_start(uint64_t system, const char *const *files, size_t nfiles,
                              const nebulaio_segment *segments, size_t nsegments, nebulaio_stream stream,
                              const char *options, uint64_t *job, char *err, size_t errcap)
{
	static unsigned char sink[1 << 16];
	const char *script = nfiles ? files[0] : "";
	(void)segments, (void)nsegments, (void)stream, (void)options;
	if (!get(system, 1))
		return fail(NEBULAIO_ERR_CLOSED, "gather: the system is closed", err, errcap);
	long status = number(script, "start=", 0);
	if (status)
		return fail((int32_t)status, "gather: scripted", err, errcap);
	note("gather");
	*job = make(3, script);
	handles[*job].dst = (nebulaio_buffer){.address = sink, .size = sizeof sink};
	handles[*job].waits_left = 3;
	return NEBULAIO_OK;
}

/* The path is the script, as of model_open; what is written is looked at only by its count. */
int32_t nebulaio_write_start(uint64_t system, const char *path, const nebulaio_piece *pieces, size_t count,
                             nebulaio_stream stream, const char *options, uint64_t *job, char *err, size_t errcap)
{
	static unsigned char sink[1 << 16];
	(void)stream, (void)options;
	if (!get(system, 1))
		return fail(NEBULAIO_ERR_CLOSED, "write: the system is closed", err, errcap);
	long status = number(path, "start=", 0);
	if (status)
		return fail((int32_t)status, "write: scripted", err, errcap);
	if (count && !pieces[0].device)
		return fail(NEBULAIO_ERR_INVALID, "write: a piece has no device", err, errcap);
	note("write");
	*job = make(3, path);
	handles[*job].dst = (nebulaio_buffer){.address = sink, .size = sizeof sink};
	handles[*job].waits_left = 3;
	return NEBULAIO_OK;
}

int32_t nebulaio_file_open(uint64_t system, const char *path, const char *flags, const char *options, uint64_t *file,
                           char *err, size_t errcap)
{
	(void)flags, (void)options;
	if (!get(system, 1))
		return fail(NEBULAIO_ERR_CLOSED, "open file: the system is closed", err, errcap);
	*file = make(4, path);
	return NEBULAIO_OK;
}

int32_t nebulaio_file_size(uint64_t file, uint64_t *size, char *err, size_t errcap)
{
	if (!get(file, 4))
		return fail(NEBULAIO_ERR_CLOSED, "size: handle is closed", err, errcap);
	*size = 0;
	return NEBULAIO_OK;
}

static int32_t move(uint64_t file, int write, void *address, uint64_t size, uint64_t *job, char *err, size_t errcap)
{
	struct handle *f = get(file, 4);
	char script[4096];
	if (!f)
		return fail(NEBULAIO_ERR_CLOSED, "start: handle is closed", err, errcap);
	long status = number(f->script, "start=", 0);
	if (status)
		return fail((int32_t)status, "start: scripted", err, errcap);
	snprintf(script, sizeof script, "size=%llu,%.3900s", (unsigned long long)size, f->script);
	note("start");
	*job = make(3, script);
	handles[*job].dst = (nebulaio_buffer){address, size};
	handles[*job].waits_left = 3;
	handles[*job].write = write;
	return NEBULAIO_OK;
}

int32_t nebulaio_file_read_start(uint64_t file, void *address, uint64_t size, uint64_t offset, nebulaio_stream stream,
                                 const char *options, uint64_t *job, char *err, size_t errcap)
{
	(void)offset, (void)stream, (void)options;
	return move(file, 0, address, size, job, err, errcap);
}

int32_t nebulaio_file_write_start(uint64_t file, const void *address, uint64_t size, uint64_t offset, nebulaio_stream stream,
                                  const char *options, uint64_t *job, char *err, size_t errcap)
{
	(void)offset, (void)stream, (void)options;
	return move(file, 1, (void *)(uintptr_t)address, size, job, err, errcap);
}

int32_t nebulaio_file_sync(uint64_t file, char *err, size_t errcap)
{
	return get(file, 4) ? NEBULAIO_OK : fail(NEBULAIO_ERR_CLOSED, "sync: handle is closed", err, errcap);
}

static void fill(struct handle *h)
{
	for (long i = 0; i < number(h->script, "size=", 16); i++)
		((unsigned char *)h->dst.address)[i] = (unsigned char)i;
}

int32_t nebulaio_wait(uint64_t load, int32_t timeout_ms, nebulaio_progress *progress, char *err, size_t errcap)
{
	struct handle *h = get(load, 3);
	if (!h)
		return fail(NEBULAIO_ERR_CLOSED, "wait: handle is closed", err, errcap);
	long size = number(h->script, "size=", 16);
	if (progress) {
		progress->bytes_total = (uint64_t)size;
		progress->bytes_done = 0;
	}
	if (!h->ended && strstr(h->script, "slow")) {
		if (timeout_ms > 50 || timeout_ms < 0)
			return fail(NEBULAIO_ERR_OTHER, "wait: the slice is too long for Ctrl-C", err, errcap);
		usleep((useconds_t)timeout_ms * 100); /* a tenth of the time: tests are short */
		if (!h->cancelled || h->waits_left-- > 0) {
			note(h->cancelled ? "stopping" : "running");
			return NEBULAIO_RUNNING;
		}
		h->status = NEBULAIO_ERR_CANCELLED;
	}
	if (!h->ended) {
		h->ended = 1;
		if (!h->status)
			h->status = (int)number(h->script, "wait=", 0);
		note("ended");
	}
	if (h->status)
		return fail(h->status, "load: scripted", err, errcap);
	if (!h->write)
		fill(h);
	if (progress)
		progress->bytes_done = (uint64_t)size;
	return NEBULAIO_OK;
}

int32_t nebulaio_load_ready(uint64_t load, uint64_t known, int32_t timeout_ms, uint64_t *ready, char *err,
                            size_t errcap)
{
	struct handle *h = get(load, 3);
	*ready = 0;
	if (h && strstr(h->script, "late") && known < 1) {
		fill(h);
		*ready = 1;
		return NEBULAIO_OK;
	}
	int32_t status = nebulaio_wait(load, timeout_ms, NULL, err, errcap);
	*ready = status == NEBULAIO_OK;
	return status;
}

int32_t nebulaio_checksum_start(uint64_t model, uint64_t *job, char *err, size_t errcap)
{
	struct handle *m = get(model, 2);
	static unsigned char nothing[1 << 16];
	if (!m)
		return fail(NEBULAIO_ERR_CLOSED, "checksum: handle is closed", err, errcap);
	*job = make(3, m->script);
	handles[*job].dst.address = nothing;
	handles[*job].waits_left = 3;
	return NEBULAIO_OK;
}

int32_t nebulaio_cancel(uint64_t load, char *err, size_t errcap)
{
	struct handle *h = get(load, 3);
	if (!h)
		return fail(NEBULAIO_ERR_CLOSED, "cancel: handle is closed", err, errcap);
	if (!h->cancelled)
		note("cancel");
	h->cancelled = 1;
	return NEBULAIO_OK;
}

int32_t nebulaio_report(uint64_t load, char *buf, size_t cap, size_t *need, char *err, size_t errcap)
{
	struct handle *h = get(load, 3);
	char text[128];
	if (!h || !h->ended)
		return fail(h ? NEBULAIO_ERR_INVALID : NEBULAIO_ERR_CLOSED, "report: not ended", err, errcap);
	note("report");
	snprintf(text, sizeof text, "{\"fake\":true,\"status\":%d}", h->status);
	return give(text, buf, cap, need);
}

int32_t nebulaio_release(uint64_t handle, char *err, size_t errcap)
{
	if (!handle || handle > MAX_HANDLES || !handles[handle].kind)
		return fail(NEBULAIO_ERR_CLOSED, "release: handle is closed", err, errcap);
	struct handle *h = &handles[handle];
	note(h->kind == 3 && !h->ended ? "release-running" : h->kind == 3 ? "release-load" : "release-model");
	h->kind = 0;
	return NEBULAIO_OK;
}

int32_t nebulaio_client_open(uint64_t system, const char *options, uint64_t *client, char *err, size_t errcap)
{
	if (!get(system, 1))
		return fail(NEBULAIO_ERR_CLOSED, "open client: the system is closed", err, errcap);
	note("client");
	*client = make(5, options ? options : "{}");
	return NEBULAIO_OK;
}

/* A job of a client whose script is the object's key. */
static int32_t object_job(uint64_t client, const char *key, int write, nebulaio_buffer memory, uint64_t *job, char *err,
                          size_t errcap)
{
	char script[4096];
	if (!get(client, 5))
		return fail(NEBULAIO_ERR_CLOSED, "start: the client is closed", err, errcap);
	long status = number(key, "start=", 0);
	if (status)
		return fail((int32_t)status, "start: scripted", err, errcap);
	snprintf(script, sizeof script, "size=%llu,%.3900s", (unsigned long long)memory.size, key);
	note("start");
	*job = make(3, script);
	handles[*job].dst = memory;
	handles[*job].waits_left = 3;
	handles[*job].write = write;
	return NEBULAIO_OK;
}

int32_t nebulaio_object_read_start(uint64_t client, const nebulaio_object_read *reads, size_t count, const char *options,
                                   uint64_t *job, char *err, size_t errcap)
{
	(void)options;
	if (!count || reads->struct_size != sizeof *reads)
		return fail(NEBULAIO_ERR_INVALID, "read: no reads, or of another size", err, errcap);
	uint64_t size = reads->size < 0 ? reads->capacity : (uint64_t)reads->size;
	return object_job(client, reads->key, 0, (nebulaio_buffer){reads->address, size}, job, err, errcap);
}

int32_t nebulaio_object_write_start(uint64_t client, const nebulaio_object_write *write, const char *options,
                                    uint64_t *job, char *err, size_t errcap)
{
	(void)options;
	if (write->struct_size != sizeof *write)
		return fail(NEBULAIO_ERR_INVALID, "write: a struct of another size", err, errcap);
	return object_job(client, write->key, 1, (nebulaio_buffer){(void *)(uintptr_t)write->address, write->size}, job, err, errcap);
}

int32_t nebulaio_object_stat_start(uint64_t client, const char *bucket, const char *key, const char *version,
                                   uint64_t *job, char *err, size_t errcap)
{
	(void)bucket, (void)version;
	return object_job(client, key, 1, (nebulaio_buffer){0, 0}, job, err, errcap);
}

int32_t nebulaio_object_delete_start(uint64_t client, const char *bucket, const char *key, uint64_t *job, char *err,
                                     size_t errcap)
{
	(void)bucket;
	return object_job(client, key, 1, (nebulaio_buffer){0, 0}, job, err, errcap);
}

int32_t nebulaio_object_list_start(uint64_t client, const char *bucket, const char *options, uint64_t *job, char *err,
                                   size_t errcap)
{
	(void)options;
	return object_job(client, bucket, 1, (nebulaio_buffer){0, 0}, job, err, errcap);
}

int32_t nebulaio_client_status_start(uint64_t client, uint64_t *job, char *err, size_t errcap)
{
	return object_job(client, "", 1, (nebulaio_buffer){0, 0}, job, err, errcap);
}

int32_t nebulaio_client_model_open(uint64_t client, const char *bucket, const char *key, const char *options,
                                   uint64_t *model, char *err, size_t errcap)
{
	(void)bucket, (void)options;
	if (!get(client, 5))
		return fail(NEBULAIO_ERR_CLOSED, "open model: the client is closed", err, errcap);
	*model = make(2, key);
	return NEBULAIO_OK;
}

/* The queue keeps the numbers of its jobs in its script's bytes. */
int32_t nebulaio_queue_open(uint64_t *queue, char *err, size_t errcap)
{
	(void)err, (void)errcap;
	*queue = make(6, "");
	handles[*queue].kind = 6;
	return NEBULAIO_OK;
}

int32_t nebulaio_queue_add(uint64_t queue, uint64_t job, char *err, size_t errcap)
{
	struct handle *q = get(queue, 6);
	uint64_t *jobs = (uint64_t *)(void *)q->script;
	(void)err, (void)errcap;
	for (size_t i = 0; i < sizeof q->script / sizeof *jobs; i++)
		if (!jobs[i]) {
			jobs[i] = job;
			return NEBULAIO_OK;
		}
	abort();
}

int32_t nebulaio_queue_next(uint64_t queue, int32_t timeout_ms, uint64_t *job, char *err, size_t errcap)
{
	struct handle *q = get(queue, 6);
	uint64_t *jobs;
	(void)timeout_ms;
	if (!q)
		return fail(NEBULAIO_ERR_CLOSED, "wait for a job: the queue was released", err, errcap);
	jobs = (uint64_t *)(void *)q->script;
	for (;;) {
		for (size_t i = 0; i < sizeof q->script / sizeof *jobs; i++)
			if (jobs[i] && nebulaio_wait(jobs[i], 10, NULL, err, errcap) != NEBULAIO_RUNNING) {
				*job = jobs[i];
				jobs[i] = 0;
				return NEBULAIO_OK;
			}
		usleep(1000);
		if (!get(queue, 6))
			return fail(NEBULAIO_ERR_CLOSED, "wait for a job: the queue was released", err, errcap);
	}
}

/* Checkpoints are tested with the real library alone. */
int32_t nebulaio_checkpoint_commit_start(uint64_t system, const char *path, const char *options, uint64_t *job, char *err,
                                         size_t errcap)
{
	(void)system, (void)path, (void)options, (void)job;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "commit checkpoint: not in the stand-in", err, errcap);
}

int32_t nebulaio_checkpoint_list_start(uint64_t system, const char *path, const char *options, uint64_t *job, char *err,
                                         size_t errcap)
{
	(void)system, (void)path, (void)options, (void)job;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "list checkpoints: not in the stand-in", err, errcap);
}

int32_t nebulaio_checkpoint_verify_start(uint64_t system, const char *path, const char *options, uint64_t *job, char *err,
                                         size_t errcap)
{
	(void)system, (void)path, (void)options, (void)job;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "verify checkpoint: not in the stand-in", err, errcap);
}

int32_t nebulaio_checkpoint_prune_start(uint64_t system, const char *path, const char *options, uint64_t *job, char *err,
                                         size_t errcap)
{
	(void)system, (void)path, (void)options, (void)job;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "prune checkpoints: not in the stand-in", err, errcap);
}

/* Training data is tested with the real library alone. */
int32_t nebulaio_data_open_start(uint64_t system, const char *const *sources, size_t count, const char *options,
                                 uint64_t *data, char *err, size_t errcap)
{
	(void)system, (void)sources, (void)count, (void)options, (void)data;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "open data set: not in the stand-in", err, errcap);
}

int32_t nebulaio_data_sample(uint64_t data, uint64_t sample, char *buf, size_t cap, size_t *need, char *err, size_t errcap)
{
	(void)data, (void)sample, (void)buf, (void)cap, (void)need;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "find sample: not in the stand-in", err, errcap);
}

int32_t nebulaio_data_keys(uint64_t data, const int64_t *samples, size_t count, char *buf, size_t cap, size_t *need,
                           char *err, size_t errcap)
{
	(void)data, (void)samples, (void)count, (void)buf, (void)cap, (void)need;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "find keys: not in the stand-in", err, errcap);
}

int32_t nebulaio_data_read_start(uint64_t data, uint64_t sample, const char *column, uint64_t *job, char *err, size_t errcap)
{
	(void)data, (void)sample, (void)column, (void)job;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "read sample: not in the stand-in", err, errcap);
}

int32_t nebulaio_loader_open(uint64_t data, const char *options, uint64_t *loader, char *err, size_t errcap)
{
	(void)data, (void)options, (void)loader;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "open loader: not in the stand-in", err, errcap);
}

int32_t nebulaio_loader_describe(uint64_t loader, char *buf, size_t cap, size_t *need, char *err, size_t errcap)
{
	(void)loader, (void)buf, (void)cap, (void)need;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "describe loader: not in the stand-in", err, errcap);
}

int32_t nebulaio_loader_next(uint64_t loader, int32_t timeout_ms, nebulaio_batch *out, uint64_t *batch, char *err,
                             size_t errcap)
{
	(void)loader, (void)timeout_ms, (void)out, (void)batch;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "wait for batch: not in the stand-in", err, errcap);
}

int32_t nebulaio_loader_report(uint64_t loader, char *buf, size_t cap, size_t *need, char *err, size_t errcap)
{
	(void)loader, (void)buf, (void)cap, (void)need;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "report: not in the stand-in", err, errcap);
}

int32_t nebulaio_batch_state(uint64_t batch, char *buf, size_t cap, size_t *need, char *err, size_t errcap)
{
	(void)batch, (void)buf, (void)cap, (void)need;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "find state: not in the stand-in", err, errcap);
}

int32_t nebulaio_batch_free(uint64_t batch, nebulaio_stream stream, char *err, size_t errcap)
{
	(void)batch, (void)stream;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "free batch: not in the stand-in", err, errcap);
}

/* The Python package asks for JSON, moves bytes by itself, and never calls these. */
int32_t nebulaio_object_open(uint64_t client, const char *bucket, const char *key, const char *version,
                             const char *device, nebulaio_descriptors *out, uint64_t *object, char *err, size_t errcap)
{
	(void)client, (void)bucket, (void)key, (void)version, (void)device, (void)out, (void)object;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "open object: not in the stand-in", err, errcap);
}

int32_t nebulaio_object_create(uint64_t client, const char *bucket, const char *key, uint64_t size, const char *options,
                               nebulaio_descriptors *out, uint64_t *object, char *err, size_t errcap)
{
	(void)client, (void)bucket, (void)key, (void)size, (void)options, (void)out, (void)object;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "create object: not in the stand-in", err, errcap);
}

int32_t nebulaio_object_edit(uint64_t object, const char *options, nebulaio_descriptors *out, uint64_t *draft, char *err,
                             size_t errcap)
{
	(void)object, (void)options, (void)out, (void)draft;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "edit object: not in the stand-in", err, errcap);
}

int32_t nebulaio_object_draft(uint64_t client, const char *bucket, const char *key, const char *mode, const char *options,
                              nebulaio_descriptors *out, uint64_t *draft, char *err, size_t errcap)
{
	(void)client, (void)bucket, (void)key, (void)mode, (void)options, (void)out, (void)draft;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "open draft: not in the stand-in", err, errcap);
}

int32_t nebulaio_object_extend(uint64_t draft, uint64_t size, char *err, size_t errcap)
{
	(void)draft, (void)size;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "extend object: not in the stand-in", err, errcap);
}

int32_t nebulaio_object_wrote(uint64_t draft, uint64_t offset, uint64_t size, char *err, size_t errcap)
{
	(void)draft, (void)offset, (void)size;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "note a write: not in the stand-in", err, errcap);
}

int32_t nebulaio_object_commit_start(uint64_t object, uint64_t size, uint64_t *job, char *err, size_t errcap)
{
	(void)object, (void)size, (void)job;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "commit object: not in the stand-in", err, errcap);
}

int32_t nebulaio_model_count(uint64_t model, uint64_t *files, uint64_t *tensors, char *err, size_t errcap)
{
	(void)model, (void)files, (void)tensors;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "count: not in the stand-in", err, errcap);
}

int32_t nebulaio_model_destination(uint64_t model, uint64_t file, nebulaio_destination *out, char *err, size_t errcap)
{
	(void)model, (void)file, (void)out;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "destination: not in the stand-in", err, errcap);
}

int32_t nebulaio_model_tensor(uint64_t model, uint64_t index, nebulaio_place *out, char *name, size_t cap, size_t *need,
                              char *err, size_t errcap)
{
	(void)model, (void)index, (void)out, (void)name, (void)cap, (void)need;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "tensor: not in the stand-in", err, errcap);
}

int32_t nebulaio_model_find(uint64_t model, const char *name, uint64_t *index, char *err, size_t errcap)
{
	(void)model, (void)name, (void)index;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "find: not in the stand-in", err, errcap);
}

/* Verdicts are tested with the real library alone. */
int32_t nebulaio_judge_loop(const char *loop, char *buf, size_t cap, size_t *need, char *err, size_t errcap)
{
	(void)loop, (void)buf, (void)cap, (void)need;
	return fail(NEBULAIO_ERR_UNSUPPORTED, "judge: not in the stand-in", err, errcap);
}
