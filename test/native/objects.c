/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests objects of a server with the C ABI: objects DEVICE. The environment names the
 * server, which has a bucket "bucket".
 */
#include "check.h"

#include <unistd.h>

static uint64_t sys, client;

static nebulaio_object_read read_of(const char *key, void *address, uint64_t capacity, const char *device)
{
	nebulaio_object_read r;
	memset(&r, 0, sizeof r);
	r.struct_size = sizeof r;
	r.bucket = "bucket";
	r.key = key;
	r.size = -1;
	r.address = address;
	r.capacity = capacity;
	r.device = device;
	return r;
}

static void put(const char *key, const void *address, uint64_t size, const char *device, const char *options)
{
	nebulaio_object_write w;
	uint64_t job = 0;
	nebulaio_progress progress;
	memset(&w, 0, sizeof w);
	w.struct_size = sizeof w;
	w.bucket = "bucket";
	w.key = key;
	w.address = address;
	w.size = size;
	w.device = device;
	MUST(nebulaio_object_write_start(client, &w, options, &job, err, sizeof err));
	MUST(nebulaio_wait(job, -1, &progress, err, sizeof err));
	EXPECT(progress.bytes_done == size);
	MUST(nebulaio_release(job, err, sizeof err));
}

/* Returns the report of a successful job, from malloc, and releases the job. */
static char *report_of(uint64_t job)
{
	size_t need = 0;
	MUST(nebulaio_wait(job, -1, NULL, err, sizeof err));
	MUST(nebulaio_report(job, NULL, 0, &need, err, sizeof err));
	char *text = (char *)malloc(need + 1);
	MUST(nebulaio_report(job, text, need + 1, NULL, err, sizeof err));
	MUST(nebulaio_release(job, err, sizeof err));
	return text;
}

static void whole_objects(const memory *m, const char *device)
{
	enum { size = (3 << 20) + 17 };
	unsigned char *want = (unsigned char *)malloc(size), *got = (unsigned char *)malloc(size);
	void *from = memory_take(m, size, 4096), *to = memory_take(m, size, 4096);
	uint64_t job = 0;
	fill(want, size, 41);
	memory_write(m, from, want, size);
	put("native/c", from, size, device, "{\"content_type\":\"text/plain\",\"metadata\":{\"who\":\"c\"}}");

	nebulaio_object_read r = read_of("native/c", to, size, device);
	MUST(nebulaio_object_read_start(client, &r, 1, "{\"verify\":true}", &job, err, sizeof err));
	char *text = report_of(job);
	memory_read(m, got, to, size);
	EXPECT(memcmp(got, want, size) == 0 && strstr(text, "\"via\":\"door\"") && strstr(text, "\"verify\""));
	free(text);

	r.offset = 1000001;
	r.size = 99;
	r.capacity = 100;
	MUST(nebulaio_object_read_start(client, &r, 1, NULL, &job, err, sizeof err));
	free(report_of(job));
	memory_read(m, got, to, 99);
	EXPECT(memcmp(got, want + 1000001, 99) == 0);

	/* Many, whose ends a queue tells. */
	uint64_t queue = 0, jobs[8], ended = 0;
	MUST(nebulaio_queue_open(&queue, err, sizeof err));
	EXPECT(nebulaio_queue_next(queue, 0, &ended, err, sizeof err) == NEBULAIO_RUNNING);
	for (int i = 0; i < 8; i++) {
		r = read_of("native/c", past(to, 300000 * (size_t)i), 300000, device);
		r.offset = 300000 * (uint64_t)i;
		r.size = 300000;
		MUST(nebulaio_object_read_start(client, &r, 1, NULL, &jobs[i], err, sizeof err));
		MUST(nebulaio_queue_add(queue, jobs[i], err, sizeof err));
	}
	for (int told = 0; told < 8; told++) {
		MUST(nebulaio_queue_next(queue, -1, &ended, err, sizeof err));
		int found = 0;
		for (int i = 0; i < 8; i++)
			found += jobs[i] == ended;
		EXPECT(found == 1);
		free(report_of(ended));
	}
	memory_read(m, got, to, 2400000);
	EXPECT(memcmp(got, want, 2400000) == 0);
	MUST(nebulaio_release(queue, err, sizeof err));
	EXPECT(nebulaio_queue_next(queue, 0, &ended, err, sizeof err) == NEBULAIO_ERR_CLOSED);

	/* The same as one job. */
	nebulaio_object_read several[3];
	for (int i = 0; i < 3; i++) {
		several[i] = read_of("native/c", past(to, 1000000 * (size_t)i), 1000000, device);
		several[i].offset = 1000000 * (uint64_t)(2 - i);
		several[i].size = 1000000;
	}
	MUST(nebulaio_object_read_start(client, several, 3, NULL, &job, err, sizeof err));
	free(report_of(job));
	memory_read(m, got, to, 3000000);
	for (int i = 0; i < 3; i++)
		EXPECT(memcmp(got + 1000000 * i, want + 1000000 * (2 - i), 1000000) == 0);
	memory_give(m, from);
	memory_give(m, to);
	free(want);
	free(got);
}

static void questions(void)
{
	uint64_t job = 0;
	char *text;
	MUST(nebulaio_object_stat_start(client, "bucket", "native/c", NULL, &job, err, sizeof err));
	text = report_of(job);
	EXPECT(strstr(text, "\"size\":3145745") && strstr(text, "\"etag\":"));
	free(text);
	MUST(nebulaio_object_list_start(client, "bucket", "{\"prefix\":\"native/\",\"limit\":10}", &job, err, sizeof err));
	text = report_of(job);
	EXPECT(strstr(text, "\"native/c\"") && strstr(text, "\"truncated\":false"));
	free(text);
	MUST(nebulaio_client_status_start(client, &job, err, sizeof err));
	text = report_of(job);
	EXPECT(strstr(text, "gpudirect.sock"));
	free(text);
	MUST(nebulaio_object_stat_start(client, "bucket", "none", NULL, &job, err, sizeof err));
	EXPECT(nebulaio_wait(job, -1, NULL, err, sizeof err) == NEBULAIO_ERR_NOT_FOUND && strstr(err, "s3://bucket/none"));
	MUST(nebulaio_release(job, err, sizeof err));
}

/* Uses the descriptors with plain system calls. */
static void descriptors(void)
{
	enum { size = 70001 };
	static unsigned char want[size], got[size];
	nebulaio_descriptors d;
	uint64_t object = 0, job = 0;
	memset(&d, 0, sizeof d);
	d.struct_size = sizeof d;
	fill(want, size, 43);
	MUST(nebulaio_object_create(client, "bucket", "native/written", size + 5, "{\"device\":\"host\"}", &d, &object, err, sizeof err));
	EXPECT(d.buffered >= 0 && pwrite(d.buffered, want, size, 0) == size);
	MUST(nebulaio_object_commit_start(object, size, &job, err, sizeof err));
	free(report_of(job));
	MUST(nebulaio_object_commit_start(object, size, &job, err, sizeof err)); /* used up */
	EXPECT(nebulaio_wait(job, -1, NULL, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	MUST(nebulaio_release(job, err, sizeof err));
	MUST(nebulaio_release(object, err, sizeof err));

	MUST(nebulaio_object_open(client, "bucket", "native/written", NULL, "host", &d, &object, err, sizeof err));
	EXPECT(d.size == size && pread(d.buffered, got, size, 0) == size && memcmp(got, want, size) == 0);
	EXPECT(pwrite(d.buffered, want, 1, 0) == -1);
	MUST(nebulaio_release(object, err, sizeof err));
	EXPECT(pread(d.buffered, got, 1, 0) == -1); /* closed with its handle */

	/* A duplicate that can still write keeps the object from being published. */
	MUST(nebulaio_object_create(client, "bucket", "native/kept", size, "{\"device\":\"host\"}", &d, &object, err, sizeof err));
	int kept = dup(d.buffered);
	EXPECT(pwrite(kept, want, size, 0) == size);
	MUST(nebulaio_object_commit_start(object, size, &job, err, sizeof err));
	EXPECT(nebulaio_wait(job, -1, NULL, err, sizeof err) != NEBULAIO_OK && strstr(err, "native/kept"));
	MUST(nebulaio_release(job, err, sizeof err));
	MUST(nebulaio_release(object, err, sizeof err));
	close(kept);
	MUST(nebulaio_object_stat_start(client, "bucket", "native/kept", NULL, &job, err, sizeof err));
	EXPECT(nebulaio_wait(job, -1, NULL, err, sizeof err) == NEBULAIO_ERR_NOT_FOUND);
	MUST(nebulaio_release(job, err, sizeof err));
}

/* Changes an object in place, and makes objects in each mode. */
static void drafts(void)
{
	enum { size = 70001 };
	static unsigned char want[size + 5], got[size + 5];
	nebulaio_descriptors d, w;
	uint64_t object = 0, draft = 0, job = 0;
	memset(&d, 0, sizeof d);
	d.struct_size = sizeof d;
	w = d;
	fill(want, size, 43); /* what descriptors has written */
	MUST(nebulaio_object_open(client, "bucket", "native/written", NULL, "host", &d, &object, err, sizeof err));
	MUST(nebulaio_object_edit(object, "{\"device\":\"host\"}", &w, &draft, err, sizeof err));
	EXPECT(w.size == size && pread(w.buffered, got, size + 5, 0) == size && memcmp(got, want, size) == 0);
	MUST(nebulaio_object_extend(draft, size + 5, err, sizeof err));
	memcpy(want + size, "extra", 5);
	EXPECT(pwrite(w.buffered, "extra", 5, size) == 5 && pwrite(w.buffered, "changed", 7, 100) == 7);
	MUST(nebulaio_object_wrote(draft, 100, 7, err, sizeof err));
	MUST(nebulaio_object_commit_start(draft, NEBULAIO_WHOLE, &job, err, sizeof err));
	free(report_of(job));
	EXPECT(pread(d.buffered, got, size + 5, 0) == size && memcmp(got, want, size) == 0); /* as it was */
	memcpy(want + 100, "changed", 7);
	MUST(nebulaio_release(draft, err, sizeof err));
	MUST(nebulaio_release(object, err, sizeof err));
	MUST(nebulaio_object_open(client, "bucket", "native/written", NULL, "host", &d, &object, err, sizeof err));
	EXPECT(d.size == size + 5 && pread(d.buffered, got, size + 5, 0) == size + 5 && memcmp(got, want, size + 5) == 0);

	/* The object was replaced after it was opened. */
	MUST(nebulaio_object_edit(object, NULL, &w, &draft, err, sizeof err));
	uint64_t other = 0;
	nebulaio_descriptors o = w;
	MUST(nebulaio_object_draft(client, "bucket", "native/written", "w", NULL, &o, &other, err, sizeof err));
	EXPECT(pwrite(o.buffered, "new", 3, 0) == 3);
	MUST(nebulaio_object_commit_start(other, 3, &job, err, sizeof err));
	free(report_of(job));
	MUST(nebulaio_object_commit_start(draft, NEBULAIO_WHOLE, &job, err, sizeof err));
	EXPECT(nebulaio_wait(job, -1, NULL, err, sizeof err) == NEBULAIO_ERR_INVALID && strstr(err, "replaced"));
	MUST(nebulaio_release(job, err, sizeof err));
	MUST(nebulaio_release(draft, err, sizeof err));
	MUST(nebulaio_release(other, err, sizeof err));
	MUST(nebulaio_release(object, err, sizeof err));

	EXPECT(nebulaio_object_draft(client, "bucket", "native/written", "a", NULL, &w, &draft, err, sizeof err) ==
	           NEBULAIO_ERR_INVALID && strstr(err, "\"a\"") && strstr(err, "r+"));
	MUST(nebulaio_object_draft(client, "bucket", "native/written", "x", NULL, &w, &draft, err, sizeof err));
	MUST(nebulaio_object_commit_start(draft, NEBULAIO_WHOLE, &job, err, sizeof err));
	EXPECT(nebulaio_wait(job, -1, NULL, err, sizeof err) == NEBULAIO_ERR_INVALID);
	MUST(nebulaio_release(job, err, sizeof err));
	EXPECT(nebulaio_object_extend(draft, 1, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	MUST(nebulaio_release(draft, err, sizeof err));
}

static void refusals(const memory *m, const char *device)
{
	void *at = memory_take(m, 100, 4096);
	uint64_t job = 0, other = 0;
	nebulaio_object_read r = read_of("native/c", at, 100, device);
	MUST(nebulaio_object_read_start(client, &r, 1, NULL, &job, err, sizeof err));
	EXPECT(nebulaio_wait(job, -1, NULL, err, sizeof err) == NEBULAIO_ERR_INVALID && strstr(err, "3145745") && strstr(err, "100"));
	MUST(nebulaio_release(job, err, sizeof err));
	r.struct_size = 8;
	EXPECT(nebulaio_object_read_start(client, &r, 1, NULL, &job, err, sizeof err) == NEBULAIO_ERR_INVALID && strstr(err, "struct_size"));
	EXPECT(nebulaio_object_read_start(client, NULL, 1, NULL, &job, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_object_write_start(client, NULL, NULL, &job, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_object_open(client, "bucket", "native/c", NULL, NULL, NULL, &job, err, sizeof err) == NEBULAIO_ERR_INVALID);
	r.struct_size = sizeof r;
	EXPECT(nebulaio_object_read_start(client, &r, 1, "{\"fast\":true}", &job, err, sizeof err) == NEBULAIO_ERR_INVALID && strstr(err, "fast"));
	r.peers = NULL;
	r.npeers = 3;
	EXPECT(nebulaio_object_read_start(client, &r, 1, NULL, &job, err, sizeof err) == NEBULAIO_ERR_INVALID && strstr(err, "peers"));
	EXPECT(nebulaio_object_read_start(sys, &r, 0, NULL, &job, err, sizeof err) != NEBULAIO_OK);
	EXPECT(nebulaio_client_open(sys, "{\"secret_key\":3,\"access_key\":\"shown?\"}", &other, err, sizeof err) == NEBULAIO_ERR_INVALID && !strstr(err, "shown?"));
	EXPECT(nebulaio_queue_add(client, job, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	memory_give(m, at);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		fatal("usage: objects DEVICE");
	memory m = memory_of(argv[1]);
	MUST(nebulaio_system_open(NULL, &sys, err, sizeof err));
	MUST(nebulaio_client_open(sys, "{\"door\":\"require\"}", &client, err, sizeof err));
	whole_objects(&m, argv[1]);
	questions();
	descriptors();
	drafts();
	refusals(&m, argv[1]);
	MUST(nebulaio_release(client, err, sizeof err));
	MUST(nebulaio_release(sys, err, sizeof err));
	printf("C: objects on %s, every byte right\n", argv[1]);
	return 0;
}
