// SPDX-License-Identifier: Apache-2.0
/* A fake libdcgm for tests: two GPUs, whose values follow from their number. It checks arguments as the real one does. */
#include <stdint.h>
#include <string.h>

typedef struct {
	unsigned version, persist, millis, is_socket;
} connection;

typedef struct {
	unsigned version;
	unsigned short field, kind;
	int status;
	int64_t at;
	union {
		int64_t i64;
		double dbl;
		char blob[4096];
	} value;
} value;

enum { BAD = -1, NO_CONNECTION = -21, NOT_SUPPORTED = -6 };
static int started, connected, groups, watched;

int dcgmInit(void) { return started++, 0; }
int dcgmShutdown(void) { return started--, 0; }
int fake_open(void) { return started + connected + groups + watched; }

const char *errorString(int status) { return status == NO_CONNECTION ? "Host engine connection invalid/disconnected" : 0; }

int dcgmConnect_v2(const char *address, connection *c, uintptr_t *handle)
{
	if (!started || c->version != (sizeof *c | 2u << 24) || c->millis == 0)
		return BAD;
	if (strcmp(address, "127.0.0.1"))
		return NO_CONNECTION;
	connected++;
	return *handle = 77, 0;
}

int dcgmDisconnect(uintptr_t handle) { return handle == 77 ? connected--, 0 : BAD; }

int dcgmGetAllSupportedDevices(uintptr_t handle, unsigned *list, int *count)
{
	if (handle != 77)
		return BAD;
	list[0] = 4, list[1] = 5;
	return *count = FAKE_GPUS, 0;
}

int dcgmFieldGroupCreate(uintptr_t handle, int n, const unsigned short *fields, const char *name, uintptr_t *group)
{
	if (handle != 77 || n != 8 || fields[0] != 52 || fields[1] != 1002 || strncmp(name, "nebulaio-", 9))
		return BAD;
	groups++;
	return *group = 88, 0;
}

int dcgmFieldGroupDestroy(uintptr_t handle, uintptr_t group) { return handle == 77 && group == 88 ? groups--, 0 : BAD; }

int dcgmWatchFields(uintptr_t handle, uintptr_t gpus, uintptr_t group, long long every, double seconds, int samples)
{
	if (handle != 77 || gpus != 0x7fffffff || group != 88 || every <= 0 || seconds != 10.0 || samples <= 0)
		return BAD;
	if (FAKE_WATCH)
		return FAKE_WATCH;
	watched++;
	return 0;
}

int dcgmUnwatchFields(uintptr_t handle, uintptr_t gpus, uintptr_t group)
{
	return handle == 77 && gpus == 0x7fffffff && group == 88 ? watched--, 0 : BAD;
}

int dcgmGetLatestValuesForFields(uintptr_t handle, int gpu, unsigned short *fields, unsigned n, value *values)
{
	if (handle != 77 || !watched || (gpu != 4 && gpu != 5))
		return BAD;
	for (unsigned i = 0; i < n; i++) {
		if (values[i].version != (sizeof(value) | 1u << 24))
			return BAD;
		values[i].field = fields[i], values[i].status = 0;
		if (fields[i] == 52) {
			values[i].kind = 'i', values[i].value.i64 = gpu - 4;
		} else if (fields[i] >= 1009) {
			values[i].kind = 'i', values[i].value.i64 = fields[i] * 1000000LL;
		} else {
			values[i].kind = 'd', values[i].value.dbl = gpu == 4 ? 0.25 : 140737488355328.0;
		}
		if (fields[i] == 1012 && gpu == 5)
			values[i].status = NOT_SUPPORTED;
	}
	return 0;
}
