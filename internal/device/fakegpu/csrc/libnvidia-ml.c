/* SPDX-License-Identifier: Apache-2.0 */
/* A management library that knows one link, one BAR1 and one set of modes for every GPU. */
#include <stdio.h>
#include <string.h>

#ifndef FAKE_NVML_INIT
#define FAKE_NVML_INIT 0
#endif

#ifndef FAKE_RELEASE
#define FAKE_RELEASE "999.1.2"
#endif

static long sessions;

int nvmlInit_v2(void) { if (FAKE_NVML_INIT) return FAKE_NVML_INIT; sessions++; return 0; }
int nvmlShutdown(void) { if (!sessions) return 1; sessions--; return 0; }
const char *nvmlErrorString(int r) { return r == 9 ? "Driver Not Loaded" : r == 1 ? "Uninitialized" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned len) { snprintf(out, len, "%s", FAKE_RELEASE); return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out)
{
	unsigned dom, b;
	if (sscanf(bus, "%x:%x:00.0", &dom, &b) != 2) return 2;
	*out = (void *)(unsigned long)b;
	return 0;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void *d, unsigned *out) { *out = 1; return !d; }
int nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *out) { *out = 16; return !d; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *d, unsigned *out) { *out = 5; return !d; }
int nvmlDeviceGetMaxPcieLinkWidth(void *d, unsigned *out) { *out = 16; return !d; }
int nvmlDeviceGetBAR1MemoryInfo(void *d, unsigned long long out[3]) { out[0] = 1ull << 38; out[1] = out[2] = 0; return !d; }

int nvmlDeviceGetPersistenceMode(void *d, int *out) { *out = 1; return !d; }
int nvmlDeviceGetPcieReplayCounter(void *d, unsigned *out) { *out = 7; return !d; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *pending) { *now = 0; *pending = 1; return !d; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) { *major = 9; *minor = 0; return !d; }

/* Memory of processes, as the fake driver tells. A GPU has 1 GiB. */
static struct { unsigned pid, bus; long bytes; } held[64];
static int hides; /* 1: the memory of processes is not told */

void fake_process_bytes(int pid, int dev, long bytes)
{
	for (int i = 0; i < 64; i++)
		if (!held[i].pid || (held[i].pid == (unsigned)pid && held[i].bus == 0xa0u + dev)) {
			held[i].pid = pid; held[i].bus = 0xa0 + dev; held[i].bytes = bytes;
			return;
		}
}
void fake_hide_bytes(int on) { hides = on; }

int nvmlDeviceGetMemoryInfo(void *d, unsigned long long out[3])
{
	out[0] = 1ull << 30; out[2] = 4 << 20;
	for (int i = 0; i < 64; i++)
		if (held[i].bus == (unsigned)(unsigned long)d) out[2] += held[i].bytes;
	out[1] = out[0] - out[2];
	return !d;
}

struct process { unsigned pid; unsigned long long used; unsigned instances[2]; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, struct process *out)
{
	unsigned room = *count;
	*count = 0;
	for (int i = 0; i < 64; i++)
		if (held[i].bus == (unsigned)(unsigned long)d && held[i].bytes) {
			if (*count == room) return 7;
			out[(*count)++] = (struct process){held[i].pid, hides ? ~0ull : (unsigned long long)held[i].bytes, {~0u, ~0u}};
		}
	return 0;
}

/* Sessions begun and not ended; for tests. */
long fake_sessions(void) { return sessions; }
