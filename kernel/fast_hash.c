// SPDX-License-Identifier: GPL-2.0
/*
 * BRW and Horner of FAST (Chakraborty, Ghosh, Mancillas-Lopez, Sarkar, ePrint
 * 2017/849): polynomials in tau whose coefficients are the blocks.
 */
#include <linux/bitops.h>
#include <linux/string.h>

#include "fast_hash.h"

void fast_hash_key(struct fast_hash_key *key, const u8 *tau)
{
	int i;

	gf128_load(&key->power[0], tau);
	for (i = 1; i <= FAST_LEVELS; i++)
		gf128_mul_portable(&key->power[i], &key->power[i - 1], &key->power[i - 1]);
}

void fast_brw_start(struct fast_hash *hash)
{
	hash->blocks = 0;
	hash->depth = 0;
}

/* (tau + m1)(tau^2 + m2) + m3 */
static void leaf(const struct fast_hash *hash, struct gf128 *value)
{
	struct gf128 a = hash->key->power[0], b = hash->key->power[1];

	gf128_add(&a, &hash->group[0]);
	gf128_add(&b, &hash->group[1]);
	hash->mul(value, &a, &b);
	gf128_add(value, &hash->group[2]);
}

/*
 * Block t = 4 k closes the tree of the t' blocks before it, where t' is the
 * largest power of two that divides t: the products that wait below that level
 * are its right edge. Their sum and the last leaf times (tau^t' + block) waits in
 * its turn.
 */
void fast_brw_update(struct fast_hash *hash, const u8 *data, unsigned int blocks)
{
	for (; blocks; blocks--, data += 16) {
		unsigned int place = hash->blocks % 4, level;
		struct gf128 block, value;

		hash->blocks++;
		gf128_load(&block, data);
		if (place != 3) {
			hash->group[place] = block;
			continue;
		}
		leaf(hash, &value);
		level = __ffs(hash->blocks);
		while (level-- > 2)
			gf128_add(&value, &hash->waiting[--hash->depth]);
		gf128_add(&block, &hash->key->power[__ffs(hash->blocks)]);
		hash->mul(&hash->waiting[hash->depth++], &value, &block);
	}
}

void fast_brw_finish(struct fast_hash *hash, int times, u8 *digest)
{
	struct gf128 value;

	/* One block less than a multiple of four. */
	leaf(hash, &value);
	while (hash->depth)
		gf128_add(&value, &hash->waiting[--hash->depth]);
	hash->mul(&value, &value, &hash->key->power[times - 1]);
	gf128_store(digest, &value);
}

void fast_horner_start(struct fast_hash *hash)
{
	hash->sum = (struct gf128){ .low = 1 };
}

void fast_horner_update(struct fast_hash *hash, const u8 *data, unsigned int blocks)
{
	for (; blocks; blocks--, data += 16) {
		struct gf128 block;

		gf128_load(&block, data);
		hash->mul(&hash->sum, &hash->sum, &hash->key->power[0]);
		gf128_add(&hash->sum, &block);
	}
}

void fast_horner_finish(struct fast_hash *hash, int times, u8 *digest)
{
	hash->mul(&hash->sum, &hash->sum, &hash->key->power[times - 1]);
	gf128_store(digest, &hash->sum);
}
