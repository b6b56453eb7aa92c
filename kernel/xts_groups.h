/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XTS with one block a vector, in groups, of which a sector is a whole number: a part of
 * xts_x86.h. While a group is under way, the masks of the next are made: by products, each from that
 * eight blocks before, if MASKS_BY_PRODUCTS is 1, or else, and always from a sector's tweak, in a
 * chain for each half of the group: one chain of eight would take longer than AES on CPUs whose
 * simplest vector instructions take two cycles.
 */

#define HALF (GROUP / 2)

/*
 * One group, whose masks are there; between the rounds the masks of the next one: that of the
 * same sector if `tweak` is NULL, or else the first of the sector with that tweak.
 */
static __always_inline void group(const struct xt_xts *xts, const u32 *keys, const u8 *src, u8 *dst,
				  const V *now, V *next, const u8 *tweak, V polynomial,
				  const bool encrypt, const int rounds)
{
	V x[GROUP], mask[2], last_key;
	int j, r;

	load_anew(keys);
	load_anew(now);
#pragma GCC unroll 8
	for (j = 0; j < GROUP; j++)
		x[j] = XOR(XOR(LOAD(src + j * sizeof(V)), now[j]),
			   round_key(&xts->data, keys, 0));
	if (tweak) {
		mask[0] = LOAD(tweak);
		mask[1] = times_power(mask[0], HALF, polynomial);
	} else if (!MASKS_BY_PRODUCTS) {
		mask[0] = times_x(now[GROUP - 1], polynomial);
		mask[1] = TIMES_BYTES(now[HALF], 1, polynomial);
	}
#pragma GCC unroll 14
	for (r = 1; r < rounds; r++) {
#pragma GCC unroll 8
		for (j = 0; j < GROUP; j++)
			x[j] = encrypt ? ENC(x[j], round_key(&xts->data, keys, r)) :
					 DEC(x[j], round_key(&xts->data, keys, r));
		load_behind(keys, x[0]);
		/* The compiler would put masks behind all rounds, and AES would wait. */
		if (r <= GROUP && MASKS_BY_PRODUCTS && !tweak) {
			V product = TIMES_BYTES(now[r - 1], 1, polynomial);

			next[r - 1] = product;
			load_behind(next, product);
			load_anew(now);
		} else if (r <= GROUP) {
			const int half = (r - 1) % 2, i = (r - 1) / 2;

			next[HALF * half + i] = mask[half];
			if (i < HALF - 1)
				mask[half] = times_x(mask[half], polynomial);
			load_behind(next, mask[half]);
		}
	}
	load_behind(now, x[0]);
	last_key = round_key(&xts->data, keys, rounds);
#pragma GCC unroll 8
	for (j = 0; j < GROUP; j++) {
		V last = XOR(now[j], last_key);

		STORE(dst + j * sizeof(V), encrypt ? ENCLAST(x[j], last) : DECLAST(x[j], last));
	}
}

static __always_inline void crypt_sectors(const struct xt_xts *xts, const struct xt_batch *batch,
					  const u8 *tweaks, unsigned int sector_size,
					  const bool encrypt, const int rounds)
{
	/* What leaves the high half at the top, and the low half to the high one. */
	static const u64 reduction[2] __aligned(16) = { 0x87, 1 };
	const u32 *keys = encrypt ? xts->data.key_enc : xts->data.key_dec;
	const V polynomial = BROADCAST(reduction);
	V masks[2][GROUP] __uninitialized, *now = masks[0], *next = masks[1];
	unsigned int i;
	int j;

	now[0] = LOAD(tweaks);
#pragma GCC unroll 8
	for (j = 1; j < GROUP; j++)
		now[j] = times_x(now[j - 1], polynomial);
	for (i = 0; i < batch->count; i++) {
		const u8 *src = batch->src[i];
		u8 *dst = batch->dst[i];
		const u8 *end = src + sector_size;
		const u8 *tweak = tweaks + 16 * (i + 1 < batch->count ? i + 1 : i);

		for (; src != end; src += GROUP * sizeof(V), dst += GROUP * sizeof(V)) {
			if (src + GROUP * sizeof(V) != end)
				group(xts, keys, src, dst, now, next, NULL, polynomial, encrypt,
				      rounds);
			else
				group(xts, keys, src, dst, now, next, tweak, polynomial, encrypt,
				      rounds);
			swap(now, next);
		}
	}
}
