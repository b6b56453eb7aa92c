// SPDX-License-Identifier: GPL-2.0
/*
 * ecb(aes) and xts(aes) of the crypto API. What the device does not do, or does not do
 * now, software does: a transform works with any device, without one, and after its
 * device has gone.
 */
#include <linux/module.h>
#include <crypto/xts.h>

#include "../xtent_run.h"
#include "cipher.h"

/*
 * More than the kernel's AES in C has, less than that by instructions of a CPU has (400
 * and more), with which an engine on a bus cannot keep up.
 */
static int priority = 300;
module_param(priority, int, 0444);
MODULE_PARM_DESC(priority, "Of the algorithms, among others of their names (300)");

bool xtp_runs_xts(const struct xtp_caps *caps)
{
	return caps->level >= 3 && caps->ciphers & BIT(XTENT_ENGINE_CIPHER_XTS);
}

static int set_software_key(struct crypto_skcipher *tfm, const u8 *key, unsigned int size)
{
	struct cipher_ctx *ctx = crypto_skcipher_ctx(tfm);

	crypto_skcipher_clear_flags(ctx->software, CRYPTO_TFM_REQ_MASK);
	crypto_skcipher_set_flags(ctx->software,
				  crypto_skcipher_get_flags(tfm) & CRYPTO_TFM_REQ_MASK);
	return crypto_skcipher_setkey(ctx->software, key, size);
}

static void forget(struct cipher_ctx *ctx)
{
	xtp_key_forget(&ctx->block_key);
	xtp_key_forget(&ctx->run_key);
	memzero_explicit(&ctx->tweak_key, sizeof(ctx->tweak_key));
}

static bool is_for_device(unsigned int size)
{
	return size == AES_KEYSIZE_128 || size == AES_KEYSIZE_256;
}

static int ecb_setkey(struct crypto_skcipher *tfm, const u8 *key, unsigned int size)
{
	struct cipher_ctx *ctx = crypto_skcipher_ctx(tfm);
	int r = set_software_key(tfm, key, size);

	forget(ctx);
	if (!r && is_for_device(size))
		xtp_key_new(&ctx->block_key, XTENT_ENGINE_CIPHER_ECB, key, size,
			    size == AES_KEYSIZE_256);
	return r;
}

static int xts_setkey(struct crypto_skcipher *tfm, const u8 *key, unsigned int size)
{
	struct cipher_ctx *ctx = crypto_skcipher_ctx(tfm);
	const unsigned int half = size / 2;
	int r = xts_verify_key(tfm, key, size) ?: set_software_key(tfm, key, size);

	forget(ctx);
	/* The device takes no two equal halves. */
	if (r || !is_for_device(half) || !crypto_memneq(key, key + half, half))
		return r;
	r = xt_aes_set_key(&ctx->tweak_key, key + half, half);
	if (r)
		return r;
	xtp_key_new(&ctx->block_key, XTENT_ENGINE_CIPHER_ECB, key, half, half == AES_KEYSIZE_256);
	xtp_key_new(&ctx->run_key, XTENT_ENGINE_CIPHER_XTS, key, size, half == AES_KEYSIZE_256);
	return 0;
}

static int init_tfm(struct crypto_skcipher *tfm)
{
	struct cipher_ctx *ctx = crypto_skcipher_ctx(tfm);
	const char *name = crypto_tfm_alg_name(crypto_skcipher_tfm(tfm));

	ctx->software = crypto_alloc_skcipher(name, 0, CRYPTO_ALG_ASYNC | CRYPTO_ALG_NEED_FALLBACK |
						       CRYPTO_ALG_ALLOCATES_MEMORY);
	if (IS_ERR(ctx->software))
		return PTR_ERR(ctx->software);
	crypto_skcipher_set_reqsize(tfm, xtp_request_bytes(ctx->software));
	return 0;
}

static void exit_tfm(struct crypto_skcipher *tfm)
{
	struct cipher_ctx *ctx = crypto_skcipher_ctx(tfm);

	forget(ctx);
	crypto_free_skcipher(ctx->software);
}

#define COMMON \
	.base.cra_flags = CRYPTO_ALG_ASYNC | CRYPTO_ALG_KERN_DRIVER_ONLY | \
			  CRYPTO_ALG_NEED_FALLBACK, \
	.base.cra_blocksize = AES_BLOCK_SIZE, \
	.base.cra_ctxsize = sizeof(struct cipher_ctx), \
	.base.cra_module = THIS_MODULE, \
	.init = init_tfm, \
	.exit = exit_tfm, \
	.encrypt = xtp_encrypt, \
	.decrypt = xtp_decrypt

static struct skcipher_alg ecb_alg = {
	COMMON,
	.base.cra_name = "ecb(aes)",
	.base.cra_driver_name = "ecb-aes-xtent-pci",
	.min_keysize = AES_MIN_KEY_SIZE,
	.max_keysize = AES_MAX_KEY_SIZE,
	.setkey = ecb_setkey,
};

static struct skcipher_alg xts_alg = {
	COMMON,
	.base.cra_name = "xts(aes)",
	.base.cra_driver_name = "xts-aes-xtent-pci",
	.min_keysize = 2 * AES_MIN_KEY_SIZE,
	.max_keysize = 2 * AES_MAX_KEY_SIZE,
	.ivsize = AES_BLOCK_SIZE,
	.setkey = xts_setkey,
};

static int set_data_unit_size(struct crypto_skcipher *tfm, unsigned int size)
{
	struct cipher_ctx *ctx = crypto_skcipher_ctx(tfm);
	struct xtp_device *xtp;
	bool taken = false;

	rcu_read_lock();
	xtp = rcu_dereference(xtp_active);
	if (xtp && is_power_of_2(size) && size >= 512 && size <= 4096)
		taken = xtp_runs_xts(&xtp->caps) && xtp->caps.units & size / 512;
	rcu_read_unlock();
	if (!taken)
		return -EOPNOTSUPP;
	ctx->data_unit_size = size;
	return 0;
}

static struct xtent_run_driver run_driver = {
	.driver_name = "xts-aes-xtent-pci",
	.set_data_unit_size = set_data_unit_size,
};

/*
 * Algorithms come with the first device that has them, and stay while the module does:
 * the crypto API cannot take back what somebody uses or is about to use.
 */
static DEFINE_MUTEX(registering);
static bool has_ecb, has_xts, has_runs;

int xtp_cipher_register(const struct xtp_caps *caps)
{
	int r = 0;

	mutex_lock(&registering);
	if (!has_ecb && caps->ciphers & BIT(XTENT_ENGINE_CIPHER_ECB)) {
		r = crypto_register_skcipher(&ecb_alg);
		has_ecb = !r;
	}
	if (!r && !has_xts && (xtp_runs_xts(caps) || caps->level >= 2)) {
		/* dm-crypt sends several sectors in a request then. */
		if (xtp_runs_xts(caps))
			xts_alg.base.cra_flags |= XT_ALG_SEVERAL_UNITS;
		r = crypto_register_skcipher(&xts_alg);
		has_xts = !r;
	}
	if (!r && !has_runs && xtp_runs_xts(caps)) {
		r = xtent_run_register(&run_driver);
		has_runs = !r;
	}
	mutex_unlock(&registering);
	return r;
}

int xtp_cipher_init(void)
{
	ecb_alg.base.cra_priority = priority;
	xts_alg.base.cra_priority = priority;
	return xtp_requests_init();
}

/* No transform is left: each holds the module. */
void xtp_cipher_exit(void)
{
	if (has_runs)
		xtent_run_unregister(&run_driver);
	if (has_xts)
		crypto_unregister_skcipher(&xts_alg);
	if (has_ecb)
		crypto_unregister_skcipher(&ecb_alg);
	xtp_requests_exit();
}
