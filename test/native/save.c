/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests saves as a C program makes them: save FOLDER DEVICE. Tensors of the device are
 * saved to a file and loaded with verification. A wrong save is refused and leaves the
 * old file. One changed byte is found. A cancelled save publishes all or nothing.
 */
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT 5

static memory place;
static uint64_t sys;
static const char *device, *folder;

static struct {
	const char *name, *dtype;
	int64_t shape[2];
	size_t rank, size;
} const kinds[COUNT] = {
        {"embed.weight", "F32", {257, 33}, 2, 257 * 33 * 4},
        {"norm \"quoted\" \\ \xc3\xa9", "BF16", {1001, 0}, 1, 2002},
        {"none", "F32", {0, 5}, 2, 0},
        {"scalar", "F64", {0, 0}, 0, 8},
        {"large", "U8", {(3 << 20) + 1, 0}, 1, (3 << 20) + 1},
};

static unsigned char *bytes[COUNT];
static void *address[COUNT];

static void make(void)
{
	for (int i = 0; i < COUNT; i++) {
		bytes[i] = malloc(kinds[i].size + 1);
		fill(bytes[i], kinds[i].size, (uint64_t)i + 1);
		address[i] = memory_take(&place, kinds[i].size, 256);
		memory_write(&place, address[i], bytes[i], kinds[i].size);
	}
}

static nebulaio_tensor tensor(int i)
{
	nebulaio_tensor t = {kinds[i].name, kinds[i].dtype, kinds[i].rank ? kinds[i].shape : NULL, kinds[i].rank,
	                     address[i],    kinds[i].size,  device};
	return t;
}

/* Starts a save of all tensors. The structs, strings, shapes, path and options are freed
 * before the job runs. */
static uint64_t start(const char *path, const char *options)
{
	struct {
		nebulaio_tensor tensors[COUNT];
		char text[COUNT][3][64], path[4096], options[256];
		int64_t shape[COUNT][2];
	} *gone = malloc(sizeof *gone);
	for (int i = 0; i < COUNT; i++) {
		gone->tensors[i] = tensor(i);
		gone->tensors[i].name = strcpy(gone->text[i][0], kinds[i].name);
		gone->tensors[i].dtype = strcpy(gone->text[i][1], kinds[i].dtype);
		gone->tensors[i].device = strcpy(gone->text[i][2], device);
		gone->tensors[i].shape = kinds[i].rank ? memcpy(gone->shape[i], kinds[i].shape, sizeof kinds[i].shape) : NULL;
	}
	uint64_t job = 0;
	MUST(nebulaio_save_start(sys, strcpy(gone->path, path), gone->tensors, COUNT, 0, options ? strcpy(gone->options, options) : NULL,
	                         &job, err, sizeof err));
	memset(gone, 0x5a, sizeof *gone);
	free(gone);
	return job;
}

static char *text_of(int32_t (*function)(uint64_t, char *, size_t, size_t *, char *, size_t), uint64_t handle)
{
	size_t need = 0;
	MUST(function(handle, NULL, 0, &need, err, sizeof err));
	char *text = malloc(need + 1);
	MUST(function(handle, text, need + 1, &need, err, sizeof err));
	return text;
}

/* Loads the saved file and compares it; returns the status of a failed load. */
static int32_t load(const char *path, const char *load_options, const char *metadata)
{
	char options[64];
	uint64_t model = 0, job = 0, index = 0;
	snprintf(options, sizeof options, "{\"device\":\"%s\"}", device);
	MUST(nebulaio_model_open(sys, path, options, &model, err, sizeof err));
	nebulaio_destination need;
	MUST(nebulaio_model_destination(model, 0, &need, err, sizeof err));
	nebulaio_buffer dst = {memory_take(&place, need.size, need.align), need.size};
	int32_t status = nebulaio_load_start(model, &dst, 1, 0, load_options, &job, err, sizeof err);
	if (status == NEBULAIO_OK)
		status = nebulaio_wait(job, -1, NULL, err, sizeof err);
	if (status == NEBULAIO_OK) {
		for (int i = 0; i < COUNT; i++) {
			nebulaio_place t;
			char name[64];
			MUST(nebulaio_model_find(model, kinds[i].name, &index, err, sizeof err));
			MUST(nebulaio_model_tensor(model, index, &t, name, sizeof name, NULL, err, sizeof err));
			EXPECT(t.size == kinds[i].size && t.rank == kinds[i].rank && !strcmp(t.dtype, kinds[i].dtype));
			EXPECT(memcmp(t.shape, kinds[i].shape, t.rank * sizeof t.shape[0]) == 0);
			unsigned char *got = malloc(t.size + 1);
			memory_read(&place, got, past(dst.address, t.offset), t.size);
			EXPECT(memcmp(got, bytes[i], t.size) == 0);
			free(got);
		}
		char *text = text_of(nebulaio_model_describe, model);
		EXPECT(strstr(text, metadata));
		free(text);
	}
	if (job)
		nebulaio_release(job, NULL, 0);
	nebulaio_release(model, NULL, 0);
	memory_give(&place, dst.address);
	return status;
}

static void round_trip(const char *path)
{
	char sums[4096];
	path_in(sums, sizeof sums, folder, "c.safetensors.crc64nvme");
	uint64_t job = start(path, "{\"metadata\":{\"format\":\"pt\",\"by\":\"C\"}}");
	nebulaio_progress progress = {0, 0};
	int32_t status;
	while ((status = nebulaio_wait(job, 20, &progress, err, sizeof err)) == NEBULAIO_RUNNING)
		;
	MUST(status);
	EXPECT(progress.bytes_done == progress.bytes_total && progress.bytes_total > (3 << 20));
	char *text = text_of(nebulaio_report, job);
	EXPECT(strstr(text, "\"direction\":\"save\"") && strstr(text, "\"save\":{\"durable\":") && strstr(text, device));
	free(text);
	uint64_t n = 0;
	EXPECT(nebulaio_load_ready(job, 0, 0, &n, err, sizeof err) == NEBULAIO_ERR_INVALID); /* a save is no load */
	MUST(nebulaio_release(job, err, sizeof err));
	EXPECT(access(sums, R_OK) == 0);
	MUST(load(path, "{\"verify\":true}", "\"by\":\"C\""));

	/* Without sums there is nothing to verify with, and those of before are gone. */
	job = start(path, "{\"checksum\":false}");
	MUST(nebulaio_wait(job, -1, NULL, err, sizeof err));
	MUST(nebulaio_release(job, err, sizeof err));
	EXPECT(access(sums, R_OK) != 0);
	MUST(load(path, NULL, "\"metadata\":"));
	EXPECT(load(path, "{\"verify\":true}", "") == NEBULAIO_ERR_NOT_FOUND);
}

/* Tests that wrong saves are refused with the right status and message. */
static void refused(const char *path, const nebulaio_tensor *tensors, size_t count, const char *options, int32_t expected,
                    const char *named)
{
	uint64_t job = 0;
	err[0] = 0;
	int32_t status = nebulaio_save_start(sys, path, tensors, count, 0, options, &job, err, sizeof err);
	if (status == NEBULAIO_OK)
		status = nebulaio_wait(job, -1, NULL, err, sizeof err);
	EXPECT(status == expected && strstr(err, named));
	if (job)
		nebulaio_release(job, NULL, 0);
}

static void misuse(const char *path)
{
	size_t before = 0, after = 0;
	unsigned char *old = file_bytes(path, &before);
	nebulaio_tensor t = tensor(0), two[2] = {t, t};
	char under[4096];
	const int64_t negative[2] = {-257, 33};
#define WITH(change, options, expected, named)                                                                         \
	do {                                                                                                           \
		t = tensor(0);                                                                                         \
		change;                                                                                                \
		refused(path, &t, 1, options, expected, named);                                                        \
	} while (0)
	WITH(t.dtype = "F33", NULL, NEBULAIO_ERR_INVALID, "F33");
	WITH(t.dtype = NULL, NULL, NEBULAIO_ERR_INVALID, "embed.weight");
	WITH(t.size--, NULL, NEBULAIO_ERR_INVALID, "33923");
	WITH(t.shape = negative, NULL, NEBULAIO_ERR_INVALID, "-257");
	WITH(t.shape = NULL, NULL, NEBULAIO_ERR_INVALID, "shape");
	WITH(t.rank = 65, NULL, NEBULAIO_ERR_INVALID, "rank");
	WITH(t.device = "gpu", NULL, NEBULAIO_ERR_INVALID, "gpu");
	WITH(t.address = NULL, NULL, NEBULAIO_ERR_INVALID, "embed.weight");
	WITH((void)t, "{\"align\":3}", NEBULAIO_ERR_INVALID, "3");
	WITH((void)t, "{\"colour\":1}", NEBULAIO_ERR_INVALID, "colour");
	refused(path, two, 2, NULL, NEBULAIO_ERR_INVALID, "embed.weight"); /* one name twice */
	refused(path, NULL, 3, NULL, NEBULAIO_ERR_INVALID, "NULL");
	refused(path, &t, SIZE_MAX, NULL, NEBULAIO_ERR_INVALID, "1048576");
	refused(folder, &t, 1, NULL, NEBULAIO_ERR_INVALID, folder); /* a directory */
	refused("/nowhere/c.safetensors", &t, 1, NULL, NEBULAIO_ERR_NOT_FOUND, "/nowhere");
	refused("/sys/c.safetensors", &t, 1, NULL, NEBULAIO_ERR_UNSUPPORTED, "sysfs"); /* not for root either */
	refused(path_in(under, sizeof under, path, "c.safetensors"), &t, 1, NULL, NEBULAIO_ERR_INVALID, path);
	unsigned char *now = file_bytes(path, &after);
	EXPECT(before == after && memcmp(old, now, before) == 0);
	free(old);
	free(now);
}

/* Changes one byte and restores the modification time, so that only checksums can tell. */
static void damage(const char *path)
{
	uint64_t job = start(path, NULL);
	MUST(nebulaio_wait(job, -1, NULL, err, sizeof err));
	MUST(nebulaio_release(job, err, sizeof err));
	struct stat before;
	FILE *f = fopen(path, "r+b");
	EXPECT(f && stat(path, &before) == 0);
	const long at = (long)before.st_size / 2; /* within "large", which is most of the file */
	EXPECT(fseek(f, at, SEEK_SET) == 0);
	const int was = fgetc(f);
	EXPECT(fseek(f, at, SEEK_SET) == 0 && fputc(was ^ 1, f) != EOF && fclose(f) == 0);
	const struct timespec times[2] = {before.st_atim, before.st_mtim};
	EXPECT(utimensat(AT_FDCWD, path, times, 0) == 0);
	EXPECT(load(path, "{\"verify\":true}", "") == NEBULAIO_ERR_CORRUPT && strstr(err, "large") && strstr(err, path));
}

/* A cancelled save to a new name leaves a complete file, or none. */
static void cancel(void)
{
	char path[4096];
	path_in(path, sizeof path, folder, "cancelled.safetensors");
	uint64_t slow = 0, mine = sys;
	MUST(nebulaio_system_open("{\"write_block_size\":65536,\"write_depth\":1}", &slow, err, sizeof err));
	sys = slow;
	uint64_t job = start(path, NULL);
	MUST(nebulaio_cancel(job, err, sizeof err));
	int32_t status = nebulaio_wait(job, -1, NULL, err, sizeof err);
	EXPECT(status == NEBULAIO_ERR_CANCELLED || status == NEBULAIO_OK);
	EXPECT((access(path, F_OK) == 0) == (status == NEBULAIO_OK));
	char *text = text_of(nebulaio_report, job);
	EXPECT(strstr(text, "\"direction\":\"save\""));
	free(text);
	MUST(nebulaio_release(job, err, sizeof err));
	/* A running job that is released is stopped first: its memory is free then. */
	MUST(nebulaio_release(start(path, NULL), err, sizeof err));
	sys = mine;
	if (access(path, F_OK) == 0)
		MUST(load(path, NULL, ""));
	MUST(nebulaio_release(slow, err, sizeof err));
}

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: save FOLDER DEVICE");
	folder = argv[1];
	device = argv[2];
	place = memory_of(device);
	make();
	MUST(nebulaio_system_open(NULL, &sys, err, sizeof err));
	char path[4096];
	path_in(path, sizeof path, folder, "c.safetensors");
	round_trip(path);
	misuse(path);
	damage(path);
	cancel();
	MUST(nebulaio_release(sys, err, sizeof err));
	for (int i = 0; i < COUNT; i++) {
		memory_give(&place, address[i]);
		free(bytes[i]);
	}
	printf("C: saves from %s, every byte right\n", device);
	return 0;
}
