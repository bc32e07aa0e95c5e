// SPDX-License-Identifier: Apache-2.0

// CRC-64/NVME of memory that lies on a GPU: one block of threads sums one tile.
//
// The threads take a strip each, sum it as a CPU would, eight bytes at a time by
// eight tables, and move their sums behind the strips that follow: a sum is a
// polynomial, and n more bytes multiply it by x to the 8n. Sums that are moved
// so add up, by exclusive or, to the sum of all (checksum.Joiner says the same).
//
// The work is cut into phases with a barrier behind each. It needs no header
// and no library, and is plain C as well: the tests compile it for the CPU and
// run each phase for every thread in turn, which is what a barrier means.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDA__
#define ON_DEVICE static inline __attribute__((device, always_inline))
#define CONSTANT static __attribute__((constant)) const
#else
#define ON_DEVICE static inline
#define CONSTANT static const
#endif

#define THREADS 256
#define STRIP 256 // bytes of a thread; a tile has at most THREADS strips and some bytes

// The polynomial with its lowest power in the highest bit, as are all numbers here.
#define POLYNOMIAL 0x9a6c9329ac4bc9b5ull

// x to the 8 * STRIP * i, and to the 8 * STRIP * 16 * i: together they move a
// sum behind any number of strips below 256.
CONSTANT u64 near[16] = {
	0x8000000000000000ull, 0xca4d536fabf7da84ull, 0xfb4cdc3b379ee6edull, 0x4f3e3b68bcf1fe97ull,
	0xea261148df25140aull, 0x8f08267551d743ddull, 0x4a8e5adae59e1f2cull, 0xc8f11f1aa8c56a6eull,
	0x59ccb2c07aa6c9b4ull, 0x4e921e0dadd2cae9ull, 0xee19ec7604b3cf79ull, 0x49fa7aa2fe504670ull,
	0xaf37bb307c610cc6ull, 0x6aece4f71e793a74ull, 0xb7b8820a615f5aa6ull, 0x5e68404297c9e23full,
};
CONSTANT u64 far[16] = {
	0x8000000000000000ull, 0x20b3674a839af27aull, 0x2d8e1986da94d583ull, 0x16d39fa68c232d38ull,
	0x42cdf4c20337635dull, 0xca7f1321fdef1204ull, 0x3a5172bf55cafa10ull, 0x0517e44d2e14c276ull,
	0x1d78724bf0f26839ull, 0xd6da8d34aeed91efull, 0x2447d89cc4b82868ull, 0x08c483576f73badaull,
	0xa84b985d35e7aecaull, 0x5f3c99b113f9d089ull, 0xa60bf38dfab5cc7dull, 0xe7b808bf386d0699ull,
};

// What the threads of a block share.
struct shared {
	u64 table[8][256]; // table[k][b]: the byte b with k zero bytes behind it
	u64 sum[THREADS];  // of each strip
};

// What a block is to sum: n bytes at p.
struct tile {
	const u8 *p;
	u64 n;
};

// The tile of block i: the run of n bytes at p is cut behind its first bytes,
// and behind every size bytes after that.
ON_DEVICE struct tile tile_of(u64 i, const u8 *p, u64 n, u64 first, u64 size)
{
	u64 lo = i ? first + (i - 1) * size : 0;
	u64 hi = first + i * size;
	struct tile t;
	if (lo > n) lo = n;
	if (hi > n) hi = n;
	t.p = p + lo;
	t.n = hi - lo;
	return t;
}

// a times b modulo the polynomial.
ON_DEVICE u64 multiply(u64 a, u64 b)
{
	u64 p = 0;
	for (int i = 0; i < 64; i++) {
		p ^= (u64)0 - (a >> 63) & b;
		a <<= 1;
		b = b >> 1 ^ ((u64)0 - (b & 1) & POLYNOMIAL);
	}
	return p;
}

ON_DEVICE u64 next8(const struct shared *s, u64 c, u64 word)
{
	c ^= word;
	return s->table[7][c & 255] ^ s->table[6][c >> 8 & 255] ^ s->table[5][c >> 16 & 255] ^ s->table[4][c >> 24 & 255] ^
		s->table[3][c >> 32 & 255] ^ s->table[2][c >> 40 & 255] ^ s->table[1][c >> 48 & 255] ^ s->table[0][c >> 56];
}

// Two words at once: one load for both where p is aligned to 16.
struct words { u64 a, b; } __attribute__((aligned(16)));

// Goes on with the sum c over the bytes from p to end.
ON_DEVICE u64 go_on(const struct shared *s, u64 c, const u8 *p, const u8 *end)
{
	c = ~c;
	for (; p < end && (u64)p % 16; p++)
		c = s->table[0][(c ^ *p) & 255] ^ c >> 8;
	for (; end - p >= 16; p += 16) {
		struct words w = *(const struct words *)p;
		c = next8(s, next8(s, c, w.a), w.b);
	}
	for (; p < end; p++)
		c = s->table[0][(c ^ *p) & 255] ^ c >> 8;
	return ~c;
}

// Strips lie at addresses that are multiples of 16, but for the beginning of the
// first. How many whole ones there are, by their ends:
ON_DEVICE u32 strips(struct tile t)
{
	return (u32)((t.n + (u64)t.p % 16) / STRIP);
}

ON_DEVICE const u8 *end_of(struct tile t, u32 strip)
{
	return t.p - (u64)t.p % 16 + (strip + 1) * STRIP;
}

// Phase 1: the first table, a byte each.
ON_DEVICE void first_table(struct shared *s, u32 thread)
{
	u64 c = thread;
	for (int i = 0; i < 8; i++)
		c = c >> 1 ^ ((u64)0 - (c & 1) & POLYNOMIAL);
	s->table[0][thread] = c;
}

// Phase 2: the other tables.
ON_DEVICE void other_tables(struct shared *s, u32 thread)
{
	u64 c = s->table[0][thread];
	for (int k = 1; k < 8; k++) {
		c = s->table[0][c & 255] ^ c >> 8;
		s->table[k][thread] = c;
	}
}

// Phase 3: a strip each, moved behind those that follow; whoever has none gives nothing.
ON_DEVICE void strip(struct shared *s, u32 thread, struct tile t)
{
	u32 n = strips(t);
	u64 c = 0;
	if (thread < n) {
		u32 behind = n - 1 - thread;
		c = go_on(s, 0, thread ? end_of(t, thread - 1) : t.p, end_of(t, thread));
		c = multiply(far[behind / 16], multiply(near[behind % 16], c));
	}
	s->sum[thread] = c;
}

// Phase 4, for half = 128, 64, ... 1: adds up.
ON_DEVICE void fold(struct shared *s, u32 thread, u32 half)
{
	if (thread < half)
		s->sum[thread] ^= s->sum[thread + half];
}

// Phase 5, by the first thread: what is behind the last whole strip.
ON_DEVICE u64 finish(const struct shared *s, struct tile t)
{
	u32 n = strips(t);
	return go_on(s, s->sum[0], n ? end_of(t, n - 1) : t.p, t.p + t.n);
}

#ifdef __CUDA__

// Sums n bytes at p, cut into tiles of at most THREADS * STRIP bytes as tile_of
// says: out[i] is that of the tile of block i. Each block has THREADS threads.
extern "C" __attribute__((global)) void nebulaio_crc64(const u8 *p, u64 n, u64 first, u64 size, u64 *out)
{
	static __attribute__((shared)) struct shared s;
	u32 thread = __nvvm_read_ptx_sreg_tid_x(), block = __nvvm_read_ptx_sreg_ctaid_x();
	struct tile t = tile_of(block, p, n, first, size);
	first_table(&s, thread);
	__nvvm_bar_sync(0);
	other_tables(&s, thread);
	__nvvm_bar_sync(0);
	strip(&s, thread, t);
	__nvvm_bar_sync(0);
	for (u32 half = THREADS / 2; half > 0; half /= 2) {
		fold(&s, thread, half);
		__nvvm_bar_sync(0);
	}
	if (thread == 0)
		out[block] = finish(&s, t);
}

#endif
