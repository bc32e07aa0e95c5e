/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests gathers and writes of pieces as a C program makes them: gather FOLDER DEVICE.
 * Pieces of the device and of the host are written to a file, and ranges of the file are
 * gathered with verification, after the work of a stream. One changed byte is found, and
 * the error names file and label.
 */
#include "check.h"

#include <unistd.h>

enum { SIZE = (3 << 20) + 77, HEAD = 1000, ROWS = 3000 };

static memory place;
static uint64_t sys;
static const char *device;

static char *report_of(uint64_t job)
{
	size_t need = 0;
	MUST(nebulaio_report(job, NULL, 0, &need, err, sizeof err));
	char *text = malloc(need + 1);
	MUST(nebulaio_report(job, text, need + 1, &need, err, sizeof err));
	return text;
}

/* Writes content to a file: the first bytes from host memory, the others from the device. The
 * structs and texts are freed before the job runs. */
static void write_pieces(const char *path, unsigned char *content, const char *options)
{
	void *mem = memory_take(&place, SIZE - HEAD, 256);
	const nebulaio_stream stream = memory_stream(&place);
	unsigned char *pinned = memory_pinned(&place, SIZE - HEAD);
	memcpy(pinned, content + HEAD, SIZE - HEAD);
	memory_put(&place, mem, pinned, SIZE - HEAD, stream); /* the write waits for this copy */
	struct {
		nebulaio_piece pieces[3];
		char text[3][16], path[4096];
	} *gone = malloc(sizeof *gone);
	gone->pieces[0] = (nebulaio_piece){content, HEAD, strcpy(gone->text[0], "host")};
	gone->pieces[1] = (nebulaio_piece){NULL, 0, strcpy(gone->text[1], device)};
	gone->pieces[2] = (nebulaio_piece){mem, SIZE - HEAD, strcpy(gone->text[2], device)};
	uint64_t job = 0;
	MUST(nebulaio_write_start(sys, strcpy(gone->path, path), gone->pieces, 3, stream, options, &job, err, sizeof err));
	memset(gone, 0x5a, sizeof *gone);
	free(gone);
	MUST(nebulaio_wait(job, -1, NULL, err, sizeof err));
	char *text = report_of(job);
	EXPECT(strstr(text, "\"op\":\"write\"") && strstr(text, "\"crc64nvme\":\"") && strstr(text, "\"pieces\":3"));
	free(text);
	MUST(nebulaio_release(job, err, sizeof err));
	memory_stream_end(&place, stream);
	memory_unpin(&place, pinned);
	memory_give(&place, mem);
	size_t size = 0;
	unsigned char *written = file_bytes(path, &size);
	EXPECT(size == SIZE && memcmp(written, content, SIZE) == 0);
	free(written);
}

/* Gathers rows, a range and nothing; returns the status of a failed job. */
static int32_t gather(const char *path, const unsigned char *content)
{
	char options[64];
	snprintf(options, sizeof options, "{\"device\":\"%s\",\"verify\":true}", device);
	unsigned char *mem = memory_take(&place, SIZE, 256), *got = malloc(SIZE);
	struct {
		nebulaio_segment segments[3];
		const char *files[2];
		char label[16];
	} *gone = malloc(sizeof *gone);
	gone->files[0] = "a file without a segment", gone->files[1] = path;
	gone->segments[0] = (nebulaio_segment){1, 2 << 20, 1 << 20, 0, 0, past(mem, ROWS * 7), strcpy(gone->label, "range")};
	gone->segments[1] = (nebulaio_segment){1, 5, ROWS * 100, 7, 100, mem, NULL};
	gone->segments[2] = (nebulaio_segment){1, SIZE, 0, 0, 0, NULL, NULL};
	const nebulaio_stream stream = memory_stream(&place);
	uint64_t job = 0;
	MUST(nebulaio_gather_start(sys, gone->files, 2, gone->segments, 3, stream, options, &job, err, sizeof err));
	memset(gone, 0x5a, sizeof *gone);
	free(gone);
	nebulaio_progress progress = {0, 0};
	const int32_t status = nebulaio_wait(job, -1, &progress, err, sizeof err);
	if (status == NEBULAIO_OK) {
		EXPECT(progress.bytes_done == ROWS * 7 + (1 << 20) && progress.bytes_total == progress.bytes_done);
		memory_read(&place, got, mem, ROWS * 7 + (1 << 20));
		for (int i = 0; i < ROWS; i++)
			EXPECT(memcmp(got + i * 7, content + 5 + i * 100, 7) == 0);
		EXPECT(memcmp(got + ROWS * 7, content + (2 << 20), 1 << 20) == 0);
	}
	MUST(nebulaio_release(job, NULL, 0));
	memory_stream_end(&place, stream);
	memory_give(&place, mem);
	free(got);
	return status;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		fatal("usage: gather FOLDER DEVICE");
	device = argv[2];
	place = memory_of(device);
	MUST(nebulaio_system_open(NULL, &sys, err, sizeof err));
	char path[4096], sums[4200];
	path_in(path, sizeof path, argv[1], "c.pieces");
	snprintf(sums, sizeof sums, "%s.crc64nvme", path);
	unsigned char *content = malloc(SIZE);
	fill(content, SIZE, 3);
	write_pieces(path, content, "{\"checksum\":false}");
	EXPECT(access(sums, F_OK) != 0 && gather(path, content) == NEBULAIO_ERR_NOT_FOUND && strstr(err, path));
	write_pieces(path, content, NULL);
	EXPECT(access(sums, F_OK) == 0 && gather(path, content) == NEBULAIO_OK);
	FILE *f = fopen(path, "r+b");
	EXPECT(f && fseek(f, (2 << 20) + 9, SEEK_SET) == 0);
	EXPECT(fputc(content[(2 << 20) + 9] ^ 1, f) != EOF && fclose(f) == 0);
	EXPECT(gather(path, content) == NEBULAIO_ERR_CORRUPT && strstr(err, path) && strstr(err, "tensor \"range\""));
	MUST(nebulaio_release(sys, err, sizeof err));
	free(content);
	printf("C: gathers to %s and writes of pieces, every byte right\n", device);
	return 0;
}
