/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XTS with several blocks a vector, in pieces of 512 bytes: a part of xts_x86.h. While a piece is
 * under way, the masks of the one that follows are made, most of them by moving whole bytes: the
 * units that shift bits are some CPUs' units of AES. For that the vector has, too:
 *
 *   FIRST(p, polynomial)	lane i is the block at p times x^i
 */

/* Vectors of a piece, and of eight blocks. */
#define PIECE (512 / (int)sizeof(V))
#define EIGHT (8 / BLOCKS)

/* Times x^64. */
static __always_inline V times_half(V mask, V polynomial)
{
	return XOR(UP(mask, 8), CLMUL(mask, polynomial, 0x01));
}

/* Which piece follows: its masks come from */
enum follow {
	FIRST_OF_SECTOR,	/* its sector's tweak */
	SECOND,			/* those of the piece before */
	LATER,			/* those of the piece before that, whose place they take */
};

static __always_inline void next_mask(V *next, const V *now, const int i, const enum follow follow,
				      const u8 *tweak, V polynomial)
{
	if (follow == SECOND)
		next[i] = TIMES_BYTES(now[i], 4, polynomial);
	else if (follow == LATER)
		next[i] = times_half(next[i], polynomial);
	else if (i == 0)
		next[i] = FIRST(tweak, polynomial);
	else if (i < EIGHT)
		next[i] = times_power(next[i - 1], BLOCKS, polynomial);
	else
		next[i] = TIMES_BYTES(next[i - EIGHT], 1, polynomial);
}

/* One piece, whose masks are there; between the rounds the masks of that which follows. */
static __always_inline void piece(const struct xt_xts *xts, const u32 *keys, const u8 *src, u8 *dst,
				  const V *now, V *next, const enum follow follow,
				  const u8 *tweak, V polynomial, const bool encrypt,
				  const int rounds)
{
	int group, j, r;

#pragma GCC unroll 2
	for (group = 0; group < PIECE; group += GROUP) {
		V x[GROUP];

		load_anew(keys);
		load_anew(now);
		load_anew(next);
#pragma GCC unroll 8
		for (j = 0; j < GROUP; j++)
			x[j] = XOR(XOR(LOAD(src + (group + j) * sizeof(V)), now[group + j]),
				   round_key(&xts->data, keys, 0));
#pragma GCC unroll 14
		for (r = 1; r < rounds; r++) {
#pragma GCC unroll 8
			for (j = 0; j < GROUP; j++)
				x[j] = encrypt ? ENC(x[j], round_key(&xts->data, keys, r)) :
						 DEC(x[j], round_key(&xts->data, keys, r));
			load_behind(keys, x[0]);
			if (r <= GROUP)
				next_mask(next, now, group + r - 1, follow, tweak, polynomial);
		}
		load_behind(now, x[0]);
#pragma GCC unroll 8
		for (j = 0; j < GROUP; j++) {
			V last = XOR(now[group + j], round_key(&xts->data, keys, rounds));

			STORE(dst + (group + j) * sizeof(V), encrypt ? ENCLAST(x[j], last) :
								       DECLAST(x[j], last));
		}
	}
}

static __always_inline void crypt_sectors(const struct xt_xts *xts, const struct xt_batch *batch,
					  const u8 *tweaks, unsigned int sector_size,
					  const bool encrypt, const int rounds)
{
	/* x^7 + x^2 + x + 1. */
	static const u64 reduction[2] __aligned(16) = { 0x87, 0 };
	const u32 *keys = encrypt ? xts->data.key_enc : xts->data.key_dec;
	const V polynomial = BROADCAST(reduction);
	V masks[2][PIECE] __uninitialized, *now = masks[0], *next = masks[1];
	unsigned int i;
	int j;

#pragma GCC unroll 16
	for (j = 0; j < PIECE; j++)
		next_mask(now, NULL, j, FIRST_OF_SECTOR, tweaks, polynomial);
	for (i = 0; i < batch->count; i++) {
		const u8 *src = batch->src[i];
		u8 *dst = batch->dst[i];
		const u8 *end = src + sector_size;
		const u8 *tweak = tweaks + 16 * (i + 1 < batch->count ? i + 1 : i);
		enum follow follow = SECOND;

		for (; src != end; src += 512, dst += 512) {
			if (src + 512 == end)
				piece(xts, keys, src, dst, now, next, FIRST_OF_SECTOR, tweak,
				      polynomial, encrypt, rounds);
			else if (follow == SECOND)
				piece(xts, keys, src, dst, now, next, SECOND, tweak, polynomial,
				      encrypt, rounds);
			else
				piece(xts, keys, src, dst, now, next, LATER, tweak, polynomial,
				      encrypt, rounds);
			follow = LATER;
			swap(now, next);
		}
	}
}
