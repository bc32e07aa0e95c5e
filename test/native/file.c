/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests ranges of files as a C program moves them: file FOLDER DEVICE. Compares writes
 * and reads of any offset and length with a copy of the file in memory. Also tests ends
 * of files, concurrent reads, moves in the order of a stream, and refusals.
 */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

#define LIMIT ((5 << 20) + 4099) /* the longest the file gets */

static memory place;
static uint64_t sys, file;
static void *block;
static unsigned char model[LIMIT], host[LIMIT]; /* what the file holds; what was moved */
static size_t length;
static char path[4096], device_option[64];

/* Reads, with the signature of a write: the address of a read is not const. */
static int32_t read_start(uint64_t of, const void *address, uint64_t n, uint64_t offset, nebulaio_stream stream,
                          const char *options, uint64_t *job, char *message, size_t cap)
{
	return nebulaio_file_read_start(of, (void *)(uintptr_t)address, n, offset, stream, options, job, message, cap);
}

typedef int32_t (*mover)(uint64_t, const void *, uint64_t, uint64_t, nebulaio_stream, const char *, uint64_t *, char *, size_t);

/* Starts, awaits and releases one move; returns the number of bytes moved. */
static uint64_t moved(mover start, const void *address, size_t n, size_t offset, const char *options)
{
	uint64_t job = 0;
	nebulaio_progress progress = {0, 0};
	MUST(start(file, address, n, offset, NULL, options, &job, err, sizeof err));
	MUST(nebulaio_wait(job, -1, &progress, err, sizeof err));
	MUST(nebulaio_release(job, err, sizeof err));
	return progress.bytes_done;
}

static void write_at(size_t offset, size_t n, const char *options, uint64_t seed)
{
	fill(host, n, seed);
	memory_write(&place, past(block, 3), host, n); /* memory is not aligned either */
	EXPECT(moved(nebulaio_file_write_start, past(block, 3), n, offset, options) == n);
	memcpy(model + offset, host, n);
	if (offset + n > length)
		length = offset + n;
	uint64_t size = 0;
	MUST(nebulaio_file_size(file, &size, err, sizeof err));
	EXPECT(size == length);
}

static void read_at(size_t offset, size_t n, const char *options)
{
	const size_t there = offset >= length ? 0 : n < length - offset ? n : length - offset;
	memset(host, 0xa5, n + 8);
	memory_write(&place, block, host, n + 8);
	EXPECT(moved(read_start, past(block, 1), n, offset, options) == there);
	memory_read(&place, host, block, n + 8);
	EXPECT(memcmp(host + 1, model + offset, there) == 0);
	EXPECT(host[0] == 0xa5); /* nothing before it, nothing behind what there was */
	for (size_t i = there + 1; i < n + 8; i++)
		EXPECT(host[i] == 0xa5);
}

static void ranges(void)
{
	const char *routes[] = {NULL, "{\"route\":\"buffered\"}", "{\"route\":\"direct\"}"};
	static const size_t at[][2] = {{0, 1},       {0, 4096},    {1, 4095},       {511, 513},     {4095, 2},           {4097, 65537},
	                               {12345, 0},   {8191, 3333}, {1 << 20, 4096}, {123457, 77},   {(1 << 20) - 1, 1048579}, {3, (4 << 20) + 5}};
	const size_t count = sizeof at / sizeof at[0];
	uint64_t job = 0;
	if (nebulaio_file_write_start(file, block, 1, 0, 0, routes[2], &job, err, sizeof err) == NEBULAIO_OK) {
		MUST(nebulaio_wait(job, -1, NULL, err, sizeof err));
		MUST(nebulaio_release(job, err, sizeof err));
	} else {
		EXPECT(strstr(err, "keeps files in memory")); /* tmpfs: nothing is past the page cache */
		routes[2] = NULL;
	}
	for (size_t r = 0; r < 3; r++) {
		write_at(0, (5 << 20) + 77 + r, routes[r], r + 1);
		for (size_t i = 0; i < count; i++)
			write_at(at[i][0], at[i][1], routes[(r + i) % 3], 100 * r + i + 7);
		MUST(nebulaio_file_sync(file, err, sizeof err));
		for (size_t i = 0; i < count; i++)
			read_at(at[i][0], at[i][1], routes[(r + i + 1) % 3]);
		/* The end of the file, from before it and from behind it. */
		read_at(length - 10, 4096, routes[r]);
		read_at(length - 1, 1, routes[r]);
		read_at(length, 100, routes[r]);
		read_at(length + 1000, 100, routes[r]);
	}
	size_t size = 0;
	unsigned char *all = file_bytes(path, &size); /* as everybody else sees it */
	EXPECT(size == length && memcmp(all, model, size) == 0);
	free(all);
}

/* Reads one file twice at once, each in its own thread. */
static void *reader(void *half)
{
	memory_bind(&place);
	char why[4096] = "";
	const size_t n = length / 2, offset = half ? length - n : 0;
	void *to = memory_take(&place, n, 4096);
	unsigned char *got = malloc(n);
	for (int i = 0; i < 3; i++) {
		uint64_t jobs[2] = {0, 0};
		if (nebulaio_file_read_start(file, to, n / 2, offset, NULL, NULL, &jobs[0], why, sizeof why) ||
		    nebulaio_file_read_start(file, past(to, n / 2), n - n / 2, offset + n / 2, NULL, NULL, &jobs[1], why, sizeof why))
			fatal(why);
		for (int k = 1; k >= 0; k--) /* in any order */
			if (nebulaio_wait(jobs[k], -1, NULL, why, sizeof why) || nebulaio_release(jobs[k], why, sizeof why))
				fatal(why);
		memory_read(&place, got, to, n);
		if (memcmp(got, model + offset, n))
			fatal("reads beside each other differ");
	}
	free(got);
	memory_give(&place, to);
	return NULL;
}

static void at_once(void)
{
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, reader, i ? &threads : NULL))
			fatal("pthread_create");
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

/* Returns a job's report, from malloc. */
static char *report_of(uint64_t job)
{
	size_t need = 0;
	MUST(nebulaio_report(job, NULL, 0, &need, err, sizeof err));
	char *text = malloc(need + 1);
	MUST(nebulaio_report(job, text, need + 1, NULL, err, sizeof err));
	return text;
}

/* Tests moves in the order of a stream. A write sees the work queued before it, but
 * not the work queued after it. Work queued after a read sees the bytes of the read.
 * On host, and if libcufile cannot perform the move, the move has ended when its start
 * returns, and its report gives the reason. The route cufile is refused instead. */
static void in_stream(int cufile, uint64_t seed)
{
	const size_t n = (4 << 20) + 512;
	const char *options = cufile ? "{\"async\":true,\"route\":\"cufile\"}" : "{\"async\":true}";
	const nebulaio_stream stream = memory_stream(&place);
	unsigned char *first = memory_pinned(&place, n), *second = memory_pinned(&place, n), *got = memory_pinned(&place, n);
	fill(first, n, seed);
	fill(second, n, seed + 1);
	memset(got, 0, n);
	uint64_t put = 0, get = 0;
	void *to = memory_take(&place, n, 4096);
	nebulaio_progress progress = {0, 0};

	memory_put(&place, block, first, n, stream);
	const int32_t status = nebulaio_file_write_start(file, block, n, 512, stream, options, &put, err, sizeof err);
	memory_put(&place, block, second, n, stream);
	if (cufile && status == NEBULAIO_ERR_UNSUPPORTED) {
		memory_stream_wait(&place, stream);
		printf("C: not by libcufile: %s\n", err);
		goto end;
	}
	MUST(status);
	EXPECT(place.cuda || !cufile);
	MUST(nebulaio_file_read_start(file, to, n, 512, stream, options, &get, err, sizeof err));
	memory_fetch(&place, got, to, n, stream);
	if (!place.cuda)
		EXPECT(nebulaio_wait(put, 0, NULL, err, sizeof err) == NEBULAIO_OK && nebulaio_wait(get, 0, NULL, err, sizeof err) == NEBULAIO_OK);
	memory_stream_wait(&place, stream);
	EXPECT(memcmp(got, first, n) == 0);
	MUST(nebulaio_wait(put, -1, &progress, err, sizeof err));
	EXPECT(progress.bytes_done == n);
	MUST(nebulaio_wait(get, -1, &progress, err, sizeof err));
	EXPECT(progress.bytes_done == n);
	char *report = report_of(get);
	EXPECT(strstr(report, "\"op\":\"read\""));
	const char *route = strstr(report, "\"route\":\"cufile_");
	EXPECT(!cufile || route);
	EXPECT(route || strstr(report, "\"what\":\"cufile\"")); /* or the reason */
	EXPECT(place.cuda || strstr(report, "need a GPU"));
	if (route)
		printf("C: in the order of a stream: %.*s\n", (int)strcspn(route + 9, "\""), route + 9);
	free(report);
	memcpy(model + 512, first, n);
	read_at(0, length, NULL);
	MUST(nebulaio_release(put, err, sizeof err));
	MUST(nebulaio_release(get, err, sizeof err));
end:
	memory_give(&place, to);
	memory_unpin(&place, first);
	memory_unpin(&place, second);
	memory_unpin(&place, got);
	memory_stream_end(&place, stream);
}

static void refusals(void)
{
	uint64_t h = 0, job = 0;
	EXPECT(nebulaio_file_open(sys, path, "a", NULL, &h, err, sizeof err) == NEBULAIO_ERR_INVALID && strstr(err, "r+"));
	EXPECT(nebulaio_file_open(sys, path, "r", "{\"mode\":1}", &h, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_file_open(sys, "/nowhere/x", "w", NULL, &h, err, sizeof err) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(nebulaio_file_open(sys, "/sys", "r", NULL, &h, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_file_open(file, path, "r", NULL, &h, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	EXPECT(nebulaio_file_read_start(file, 0, 10, 0, 0, NULL, &job, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_file_read_start(file, block, UINT64_MAX, 0, 0, NULL, &job, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_file_read_start(file, block, 10, 0, 0, "{\"route\":\"fast\"}", &job, err, sizeof err) == NEBULAIO_ERR_INVALID);
	MUST(nebulaio_file_open(sys, path, "r", device_option, &h, err, sizeof err));
	EXPECT(nebulaio_file_write_start(h, block, 10, 0, 0, NULL, &job, err, sizeof err) == NEBULAIO_ERR_PERMISSION);
	MUST(nebulaio_release(h, err, sizeof err));
	EXPECT(job == 0);
	if (place.cuda)
		return;
	MUST(nebulaio_file_read_start(file, block, 10, 0, 0, "{\"route\":\"cufile\"}", &job, err, sizeof err));
	EXPECT(nebulaio_wait(job, -1, NULL, err, sizeof err) == NEBULAIO_ERR_UNSUPPORTED && strstr(err, "host"));
	MUST(nebulaio_release(job, err, sizeof err));
}

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: file FOLDER DEVICE");
	place = memory_of(argv[2]);
	path_in(path, sizeof path, argv[1], "c.bytes");
	snprintf(device_option, sizeof device_option, "{\"device\":\"%s\"}", argv[2]);
	block = memory_take(&place, LIMIT, 4096);
	MUST(nebulaio_system_open(NULL, &sys, err, sizeof err));
	MUST(nebulaio_file_open(sys, path, "w", device_option, &file, err, sizeof err));
	ranges();
	at_once();
	in_stream(0, 901);
	if (!getenv("NATIVE_WITHOUT_CUFILE")) /* NVIDIA's library does not fit a driver that is not NVIDIA's */
		in_stream(1, 903);
	refusals();

	/* A release waits for the move that runs; the job tells its end afterwards. */
	uint64_t job = 0, gone = 0;
	nebulaio_progress progress = {0, 0};
	MUST(nebulaio_file_read_start(file, block, length, 0, 0, NULL, &job, err, sizeof err));
	MUST(nebulaio_release(file, err, sizeof err));
	MUST(nebulaio_wait(job, 0, &progress, err, sizeof err));
	EXPECT(progress.bytes_done == length);
	EXPECT(nebulaio_file_size(file, &gone, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	MUST(nebulaio_release(job, err, sizeof err));
	/* "w" empties what is there. */
	MUST(nebulaio_file_open(sys, path, "w", device_option, &file, err, sizeof err));
	MUST(nebulaio_file_size(file, &gone, err, sizeof err));
	EXPECT(gone == 0);
	MUST(nebulaio_release(file, err, sizeof err));
	MUST(nebulaio_release(sys, err, sizeof err));
	memory_give(&place, block);
	printf("C: ranges of files on %s, every byte right\n", argv[2]);
	return 0;
}
