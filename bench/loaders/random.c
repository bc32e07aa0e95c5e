// SPDX-License-Identifier: Apache-2.0
//
// Reads blocks of a file past the page cache, in random order and each block once:
//
//   random FILE OFFSET BLOCK COUNT DEPTH SEED
//
// OFFSET and BLOCK are multiples of 4096. DEPTH threads have one O_DIRECT read in flight each. The program prints the
// seconds of all reads.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int fd;
static int64_t offset, block, count;
static int64_t *order;
static atomic_llong next;

static void die(const char *what) {
	perror(what);
	exit(1);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *work(void *buffer) {
	for (;;) {
		int64_t i = atomic_fetch_add(&next, 1);
		if (i >= count) return NULL;
		ssize_t got = pread(fd, buffer, block, offset + order[i] * block);
		if (got != block) {
			if (got >= 0) errno = EIO; // the file is shorter than the caller said
			die("pread");
		}
	}
}

int main(int argc, char **argv) {
	if (argc != 7) {
		fprintf(stderr, "usage: random FILE OFFSET BLOCK COUNT DEPTH SEED\n");
		return 2;
	}
	offset = atoll(argv[2]), block = atoll(argv[3]), count = atoll(argv[4]);
	int depth = atoi(argv[5]);
	uint64_t seed = strtoull(argv[6], NULL, 10) * 2 + 1;
	if (offset % 4096 || block <= 0 || block % 4096 || count <= 0 || depth <= 0 || depth > 4096) {
		fprintf(stderr, "random: OFFSET and BLOCK must be multiples of 4096, and the other numbers positive\n");
		return 2;
	}
	fd = open(argv[1], O_RDONLY | O_DIRECT);
	if (fd < 0) die(argv[1]);
	order = malloc(count * sizeof *order);
	if (!order) die("malloc");
	for (int64_t i = 0; i < count; i++) order[i] = i;
	for (int64_t i = count - 1; i > 0; i--) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		int64_t j = (int64_t)((seed >> 33) % (uint64_t)(i + 1)), t = order[i];
		order[i] = order[j], order[j] = t;
	}
	char *memory = mmap(NULL, depth * block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) die("mmap");
	memset(memory, 1, depth * block);
	pthread_t *threads = malloc(depth * sizeof *threads);
	if (!threads) die("malloc");
	double start = now();
	for (int i = 0; i < depth; i++)
		if ((errno = pthread_create(&threads[i], NULL, work, memory + i * block))) die("pthread_create");
	for (int i = 0; i < depth; i++) pthread_join(threads[i], NULL);
	printf("%.6f\n", now() - start);
	return 0;
}
