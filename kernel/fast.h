/* SPDX-License-Identifier: GPL-2.0 */
/* FAST on a block cipher, without the crypto API around it: fast_template.c has that. */
#ifndef XTENT_FAST_H
#define XTENT_FAST_H

#include <linux/scatterlist.h>
#include <crypto/internal/cipher.h>
#include <crypto/skcipher.h>

#include "fast_hash.h"

#define FAST_BLOCK 16
/* Bytes that counter mode takes at a time. */
#define FAST_CHUNK (32 * FAST_BLOCK)

struct fast_mode {
	const char *name;
	unsigned int unit, min;		/* bytes */
	void (*start)(struct fast_hash *hash);
	void (*update)(struct fast_hash *hash, const u8 *data, unsigned int blocks);
	void (*finish)(struct fast_hash *hash, int times, u8 *digest);
};

extern const struct fast_mode fast_brw, fast_horner;

struct fast_key {
	struct crypto_cipher *cipher;
	/* Synchronous: the second hash reads what counter mode wrote. */
	struct crypto_skcipher *ecb;
	struct fast_hash_key hash;
};

/* What a request needs while it is worked on. */
struct fast_scratch {
	u8 stream[FAST_CHUNK] __aligned(8);
	u8 data[FAST_CHUNK] __aligned(8);
	struct scatterlist sg;
	struct fast_hash hash;
	struct skcipher_request ecb;	/* the last, since it has a tail */
};

static inline unsigned int fast_scratch_size(const struct fast_key *key)
{
	return sizeof(struct fast_scratch) + crypto_skcipher_reqsize(key->ecb);
}

struct fast_job {
	const struct fast_mode *mode;
	const struct fast_key *key;
	struct fast_scratch *scratch;
	struct scatterlist *src, *dst;
	unsigned int len;
	const u8 *tweak;
	u32 flags;			/* CRYPTO_TFM_REQ_MAY_SLEEP, or none */
};

/* `flags` are those of CRYPTO_TFM_REQ_MASK. */
int fast_set_key(struct fast_key *key, const u8 *bytes, unsigned int len, u32 flags);
int fast_crypt(const struct fast_job *job, bool encrypt);

/* fast_selftest.c */
int fast_selftest(void);

#endif
