/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XTS over vectors of BLOCKS blocks. The file that includes this defines the
 * vector and its operations:
 *
 *   V, BLOCKS, ISA (a suffix)
 *   LOAD(p) STORE(p, v)	any alignment
 *   BROADCAST(p)		the block at p in every lane
 *   XOR(a, b)  SHL(v, n) SHR(v, n)  of 64-bit halves
 *   UP64(v)			the low half to the high one, zeros below
 *   CLMUL_HIGH(a, b)		of the high half of a and the low one of b
 *   TIMES_X(v, polynomial)	if BLOCKS is 1 and there is a faster way than by the above
 *   FIRST(p, polynomial)	lane i is the block at p times x^i
 *   ENC ENCLAST DEC DECLAST	a round of AES
 *   FORGET()			overwrites the registers that held keys
 */

/* Vectors under way. A sector is a whole number of such groups. */
#define GROUP 8

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

/* Times x^n, n below 58: what leaves the top is worth x^7 + x^2 + x + 1. */
static __always_inline V times_power(V mask, const int n, V polynomial)
{
	V carry = SHR(mask, 64 - n);

	return XOR(XOR(SHL(mask, n), UP64(carry)), CLMUL_HIGH(carry, polynomial));
}

/* The mask of the vector that follows. */
static __always_inline V next_mask(V mask, V polynomial)
{
#ifdef TIMES_X
	return TIMES_X(mask, polynomial);
#else
	return times_power(mask, BLOCKS, polynomial);
#endif
}

static __always_inline V round_key(const struct crypto_aes_ctx *ctx, const u32 *keys, int i)
{
	return BROADCAST(keys + 4 * i);
}

/* The tweaks of a batch: its IVs, encrypted; all XT_BATCH are made, whole vectors. */
static __always_inline void encrypt_tweaks(const struct crypto_aes_ctx *ctx,
					   const struct xt_batch *batch, u8 *tweaks,
					   const int rounds)
{
	unsigned int i;

	for (i = 0; i < batch->count; i++)
		xt_batch_iv(batch, i, tweaks + 16 * i);
	for (i = 0; i < batch->count; i += GROUP * BLOCKS) {
		V x[GROUP];
		int j, r;

#pragma GCC unroll 8
		for (j = 0; j < GROUP; j++)
			x[j] = XOR(LOAD(tweaks + 16 * (i + j * BLOCKS)),
				   round_key(ctx, ctx->key_enc, 0));
		for (r = 1; r < rounds; r++) {
#pragma GCC unroll 8
			for (j = 0; j < GROUP; j++)
				x[j] = ENC(x[j], round_key(ctx, ctx->key_enc, r));
		}
#pragma GCC unroll 8
		for (j = 0; j < GROUP; j++)
			STORE(tweaks + 16 * (i + j * BLOCKS),
			      ENCLAST(x[j], round_key(ctx, ctx->key_enc, rounds)));
	}
}

/*
 * All rounds but the last of a group; and between them the masks of the next one, or else
 * AES would wait for them. Within a sector each comes from the one in its place, so that none
 * waits for another; at its end each comes from the one before, since the first is a new tweak.
 * With one block a vector that is the faster way within a sector, too.
 */
static __always_inline void rounds_and_masks(const struct xt_xts *xts, const u32 *keys, V *x,
					     const V *masks, V *coming, const u8 *next_tweak,
					     V polynomial, const bool encrypt, const int rounds)
{
	const bool each_from_last = next_tweak || BLOCKS == 1;
	V mask = next_tweak ? FIRST(next_tweak, polynomial) :
			      next_mask(masks[GROUP - 1], polynomial);
	int j, r;

#pragma GCC unroll 14
	for (r = 1; r < rounds; r++) {
#pragma GCC unroll 8
		for (j = 0; j < GROUP; j++)
			x[j] = encrypt ? ENC(x[j], round_key(&xts->data, keys, r)) :
					 DEC(x[j], round_key(&xts->data, keys, r));
		if (r > GROUP)
			continue;
		if (each_from_last) {
			coming[r - 1] = mask;
			mask = next_mask(mask, polynomial);
		} else {
			coming[r - 1] = times_power(masks[r - 1], GROUP * BLOCKS, polynomial);
		}
	}
}

static __always_inline void crypt(const struct xt_xts *xts, const struct xt_batch *batch,
				  unsigned int sector_size, const bool encrypt,
				  const int rounds)
{
	/* What leaves the high half at the top, and the low half to the high one. */
	static const u64 reduction[2] __aligned(16) = { 0x87, 1 };
	const u32 *keys = encrypt ? xts->data.key_enc : xts->data.key_dec;
	u8 tweaks[XT_BATCH * 16] __aligned(64);
	const V polynomial = BROADCAST(reduction);
	V coming[GROUP];	/* the masks of the next group */
	unsigned int i;
	int j;

	encrypt_tweaks(&xts->tweak, batch, tweaks, rounds);
	coming[0] = FIRST(tweaks, polynomial);
#pragma GCC unroll 8
	for (j = 1; j < GROUP; j++)
		coming[j] = next_mask(coming[j - 1], polynomial);
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
	/* Whoever knows a tweak and the data may change blocks at will. */
	memzero_explicit(tweaks, sizeof(tweaks));
	FORGET();
}

/* A loop with a known number of rounds is unrolled. */
static __always_inline void crypt_rounds(const struct xt_xts *xts,
					 const struct xt_batch *batch,
					 unsigned int sector_size, const bool encrypt)
{
	switch (xts->data.key_length) {
	case AES_KEYSIZE_128:
		return crypt(xts, batch, sector_size, encrypt, 10);
	case AES_KEYSIZE_192:
		return crypt(xts, batch, sector_size, encrypt, 12);
	default:
		return crypt(xts, batch, sector_size, encrypt, 14);
	}
}

void CAT(xt_xts_encrypt_, ISA)(const struct xt_xts *xts, const struct xt_batch *batch,
			       unsigned int sector_size)
{
	crypt_rounds(xts, batch, sector_size, true);
}

void CAT(xt_xts_decrypt_, ISA)(const struct xt_xts *xts, const struct xt_batch *batch,
			       unsigned int sector_size)
{
	crypt_rounds(xts, batch, sector_size, false);
}
