/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C ABI as a C program uses it: load PATH DEVICE. Loads a safetensors file
 * from several threads at once, compares every tensor with the file, and goes
 * through what a caller does wrong.
 */
#include "memory.h"

#include "nebulaio/nebulaio.h"

#include <pthread.h>

#define THREADS 4

static char err[4096];

#define MUST(call)                                                                                                     \
	do {                                                                                                           \
		int32_t s_ = (call);                                                                                   \
		if (s_ != NEBULAIO_OK) {                                                                               \
			fprintf(stderr, "%s:%d: status %d: %s\n", __FILE__, __LINE__, (int)s_, err);                   \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define EXPECT(what)                                                                                                   \
	do {                                                                                                           \
		if (!(what)) {                                                                                         \
			fprintf(stderr, "%s:%d: not so: %s (last message: %s)\n", __FILE__, __LINE__, #what, err);     \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

struct file {
	unsigned char *bytes;
	size_t size, data; /* data: where tensors begin */
};

static struct file content;
static memory place;
static uint64_t sys, model;

static struct file read_file(const char *path)
{
	struct file f = {0};
	FILE *in = fopen(path, "rb");
	if (!in || fseek(in, 0, SEEK_END))
		fatal(path);
	f.size = (size_t)ftell(in);
	rewind(in);
	f.bytes = malloc(f.size);
	if (!f.bytes || fread(f.bytes, 1, f.size, in) != f.size)
		fatal(path);
	fclose(in);
	uint64_t header = 0;
	memcpy(&header, f.bytes, sizeof header);
	f.data = 8 + (size_t)header;
	return f;
}

/* One load into memory of its own, checked to the last byte: tensors tile the
 * file in the order in which the library lists them. */
static void *load(void *unused)
{
	(void)unused;
	char why[4096] = "";
	nebulaio_destination need;
	uint64_t tensors = 0, job = 0;
	if (nebulaio_model_destination(model, 0, &need, why, sizeof why) || nebulaio_model_count(model, NULL, &tensors, why, sizeof why))
		fatal(why);
	nebulaio_buffer dst = {memory_take(&place, need.size, need.align), need.size};
	if (nebulaio_load_start(model, &dst, 1, 0, "{\"route\":\"auto\"}", &job, why, sizeof why))
		fatal(why);
	nebulaio_progress progress = {0, 0};
	int32_t status;
	while ((status = nebulaio_wait(job, 20, &progress, why, sizeof why)) == NEBULAIO_RUNNING)
		;
	if (status != NEBULAIO_OK || progress.bytes_done != progress.bytes_total)
		fatal(why);
	size_t at = content.data;
	for (uint64_t i = 0; i < tensors; i++) {
		nebulaio_place t;
		char name[512];
		size_t length = 0;
		if (nebulaio_model_tensor(model, i, &t, name, sizeof name, &length, why, sizeof why))
			fatal(why);
		unsigned char *got = malloc(t.size + 1);
		memory_read(&place, got, dst.address + t.offset, t.size);
		if (at + t.size > content.size || memcmp(got, content.bytes + at, t.size))
			fatal(name);
		free(got);
		at += t.size;
	}
	if (at != content.size)
		fatal("the tensors do not fill the file");
	if (nebulaio_release(job, why, sizeof why))
		fatal(why);
	memory_give(&place, dst.address);
	return NULL;
}

static void misuse(const char *path)
{
	uint64_t h = 0, index = 0, files = 0;
	size_t need = 0;
	char small[4];
	nebulaio_destination d;
	nebulaio_place t;
	EXPECT(nebulaio_system_open("{\"no_such_key\":1}", &h, err, sizeof err) == NEBULAIO_ERR_INVALID && strstr(err, "no_such_key"));
	EXPECT(nebulaio_system_open("not json", &h, NULL, 0) == NEBULAIO_ERR_INVALID && h == 0);
	EXPECT(nebulaio_model_open(sys, "/nonexistent.safetensors", NULL, &h, err, sizeof err) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(nebulaio_model_open(sys, "/nonexistent.safetensors", NULL, &h, small, sizeof small) == NEBULAIO_ERR_NOT_FOUND && strlen(small) == 3);
	EXPECT(nebulaio_model_open(sys, path, "{\"device\":\"gpu\"}", &h, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_model_open(99999, path, NULL, &h, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	EXPECT(nebulaio_model_find(model, "nobody", &index, err, sizeof err) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(nebulaio_model_destination(model, 7, &d, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_model_tensor(model, UINT64_MAX, &t, NULL, 0, &need, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_model_describe(model, small, sizeof small, &need, err, sizeof err) == NEBULAIO_ERR_INVALID && need > sizeof small);
	EXPECT(nebulaio_load_start(model, NULL, 0, 0, NULL, &h, err, sizeof err) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_wait(model, 0, NULL, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	EXPECT(nebulaio_release(sys + 1000, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	MUST(nebulaio_model_count(model, &files, NULL, err, sizeof err));
	EXPECT(files == 1);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: load PATH DEVICE");
	const char *path = argv[1], *device = argv[2];
	EXPECT(nebulaio_abi_version() == NEBULAIO_ABI_VERSION);
	content = read_file(path);
	place = memory_of(device);
	MUST(nebulaio_system_open(NULL, &sys, err, sizeof err));
	char options[64];
	snprintf(options, sizeof options, "{\"device\":\"%s\"}", device);
	MUST(nebulaio_model_open(sys, path, options, &model, err, sizeof err));
	misuse(path);

	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, load, NULL))
			fatal("pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);

	MUST(nebulaio_release(model, err, sizeof err));
	MUST(nebulaio_release(sys, err, sizeof err));
	EXPECT(nebulaio_release(sys, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	free(content.bytes);
	printf("C: %d loads of %s on %s at once, every byte right\n", THREADS, path, device);
	return 0;
}
