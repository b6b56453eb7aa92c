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
 *   FIRST(p, polynomial)	lane i is the block at p times x^i
 *   ENC ENCLAST DEC DECLAST	a round of AES
 *   FORGET()			overwrites the registers that held keys
 */

/* Vectors under way. A sector is a whole number of such groups. */
#define GROUP 8

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

/* Times x^BLOCKS: what leaves the top is worth x^7 + x^2 + x + 1. */
static __always_inline V next_mask(V mask, V polynomial)
{
	V carry = SHR(mask, 64 - BLOCKS);

	return XOR(XOR(SHL(mask, BLOCKS), UP64(carry)),
		   CLMUL_HIGH(carry, polynomial));
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

static __always_inline void crypt(const struct xt_xts *xts, const struct xt_batch *batch,
				  unsigned int sector_size, const bool encrypt,
				  const int rounds)
{
	static const u64 reduction[2] __aligned(16) = { 0x87, 0 };
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
			V x[GROUP], masks[GROUP], mask;
			int r;

#pragma GCC unroll 8
			for (j = 0; j < GROUP; j++) {
				masks[j] = coming[j];
				x[j] = XOR(XOR(LOAD(src + j * sizeof(V)), masks[j]),
					   round_key(&xts->data, keys, 0));
			}
			/*
			 * The next group's masks are made between the rounds, or else
			 * AES would wait for them: each depends on the one before.
			 */
			if (src + GROUP * sizeof(V) != end)
				mask = next_mask(masks[GROUP - 1], polynomial);
			else
				mask = FIRST(next_tweak, polynomial);
#pragma GCC unroll 14
			for (r = 1; r < rounds; r++) {
#pragma GCC unroll 8
				for (j = 0; j < GROUP; j++)
					x[j] = encrypt ? ENC(x[j], round_key(&xts->data, keys, r)) :
							 DEC(x[j], round_key(&xts->data, keys, r));
				if (r <= GROUP) {
					coming[r - 1] = mask;
					mask = next_mask(mask, polynomial);
				}
			}
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
