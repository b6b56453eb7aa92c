/* SPDX-License-Identifier: GPL-2.0 */
/* The two hashes of FAST, block by block. */
#ifndef XTENT_FAST_HASH_H
#define XTENT_FAST_HASH_H

#include "compat.h"
#include "gf128.h"

/* Levels of BRW's tree: for requests up to 64 KiB. */
#define FAST_LEVELS 12
#define FAST_MAX_BYTES (16 << FAST_LEVELS)

struct fast_hash_key {
	/* tau, tau^2, tau^4, ... */
	struct gf128 power[FAST_LEVELS + 1];
};

struct fast_hash {
	const struct fast_hash_key *key;
	gf128_mul_fn *mul;
	/* BRW: the blocks of a group of four so far; products that wait, by level. */
	struct gf128 group[3];
	struct gf128 waiting[FAST_LEVELS];
	unsigned int blocks, depth;
	/* Horner: the value so far. */
	struct gf128 sum;
};

/* From and to any place in memory. */
static inline void gf128_load(struct gf128 *x, const u8 *block)
{
	x->low = get_unaligned_le64(block);
	x->high = get_unaligned_le64(block + 8);
}

static inline void gf128_store(u8 *block, const struct gf128 *x)
{
	put_unaligned_le64(x->low, block);
	put_unaligned_le64(x->high, block + 8);
}

void fast_hash_key(struct fast_hash_key *key, const u8 *tau);

/* BRW of n - 1 blocks, where 4 divides n: then finish multiplies by tau^`times`. */
void fast_brw_start(struct fast_hash *hash);
void fast_brw_update(struct fast_hash *hash, const u8 *data, unsigned int blocks);
/* tau^m + sum of x_i tau^(m-i), times tau^(`times` - 1). */
void fast_horner_start(struct fast_hash *hash);
void fast_horner_update(struct fast_hash *hash, const u8 *data, unsigned int blocks);

/* Multiplied by tau `times` times, 1 or 2. */
void fast_brw_finish(struct fast_hash *hash, int times, u8 *digest);
void fast_horner_finish(struct fast_hash *hash, int times, u8 *digest);

#endif
