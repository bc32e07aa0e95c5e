// SPDX-License-Identifier: Apache-2.0
//
// Measures the limits of this machine in plain C, without NebulaIO:
//
//   bare read FILE THREADS BLOCK          O_DIRECT reads of all of FILE into huge pages
//   bare write FILE SIZE THREADS BLOCK    O_DIRECT writes into a preallocated new file, then fdatasync and the directory's fsync
//   bare tcp FILE STREAMS                 FILE by sendfile over that many loopback connections into host memory
//   bare tcpmem SIZE STREAMS              SIZE bytes out of a small buffer over that many loopback connections
//
// Each command prints one line: seconds and GB/s.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
	perror(what);
	exit(1);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static char *memory(size_t n) {
	size_t huge = 2 << 20;
	char *p = mmap(NULL, n + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) die("mmap");
	p = (char *)(((uintptr_t)p + huge - 1) / huge * huge);
	madvise(p, n, MADV_HUGEPAGE);
	memset(p, 1, n);
	return p;
}

static int fd, writes, threads, from_memory;
static int64_t size, block;
static atomic_llong next;
static char *mem;

static void *io(void *arg) {
	char *buf = mem + (int64_t)(intptr_t)arg * block;
	for (;;) {
		int64_t off = atomic_fetch_add(&next, block);
		if (off >= size) return NULL;
		int64_t n = size - off < block ? size - off : block;
		ssize_t got = writes ? pwrite(fd, buf, n, off) : pread(fd, buf, block, off);
		if (got < n) die(writes ? "pwrite" : "pread");
	}
}

static int listener;

static void *serve(void *arg) {
	(void)arg;
	static atomic_int order;
	int c = accept(listener, NULL, NULL);
	if (c < 0) die("accept");
	int i = atomic_fetch_add(&order, 1);
	int64_t lo = size * i / threads, hi = size * (i + 1) / threads;
	uint32_t head = i;
	if (send(c, &head, sizeof head, 0) != sizeof head) die("send");
	static char small[1 << 20];
	for (off_t off = lo; off < hi;) {
		size_t n = hi - off;
		if (from_memory) {
			ssize_t sent = send(c, small, n < sizeof small ? n : sizeof small, 0);
			if (sent <= 0) die("send");
			off += sent;
		} else if (sendfile(c, fd, &off, n < (4 << 20) ? n : (4 << 20)) <= 0) {
			die("sendfile");
		}
	}
	close(c);
	return NULL;
}

static void *receive(void *arg) {
	int c = (int)(intptr_t)arg;
	uint32_t i;
	if (recv(c, &i, sizeof i, MSG_WAITALL) != sizeof i) die("recv");
	int64_t lo = size * i / threads, hi = size * (i + 1) / threads;
	while (lo < hi) {
		ssize_t n = recv(c, mem + lo, hi - lo < (1 << 20) ? hi - lo : (1 << 20), 0);
		if (n <= 0) die("recv");
		lo += n;
	}
	close(c);
	return NULL;
}

static void tcp(void) {
	mem = memory(size);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	if (bind(listener, (void *)&a, len) || listen(listener, threads) || getsockname(listener, (void *)&a, &len)) die("listen");
	pthread_t s[threads], r[threads];
	int c[threads];
	for (int i = 0; i < threads; i++) {
		c[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(c[i], (void *)&a, len)) die("connect");
	}
	double t = now();
	for (int i = 0; i < threads; i++) {
		pthread_create(&s[i], NULL, serve, NULL);
		pthread_create(&r[i], NULL, receive, (void *)(intptr_t)c[i]);
	}
	for (int i = 0; i < threads; i++) pthread_join(r[i], NULL);
	t = now() - t;
	printf("%.6f %.3f\n", t, size / t / 1e9);
}

int main(int argc, char **argv) {
	if (argc < 4) {
		fprintf(stderr, "usage: see the head of bare.c\n");
		return 2;
	}
	const char *what = argv[1];
	struct stat st;
	if (!strcmp(what, "tcpmem")) {
		from_memory = 1;
		size = atoll(argv[2]);
		threads = atoi(argv[3]);
		tcp();
		return 0;
	}
	if (!strcmp(what, "tcp")) {
		fd = open(argv[2], O_RDONLY);
		if (fd < 0 || fstat(fd, &st)) die(argv[2]);
		size = st.st_size;
		threads = atoi(argv[3]);
		tcp();
		return 0;
	}
	writes = !strcmp(what, "write");
	double t;
	if (writes) {
		size = atoll(argv[3]);
		threads = atoi(argv[4]);
		block = atoll(argv[5]);
		mem = memory(threads * block);
		t = now();
		fd = open(argv[2], O_WRONLY | O_CREAT | O_EXCL | O_DIRECT, 0600);
		if (fd < 0 || fallocate(fd, 0, 0, size)) die(argv[2]);
	} else {
		fd = open(argv[2], O_RDONLY | O_DIRECT);
		if (fd < 0 || fstat(fd, &st)) die(argv[2]);
		size = st.st_size;
		threads = atoi(argv[3]);
		block = atoll(argv[4]);
		mem = memory(threads * block);
		t = now();
	}
	pthread_t p[threads];
	for (int i = 0; i < threads; i++) pthread_create(&p[i], NULL, io, (void *)(intptr_t)i);
	for (int i = 0; i < threads; i++) pthread_join(p[i], NULL);
	if (writes) {
		if (fdatasync(fd)) die("fdatasync");
		char *copy = strdup(argv[2]);
		int d = open(dirname(copy), O_RDONLY | O_DIRECTORY);
		if (d < 0 || fsync(d)) die("fsync");
	}
	t = now() - t;
	printf("%.6f %.3f\n", t, size / t / 1e9);
	return 0;
}
