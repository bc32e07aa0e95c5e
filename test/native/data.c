/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests training data with the C ABI: data FOLDER DEVICE. Reads an epoch of a folder of
 * files in batches, resumes in its middle, and checks every byte.
 */
#include "check.h"

#include <sys/stat.h>

enum { FILES = 10, BATCH = 4 };

static memory place;

static size_t size_of(int i) { return (size_t)(i * 37 % 11 + 1); }

/* Checks the bytes of a batch, and adds its samples to seen. */
static void look(uint64_t data, const nebulaio_batch *b, int seen[FILES])
{
	char keys[4096], want[64], bytes[64];
	EXPECT(b->ncolumns == 1 && b->columns[0].offsets[0] == 0);
	EXPECT((uint64_t)b->columns[0].offsets[b->count] == b->columns[0].size);
	MUST(nebulaio_data_keys(data, b->samples, b->count, keys, sizeof keys, NULL, err, sizeof err));
	for (uint64_t i = 0; i < b->count; i++) {
		const int n = (int)b->samples[i];
		const int64_t from = b->columns[0].offsets[i], to = b->columns[0].offsets[i + 1];
		snprintf(want, sizeof want, "\"%02d.bin\"", n);
		EXPECT(strstr(keys, want) && (size_t)(to - from) == size_of(n));
		memory_read(&place, bytes, (char *)b->columns[0].address + from, (size_t)(to - from));
		for (int64_t k = 0; k < to - from; k++)
			EXPECT(bytes[k] == 'a' + n);
		seen[n]++;
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: data FOLDER DEVICE");
	char folder[4096], name[4200], options[4096], state[1024], text[8192];
	snprintf(folder, sizeof folder, "%s/samples-c", argv[1]);
	if (mkdir(folder, 0700))
		fatal(folder);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "%s/%02d.bin", folder, i);
		FILE *f = fopen(name, "wb");
		for (size_t k = 0; f && k < size_of(i); k++)
			fputc('a' + i, f);
		if (!f || fclose(f))
			fatal("cannot write a sample");
	}
	place = memory_of(argv[2]);
	uint64_t system, data, loader, batch;
	MUST(nebulaio_system_open(NULL, &system, err, sizeof err));
	const char *source = folder;
	MUST(nebulaio_data_open_start(system, &source, 1, "{\"format\":\"files\"}", &data, err, sizeof err));
	MUST(nebulaio_wait(data, -1, NULL, err, sizeof err));
	MUST(nebulaio_report(data, text, sizeof text, NULL, err, sizeof err));
	EXPECT(strstr(text, "\"samples\":10") && strstr(text, "\"fingerprint\""));
	MUST(nebulaio_data_sample(data, 3, text, sizeof text, NULL, err, sizeof err));
	EXPECT(strstr(text, "03.bin") && strstr(text, "\"size\":2"));

	snprintf(options, sizeof options, "{\"batch\":%d,\"tail\":\"short\",\"seed\":5,\"epochs\":1,\"device\":\"%s\"}", BATCH, argv[2]);
	MUST(nebulaio_loader_open(data, options, &loader, err, sizeof err));
	MUST(nebulaio_loader_describe(loader, text, sizeof text, NULL, err, sizeof err));
	EXPECT(strstr(text, "\"batches\":3"));
	int seen[FILES] = {0};
	nebulaio_batch b = {sizeof b, 0, NULL, NULL, 0, 0, 0, 0, 0};
	MUST(nebulaio_loader_next(loader, -1, &b, &batch, err, sizeof err));
	EXPECT(b.count == BATCH && b.next_position == BATCH && !b.last);
	look(data, &b, seen);
	MUST(nebulaio_batch_state(batch, state, sizeof state, NULL, err, sizeof err));
	EXPECT(nebulaio_release(data, err, sizeof err) == NEBULAIO_ERR_INVALID);
	MUST(nebulaio_release(loader, err, sizeof err));
	look(data, &b, (int[FILES]){0}); /* the batch outlives its loader */
	MUST(nebulaio_batch_free(batch, NULL, err, sizeof err));
	EXPECT(nebulaio_release(batch, err, sizeof err) == NEBULAIO_ERR_CLOSED);

	snprintf(options, sizeof options, "{\"batch\":%d,\"tail\":\"short\",\"epochs\":1,\"device\":\"%s\",\"state\":%s}", BATCH,
	         argv[2], state);
	MUST(nebulaio_loader_open(data, options, &loader, err, sizeof err));
	int batches = 0;
	for (;;) {
		int32_t status;
		while ((status = nebulaio_loader_next(loader, 10, &b, &batch, err, sizeof err)) == NEBULAIO_RUNNING)
			;
		MUST(status);
		if (!batch)
			break;
		look(data, &b, seen);
		batches++;
		MUST(nebulaio_batch_free(batch, NULL, err, sizeof err));
	}
	EXPECT(batches == 2 && b.last);
	for (int i = 0; i < FILES; i++)
		EXPECT(seen[i] == 1);
	MUST(nebulaio_loader_report(loader, text, sizeof text, NULL, err, sizeof err));
	EXPECT(strstr(text, "\"batches\":2") && strstr(text, "\"wait_seconds\""));
	EXPECT(nebulaio_release(system, err, sizeof err) == NEBULAIO_ERR_INVALID);
	MUST(nebulaio_release(loader, err, sizeof err));
	MUST(nebulaio_release(data, err, sizeof err));
	MUST(nebulaio_release(system, err, sizeof err));
	printf("C: training data on %s\n", argv[2]);
	return 0;
}
