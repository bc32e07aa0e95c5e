/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcufile without a GPU: device memory is host memory at its own address,
 * so a read is a pread. It refuses what the real one refuses, counts each
 * operation on the route that a test chose, and fails in either of the two ways
 * in which releases of the real one fail. The structures are written down here
 * from the header's list, apart from the binding's, so that one checks the other.
 *
 * The fake_* functions at the end are for tests. One mutex guards everything.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef FAKE_CUFILE_VERSION
#define FAKE_CUFILE_VERSION 1151
#endif
#ifndef FAKE_ROUTE
#define FAKE_ROUTE 0
#endif
#ifndef FAKE_REGISTER
#define FAKE_REGISTER 0 /* what every cuFileHandleRegister returns, with a line in the log */
#endif
#ifndef FAKE_COMPAT_ONLY
#define FAKE_COMPAT_ONLY 0 /* neither nvidia-fs nor P2PDMA is there */
#endif
#ifndef FAKE_CRASH
#define FAKE_CRASH 0 /* the first read ends the process */
#endif

typedef struct { int err, cu_err; } result;
typedef struct { int type; union { int fd; void *handle; } u; const void *fs_ops; } descr;
typedef struct {
	struct { unsigned major, minor; size_t poll_kb, direct_kb; unsigned status, control; } nvfs;
	unsigned features, cache_kb, per_buffer_kb, pinned_kb, batch, batch_ms;
} props;
typedef struct { uint64_t ok, err; } counter;
typedef struct {
	counter read, write, hdl_register, hdl_deregister, buf_register, buf_deregister;
	uint64_t read_bytes, write_bytes, rates[8];
	counter batch[15];
	uint64_t batch_sums[12];
} level1;
typedef struct { level1 basic; uint64_t read_hist[32], write_hist[32]; } level2;
typedef struct {
	char uuid[16];
	uint64_t read_bytes, read_bw, read_util, read_us, n_reads, p2p_reads, nvfs_reads, posix_reads, unaligned_reads, dr_reads, sparse, inline_regions, reads_err;
	uint64_t write_bytes, write_bw, write_util, write_us, n_writes, p2p_writes, nvfs_writes, posix_writes, unaligned_writes, dr_writes, writes_err;
	uint64_t mmaps, mmaps_ok, mmaps_err, mmaps_free, reg_bytes;
} gpu_stats;
typedef struct { level2 detailed; uint32_t num_gpus; gpu_stats gpu[16]; } level3;
typedef struct {
	int mode;
	struct { void *base; off_t file_offset, buf_offset; size_t size; } batch;
	void *fh; int opcode; void *cookie;
} io_params;
typedef struct { void *cookie; int status; size_t ret; } io_event;
_Static_assert(sizeof(descr) == 24 && sizeof(props) == 56 && sizeof(level1) == 512 && sizeof(level2) == 1024, "layout");
_Static_assert(sizeof(gpu_stats) == 248 && sizeof(level3) == 5000 && sizeof(io_params) == 64 && sizeof(io_event) == 24, "layout");

struct handle { int fd, live; struct handle *next; int copy; };
struct buffer { uintptr_t lo; size_t size; struct buffer *next; };
struct failure { char fn[48]; long skip, times; int code, cuda, in_errno; struct failure *next; };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct handle *handles;
static struct buffer *buffers;
static struct failure *failures;
static long users, stats_level, started, route = FAKE_ROUTE, most, apart;
static __thread int in_batch;
static unsigned extra_status, extra_features;
static level3 stats;
static uint64_t sizes[12] = {[1] = 128, [5] = 16384, [6] = 131072};
static bool switches[12] = {[1] = true};
static char texts[3][256] = {"ERROR"};
static void *(*current)(void); /* the fake driver's current context, where a test gave it */
static struct { long handles, buffers, unregistered, context_errors, failures, opens, batches, batches_made, streams, stats_calls; } n;

static int injected(const char *fn, struct failure *out)
{
	for (struct failure *f = failures; f; f = f->next) {
		if (strcmp(f->fn, fn) || f->times == 0) continue;
		if (f->skip > 0) { f->skip--; continue; }
		f->times--;
		n.failures++;
		*out = *f;
		return 1;
	}
	return 0;
}

static result leave(int code, int cuda) { pthread_mutex_unlock(&mu); return (result){code, cuda}; }
#define OK leave(0, 0)
#define ENTER(fn) pthread_mutex_lock(&mu); struct failure f_; if (injected(fn, &f_)) return leave(f_.code, f_.cuda)
#define ENTER_STATS(fn) ENTER(fn); n.stats_calls++
#define NEED_DRIVER if (!users) return leave(5001, 0)
#define NEED_CONTEXT if (current && !current()) { n.context_errors++; return leave(5011, 201); }

/* One line in the log: at the place that the environment names, else in the directory that the configuration does. */
static void log_error(const char *text)
{
	static char json[65536], path[4096];
	const char *env = getenv("CUFILE_ENV_PATH_JSON"), *place = getenv("CUFILE_LOGFILE_PATH"), *dir = ".", *at;
	size_t len = 1;
	FILE *f = env ? fopen(env, "r") : NULL;
	if (f) {
		json[fread(json, 1, sizeof json - 1, f)] = 0;
		fclose(f);
		if ((at = strstr(json, "\"dir\"")) && (at = strchr(at + 5, '"'))) { dir = at + 1; len = strcspn(dir, "\""); }
	}
	snprintf(path, sizeof path, "%.*s/cufile_%d.log", (int)len, dir, (int)getpid());
	if (place && *place) snprintf(path, sizeof path, "%s", place);
	if (!(f = fopen(path, "a"))) return;
	fprintf(f, " 01-01-2026 00:00:00:001 [pid=1 tid=1] NOTICE  cufio-drv:1 running in compatible mode\n");
	fprintf(f, " 01-01-2026 00:00:00:002 [pid=1 tid=1] ERROR  %s\n 01-01-2026 00:00:00:003 [pid=1 tid=1] ERROR  later\n", text);
	fclose(f);
}

result cuFileDriverOpen(void) { ENTER("cuFileDriverOpen"); NEED_CONTEXT; users++; n.opens++; return OK; }
static result driver_close(const char *fn) { ENTER(fn); NEED_CONTEXT; NEED_DRIVER; users--; return OK; }
result cuFileDriverClose(void) { return driver_close("cuFileDriverClose"); }
result cuFileDriverClose_v2(void) { return driver_close("cuFileDriverClose_v2"); }
long cuFileUseCount(void) { pthread_mutex_lock(&mu); long v = users; pthread_mutex_unlock(&mu); return v; }
result cuFileGetVersion(int *v) { ENTER("cuFileGetVersion"); *v = FAKE_CUFILE_VERSION; return OK; }
result cuFileDriverGetProperties(props *p)
{
	ENTER("cuFileDriverGetProperties");
	NEED_DRIVER;
	*p = (props){{2, 28, 4, 16384, 1 << 4, 2}, 0xf, 131072, 1024, 33554432, 128, 0};
	if (FAKE_COMPAT_ONLY) p->nvfs.major = p->nvfs.minor = p->nvfs.status = 0;
	p->nvfs.status |= extra_status;
	p->features |= extra_features;
	return OK;
}

result cuFileGetParameterSizeT(int i, size_t *v) { ENTER("cuFileGetParameterSizeT"); if (i < 0 || i > 11) return leave(5022, 0); *v = sizes[i]; return OK; }
result cuFileGetParameterBool(int i, bool *v) { ENTER("cuFileGetParameterBool"); if (i < 0 || i > 11) return leave(5022, 0); *v = switches[i]; return OK; }
result cuFileGetParameterString(int i, char *v, int len) { ENTER("cuFileGetParameterString"); if (i < 0 || i > 2) return leave(5022, 0); snprintf(v, len, "%s", texts[i]); return OK; }
#define NEED_CLOSED if (users) return leave(5026, 0)
result cuFileSetParameterSizeT(int i, size_t v) { ENTER("cuFileSetParameterSizeT"); NEED_CLOSED; if (i < 0 || i > 11) return leave(5022, 0); sizes[i] = v; return OK; }
result cuFileSetParameterBool(int i, bool v) { ENTER("cuFileSetParameterBool"); NEED_CLOSED; if (i < 0 || i > 11) return leave(5022, 0); switches[i] = v; return OK; }
result cuFileSetParameterString(int i, const char *v) { ENTER("cuFileSetParameterString"); NEED_CLOSED; if (i < 0 || i > 2) return leave(5022, 0); snprintf(texts[i], sizeof texts[i], "%s", v); return OK; }

result cuFileHandleRegister(void **out, descr *d)
{
	struct stat st;
	ENTER("cuFileHandleRegister");
	NEED_DRIVER;
	NEED_CONTEXT;
	if (FAKE_REGISTER) { log_error("cufio-udev:65 udev property not found: ID_FS_USAGE"); return leave(FAKE_REGISTER, 0); }
	if (d->type != 1 || d->fs_ops || fstat(d->u.fd, &st)) return leave(5022, 0);
	if (!S_ISREG(st.st_mode)) return leave(5018, 0);
	if (!st.st_nlink) return leave(5031, 0);
	if (fcntl(d->u.fd, F_GETFL) & (O_APPEND | O_NONBLOCK)) return leave(5019, 0); /* as 1.15 does */
	for (struct handle *h = handles; h; h = h->next)
		if (h->live && h->fd == d->u.fd) return leave(5028, 0);
	struct handle *h = calloc(1, sizeof *h);
	*h = (struct handle){d->u.fd, 1, handles, fcntl(d->u.fd, F_DUPFD_CLOEXEC, 0)}; /* 1.15 keeps a duplicate, too */
	*out = handles = h;
	n.handles++;
	return OK;
}

void cuFileHandleDeregister(void *fh)
{
	pthread_mutex_lock(&mu);
	if (current && !current()) n.context_errors++;
	for (struct handle *h = handles; h; h = h->next)
		if (h == fh && h->live) { h->live = 0; close(h->copy); n.handles--; }
	pthread_mutex_unlock(&mu);
}

result cuFileBufRegister(const void *base, size_t size, int flags)
{
	ENTER("cuFileBufRegister");
	NEED_DRIVER;
	NEED_CONTEXT;
	if (!base || !size || flags) return leave(5022, 0);
	for (struct buffer *b = buffers; b; b = b->next)
		if (b->lo == (uintptr_t)base) return leave(5023, 0);
	struct buffer *b = calloc(1, sizeof *b);
	*b = (struct buffer){(uintptr_t)base, size, buffers};
	buffers = b;
	n.buffers++;
	return OK;
}

result cuFileBufDeregister(const void *base)
{
	ENTER("cuFileBufDeregister");
	NEED_DRIVER;
	NEED_CONTEXT;
	for (struct buffer **p = &buffers; *p; p = &(*p)->next)
		if ((*p)->lo == (uintptr_t)base) { struct buffer *b = *p; *p = b->next; free(b); n.buffers--; return OK; }
	return leave(5024, 0);
}

/* Counts an operation on the chosen route; mu is held. */
static void counted(int writing, ssize_t done)
{
	gpu_stats *g = &stats.gpu[0];
	if (!started || stats_level < 3) return;
	if (in_batch && apart) {
		counter *b = stats.detailed.basic.batch;
		if (route == 0) b[8].ok++;
		else { b[7].ok++; b[route == 2 ? 9 : 10].ok++; }
		stats.detailed.basic.batch_sums[writing] += done > 0 ? done : 0;
		return;
	}
	uint64_t *read[] = {&g->posix_reads, &g->p2p_reads, &g->nvfs_reads}, *write[] = {&g->posix_writes, &g->p2p_writes, &g->nvfs_writes};
	uint64_t all = writing ? g->n_writes++ : g->n_reads++;
	stats.num_gpus = 1;
	memset(g->uuid, 0x10, 16);
	if (done < 0) { *(writing ? &g->writes_err : &g->reads_err) += 1; return; }
	++*(writing ? write : read)[route == 3 ? all % 2 : (uint64_t)route];
	if (writing) { g->write_bytes += done; stats.detailed.basic.write.ok++; stats.detailed.basic.write_bytes += done; stats.detailed.write_hist[0]++; }
	else { g->read_bytes += done; stats.detailed.basic.read.ok++; stats.detailed.basic.read_bytes += done; stats.detailed.read_hist[0]++; }
}

/* Bytes, or a negative code. O_DIRECT wants all aligned, hence the bounce, which
 * a read begins at the block before. */
static ssize_t transfer(int fd, int writing, char *mem, size_t size, off_t at)
{
	size_t lead = writing ? 0 : at & 4095, room = (lead + size + 4095) & ~4095ul;
	void *bounce;
	if (posix_memalign(&bounce, 4096, room)) return -5043;
	if (writing) memcpy(bounce, mem, size);
	ssize_t done = writing ? pwrite(fd, bounce, size, at) : pread(fd, bounce, room, at - lead);
	if (!writing && done >= 0) {
		done = done < (ssize_t)lead ? 0 : done - (ssize_t)lead;
		if (done > (ssize_t)size) done = size;
		memcpy(mem, (char *)bounce + lead, done);
	}
	int no = errno;
	free(bounce);
	errno = no;
	return done;
}

static ssize_t sync_io(const char *fn, int writing, void *fh, char *base, size_t size, off_t at, off_t off)
{
	struct failure f;
	struct handle *h;
	ssize_t done = 0;
	int no = 0;
	if (FAKE_CRASH && !writing) abort();
	pthread_mutex_lock(&mu);
	for (h = handles; h && (h != fh || !h->live); h = h->next);
	struct buffer *b;
	for (b = buffers; b && b->lo != (uintptr_t)base; b = b->next);
	if (injected(fn, &f)) { done = f.in_errno ? -1 : -f.code; no = f.in_errno ? f.code : 0; }
	else if (!users) done = -5001;
	else if (current && !current()) { n.context_errors++; done = -5047; }
	else if (!h) done = -5027;
	else if (!base || at < 0 || off < 0) done = -5022;
	else if (b && off + size > b->size) done = -5014;
	else {
		if (!b) n.unregistered++;
		if (most && !writing && size > (size_t)most) size = most;
		errno = 0;
		done = transfer(h->fd, writing, base + off, size, at);
		no = done == -1 ? errno : 0;
	}
	counted(writing, done);
	pthread_mutex_unlock(&mu);
	errno = no;
	return done;
}
ssize_t cuFileRead(void *fh, void *base, size_t size, off_t at, off_t off) { return sync_io("cuFileRead", 0, fh, base, size, at, off); }
ssize_t cuFileWrite(void *fh, const void *base, size_t size, off_t at, off_t off) { return sync_io("cuFileWrite", 1, fh, (char *)base, size, at, off); }

result cuFileSetStatsLevel(int level) { ENTER_STATS("cuFileSetStatsLevel"); if (level < 0 || level > 3) return leave(5022, 0); stats_level = level; return OK; }
result cuFileGetStatsLevel(int *level) { ENTER_STATS("cuFileGetStatsLevel"); *level = stats_level; return OK; }
result cuFileStatsStart(void) { ENTER_STATS("cuFileStatsStart"); NEED_DRIVER; started = 1; return OK; }
result cuFileStatsStop(void) { ENTER_STATS("cuFileStatsStop"); NEED_DRIVER; started = 0; return OK; }
result cuFileStatsReset(void) { ENTER_STATS("cuFileStatsReset"); NEED_DRIVER; memset(&stats, 0, sizeof stats); return OK; }
result cuFileGetStatsL1(level1 *out) { ENTER_STATS("cuFileGetStatsL1"); NEED_DRIVER; *out = stats.detailed.basic; return OK; }
result cuFileGetStatsL2(level2 *out) { ENTER_STATS("cuFileGetStatsL2"); NEED_DRIVER; *out = stats.detailed; return OK; }
result cuFileGetStatsL3(level3 *out) { ENTER_STATS("cuFileGetStatsL3"); NEED_DRIVER; if (stats_level < 3) return leave(5022, 0); *out = stats; return OK; }

/* A stream's operation is done at once; the real one does it when the stream gets there. */
static result async_io(const char *fn, int writing, void *fh, void *base, size_t *size, off_t *at, off_t *off, ssize_t *out)
{
	pthread_mutex_lock(&mu);
	struct failure f;
	if (injected(fn, &f)) return leave(f.code, f.cuda);
	pthread_mutex_unlock(&mu);
	if (!size || !at || !off || !out) return (result){5022, 0};
	ssize_t r = sync_io(writing ? "cuFileWrite" : "cuFileRead", writing, fh, base, *size, *at, *off);
	*out = r == -1 ? -errno : r;
	return (result){0, 0};
}
result cuFileReadAsync(void *fh, void *base, size_t *size, off_t *at, off_t *off, ssize_t *out, void *s) { (void)s; return async_io("cuFileReadAsync", 0, fh, base, size, at, off, out); }
result cuFileWriteAsync(void *fh, void *base, size_t *size, off_t *at, off_t *off, ssize_t *out, void *s) { (void)s; return async_io("cuFileWriteAsync", 1, fh, base, size, at, off, out); }
result cuFileStreamRegister(void *s, unsigned flags) { ENTER("cuFileStreamRegister"); NEED_DRIVER; NEED_CONTEXT; (void)s; if (flags > 15) return leave(5022, 0); n.streams++; return OK; }
result cuFileStreamDeregister(void *s) { ENTER("cuFileStreamDeregister"); NEED_DRIVER; NEED_CONTEXT; (void)s; n.streams--; return OK; }

struct batch { unsigned room, done; io_event events[256]; };
result cuFileBatchIOSetUp(void **out, unsigned nr)
{
	ENTER("cuFileBatchIOSetUp");
	NEED_DRIVER;
	NEED_CONTEXT;
	if (nr < 1 || nr > 256) return leave(5022, 0);
	struct batch *b = calloc(1, sizeof *b);
	b->room = nr;
	*out = b;
	n.batches++, n.batches_made++;
	return OK;
}
result cuFileBatchIOSubmit(struct batch *b, unsigned nr, io_params *p, unsigned flags)
{
	ENTER("cuFileBatchIOSubmit");
	NEED_CONTEXT;
	if (flags || b->done + nr > b->room) return leave(5037, 0);
	pthread_mutex_unlock(&mu);
	for (unsigned i = 0; i < nr; i++) {
		if (p[i].mode != 1) return (result){5022, 0};
		in_batch = 1;
		ssize_t r = sync_io(p[i].opcode ? "cuFileWrite" : "cuFileRead", p[i].opcode, p[i].fh, p[i].batch.base, p[i].batch.size, p[i].batch.file_offset, p[i].batch.buf_offset);
		in_batch = 0;
		b->events[b->done++] = (io_event){p[i].cookie, r < 0 ? 64 : 16, r == -1 ? (size_t)-errno : (size_t)r};
	}
	return (result){0, 0};
}
result cuFileBatchIOGetStatus(struct batch *b, unsigned min_nr, unsigned *nr, io_event *out, struct timespec *timeout)
{
	ENTER("cuFileBatchIOGetStatus");
	NEED_CONTEXT;
	(void)timeout;
	if (min_nr > *nr) return leave(5022, 0);
	if (*nr > b->done) *nr = b->done;
	memcpy(out, b->events, *nr * sizeof *out);
	memmove(b->events, b->events + *nr, (b->done - *nr) * sizeof *out);
	b->done -= *nr;
	return OK;
}
result cuFileBatchIOCancel(struct batch *b) { ENTER("cuFileBatchIOCancel"); NEED_CONTEXT; b->done = 0; return OK; }
void cuFileBatchIODestroy(struct batch *b) { pthread_mutex_lock(&mu); free(b); n.batches--; pthread_mutex_unlock(&mu); }

/* What follows is for tests. */

/* The value of a counter, or -1 for a name there is none of. */
long fake_count(const char *name)
{
	const struct { const char *name; long v; } all[] = {
		{"handles", n.handles}, {"buffers", n.buffers}, {"unregistered", n.unregistered}, {"context_errors", n.context_errors}, {"failures", n.failures},
		{"opens", n.opens}, {"users", users}, {"batches", n.batches}, {"batches_made", n.batches_made}, {"streams", n.streams}, {"stats_level", stats_level}, {"started", started},
		{"stats_calls", n.stats_calls},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(all[i].name, name)) return all[i].v;
	return -1;
}

/* After skip more calls of fn, the next times of them fail with code and, where
 * it is 5011, CUDA's. in_errno: a read or write returns -1 and puts code in errno. */
void fake_fail(const char *fn, long skip, long times, int code, int cuda, int in_errno)
{
	struct failure *f = calloc(1, sizeof *f);
	snprintf(f->fn, sizeof f->fn, "%s", fn);
	f->skip = skip; f->times = times; f->code = code; f->cuda = cuda; f->in_errno = in_errno;
	pthread_mutex_lock(&mu);
	f->next = failures;
	failures = f;
	pthread_mutex_unlock(&mu);
}

/* 0 posix, 1 p2p, 2 nvfs, 3 posix and p2p in turn. */
void fake_route(int r) { pthread_mutex_lock(&mu); route = r; pthread_mutex_unlock(&mu); }

/* Adds bits to the driver's properties. */
void fake_properties(unsigned status, unsigned features) { pthread_mutex_lock(&mu); extra_status = status; extra_features = features; pthread_mutex_unlock(&mu); }

/* No read gives more than so many bytes at a time; 0 is no limit. */
void fake_most(long v) { pthread_mutex_lock(&mu); most = v; pthread_mutex_unlock(&mu); }

/* Requests of batches are counted for the process alone, as some releases do. */
void fake_apart(int v) { pthread_mutex_lock(&mu); apart = v; pthread_mutex_unlock(&mu); }

/* Lets calls check the context of their thread. */
void fake_contexts(void *(*f)(void)) { pthread_mutex_lock(&mu); current = f; pthread_mutex_unlock(&mu); }
