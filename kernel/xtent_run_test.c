// SPDX-License-Identifier: GPL-2.0
/*
 * A driver for tests only: XTS-AES that takes runs, and ECB-AES to be an engine, by
 * the kernel's own synchronous ciphers. It completes requests at once or from a
 * work queue, with a queue that may be full, fails on demand, and checks the
 * alignment of what it gets.
 */
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/workqueue.h>
#include <crypto/algapi.h>
#include <crypto/internal/skcipher.h>
#include <crypto/scatterwalk.h>

#include "compat.h"
#include "xtent_run.h"

static unsigned int queue = 16;
module_param(queue, uint, 0444);
MODULE_PARM_DESC(queue, "Requests that wait before the driver is busy");

static unsigned int alignmask = 15;
module_param(alignmask, uint, 0444);
MODULE_PARM_DESC(alignmask, "Of the driver, a power of two less 1");

static unsigned int sync_every;
module_param(sync_every, uint, 0644);
MODULE_PARM_DESC(sync_every, "Every so many requests, one completes at once; 0: none");

static unsigned int fail_every;
module_param(fail_every, uint, 0644);
MODULE_PARM_DESC(fail_every, "Every so many requests, one fails when it completes");

static unsigned int refuse_every;
module_param(refuse_every, uint, 0644);
MODULE_PARM_DESC(refuse_every, "Every so many requests, one is not taken");

static bool refuse_keys;
module_param(refuse_keys, bool, 0644);
MODULE_PARM_DESC(refuse_keys, "Take no keys");

static bool refuse_runs;
module_param(refuse_runs, bool, 0644);
MODULE_PARM_DESC(refuse_runs, "Set no data unit size");

static unsigned int cost_us;
module_param(cost_us, uint, 0644);
MODULE_PARM_DESC(cost_us, "Microseconds that every request takes beside its data");

static unsigned int misaligned;
module_param(misaligned, uint, 0444);
MODULE_PARM_DESC(misaligned, "Requests with memory not aligned as asked");

static atomic_t counter = ATOMIC_INIT(0);
static struct crypto_queue requests;
static DEFINE_SPINLOCK(requests_lock);
static struct workqueue_struct *worker;

struct test_ctx {
	struct crypto_skcipher *inner;
	unsigned int data_unit_size;	/* 0: a request is one data unit */
};

struct test_request {
	struct scatterlist src[2], dst[2];
	bool encrypt;
	bool fail;
	u8 iv[16] __aligned(8);
	struct skcipher_request inner;	/* with its context behind */
};

/* Plus 1, of all 16 bytes. */
static void next_iv(u8 *iv)
{
	unsigned int i = 0;

	while (i < 16 && !++iv[i])
		i++;
}

static int crypt_one(struct skcipher_request *req, unsigned int at, unsigned int len)
{
	struct test_ctx *ctx = crypto_skcipher_ctx(crypto_skcipher_reqtfm(req));
	struct test_request *r = skcipher_request_ctx(req);

	skcipher_request_set_tfm(&r->inner, ctx->inner);
	skcipher_request_set_callback(&r->inner, 0, NULL, NULL);
	skcipher_request_set_crypt(&r->inner, scatterwalk_ffwd(r->src, req->src, at),
				   scatterwalk_ffwd(r->dst, req->dst, at), len, r->iv);
	return r->encrypt ? crypto_skcipher_encrypt(&r->inner) :
			    crypto_skcipher_decrypt(&r->inner);
}

/* By the clock: loops that were counted at boot may be slower by now. */
static void spend(unsigned int us)
{
	u64 end = us ? ktime_get_ns() + us * NSEC_PER_USEC : 0;

	while (us && ktime_get_ns() < end)
		cpu_relax();
}

static int crypt_all(struct skcipher_request *req)
{
	struct crypto_skcipher *tfm = crypto_skcipher_reqtfm(req);
	struct test_ctx *ctx = crypto_skcipher_ctx(tfm);
	struct test_request *r = skcipher_request_ctx(req);
	unsigned int unit = ctx->data_unit_size ?: req->cryptlen;
	unsigned int at;
	u8 iv[16];
	int error = 0;

	spend(cost_us);
	if (crypto_skcipher_ivsize(tfm))
		memcpy(iv, req->iv, sizeof(iv));
	if (req->cryptlen % unit)
		return -EINVAL;
	for (at = 0; at < req->cryptlen && !error; at += unit) {
		/* The inner cipher may change its copy. */
		memcpy(r->iv, iv, sizeof(iv));
		error = crypt_one(req, at, unit);
		next_iv(iv);
	}
	return error ?: r->fail ? -EIO : 0;
}

static void work_on(struct work_struct *work)
{
	struct crypto_async_request *next, *backlog;

	for (;;) {
		int error;

		spin_lock_bh(&requests_lock);
		backlog = crypto_get_backlog(&requests);
		next = crypto_dequeue_request(&requests);
		spin_unlock_bh(&requests_lock);
		if (!next)
			return;
		if (backlog)
			crypto_request_complete(backlog, -EINPROGRESS);
		error = crypt_all(skcipher_request_cast(next));
		local_bh_disable();
		crypto_request_complete(next, error);
		local_bh_enable();
		cond_resched();
	}
}

static DECLARE_WORK(work, work_on);

static bool is_nth(unsigned int n, unsigned int every)
{
	return every && n % every == 0;
}

static bool is_aligned(const struct skcipher_request *req)
{
	struct scatterlist *sg;

	if (crypto_skcipher_ivsize(crypto_skcipher_reqtfm((void *)req)) &&
	    (unsigned long)req->iv & alignmask)
		return false;
	for (sg = req->src; sg; sg = sg_next(sg))
		if (sg->offset & alignmask)
			return false;
	for (sg = req->dst; sg; sg = sg_next(sg))
		if (sg->offset & alignmask)
			return false;
	return true;
}

static int take(struct skcipher_request *req, bool encrypt)
{
	unsigned int n = atomic_inc_return(&counter);
	struct test_request *r = skcipher_request_ctx(req);
	int error;

	if (!is_aligned(req)) {
		misaligned++;
		return -EINVAL;
	}
	if (is_nth(n, refuse_every))
		return -EIO;
	r->encrypt = encrypt;
	r->fail = is_nth(n, fail_every);
	if (is_nth(n, sync_every))
		return crypt_all(req);
	spin_lock_bh(&requests_lock);
	error = crypto_enqueue_request(&requests, &req->base);
	spin_unlock_bh(&requests_lock);
	queue_work(worker, &work);
	return error;
}

static int test_encrypt(struct skcipher_request *req)
{
	return take(req, true);
}

static int test_decrypt(struct skcipher_request *req)
{
	return take(req, false);
}

static int test_setkey(struct crypto_skcipher *tfm, const u8 *key, unsigned int size)
{
	struct test_ctx *ctx = crypto_skcipher_ctx(tfm);

	return refuse_keys ? -EINVAL : crypto_skcipher_setkey(ctx->inner, key, size);
}

static int init_tfm(struct crypto_skcipher *tfm, const char *inner)
{
	struct test_ctx *ctx = crypto_skcipher_ctx(tfm);

	ctx->inner = crypto_alloc_skcipher(inner, 0, CRYPTO_ALG_ASYNC);
	if (IS_ERR(ctx->inner))
		return PTR_ERR(ctx->inner);
	crypto_skcipher_set_reqsize(tfm, sizeof(struct test_request) +
					 crypto_skcipher_reqsize(ctx->inner));
	return 0;
}

static int init_xts(struct crypto_skcipher *tfm)
{
	return init_tfm(tfm, "xts(aes)");
}

static int init_ecb(struct crypto_skcipher *tfm)
{
	return init_tfm(tfm, "ecb(aes)");
}

static void exit_tfm(struct crypto_skcipher *tfm)
{
	struct test_ctx *ctx = crypto_skcipher_ctx(tfm);

	crypto_free_skcipher(ctx->inner);
}

/* Names that nobody asks for by chance. */
static struct skcipher_alg algs[] = {
	{
		.base.cra_name = "xts(xtent-test-aes)",
		.base.cra_driver_name = "xts-xtent-test",
		.base.cra_flags = CRYPTO_ALG_ASYNC,
		.base.cra_blocksize = 16,
		.base.cra_ctxsize = sizeof(struct test_ctx),
		.base.cra_module = THIS_MODULE,
		.min_keysize = 32,
		.max_keysize = 64,
		.ivsize = 16,
		.init = init_xts,
		.exit = exit_tfm,
		.setkey = test_setkey,
		.encrypt = test_encrypt,
		.decrypt = test_decrypt,
	}, {
		.base.cra_name = "ecb(xtent-test-aes)",
		.base.cra_driver_name = "ecb-xtent-test",
		.base.cra_flags = CRYPTO_ALG_ASYNC,
		.base.cra_blocksize = 16,
		.base.cra_ctxsize = sizeof(struct test_ctx),
		.base.cra_module = THIS_MODULE,
		.min_keysize = 16,
		.max_keysize = 32,
		.init = init_ecb,
		.exit = exit_tfm,
		.setkey = test_setkey,
		.encrypt = test_encrypt,
		.decrypt = test_decrypt,
	},
};

static int set_data_unit_size(struct crypto_skcipher *tfm, unsigned int size)
{
	struct test_ctx *ctx = crypto_skcipher_ctx(tfm);

	if (refuse_runs)
		return -EOPNOTSUPP;
	ctx->data_unit_size = size;
	return 0;
}

static struct xtent_run_driver run_driver = {
	.driver_name = "xts-xtent-test",
	.set_data_unit_size = set_data_unit_size,
};

static int __init test_init(void)
{
	unsigned int i;
	int r;

	crypto_init_queue(&requests, queue);
	worker = alloc_workqueue("xtent_run_test", WQ_MEM_RECLAIM | WQ_PERCPU, 1);
	if (!worker)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(algs); i++)
		algs[i].base.cra_alignmask = alignmask;
	r = crypto_register_skciphers(algs, ARRAY_SIZE(algs));
	if (r)
		goto no_ciphers;
	r = xtent_run_register(&run_driver);
	if (r)
		goto no_runs;
	return 0;

no_runs:
	crypto_unregister_skciphers(algs, ARRAY_SIZE(algs));
no_ciphers:
	destroy_workqueue(worker);
	return r;
}

static void __exit test_exit(void)
{
	xtent_run_unregister(&run_driver);
	crypto_unregister_skciphers(algs, ARRAY_SIZE(algs));
	destroy_workqueue(worker);
}

module_init(test_init);
module_exit(test_exit);

MODULE_DESCRIPTION("Driver that takes runs of data units, for tests of dm-xtent");
MODULE_LICENSE("GPL");
