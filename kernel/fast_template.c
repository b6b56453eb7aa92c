// SPDX-License-Identifier: GPL-2.0
/*
 * FAST as skciphers of the crypto API: fast(<cipher>) with the hash BRW,
 * fast_horner(<cipher>) with Horner's.
 */
#include <linux/fips.h>
#include <linux/module.h>
#include <crypto/algapi.h>
#include <crypto/internal/skcipher.h>

#include "compat.h"
#include "fast.h"

struct fast_instance {
	const struct fast_mode *mode;
	struct crypto_cipher_spawn cipher;
	struct crypto_skcipher_spawn ecb;
};

static int fast_setkey(struct crypto_skcipher *tfm, const u8 *bytes, unsigned int len)
{
	return fast_set_key(crypto_skcipher_ctx(tfm), bytes, len,
			    crypto_skcipher_get_flags(tfm) & CRYPTO_TFM_REQ_MASK);
}

static int crypt(struct skcipher_request *req, bool encrypt)
{
	struct crypto_skcipher *tfm = crypto_skcipher_reqtfm(req);
	const struct fast_instance *instance = skcipher_instance_ctx(skcipher_alg_instance(tfm));
	const struct fast_job job = {
		.mode = instance->mode,
		.key = crypto_skcipher_ctx(tfm),
		.scratch = skcipher_request_ctx(req),
		.src = req->src,
		.dst = req->dst,
		.len = req->cryptlen,
		.tweak = req->iv,
		.flags = req->base.flags & CRYPTO_TFM_REQ_MAY_SLEEP,
	};

	return fast_crypt(&job, encrypt);
}

static int fast_encrypt(struct skcipher_request *req)
{
	return crypt(req, true);
}

static int fast_decrypt(struct skcipher_request *req)
{
	return crypt(req, false);
}

static int fast_init_tfm(struct crypto_skcipher *tfm)
{
	struct fast_instance *instance = skcipher_instance_ctx(skcipher_alg_instance(tfm));
	struct fast_key *key = crypto_skcipher_ctx(tfm);

	key->ecb = crypto_spawn_skcipher(&instance->ecb);
	if (IS_ERR(key->ecb))
		return PTR_ERR(key->ecb);
	key->cipher = crypto_spawn_cipher(&instance->cipher);
	if (IS_ERR(key->cipher)) {
		crypto_free_skcipher(key->ecb);
		return PTR_ERR(key->cipher);
	}
	crypto_skcipher_set_reqsize(tfm, fast_scratch_size(key));
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
	if (cipher->cra_blocksize != FAST_BLOCK)
		return -EINVAL;
	if (snprintf(inst->alg.base.cra_name, CRYPTO_MAX_ALG_NAME, "%s(%s)", instance->mode->name,
		     cipher->cra_name) >= CRYPTO_MAX_ALG_NAME ||
	    snprintf(inst->alg.base.cra_driver_name, CRYPTO_MAX_ALG_NAME, "%s(%s)",
		     instance->mode->name, ecb->cra_driver_name) >= CRYPTO_MAX_ALG_NAME)
		return -ENAMETOOLONG;
	inst->alg.base.cra_priority = ecb->cra_priority;
	inst->alg.base.cra_blocksize = FAST_BLOCK;
	inst->alg.base.cra_alignmask = ecb->cra_alignmask | 7;
	inst->alg.base.cra_ctxsize = sizeof(struct fast_key);
	inst->alg.min_keysize = cipher->cra_cipher.cia_min_keysize;
	inst->alg.max_keysize = cipher->cra_cipher.cia_max_keysize;
	inst->alg.ivsize = FAST_BLOCK;
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
	return create(tmpl, tb, &fast_brw);
}

static int create_horner(struct crypto_template *tmpl, struct rtattr **tb)
{
	return create(tmpl, tb, &fast_horner);
}

static struct crypto_template templates[] = {
	{ .name = "fast", .create = create_brw, .module = THIS_MODULE },
	{ .name = "fast_horner", .create = create_horner, .module = THIS_MODULE },
};

/*
 * Tested before anybody can have it, and not through the crypto API: there others could be asking for it
 * already, whom the test would wait for, or whose references would keep a template that failed.
 */
static int __init fast_init(void)
{
	/* It is not approved. And that of a module without a signature would stop the kernel. */
	if (fips_enabled) {
		pr_info("xtent_fast: not in FIPS mode\n");
		return -EOPNOTSUPP;
	}
	return fast_selftest() ?: crypto_register_templates(templates, ARRAY_SIZE(templates));
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
