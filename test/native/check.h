/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that the native tests share: failures with place and reason, reads of
 * whole files, and test content without repetition.
 */
#ifndef NEBULAIO_TEST_CHECK_H
#define NEBULAIO_TEST_CHECK_H

#include "memory.h"

#include "nebulaio/nebulaio.h"

static char err[4096]; /* the last message of the library */

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

/* Returns the content of a file, from malloc. */
static inline unsigned char *file_bytes(const char *path, size_t *size)
{
	FILE *in = fopen(path, "rb");
	if (!in || fseek(in, 0, SEEK_END))
		fatal(path);
	*size = (size_t)ftell(in);
	rewind(in);
	unsigned char *bytes = (unsigned char *)malloc(*size + 1);
	if (!bytes || fread(bytes, 1, *size, in) != *size)
		fatal(path);
	fclose(in);
	return bytes;
}

/* Generates bytes: the same for the same seed, and different at every offset. */
static inline void fill(unsigned char *to, size_t n, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		to[i] = (unsigned char)(x >> 32);
	}
}

/* Writes DIRECTORY/NAME into a buffer of the caller. */
static inline const char *path_in(char *buf, size_t cap, const char *directory, const char *name)
{
	if (snprintf(buf, cap, "%s/%s", directory, name) >= (int)cap)
		fatal("the path is too long");
	return buf;
}

#endif /* NEBULAIO_TEST_CHECK_H */
