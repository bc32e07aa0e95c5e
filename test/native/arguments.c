/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls every function of the library with every bad argument, one at a time:
 * arguments MODEL FOLDER HEADER. Each call must return an error and must not crash.
 */
#include "check.h"

#include <unistd.h>

/* The kind of an argument, which determines its bad values. */
enum {
	HANDLE = 'h',   /* 0, a number never given and a handle of another kind are CLOSED */
	PATH = 'p',     /* NULL is INVALID */
	TEXT = 't',     /* NULL and what is not UTF-8 are INVALID */
	OPTIONAL = 'o', /* may be NULL; what is not UTF-8 is INVALID */
	STRUCTS = 'a',  /* with a count behind it: NULL with a count, and a huge count, are INVALID */
	COUNT = 'c',
	STRUCT = 's',   /* NULL is INVALID */
	OUT = 'r',      /* a result; NULL is INVALID */
	GIVEN = 'H',    /* a result that is a handle; NULL is INVALID */
	MAYBE = 'n',    /* a result that may be NULL */
	NUMBER = 'u',   /* any number */
	ADDRESS = 'A',  /* memory; never read by these calls */
	STREAM = 'S',
	BUFFER = 'b',   /* with a capacity behind it; NULL with a capacity is INVALID */
	CAPACITY = 'k',
	ERR = 'e',      /* with a capacity behind it; NULL is fine */
	ERRCAP = 'z'
};

typedef int32_t (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                       uint64_t);

enum { MOST = 10, ROOM = 1 << 16, OPEN_KINDS = 9 };

static const struct function {
	const char *name;
	const char *kinds; /* one letter for each argument */
	char of;           /* what its handle is: s m f c q j d l b o, 0: none */
	void (*call)(void);
} functions[] = {
#define F(name, kinds, of) {#name, kinds, of, (void (*)(void))name}
    F(nebulaio_abi_version, "", 0),
    F(nebulaio_version, "bkn", 0),
    F(nebulaio_system_open, "oHez", 0),
    F(nebulaio_devices, "hbknez", 's'),
    F(nebulaio_model_open, "hpoHez", 's'),
    F(nebulaio_model_files, "hbknez", 'm'),
    F(nebulaio_model_describe, "hbknez", 'm'),
    F(nebulaio_model_count, "hnnez", 'm'),
    F(nebulaio_model_destination, "hurez", 'm'),
    F(nebulaio_model_tensor, "hunbknez", 'm'),
    F(nebulaio_model_find, "htrez", 'm'),
    F(nebulaio_model_select, "hoHez", 'm'),
    F(nebulaio_load_start, "hacSoHez", 'm'),
    F(nebulaio_load_ready, "huunez", 'j'),
    F(nebulaio_checksum_start, "hHez", 'm'),
    F(nebulaio_save_start, "hpacSoHez", 's'),
    F(nebulaio_gather_start, "hacacSoHez", 's'),
    F(nebulaio_write_start, "hpacSoHez", 's'),
    F(nebulaio_file_open, "hptoHez", 's'),
    F(nebulaio_file_size, "hrez", 'f'),
    F(nebulaio_file_read_start, "hAuuSoHez", 'f'),
    F(nebulaio_file_write_start, "hAuuSoHez", 'f'),
    F(nebulaio_file_sync, "hez", 'f'),
    F(nebulaio_client_open, "hoHez", 's'),
    F(nebulaio_client_status_start, "hHez", 'c'),
    F(nebulaio_client_model_open, "httoHez", 'c'),
    F(nebulaio_object_read_start, "hacoHez", 'c'),
    F(nebulaio_object_write_start, "hsoHez", 'c'),
    F(nebulaio_object_stat_start, "httoHez", 'c'),
    F(nebulaio_object_delete_start, "httHez", 'c'),
    F(nebulaio_object_list_start, "htoHez", 'c'),
    F(nebulaio_object_open, "httoosHez", 'c'),
    F(nebulaio_object_create, "httuosHez", 'c'),
    F(nebulaio_object_edit, "hosHez", 'o'),
    F(nebulaio_object_draft, "htttosHez", 'c'),
    F(nebulaio_object_extend, "huez", 'o'),
    F(nebulaio_object_wrote, "huuez", 'o'),
    F(nebulaio_object_commit_start, "huHez", 'o'),
    F(nebulaio_data_open_start, "hacoHez", 's'),
    F(nebulaio_data_sample, "hubknez", 'd'),
    F(nebulaio_data_keys, "hacbknez", 'd'),
    F(nebulaio_data_read_start, "hutHez", 'd'),
    F(nebulaio_loader_open, "hoHez", 'd'),
    F(nebulaio_loader_describe, "hbknez", 'l'),
    F(nebulaio_loader_next, "husHez", 'l'),
    F(nebulaio_loader_report, "hbknez", 'l'),
    F(nebulaio_batch_state, "hbknez", 'b'),
    F(nebulaio_batch_free, "hSez", 'b'),
    F(nebulaio_checkpoint_commit_start, "hpoHez", 's'),
    F(nebulaio_checkpoint_list_start, "hpoHez", 's'),
    F(nebulaio_checkpoint_verify_start, "hpoHez", 's'),
    F(nebulaio_checkpoint_prune_start, "hpoHez", 's'),
    F(nebulaio_queue_open, "Hez", 0),
    F(nebulaio_queue_add, "huez", 'q'),
    F(nebulaio_queue_next, "huHez", 'q'),
    F(nebulaio_wait, "hunez", 'j'),
    F(nebulaio_cancel, "hez", 'j'),
    F(nebulaio_report, "hbknez", 'j'),
    F(nebulaio_release, "hez", 'r'),
    F(nebulaio_judge_loop, "tbknez", 0),
#undef F
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

static const char kinds_open[OPEN_KINDS + 1] = "smfcqjdlb";
static uint64_t handles[OPEN_KINDS];
static const char *folder, *model_path;
static unsigned char results[MOST][ROOM];
static char said[ROOM];
static int calls;

static uint64_t open_of(char kind)
{
	const char *at = kind ? strchr(kinds_open, kind) : NULL;
	return at ? handles[at - kinds_open] : UINT64_MAX;
}

static uint64_t number_of(const void *p) { return (uint64_t)(uintptr_t)p; }

/* A valid struct for an argument of a function. */
static uint64_t struct_of(const char *name, int argument)
{
	static char byte[4096];
	static const int64_t shape[1] = {1};
	static nebulaio_buffer buffer;
	static nebulaio_tensor tensor;
	static nebulaio_segment segment;
	static nebulaio_piece piece;
	static nebulaio_object_read read;
	static nebulaio_object_write write;
	static nebulaio_descriptors descriptors;
	static nebulaio_batch batch;
	static const char *sources[1];
	static const int64_t samples[1] = {0};
	sources[0] = model_path;
	memset(&batch, 0, sizeof batch);
	batch.struct_size = sizeof batch;
	memset(&read, 0, sizeof read);
	memset(&write, 0, sizeof write);
	memset(&descriptors, 0, sizeof descriptors);
	buffer.address = byte;
	buffer.size = 0; /* too small: no load starts */
	tensor.name = "t", tensor.dtype = "U8", tensor.device = "host", tensor.shape = shape, tensor.rank = 1;
	tensor.address = byte, tensor.size = 1;
	read.struct_size = sizeof read, read.bucket = "b", read.key = "k", read.address = byte, read.capacity = sizeof byte;
	read.size = -1, read.device = "host";
	write.struct_size = sizeof write, write.bucket = "b", write.key = "k", write.address = byte, write.size = 1;
	write.device = "host";
	descriptors.struct_size = sizeof descriptors;
	segment.address = byte, segment.size = 1;
	piece.address = byte, piece.size = 1, piece.device = "host";
	if (strcmp(name, "nebulaio_gather_start") == 0)
		return argument == 1 ? number_of(sources) : number_of(&segment);
	if (strcmp(name, "nebulaio_write_start") == 0)
		return number_of(&piece);
	if (strcmp(name, "nebulaio_load_start") == 0)
		return number_of(&buffer);
	if (strcmp(name, "nebulaio_data_open_start") == 0)
		return number_of(sources);
	if (strcmp(name, "nebulaio_data_keys") == 0)
		return number_of(samples);
	if (strcmp(name, "nebulaio_loader_next") == 0)
		return number_of(&batch);
	if (strcmp(name, "nebulaio_save_start") == 0)
		return number_of(&tensor);
	if (strcmp(name, "nebulaio_object_read_start") == 0)
		return number_of(&read);
	if (strcmp(name, "nebulaio_object_write_start") == 0)
		return number_of(&write);
	return number_of(&descriptors);
}

/* A valid text for an argument of a function. */
static const char *text_for(const char *name)
{
	if (strcmp(name, "nebulaio_file_open") == 0)
		return "r";
	if (strcmp(name, "nebulaio_judge_loop") == 0)
		return "{\"rounds\":[{\"batches\":1,\"wait\":1,\"copy\":0,\"step\":1}],\"variants\":[{\"name\":\"x\"}],"
		       "\"tolerated_idle\":0.1}";
	return "text";
}

/* Sets valid arguments for a function. */
static void good(const struct function *f, uint64_t arguments[MOST])
{
	static char path[4096];
	static char byte[4096];
	memset(arguments, 0, MOST * sizeof arguments[0]);
	memset(results, 0xa5, sizeof results);
	memset(said, 0, sizeof said);
	for (int i = 0; f->kinds[i]; i++) {
		uint64_t *a = &arguments[i];
		switch (f->kinds[i]) {
		case HANDLE: *a = open_of(f->of); break;
		case PATH:
			*a = number_of(strstr(f->name, "model") || strstr(f->name, "file") ? model_path
			                                                                     : path_in(path, sizeof path, folder, "out.safetensors"));
			break;
		case TEXT: *a = number_of(text_for(f->name)); break;
		case OPTIONAL: *a = number_of(NULL); break;
		case STRUCTS:
		case STRUCT: *a = struct_of(f->name, i); break;
		case COUNT: *a = 1; break;
		case OUT:
		case GIVEN:
		case MAYBE:
		case BUFFER: *a = number_of(results[i]); break;
		case ADDRESS: *a = number_of(byte); break;
		case CAPACITY: *a = ROOM; break;
		case ERR: *a = number_of(said); break;
		case ERRCAP: *a = sizeof said; break;
		default: break; /* numbers and streams are 0 */
		}
	}
}

/* Calls a function and releases its results. */
static int32_t made(const struct function *f, const uint64_t a[MOST])
{
	calls++;
	const int32_t status = ((any)f->call)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
	for (int i = 0; f->kinds[i]; i++) {
		uint64_t given = 0;
		if (f->kinds[i] != GIVEN || status != NEBULAIO_OK || !a[i])
			continue;
		memcpy(&given, (const void *)(uintptr_t)a[i], sizeof given);
		if (strcmp(f->name, "nebulaio_queue_next"))
			nebulaio_release(given, NULL, 0);
	}
	return status;
}

/* Expects that a call fails with a status and a message, and leaves its results unchanged. */
static void fails(const struct function *f, const uint64_t a[MOST], int argument, const char *what, int32_t expected)
{
	const int32_t status = made(f, a);
	const int talks = strchr(f->kinds, ERR) != NULL;
	int changed = 0;
	for (int i = 0; f->kinds[i]; i++)
		if (strchr("rHbs", f->kinds[i]) && a[i] == number_of(results[i]))
			for (int k = 0; k < ROOM; k++)
				changed |= results[i][k] != 0xa5;
	if (status != expected || (talks && strlen(said) < 10) || changed) {
		fprintf(stderr, "%s, argument %d (%c), %s: status %d, expected %d, %s: %s\n", f->name, argument,
		        f->kinds[argument], what, (int)status, (int)expected, changed ? "results changed" : "results untouched", said);
		exit(1);
	}
}

static void try_all(const struct function *f)
{
	static const char broken[] = "\xff\xfe{";
	uint64_t a[MOST];
	for (int i = 0; f->kinds[i]; i++) {
		const char kind = f->kinds[i];
		const uint64_t bad_handles[] = {0, UINT64_MAX, f->of == 's' ? handles[1] : handles[0]};
#define BAD(index, value, what, expected) (good(f, a), a[index] = (value), fails(f, a, index, what, expected))
		switch (kind) {
		case HANDLE:
			for (int k = 0; k < (f->of == 'r' ? 2 : 3); k++)
				BAD(i, bad_handles[k], "no such handle", NEBULAIO_ERR_CLOSED);
			break;
		case TEXT: BAD(i, number_of(broken), "not UTF-8", NEBULAIO_ERR_INVALID); /* fall through */
		case PATH:
		case STRUCT:
		case OUT:
		case GIVEN: BAD(i, 0, "NULL", NEBULAIO_ERR_INVALID); break;
		case OPTIONAL: BAD(i, number_of(broken), "not UTF-8", NEBULAIO_ERR_INVALID); break;
		case STRUCTS:
			BAD(i, 0, "NULL with a count", NEBULAIO_ERR_INVALID);
			BAD(i + 1, SIZE_MAX, "a huge count", NEBULAIO_ERR_INVALID);
			BAD(i + 1, (uint64_t)INT64_MAX + 1, "a negative count", NEBULAIO_ERR_INVALID);
			break;
		case MAYBE:
			good(f, a), a[i] = 0;
			made(f, a);
			break;
		case BUFFER:
			if (!f->of || strchr("msdlb", f->of)) {
				BAD(i, 0, "NULL with a capacity", NEBULAIO_ERR_INVALID);
				BAD(i + 1, 1, "too small", NEBULAIO_ERR_INVALID);
				good(f, a), a[i + 1] = SIZE_MAX; /* a capacity that was not filled in, and room */
				EXPECT(made(f, a) == NEBULAIO_OK && results[i][0] != 0xa5);
			}
			good(f, a), a[i] = a[i + 1] = 0;
			made(f, a);
			break;
		case ERR:
			for (int k = 0; k < 4; k++) {
				good(f, a);
				a[0] = f->kinds[0] == HANDLE ? 0 : a[0];
				if (f->kinds[0] != HANDLE) /* the result, or else the first argument */
					a[strchr(f->kinds, GIVEN) ? strcspn(f->kinds, "H") : 0] = 0;
				a[i] = k == 0 ? 0 : a[i];
				a[i + 1] = k == 1 ? 0 : k == 2 ? 1 : k == 3 ? SIZE_MAX : a[i + 1];
				const int32_t status = made(f, a);
				EXPECT(status == NEBULAIO_ERR_CLOSED || status == NEBULAIO_ERR_INVALID);
				EXPECT(k == 3 ? strlen(said) > 10 : said[0] == 0);
			}
			break;
		default: break;
		}
	}
}

/* Tests bad fields of structs, which are not in the table. */
static void fields(void)
{
	uint64_t out = 0;
	static const int64_t shape[1] = {1};
	char byte[1] = {0};
	const nebulaio_tensor whole = {"t", "U8", shape, 1, byte, 1, "host"};
	char path[4096];
	path_in(path, sizeof path, folder, "fields.safetensors");
#define SAVE(change, named)                                                                                            \
	do {                                                                                                           \
		nebulaio_tensor t = whole;                                                                             \
		change;                                                                                                \
		said[0] = 0;                                                                                           \
		EXPECT(nebulaio_save_start(handles[0], path, &t, 1, NULL, NULL, &out, said, sizeof said) ==            \
		       NEBULAIO_ERR_INVALID);                                                                          \
		EXPECT(strstr(said, named) && access(path, F_OK) != 0);                                                   \
		calls++;                                                                                               \
	} while (0)
	SAVE(t.name = NULL, "name: is NULL");
	SAVE(t.name = "\xff", "UTF-8");
	SAVE(t.dtype = NULL, "dtype of t: is NULL");
	SAVE(t.device = NULL, "device of t: is NULL");
	SAVE(t.shape = NULL, "NULL");
	SAVE(t.rank = SIZE_MAX, "rank");
	SAVE(t.address = NULL, "address");
	SAVE(t.size = UINT64_MAX, "t");

	const char *files[2] = {model_path, NULL};
	const nebulaio_segment all = {0, 0, 1, 0, 0, byte, "t"};
#define GATHER(change, named)                                                                                          \
	do {                                                                                                           \
		nebulaio_segment g = all;                                                                              \
		size_t count = 1;                                                                                      \
		change;                                                                                                \
		said[0] = 0;                                                                                           \
		EXPECT(nebulaio_gather_start(handles[0], files, count, &g, 1, NULL, "{\"device\":\"host\"}", &out, said,  \
		                             sizeof said) == NEBULAIO_ERR_INVALID);                                      \
		EXPECT(strstr(said, named));                                                                           \
		calls++;                                                                                               \
	} while (0)
	GATHER(count = 2, "file 1: is NULL");
	GATHER(g.label = "\xff", "UTF-8");
	GATHER(g.file = 1, "names file 1");
	GATHER(g.file = UINT64_MAX, "2^63");
	GATHER(g.offset = UINT64_MAX, "2^63");
	GATHER(g.size = UINT64_MAX, "2^63");
	GATHER(g.width = UINT64_MAX, "2^63");
	GATHER(g.stride = 1, "0 bytes out of every 1");
	GATHER(g.address = NULL, "address 0x0");

	const nebulaio_piece some = {byte, 1, "host"};
#define PIECE(change, named)                                                                                           \
	do {                                                                                                           \
		nebulaio_piece p = some;                                                                               \
		change;                                                                                                \
		said[0] = 0;                                                                                           \
		EXPECT(nebulaio_write_start(handles[0], path, &p, 1, NULL, NULL, &out, said, sizeof said) ==           \
		       NEBULAIO_ERR_INVALID);                                                                          \
		EXPECT(strstr(said, named) && access(path, F_OK) != 0);                                                   \
		calls++;                                                                                               \
	} while (0)
	PIECE(p.address = NULL, "address 0x0");
	PIECE(p.size = UINT64_MAX, "2^63");
	PIECE(p.device = NULL, "device of piece 0: is NULL");
	PIECE(p.device = "\xff", "UTF-8");
	PIECE(p.device = "auto", "expected host, cuda or cuda:N");

	nebulaio_object_read r;
	nebulaio_peer peer = {byte, NULL};
#define READ(change)                                                                                                   \
	do {                                                                                                           \
		memcpy(&r, (const void *)(uintptr_t)struct_of("nebulaio_object_read_start", 1), sizeof r);                 \
		change;                                                                                                \
		said[0] = 0;                                                                                           \
		EXPECT(nebulaio_object_read_start(handles[3], &r, 1, NULL, &out, said, sizeof said) ==                  \
		       NEBULAIO_ERR_INVALID);                                                                          \
		EXPECT(strlen(said) > 10);                                                                             \
		calls++;                                                                                               \
	} while (0)
	READ(r.bucket = NULL);
	READ(r.key = NULL);
	READ(r.key = "\xff");
	READ(r.version = "\xff");
	READ(r.device = "\xff");
	READ(r.struct_size = 0);
	READ(r.struct_size = SIZE_MAX);
	READ(r.offset = UINT64_MAX);
	READ(r.size = INT64_MIN);
	READ(r.capacity = UINT64_MAX);
	READ(r.npeers = 1);
	READ(r.npeers = SIZE_MAX);
	READ((r.peers = &peer, r.npeers = 1));

	nebulaio_object_write w;
#define WRITE(change)                                                                                                  \
	do {                                                                                                           \
		memcpy(&w, (const void *)(uintptr_t)struct_of("nebulaio_object_write_start", 1), sizeof w);                \
		change;                                                                                                \
		said[0] = 0;                                                                                           \
		EXPECT(nebulaio_object_write_start(handles[3], &w, NULL, &out, said, sizeof said) ==                    \
		       NEBULAIO_ERR_INVALID);                                                                          \
		EXPECT(strlen(said) > 10);                                                                             \
		calls++;                                                                                               \
	} while (0)
	WRITE(w.bucket = NULL);
	WRITE(w.key = NULL);
	WRITE(w.device = "\xff");
	WRITE(w.struct_size = 1);
	WRITE(w.size = UINT64_MAX);
	WRITE(w.address = NULL);

	nebulaio_batch batch;
	memset(&batch, 0, sizeof batch);
	const char *sources[2] = {model_path, NULL};
	const int64_t beyond[1] = {1};
	EXPECT(nebulaio_loader_next(handles[7], 0, &batch, &out, said, sizeof said) == NEBULAIO_ERR_INVALID);
	EXPECT(strstr(said, "struct_size"));
	EXPECT(nebulaio_data_open_start(handles[0], sources, 2, NULL, &out, said, sizeof said) == NEBULAIO_ERR_INVALID);
	EXPECT(strstr(said, "source: is NULL"));
	EXPECT(nebulaio_data_keys(handles[6], beyond, 1, NULL, 0, NULL, said, sizeof said) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_data_sample(handles[6], UINT64_MAX, NULL, 0, NULL, said, sizeof said) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_loader_open(handles[6], "{}", &out, said, sizeof said) == NEBULAIO_ERR_INVALID);
	EXPECT(nebulaio_release(handles[6], said, sizeof said) == NEBULAIO_ERR_INVALID && strstr(said, "loaders"));
	EXPECT(nebulaio_release(handles[0], said, sizeof said) == NEBULAIO_ERR_INVALID);
	calls += 7;

	/* Addresses that are none are numbers to the library; they are never followed here. */
	for (uint64_t at = 1; at < 4096; at += 273) {
		void *wild = (void *)(uintptr_t)at;
		nebulaio_buffer dst = {wild, 0};
		EXPECT(nebulaio_load_start(handles[1], &dst, 1, (nebulaio_stream)wild, NULL, &out, said, sizeof said) ==
		       NEBULAIO_ERR_INVALID);
		EXPECT(nebulaio_file_read_start(handles[2], wild, UINT64_MAX, 0, (nebulaio_stream)wild, NULL, &out, said,
		                                sizeof said) == NEBULAIO_ERR_INVALID);
	}
	EXPECT(nebulaio_file_read_start(handles[2], NULL, 1, 0, NULL, NULL, &out, said, sizeof said) == NEBULAIO_ERR_INVALID);
}

/* Passes released handles to every function. */
static void released(void)
{
	uint64_t a[MOST];
	for (int i = OPEN_KINDS - 1; i >= 0; i--)
		MUST(nebulaio_release(handles[i], err, sizeof err));
	for (int i = 0; i < FUNCTIONS; i++) {
		if (!functions[i].of)
			continue;
		good(&functions[i], a);
		if (functions[i].of == 'r')
			a[0] = handles[0];
		fails(&functions[i], a, 0, "a released handle", NEBULAIO_ERR_CLOSED);
	}
}

/* Checks that every function of the header is in the table. */
static void complete(const char *header)
{
	size_t size = 0;
	char *text = (char *)file_bytes(header, &size);
	int found = 0;
	text[size] = 0;
	for (char *at = text; (at = strstr(at, "\nint32_t nebulaio_")) != NULL; at++) {
		const char *name = at + sizeof "\nint32_t" - 1 + 1;
		const size_t length = strcspn(name, "(");
		int known = 0;
		for (int i = 0; i < FUNCTIONS; i++)
			known |= strlen(functions[i].name) == length && strncmp(functions[i].name, name, length) == 0;
		if (!known) {
			fprintf(stderr, "%.*s is not in the table\n", (int)length, name);
			exit(1);
		}
		found++;
	}
	EXPECT(found == FUNCTIONS);
	free(text);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		fatal("usage: arguments MODEL FOLDER HEADER");
	model_path = argv[1];
	folder = argv[2];
	complete(argv[3]);
	MUST(nebulaio_check_abi(err, sizeof err));
	MUST(nebulaio_system_open("{\"devices\":\"off\"}", &handles[0], err, sizeof err));
	MUST(nebulaio_model_open(handles[0], model_path, NULL, &handles[1], err, sizeof err));
	MUST(nebulaio_file_open(handles[0], model_path, "r", NULL, &handles[2], err, sizeof err));
	MUST(nebulaio_client_open(handles[0], "{\"endpoint\":\"http://127.0.0.1:1\",\"door\":\"off\",\"retries\":1}", &handles[3], err,
	                          sizeof err));
	MUST(nebulaio_queue_open(&handles[4], err, sizeof err));
	MUST(nebulaio_file_read_start(handles[2], results, 1, 0, NULL, NULL, &handles[5], err, sizeof err));
	MUST(nebulaio_wait(handles[5], -1, NULL, err, sizeof err));
	MUST(nebulaio_data_open_start(handles[0], &model_path, 1, "{\"format\":\"files\"}", &handles[6], err, sizeof err));
	MUST(nebulaio_wait(handles[6], -1, NULL, err, sizeof err));
	MUST(nebulaio_loader_open(handles[6], "{\"batch\":1}", &handles[7], err, sizeof err));
	nebulaio_batch first = {sizeof first, 0, NULL, NULL, 0, 0, 0, 0, 0};
	MUST(nebulaio_loader_next(handles[7], -1, &first, &handles[8], err, sizeof err));
	EXPECT(first.count == 1 && first.ncolumns == 1 && first.last == 1 && handles[8] != 0);
	for (int i = 0; i < FUNCTIONS; i++)
		try_all(&functions[i]);
	fields();
	released();
	printf("C: %d calls of %d functions with bad arguments, each refused\n", calls, (int)FUNCTIONS);
	return 0;
}
