// SPDX-License-Identifier: GPL-2.0
/*
 * FAST, a wide-block mode for disk sectors (Chakraborty, Ghosh, Mancillas-Lopez,
 * Sarkar, ePrint 2017/849), with the hash BRW or with Horner's. The tweak is one block.
 * Sectors have a multiple of 64 bytes (BRW), or of 16 and at least 48 (Horner), up to 64 KiB.
 */
#include <linux/module.h>
#include <crypto/algapi.h>
#include <crypto/scatterwalk.h>
#ifdef XT_PCLMUL
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#include <asm/simd.h>
#endif

#include "fast.h"

const struct fast_mode fast_brw = {
	"fast", 4 * FAST_BLOCK, 4 * FAST_BLOCK, fast_brw_start, fast_brw_update, fast_brw_finish,
};

const struct fast_mode fast_horner = {
	"fast_horner", FAST_BLOCK, 3 * FAST_BLOCK, fast_horner_start, fast_horner_update, fast_horner_finish,
};

/*
 * Whoever knows a value of the hash's polynomial could find its key. The hashes and the
 * multiplication have such in their frames, some 500 bytes; this one's own lies over them.
 */
static noinline void wipe_stack(void)
{
	u8 below[768];

	memzero_explicit(below, sizeof(below));
}

int fast_set_key(struct fast_key *key, const u8 *bytes, unsigned int len, u32 flags)
{
	u8 tau[FAST_BLOCK] __aligned(8) = {};
	int r;

	crypto_cipher_clear_flags(key->cipher, CRYPTO_TFM_REQ_MASK);
	crypto_cipher_set_flags(key->cipher, flags);
	crypto_skcipher_clear_flags(key->ecb, CRYPTO_TFM_REQ_MASK);
	crypto_skcipher_set_flags(key->ecb, flags);
	r = crypto_cipher_setkey(key->cipher, bytes, len);
	if (!r)
		r = crypto_skcipher_setkey(key->ecb, bytes, len);
	if (r)
		return r;
	/* tau = E(0) */
	crypto_cipher_encrypt_one(key->cipher, tau, tau);
	fast_hash_key(&key->hash, tau);
	memzero_explicit(tau, sizeof(tau));
	wipe_stack();
	return 0;
}

/* With the FPU if it is free, without otherwise. */
static void update(const struct fast_mode *mode, struct fast_hash *hash, const u8 *data,
		   unsigned int blocks)
{
#ifdef XT_PCLMUL
	if (boot_cpu_has(X86_FEATURE_PCLMULQDQ) && boot_cpu_has(X86_FEATURE_XMM4_1) &&
	    may_use_simd()) {
		hash->mul = gf128_mul_pclmul;
		kernel_fpu_begin();
		mode->update(hash, data, blocks);
		kernel_fpu_end();
		hash->mul = gf128_mul_portable;
		return;
	}
#endif
	mode->update(hash, data, blocks);
}

/* The hash of all but the first two blocks, and then the tweak. */
static void hash_message(const struct fast_job *job, struct scatterlist *sgl, int times,
			 u8 *digest)
{
	const struct fast_mode *mode = job->mode;
	struct fast_hash *hash = &job->scratch->hash;
	unsigned int left = job->len - 2 * FAST_BLOCK, skip = 2 * FAST_BLOCK, held = 0;
	u8 block[FAST_BLOCK] __aligned(8);
	struct sg_mapping_iter miter;

	hash->key = &job->key->hash;
	hash->mul = gf128_mul_portable;
	mode->start(hash);
	sg_miter_start(&miter, sgl, sg_nents(sgl), SG_MITER_FROM_SG | SG_MITER_ATOMIC);
	while (left && sg_miter_next(&miter)) {
		const u8 *data = miter.addr;
		unsigned int len = miter.length, n;

		n = min(len, skip);
		skip -= n;
		data += n;
		len = min(len - n, left);
		left -= len;
		/* A block may begin in one piece of memory and end in another. */
		if (held) {
			n = min(len, FAST_BLOCK - held);
			memcpy(block + held, data, n);
			held += n;
			data += n;
			len -= n;
			if (held < FAST_BLOCK)
				continue;
			update(mode, hash, block, 1);
			held = 0;
		}
		if (len >= FAST_BLOCK)
			update(mode, hash, data, len / FAST_BLOCK);
		held = len % FAST_BLOCK;
		memcpy(block, data + len - held, held);
	}
	sg_miter_stop(&miter);
	memcpy(block, job->tweak, FAST_BLOCK);
	update(mode, hash, block, 1);
	mode->finish(hash, times, digest);
	memzero_explicit(block, sizeof(block));
	/* Who knows the data could find the key of the hash from it. */
	memzero_explicit(hash, sizeof(*hash));
}

/* Stream block i, from 1 on, is E(start + i), without carries. */
static int counter_mode(const struct fast_job *job, const struct gf128 *start)
{
	struct fast_scratch *scratch = job->scratch;
	unsigned int at = 2 * FAST_BLOCK, len, i;
	u64 number = 1;
	int r = 0;

	skcipher_request_set_tfm(&scratch->ecb, job->key->ecb);
	skcipher_request_set_callback(&scratch->ecb, job->flags, NULL, NULL);
	sg_init_one(&scratch->sg, scratch->stream, FAST_CHUNK);
	for (; at < job->len && !r; at += len) {
		len = min_t(unsigned int, FAST_CHUNK, job->len - at);
		for (i = 0; i < len; i += FAST_BLOCK) {
			struct gf128 x = { .low = start->low ^ number++, .high = start->high };

			gf128_store(scratch->stream + i, &x);
		}
		skcipher_request_set_crypt(&scratch->ecb, &scratch->sg, &scratch->sg, len, NULL);
		r = crypto_skcipher_encrypt(&scratch->ecb);
		scatterwalk_map_and_copy(scratch->data, job->src, at, len, 0);
		crypto_xor(scratch->data, scratch->stream, len);
		if (!r)
			scatterwalk_map_and_copy(scratch->data, job->dst, at, len, 1);
	}
	memzero_explicit(scratch->stream, FAST_CHUNK);
	memzero_explicit(scratch->data, FAST_CHUNK);
	return r;
}

static void encrypt_block(const struct fast_key *key, struct gf128 *to, const struct gf128 *from)
{
	u8 block[FAST_BLOCK] __aligned(8);

	gf128_store(block, from);
	crypto_cipher_encrypt_one(key->cipher, block, block);
	gf128_load(to, block);
	memzero_explicit(block, FAST_BLOCK);
}

/*
 * Decryption is encryption with the first two blocks swapped, in and out, and
 * the two hashes: both Feistel rounds are the same seen from the other end.
 */
int fast_crypt(const struct fast_job *job, bool encrypt)
{
	const struct fast_key *key = job->key;
	const struct fast_mode *mode = job->mode;
	u8 front[2 * FAST_BLOCK] __aligned(8), digest[FAST_BLOCK] __aligned(8);
	u8 *one = encrypt ? front : front + FAST_BLOCK, *two = encrypt ? front + FAST_BLOCK : front;
	struct gf128 a, b, f, g, x;
	int r;

	if (job->len < mode->min || job->len % mode->unit ||
	    job->len > FAST_MAX_BYTES)
		return -EINVAL;
	scatterwalk_map_and_copy(front, job->src, 0, sizeof(front), 0);

	/* A1 = P1 + h(P3, T) */
	hash_message(job, job->src, encrypt ? 1 : 2, digest);
	gf128_load(&a, digest);
	gf128_load(&x, one);
	gf128_add(&a, &x);
	/* F1 = P2 + tau A1 */
	gf128_mul_portable(&f, &a, &key->hash.power[0]);
	gf128_load(&x, two);
	gf128_add(&f, &x);
	/* F2 = A1 + E(F1), B2 = F1 + E(F2) */
	encrypt_block(key, &g, &f);
	gf128_add(&g, &a);
	encrypt_block(key, &b, &g);
	gf128_add(&b, &f);
	/* C1 = F2 + tau B2 */
	gf128_mul_portable(&x, &b, &key->hash.power[0]);
	gf128_add(&x, &g);
	gf128_store(one, &x);
	/* Z = F1 + F2 */
	gf128_add(&f, &g);
	r = counter_mode(job, &f);
	if (!r) {
		/* C2 = B2 + h'(C3, T) */
		hash_message(job, job->dst, encrypt ? 2 : 1, digest);
		gf128_load(&x, digest);
		gf128_add(&x, &b);
		gf128_store(two, &x);
		scatterwalk_map_and_copy(front, job->dst, 0, sizeof(front), 1);
	}
	memzero_explicit(front, sizeof(front));
	memzero_explicit(digest, sizeof(digest));
	memzero_explicit(&a, sizeof(a));
	memzero_explicit(&b, sizeof(b));
	memzero_explicit(&f, sizeof(f));
	memzero_explicit(&g, sizeof(g));
	memzero_explicit(&x, sizeof(x));
	wipe_stack();
	return r;
}
