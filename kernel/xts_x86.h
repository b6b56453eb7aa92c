/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XTS over vectors of BLOCKS blocks. The file that includes this defines the
 * vector and its operations:
 *
 *   V, BLOCKS, ISA (a suffix)
 *   LOAD(p) STORE(p, v)	any alignment
 *   BROADCAST(p)		the block at p in every lane
 *   XOR(a, b)
 *   SHL(v, n) SHR(v, n)	of 64-bit halves
 *   UP(v, n) DOWN(v, n)	a lane's bytes, by n of them
 *   CLMUL(a, b, halves)	a product in each lane
 *   ENC ENCLAST DEC DECLAST	a round of AES
 *   FORGET()			overwrites the registers that held keys
 *
 * and besides times_x(v, polynomial) if BLOCKS is 1, or what xts_pieces.h needs.
 */

/* Vectors under way. */
#define GROUP 8

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

static __always_inline V round_key(const struct crypto_aes_ctx *ctx, const u32 *keys, int i)
{
	return BROADCAST(keys + 4 * i);
}

/*
 * What is at the pointer is to be loaded anew from here on, or from where x has been computed: the
 * compiler would load it earlier else, and have to keep it on the stack.
 */
#define load_anew(pointer) asm("" : "+r" (pointer))
#define load_behind(pointer, x) asm("" : "+r" (pointer), "+v" (x))

/* Times x^n, n below 58: what leaves the top is worth x^7 + x^2 + x + 1. */
static __always_inline V times_power(V mask, const int n, V polynomial)
{
	V carry = SHR(mask, 64 - n);

	return XOR(XOR(SHL(mask, n), UP(carry, 8)), CLMUL(carry, polynomial, 0x01));
}

/* Times x^(8n), n below 8: a macro, since instructions have n in them. */
#define TIMES_BYTES(mask, n, polynomial)					       \
	XOR(UP(mask, n), CLMUL(DOWN(mask, 16 - (n)), polynomial, 0x00))

/*
 * The tweaks of a batch: its IVs, encrypted. Whole groups are made: what is behind the last one was
 * never written, and is not used.
 */
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

		load_anew(ctx);
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

/* Encrypts or decrypts a batch, given its tweaks: crypt_sectors(). */
#if BLOCKS == 1
#include "xts_groups.h"
#else
#include "xts_pieces.h"
#endif

static __always_inline void crypt(const struct xt_xts *xts, const struct xt_batch *batch,
				  unsigned int sector_size, const bool encrypt,
				  const int rounds)
{
	u8 tweaks[XT_BATCH * 16] __aligned(64) __uninitialized;

	encrypt_tweaks(&xts->tweak, batch, tweaks, rounds);
	crypt_sectors(xts, batch, tweaks, sector_size, encrypt, rounds);
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
