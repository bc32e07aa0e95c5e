/* SPDX-License-Identifier: Apache-2.0 */
/* A management library that knows one link, one BAR1 and one set of modes for every GPU. */
#include <stdio.h>
#include <string.h>

#ifndef FAKE_NVML_INIT
#define FAKE_NVML_INIT 0
#endif

static long sessions;

int nvmlInit_v2(void) { if (FAKE_NVML_INIT) return FAKE_NVML_INIT; sessions++; return 0; }
int nvmlShutdown(void) { if (!sessions) return 1; sessions--; return 0; }
const char *nvmlErrorString(int r) { return r == 9 ? "Driver Not Loaded" : r == 1 ? "Uninitialized" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned len) { snprintf(out, len, "999.1.2"); return 0; }

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

/* Sessions begun and not ended; for tests. */
long fake_sessions(void) { return sessions; }
