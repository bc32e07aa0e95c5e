/* SPDX-License-Identifier: Apache-2.0 */
/* A profiler's library for tests: it takes the tables of NVTX that a program lends, and
 * writes a line to the file LOG for each call. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*function)(void);

struct callbacks {
	size_t size;
	int (*table)(int module, function ***table, unsigned *length);
};

struct versions {
	size_t size;
	uint32_t version, reserved;
	void (*set)(uint32_t version);
};

struct attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	const void *message;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next = 100;
static char names[64][64];
static int named, domains;

static void say(const char *what, uint64_t number, const char *name)
{
	FILE *f = fopen(LOG, "a");
	if (f) {
		fprintf(f, "%s %llu %s\n", what, (unsigned long long)number, name);
		fclose(f);
	}
}

static void *domain_create(const char *name)
{
	pthread_mutex_lock(&lock);
	say("domain", ++domains, name);
	pthread_mutex_unlock(&lock);
	return &domains;
}

static void *register_string(void *domain, const char *text)
{
	void *name = 0;
	pthread_mutex_lock(&lock);
	if (domain == &domains && named < 64) {
		strncpy(names[named], text, sizeof names[0] - 1);
		name = names[named++];
	}
	pthread_mutex_unlock(&lock);
	return name;
}

static uint64_t range_start(void *domain, const struct attributes *a)
{
	uint64_t number;
	pthread_mutex_lock(&lock);
	number = next++;
	if (domain != &domains || a->size != sizeof *a || a->message_type != 3)
		say("wrong", number, "attributes");
	else
		say("start", number, a->message);
	pthread_mutex_unlock(&lock);
	return number;
}

static void range_end(void *domain, uint64_t number)
{
	pthread_mutex_lock(&lock);
	say(domain == &domains ? "end" : "wrong", number, "range");
	pthread_mutex_unlock(&lock);
}

int InitializeInjectionNvtx2(const void *(*lent)(uint32_t number))
{
	const struct callbacks *c = lent(1);
	const struct versions *v = lent(3);
	function **table;
	unsigned length = 0;
	if (!c || c->size < sizeof *c || !v || v->size < sizeof *v || v->version != 3)
		return 0;
	v->set(3);
	if (!c->table(1, &table, 0) || !c->table(5, &table, &length) || length != 16)
		return 0;
	*table[2] = (function)range_start;
	*table[3] = (function)range_end;
	*table[10] = (function)register_string;
	*table[12] = (function)domain_create;
	return 1;
}
