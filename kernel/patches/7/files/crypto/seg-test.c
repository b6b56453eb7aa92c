// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A driver for tests: AES-XTS that takes several data units in a request, and
 * completes requests later, from a queue that may be full, like a piece of
 * hardware.
 */
#include <crypto/aes-xts.h>
#include <crypto/algapi.h>
#include <crypto/internal/skcipher.h>
#include <crypto/scatterwalk.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

static unsigned int queue_len = 16;
module_param(queue_len, uint, 0444);
MODULE_PARM_DESC(queue_len, "Requests that wait before the driver is busy");

static ulong requests;
module_param(requests, ulong, 0444);
MODULE_PARM_DESC(requests, "Requests so far");

static ulong units;
module_param(units, ulong, 0444);
MODULE_PARM_DESC(units, "Data units in them");

/* The worker's, of which there is one */
#define BUFFER_LEN 4096
static u8 buffer[BUFFER_LEN];

static struct crypto_queue queue;
static DEFINE_SPINLOCK(queue_lock);
static struct workqueue_struct *workqueue;

struct seg_test_reqctx {
	bool enc;
};

static void crypt_unit(struct skcipher_request *req, unsigned int pos,
		       unsigned int len, u8 tweak[AES_BLOCK_SIZE])
{
	const struct aes_xts_key *key =
		crypto_skcipher_ctx(crypto_skcipher_reqtfm(req));
	const struct seg_test_reqctx *rctx = skcipher_request_ctx(req);
	bool cont = false;

	while (len) {
		unsigned int n = min(len, BUFFER_LEN);

		/* What is left for the last call must be at least a block. */
		if (len != n && len - n < AES_BLOCK_SIZE)
			n -= AES_BLOCK_SIZE;
		memcpy_from_sglist(buffer, req->src, pos, n);
		if (rctx->enc)
			aes_xts_encrypt(buffer, buffer, n, tweak, key, cont);
		else
			aes_xts_decrypt(buffer, buffer, n, tweak, key, cont);
		memcpy_to_sglist(req->dst, pos, buffer, n);
		cont = true;
		pos += n;
		len -= n;
	}
}

static void crypt_request(struct skcipher_request *req)
{
	unsigned int unit_size = req->unit_size ?: req->cryptlen;

	requests++;
	for (unsigned int pos = 0; pos < req->cryptlen; pos += unit_size) {
		u8 tweak[AES_BLOCK_SIZE];

		units++;
		memcpy(tweak, req->iv, AES_BLOCK_SIZE);
		crypt_unit(req, pos, unit_size, tweak);
		for (int i = 0; i < AES_BLOCK_SIZE && !++req->iv[i]; i++)
			;
	}
}

static void work_func(struct work_struct *work)
{
	struct crypto_async_request *backlog, *base;
	struct skcipher_request *req;

	for (;;) {
		spin_lock_bh(&queue_lock);
		backlog = crypto_get_backlog(&queue);
		base = crypto_dequeue_request(&queue);
		spin_unlock_bh(&queue_lock);
		if (!base)
			break;
		local_bh_disable();
		if (backlog)
			crypto_request_complete(backlog, -EINPROGRESS);
		local_bh_enable();
		req = skcipher_request_cast(base);
		crypt_request(req);
		local_bh_disable();
		skcipher_request_complete(req, 0);
		local_bh_enable();
	}
	memzero_explicit(buffer, sizeof(buffer));
}

static DECLARE_WORK(work, work_func);

static int enqueue(struct skcipher_request *req, bool enc)
{
	struct seg_test_reqctx *rctx = skcipher_request_ctx(req);
	int err;

	if ((req->unit_size ?: req->cryptlen) < AES_BLOCK_SIZE)
		return -EINVAL;
	rctx->enc = enc;
	spin_lock_bh(&queue_lock);
	err = crypto_enqueue_request(&queue, &req->base);
	spin_unlock_bh(&queue_lock);
	queue_work(workqueue, &work);
	return err;
}

static int seg_test_encrypt(struct skcipher_request *req)
{
	return enqueue(req, true);
}

static int seg_test_decrypt(struct skcipher_request *req)
{
	return enqueue(req, false);
}

static int seg_test_setkey(struct crypto_skcipher *tfm, const u8 *key,
			   unsigned int keylen)
{
	int flags = crypto_skcipher_get_flags(tfm) & CRYPTO_TFM_REQ_FORBID_WEAK_KEYS ?
		    XTS_FORBID_WEAK_KEYS : 0;

	return aes_xts_preparekey(crypto_skcipher_ctx(tfm), key, keylen, flags);
}

static int seg_test_init_tfm(struct crypto_skcipher *tfm)
{
	crypto_skcipher_set_reqsize(tfm, sizeof(struct seg_test_reqctx));
	return 0;
}

static struct skcipher_alg seg_test_alg = {
	.base.cra_name		= "xts(aes)",
	.base.cra_driver_name	= "xts-aes-seg-test",
	.base.cra_priority	= 1,
	.base.cra_flags		= CRYPTO_ALG_ASYNC | CRYPTO_ALG_REQ_SEG,
	.base.cra_blocksize	= AES_BLOCK_SIZE,
	.base.cra_ctxsize	= sizeof(struct aes_xts_key),
	.base.cra_module	= THIS_MODULE,
	.min_keysize		= 2 * AES_MIN_KEY_SIZE,
	.max_keysize		= 2 * AES_MAX_KEY_SIZE,
	.ivsize			= AES_BLOCK_SIZE,
	.init			= seg_test_init_tfm,
	.setkey			= seg_test_setkey,
	.encrypt		= seg_test_encrypt,
	.decrypt		= seg_test_decrypt,
};

static int __init seg_test_init(void)
{
	int err;

	crypto_init_queue(&queue, queue_len);
	workqueue = alloc_ordered_workqueue("seg-test", WQ_MEM_RECLAIM);
	if (!workqueue)
		return -ENOMEM;
	err = crypto_register_skcipher(&seg_test_alg);
	if (err)
		destroy_workqueue(workqueue);
	return err;
}

static void __exit seg_test_exit(void)
{
	crypto_unregister_skcipher(&seg_test_alg);
	destroy_workqueue(workqueue);
}

module_init(seg_test_init);
module_exit(seg_test_exit);

MODULE_DESCRIPTION("Test driver for requests of several data units");
MODULE_LICENSE("GPL");
MODULE_ALIAS_CRYPTO("xts-aes-seg-test");
