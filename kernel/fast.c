// SPDX-License-Identifier: GPL-2.0
/*
 * FAST, a wide-block mode for disk sectors (Chakraborty, Ghosh, Mancillas-Lopez,
 * Sarkar, ePrint 2017/849), as skciphers of the crypto API: fast(<cipher>) with the
 * hash BRW, fast_horner(<cipher>) with Horner's. The tweak is one block. Sectors
 * have a multiple of 64 bytes (BRW), or of 16 and at least 48 (Horner), up to 64 KiB.
 */
#include <linux/module.h>
#include <crypto/algapi.h>
#include <crypto/internal/cipher.h>
#include <crypto/internal/skcipher.h>
#include <crypto/scatterwalk.h>
#ifdef XT_PCLMUL
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>
#include <asm/simd.h>
#endif

#include "compat.h"
#include "fast_hash.h"

#define BLOCK 16
/* Blocks that counter mode takes at a time. */
#define CHUNK (32 * BLOCK)

struct fast_mode {
	const char *name;
	unsigned int unit, min;		/* bytes */
	void (*start)(struct fast_hash *hash);
	void (*update)(struct fast_hash *hash, const u8 *data, unsigned int blocks);
	void (*finish)(struct fast_hash *hash, int times, u8 *digest);
};

static const struct fast_mode brw = {
	"fast", 4 * BLOCK, 4 * BLOCK, fast_brw_start, fast_brw_update, fast_brw_finish,
};

static const struct fast_mode horner = {
	"fast_horner", BLOCK, 3 * BLOCK, fast_horner_start, fast_horner_update, fast_horner_finish,
};

struct fast_instance {
	const struct fast_mode *mode;
	struct crypto_cipher_spawn cipher;
	struct crypto_skcipher_spawn ecb;
};

struct fast_key {
	struct crypto_cipher *cipher;
	struct crypto_skcipher *ecb;
	struct fast_hash_key hash;
};

struct fast_request {
	u8 stream[CHUNK] __aligned(8);
	u8 data[CHUNK] __aligned(8);
	struct scatterlist sg;
	struct fast_hash hash;
	struct skcipher_request ecb;	/* the last, since it has a tail */
};

static const struct fast_mode *mode_of(struct crypto_skcipher *tfm)
{
	struct fast_instance *instance = skcipher_instance_ctx(skcipher_alg_instance(tfm));

	return instance->mode;
}

static int fast_setkey(struct crypto_skcipher *tfm, const u8 *bytes, unsigned int len)
{
	struct fast_key *key = crypto_skcipher_ctx(tfm);
	u32 flags = crypto_skcipher_get_flags(tfm) & CRYPTO_TFM_REQ_MASK;
	u8 tau[BLOCK] __aligned(8) = {};
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
static void hash_message(struct skcipher_request *req, struct scatterlist *sgl, int times,
			 u8 *digest)
{
	struct crypto_skcipher *tfm = crypto_skcipher_reqtfm(req);
	const struct fast_mode *mode = mode_of(tfm);
	struct fast_key *key = crypto_skcipher_ctx(tfm);
	struct fast_request *ctx = skcipher_request_ctx(req);
	unsigned int left = req->cryptlen - 2 * BLOCK, skip = 2 * BLOCK, held = 0;
	u8 block[BLOCK] __aligned(8);
	struct sg_mapping_iter miter;

	ctx->hash.key = &key->hash;
	ctx->hash.mul = gf128_mul_portable;
	mode->start(&ctx->hash);
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
			n = min(len, BLOCK - held);
			memcpy(block + held, data, n);
			held += n;
			data += n;
			len -= n;
			if (held < BLOCK)
				continue;
			update(mode, &ctx->hash, block, 1);
			held = 0;
		}
		if (len >= BLOCK)
			update(mode, &ctx->hash, data, len / BLOCK);
		held = len % BLOCK;
		memcpy(block, data + len - held, held);
	}
	sg_miter_stop(&miter);
	memcpy(block, req->iv, BLOCK);
	update(mode, &ctx->hash, block, 1);
	mode->finish(&ctx->hash, times, digest);
	memzero_explicit(block, sizeof(block));
	/* Who knows the data could find the key of the hash from it. */
	memzero_explicit(&ctx->hash, sizeof(ctx->hash));
}

/* Stream block i, from 1 on, is E(start + i), without carries. */
static int counter_mode(struct skcipher_request *req, const struct gf128 *start)
{
	struct fast_key *key = crypto_skcipher_ctx(crypto_skcipher_reqtfm(req));
	struct fast_request *ctx = skcipher_request_ctx(req);
	unsigned int at = 2 * BLOCK, len, i;
	u64 number = 1;
	int r = 0;

	skcipher_request_set_tfm(&ctx->ecb, key->ecb);
	skcipher_request_set_callback(&ctx->ecb, req->base.flags & CRYPTO_TFM_REQ_MAY_SLEEP, NULL,
				      NULL);
	sg_init_one(&ctx->sg, ctx->stream, CHUNK);
	for (; at < req->cryptlen && !r; at += len) {
		len = min_t(unsigned int, CHUNK, req->cryptlen - at);
		for (i = 0; i < len; i += BLOCK) {
			struct gf128 x = { .low = start->low ^ number++, .high = start->high };

			gf128_store(ctx->stream + i, &x);
		}
		skcipher_request_set_crypt(&ctx->ecb, &ctx->sg, &ctx->sg, len, NULL);
		r = crypto_skcipher_encrypt(&ctx->ecb);
		scatterwalk_map_and_copy(ctx->data, req->src, at, len, 0);
		crypto_xor(ctx->data, ctx->stream, len);
		if (!r)
			scatterwalk_map_and_copy(ctx->data, req->dst, at, len, 1);
	}
	memzero_explicit(ctx->stream, CHUNK);
	memzero_explicit(ctx->data, CHUNK);
	return r;
}

static void encrypt_block(const struct fast_key *key, struct gf128 *to, const struct gf128 *from)
{
	u8 block[BLOCK] __aligned(8);

	gf128_store(block, from);
	crypto_cipher_encrypt_one(key->cipher, block, block);
	gf128_load(to, block);
	memzero_explicit(block, BLOCK);
}

/*
 * Decryption is encryption with the first two blocks swapped, in and out, and
 * the two hashes: both Feistel rounds are the same seen from the other end.
 */
static int fast_crypt(struct skcipher_request *req, bool encrypt)
{
	struct crypto_skcipher *tfm = crypto_skcipher_reqtfm(req);
	const struct fast_key *key = crypto_skcipher_ctx(tfm);
	const struct fast_mode *mode = mode_of(tfm);
	u8 front[2 * BLOCK] __aligned(8), digest[BLOCK] __aligned(8);
	u8 *one = encrypt ? front : front + BLOCK, *two = encrypt ? front + BLOCK : front;
	struct gf128 a, b, f, g, x;
	int r;

	if (req->cryptlen < mode->min || req->cryptlen % mode->unit ||
	    req->cryptlen > FAST_MAX_BYTES)
		return -EINVAL;
	scatterwalk_map_and_copy(front, req->src, 0, sizeof(front), 0);

	/* A1 = P1 + h(P3, T) */
	hash_message(req, req->src, encrypt ? 1 : 2, digest);
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
	r = counter_mode(req, &f);
	if (!r) {
		/* C2 = B2 + h'(C3, T) */
		hash_message(req, req->dst, encrypt ? 2 : 1, digest);
		gf128_load(&x, digest);
		gf128_add(&x, &b);
		gf128_store(two, &x);
		scatterwalk_map_and_copy(front, req->dst, 0, sizeof(front), 1);
	}
	memzero_explicit(front, sizeof(front));
	memzero_explicit(digest, sizeof(digest));
	memzero_explicit(&a, sizeof(a));
	memzero_explicit(&b, sizeof(b));
	memzero_explicit(&f, sizeof(f));
	memzero_explicit(&g, sizeof(g));
	memzero_explicit(&x, sizeof(x));
	return r;
}

static int fast_encrypt(struct skcipher_request *req)
{
	return fast_crypt(req, true);
}

static int fast_decrypt(struct skcipher_request *req)
{
	return fast_crypt(req, false);
}

/* Nobody else gets the cipher before it has passed its test. */
static struct task_struct *tester;
static bool tested;

static int fast_init_tfm(struct crypto_skcipher *tfm)
{
	struct fast_instance *instance = skcipher_instance_ctx(skcipher_alg_instance(tfm));
	struct fast_key *key = crypto_skcipher_ctx(tfm);

	/* Pairs with fast_init(): whoever sees it tested need not look at the tester. */
	if (!smp_load_acquire(&tested) && current != tester)
		return -EAGAIN;
	key->ecb = crypto_spawn_skcipher(&instance->ecb);
	if (IS_ERR(key->ecb))
		return PTR_ERR(key->ecb);
	key->cipher = crypto_spawn_cipher(&instance->cipher);
	if (IS_ERR(key->cipher)) {
		crypto_free_skcipher(key->ecb);
		return PTR_ERR(key->cipher);
	}
	crypto_skcipher_set_reqsize(tfm, sizeof(struct fast_request) +
					 crypto_skcipher_reqsize(key->ecb));
	return 0;
}

static void fast_exit_tfm(struct crypto_skcipher *tfm)
{
	struct fast_key *key = crypto_skcipher_ctx(tfm);

	crypto_free_cipher(key->cipher);
	crypto_free_skcipher(key->ecb);
}

static void fast_free(struct skcipher_instance *inst)
{
	struct fast_instance *instance = skcipher_instance_ctx(inst);

	crypto_drop_cipher(&instance->cipher);
	crypto_drop_skcipher(&instance->ecb);
	kfree(inst);
}

static int fill_instance(struct skcipher_instance *inst, const char *cipher_name, u32 mask)
{
	struct fast_instance *instance = skcipher_instance_ctx(inst);
	struct crypto_instance *base = skcipher_crypto_instance(inst);
	struct crypto_alg *cipher, *ecb;
	char ecb_name[CRYPTO_MAX_ALG_NAME];
	int r;

	if (snprintf(ecb_name, sizeof(ecb_name), "ecb(%s)", cipher_name) >= sizeof(ecb_name))
		return -ENAMETOOLONG;
	r = crypto_grab_cipher(&instance->cipher, base, cipher_name, 0, mask);
	if (r)
		return r;
	/* The second hash reads what counter mode wrote: it is done when it returns. */
	r = crypto_grab_skcipher(&instance->ecb, base, ecb_name, 0, mask | CRYPTO_ALG_ASYNC);
	if (r)
		return r;
	cipher = crypto_spawn_cipher_alg(&instance->cipher);
	ecb = instance->ecb.base.alg;
	if (cipher->cra_blocksize != BLOCK)
		return -EINVAL;
	if (snprintf(inst->alg.base.cra_name, CRYPTO_MAX_ALG_NAME, "%s(%s)", instance->mode->name,
		     cipher->cra_name) >= CRYPTO_MAX_ALG_NAME ||
	    snprintf(inst->alg.base.cra_driver_name, CRYPTO_MAX_ALG_NAME, "%s(%s)",
		     instance->mode->name, ecb->cra_driver_name) >= CRYPTO_MAX_ALG_NAME)
		return -ENAMETOOLONG;
	inst->alg.base.cra_priority = ecb->cra_priority;
	inst->alg.base.cra_blocksize = BLOCK;
	inst->alg.base.cra_alignmask = ecb->cra_alignmask | 7;
	inst->alg.base.cra_ctxsize = sizeof(struct fast_key);
	inst->alg.min_keysize = cipher->cra_cipher.cia_min_keysize;
	inst->alg.max_keysize = cipher->cra_cipher.cia_max_keysize;
	inst->alg.ivsize = BLOCK;
	inst->alg.init = fast_init_tfm;
	inst->alg.exit = fast_exit_tfm;
	inst->alg.setkey = fast_setkey;
	inst->alg.encrypt = fast_encrypt;
	inst->alg.decrypt = fast_decrypt;
	inst->free = fast_free;
	return 0;
}

static int create(struct crypto_template *tmpl, struct rtattr **tb, const struct fast_mode *mode)
{
	struct skcipher_instance *inst;
	struct fast_instance *instance;
	const char *cipher_name;
	u32 mask;
	int r;

	r = crypto_check_attr_type(tb, CRYPTO_ALG_TYPE_SKCIPHER, &mask);
	if (r)
		return r;
	cipher_name = crypto_attr_alg_name(tb[1]);
	if (IS_ERR(cipher_name))
		return PTR_ERR(cipher_name);
	inst = kzalloc(sizeof(*inst) + sizeof(*instance), GFP_KERNEL);
	if (!inst)
		return -ENOMEM;
	instance = skcipher_instance_ctx(inst);
	instance->mode = mode;
	r = fill_instance(inst, cipher_name, mask);
	if (!r)
		r = skcipher_register_instance(tmpl, inst);
	if (r)
		fast_free(inst);
	return r;
}

static int create_brw(struct crypto_template *tmpl, struct rtattr **tb)
{
	return create(tmpl, tb, &brw);
}

static int create_horner(struct crypto_template *tmpl, struct rtattr **tb)
{
	return create(tmpl, tb, &horner);
}

static struct crypto_template templates[] = {
	{ .name = "fast", .create = create_brw, .module = THIS_MODULE },
	{ .name = "fast_horner", .create = create_horner, .module = THIS_MODULE },
};

static int __init fast_init(void)
{
	int r;

	tester = current;
	r = crypto_register_templates(templates, ARRAY_SIZE(templates));
	if (r)
		return r;
	r = fast_selftest();
	if (r)
		crypto_unregister_templates(templates, ARRAY_SIZE(templates));
	else
		/* Pairs with fast_init_tfm(): the self-test comes before any use. */
		smp_store_release(&tested, true);
	tester = NULL;
	return r;
}

static void __exit fast_exit(void)
{
	crypto_unregister_templates(templates, ARRAY_SIZE(templates));
}

module_init(fast_init);
module_exit(fast_exit);

MODULE_IMPORT_NS(XT_CRYPTO_INTERNAL);
MODULE_ALIAS_CRYPTO("fast");
MODULE_ALIAS_CRYPTO("fast_horner");
MODULE_DESCRIPTION("FAST, a wide-block encryption mode");
MODULE_LICENSE("GPL");
