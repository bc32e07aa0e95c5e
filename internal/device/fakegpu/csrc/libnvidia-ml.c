/* SPDX-License-Identifier: Apache-2.0 */
/* A management library that knows one link, one BAR1 and one set of modes for every GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* Meters. The file of the variable FAKE_NVML_STATE, or of fake_state_file, has a line for each GPU: busy percent, memory
 * percent, bytes per second to the GPU and from it. It is read at every call, so that a test steers a running program. A
 * GPU without a line is idle. */
struct meters { unsigned busy, memory; double in, out; };

static int count = 1;
void fake_count(int n) { count = n; }

static char state[4096];
void fake_state_file(const char *name) { snprintf(state, sizeof state, "%s", name); }

static struct meters meters_of(void *d)
{
	struct meters m = {0, 0, 0, 0}, line;
	const char *name = state[0] ? state : getenv("FAKE_NVML_STATE");
	FILE *f = name ? fopen(name, "r") : NULL;
	if (!f) return m;
	for (unsigned long i = 0xa0; fscanf(f, "%u %u %lf %lf", &line.busy, &line.memory, &line.in, &line.out) == 4; i++)
		if (i == (unsigned long)d) m = line;
	fclose(f);
	return m;
}

int nvmlDeviceGetCount_v2(unsigned *out) { *out = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out)
{
	if (i >= (unsigned)count) return 2;
	*out = (void *)(0xa0ul + i);
	return 0;
}
int nvmlDeviceGetName(void *d, char *out, unsigned len) { snprintf(out, len, "Fake GPU"); return !d; }
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *d, struct pci *out)
{
	memset(out, 0, sizeof *out);
	snprintf(out->bus_id, sizeof out->bus_id, "0000FFFF:%02lX:00.0", (unsigned long)d);
	return !d;
}
int nvmlDeviceGetUtilizationRates(void *d, unsigned out[2])
{
	struct meters m = meters_of(d);
	out[0] = m.busy; out[1] = m.memory;
	return !d;
}
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *d, struct memory *out)
{
	unsigned long long v[3];
	if (out->version != (2u << 24 | sizeof *out)) return 25;
	nvmlDeviceGetMemoryInfo(d, v);
	out->total = v[0]; out->reserved = 4 << 20; out->used = v[2] - (4 << 20); out->free = v[1];
	return !d;
}
int nvmlDeviceGetPowerUsage(void *d, unsigned *out) { *out = 123000; return !d; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out) { *out = 45; return sensor || !d; }
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *out) { *out = kind == 1 ? 1980 : 0; return !d; }
int nvmlDeviceGetCurrentClocksEventReasons(void *d, unsigned long long *out) { *out = 0x4 | 0x1; return !d; }
int nvmlDeviceGetPcieThroughput(void *d, int from, unsigned *out)
{
	struct meters m = meters_of(d);
	*out = (unsigned)((from ? m.in : m.out) / 1024);
	return !d;
}

/* The counters grow with the clock of the machine, at the rates of the state file. */
struct field { unsigned id, scope; long long at, latency; int kind; unsigned result; unsigned long long value; };
static int narrow; /* 1: counters have 32 bits */
void fake_narrow_counters(int on) { narrow = on; }

int nvmlDeviceGetFieldValues(void *d, int n, struct field *v)
{
	static struct { double last, in, out; } at[8];
	struct timespec now;
	struct meters m = meters_of(d);
	int i = (int)((unsigned long)d - 0xa0) & 7;
	clock_gettime(CLOCK_REALTIME, &now);
	long long us = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
	double t = us / 1e6; /* exactly the time that is told */
	if (at[i].last > 0) {
		at[i].in += (t - at[i].last) * m.in;
		at[i].out += (t - at[i].last) * m.out;
	}
	at[i].last = t;
	for (int k = 0; k < n; k++) {
		v[k].at = us;
		v[k].kind = narrow ? 1 : 3;
		v[k].result = v[k].id == 197 || v[k].id == 198 ? 0 : 3;
		v[k].value = (unsigned long long)(v[k].id == 198 ? at[i].in : at[i].out);
	}
	return !d;
}

/* Sessions begun and not ended; for tests. */
long fake_sessions(void) { return sessions; }
