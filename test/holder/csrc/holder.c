/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process to dump: it holds MIB of memory with a pattern, a log file and a data file. At each SIGUSR1 it appends a line
 * to the log: how often it was asked, the sum of its memory, and the next 4 bytes of the data file.
 * If LIBRARY is given, the process has it loaded, as a CUDA process has its driver.
 * holder MIB LOG DATA [LIBRARY]
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc != 4 && argc != 5) return 2;
	if (argc == 5 && !dlopen(argv[4], RTLD_NOW)) return 7;
	size_t words = (size_t)atol(argv[1]) << 17;
	uint64_t *m = mmap(NULL, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED) return 3;
	uint64_t x = 88172645463325252ull;
	for (size_t i = 0; i < words; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		m[i] = x;
	}
	int log = open(argv[2], O_WRONLY | O_APPEND | O_CREAT, 0600), data = open(argv[3], O_RDONLY);
	if (log < 0 || data < 0) return 4;
	sigset_t ask;
	sigemptyset(&ask);
	sigaddset(&ask, SIGUSR1);
	sigprocmask(SIG_BLOCK, &ask, NULL);
	for (int n = 0;; n++) {
		uint64_t sum = 14695981039346656037ull;
		for (size_t i = 0; i < words; i++) sum = (sum ^ m[i]) * 1099511628211ull;
		char next[5] = "";
		if (n && read(data, next, 4) < 0) return 5;
		if (dprintf(log, "%d %016" PRIx64 " %s\n", n, sum, next) < 0) return 6;
		int got;
		sigwait(&ask, &got);
	}
}
