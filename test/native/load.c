/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the C ABI as a C program uses it: load PATH DEVICE. Loads a safetensors file
 * from several threads at once, compares every tensor with the file, uses tensors
 * while later ones arrive, selects one tensor, and makes the mistakes of callers.
 */
#include "check.h"

#include <pthread.h>

#define THREADS 4

static struct {
	unsigned char *bytes;
	size_t size, data; /* data: where tensors begin */
} content;

static memory place;
static uint64_t sys, model;
static const char *model_path;

/* Loads once into its own memory and checks every byte. The tensors cover the file in
 * the order in which the library lists them. */
static void *load(void *unused)
{
	(void)unused;
	memory_bind(&place); /* a new thread has no context */
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
		memory_read(&place, got, past(dst.address, t.offset), t.size);
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

/* Compares tensors [from, to) of a model in dst with the file. The first tensor begins
 * at file offset `at`. Returns the file offset at which the last one ends. */
static size_t compare(uint64_t of, nebulaio_buffer dst, uint64_t from, uint64_t to, size_t at)
{
	for (uint64_t i = from; i < to; i++) {
		nebulaio_place t;
		MUST(nebulaio_model_tensor(of, i, &t, NULL, 0, NULL, err, sizeof err));
		EXPECT(at + t.size <= content.size && t.offset + t.size <= dst.size);
		unsigned char *got = malloc(t.size + 1);
		memory_read(&place, got, past(dst.address, t.offset), t.size);
		EXPECT(got && memcmp(got, content.bytes + at, t.size) == 0);
		free(got);
		at += t.size;
	}
	return at;
}

/* Tensors become ready in order and are then correct, while the load continues. Small
 * chunks and one worker make the load take many steps. */
static void readiness(const char *options)
{
	uint64_t slow = 0, m = 0, job = 0, tensors = 0, known = 0, n = 0;
	MUST(nebulaio_system_open("{\"workers\":1,\"queue_depth\":1,\"max_transfer_size\":65536}", &slow, err, sizeof err));
	MUST(nebulaio_model_open(slow, model_path, options, &m, err, sizeof err));
	nebulaio_destination need;
	MUST(nebulaio_model_destination(m, 0, &need, err, sizeof err));
	MUST(nebulaio_model_count(m, NULL, &tensors, err, sizeof err));
	nebulaio_buffer dst = {memory_take(&place, need.size, need.align), need.size};
	MUST(nebulaio_load_start(m, &dst, 1, 0, NULL, &job, err, sizeof err));
	size_t at = content.data;
	while (known < tensors) {
		int32_t status = nebulaio_load_ready(job, known, 20, &n, err, sizeof err);
		EXPECT(status == NEBULAIO_RUNNING ? n == known : status == NEBULAIO_OK && n > known && n <= tensors);
		at = compare(m, dst, known, n, at);
		known = n;
	}
	EXPECT(at == content.size);
	MUST(nebulaio_wait(job, -1, NULL, err, sizeof err));
	MUST(nebulaio_load_ready(job, UINT64_MAX, -1, &n, err, sizeof err));
	EXPECT(n == tensors);
	EXPECT(nebulaio_load_ready(m, 0, 0, &n, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	MUST(nebulaio_release(job, err, sizeof err));
	MUST(nebulaio_release(m, err, sizeof err));
	MUST(nebulaio_release(slow, err, sizeof err));
	memory_give(&place, dst.address);
}

/* Loads one tensor of an open model, by its name. */
static void selection(void)
{
	uint64_t tensors = 0, one = 0, job = 0, count = 0;
	MUST(nebulaio_model_count(model, NULL, &tensors, err, sizeof err));
	size_t at = content.data;
	for (uint64_t i = 0; i + 1 < tensors; i++) {
		nebulaio_place t;
		MUST(nebulaio_model_tensor(model, i, &t, NULL, 0, NULL, err, sizeof err));
		at += t.size;
	}
	char name[512], options[600];
	MUST(nebulaio_model_tensor(model, tensors - 1, NULL, name, sizeof name, NULL, err, sizeof err));
	snprintf(options, sizeof options, "{\"names\":[\"%s\"]}", name);
	MUST(nebulaio_model_select(model, options, &one, err, sizeof err));
	MUST(nebulaio_model_count(one, NULL, &count, err, sizeof err));
	EXPECT(count == 1);
	nebulaio_destination need, whole;
	MUST(nebulaio_model_destination(one, 0, &need, err, sizeof err));
	MUST(nebulaio_model_destination(model, 0, &whole, err, sizeof err));
	EXPECT(tensors == 1 || need.size < whole.size);
	nebulaio_buffer dst = {memory_take(&place, need.size, need.align), need.size};
	MUST(nebulaio_load_start(one, &dst, 1, 0, NULL, &job, err, sizeof err));
	MUST(nebulaio_wait(job, -1, NULL, err, sizeof err));
	EXPECT(compare(one, dst, 0, 1, at) == content.size);
	EXPECT(nebulaio_model_select(model, "{\"names\":[\"nobody\"]}", &count, err, sizeof err) == NEBULAIO_ERR_NOT_FOUND);
	EXPECT(nebulaio_release(model, err, sizeof err) == NEBULAIO_ERR_INVALID); /* its selection is open */
	MUST(nebulaio_release(job, err, sizeof err));
	MUST(nebulaio_release(one, err, sizeof err));
	memory_give(&place, dst.address);
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
	model_path = path;
	EXPECT(nebulaio_abi_version() == NEBULAIO_ABI_VERSION);
	content.bytes = file_bytes(path, &content.size);
	uint64_t header = 0;
	memcpy(&header, content.bytes, sizeof header);
	content.data = 8 + (size_t)header;
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
	readiness(options);
	selection();

	MUST(nebulaio_release(model, err, sizeof err));
	MUST(nebulaio_release(sys, err, sizeof err));
	EXPECT(nebulaio_release(sys, err, sizeof err) == NEBULAIO_ERR_CLOSED);
	free(content.bytes);
	printf("C: %d loads of %s on %s at once, every byte right\n", THREADS, path, device);
	return 0;
}
