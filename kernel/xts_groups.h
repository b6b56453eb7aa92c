/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XTS with one block a vector, in groups, of which a sector is a whole number: a part of
 * xts_x86.h. While a group is under way, the masks of the next are made, each from the one before.
 */

/*
 * All rounds but the last of a group; and between them the masks of the next one, or else
 * AES would wait for them: in its sector, or in the next one, whose tweak is `next_tweak`.
 */
static __always_inline void rounds_and_masks(const struct xt_xts *xts, const u32 *keys, V *x,
					     const V *masks, V *coming, const u8 *next_tweak,
					     V polynomial, const bool encrypt, const int rounds)
{
	V mask = next_tweak ? LOAD(next_tweak) : times_x(masks[GROUP - 1], polynomial);
	int j, r;

#pragma GCC unroll 14
	for (r = 1; r < rounds; r++) {
#pragma GCC unroll 8
		for (j = 0; j < GROUP; j++)
			x[j] = encrypt ? ENC(x[j], round_key(&xts->data, keys, r)) :
					 DEC(x[j], round_key(&xts->data, keys, r));
		if (r > GROUP)
			continue;
		coming[r - 1] = mask;
		mask = times_x(mask, polynomial);
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
	V coming[GROUP];	/* the masks of the next group */
	unsigned int i;
	int j;

	coming[0] = LOAD(tweaks);
#pragma GCC unroll 8
	for (j = 1; j < GROUP; j++)
		coming[j] = times_x(coming[j - 1], polynomial);
	for (i = 0; i < batch->count; i++) {
		const u8 *src = batch->src[i];
		u8 *dst = batch->dst[i];
		const u8 *end = src + sector_size;
		const u8 *next_tweak = tweaks + 16 * (i + 1 < batch->count ? i + 1 : i);

		for (; src != end; src += GROUP * sizeof(V), dst += GROUP * sizeof(V)) {
			V x[GROUP], masks[GROUP];

#pragma GCC unroll 8
			for (j = 0; j < GROUP; j++) {
				masks[j] = coming[j];
				x[j] = XOR(XOR(LOAD(src + j * sizeof(V)), masks[j]),
					   round_key(&xts->data, keys, 0));
			}
			if (src + GROUP * sizeof(V) != end)
				rounds_and_masks(xts, keys, x, masks, coming, NULL, polynomial,
						 encrypt, rounds);
			else
				rounds_and_masks(xts, keys, x, masks, coming, next_tweak,
						 polynomial, encrypt, rounds);
#pragma GCC unroll 8
			for (j = 0; j < GROUP; j++) {
				V last = XOR(masks[j], round_key(&xts->data, keys, rounds));

				STORE(dst + j * sizeof(V), encrypt ? ENCLAST(x[j], last) :
								     DECLAST(x[j], last));
			}
		}
	}
}

