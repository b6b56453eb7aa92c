// SPDX-License-Identifier: GPL-2.0
/* Requests of the crypto API: to the device, or by software. */
#include <linux/module.h>
#include <crypto/scatterwalk.h>

#include "cipher.h"

static char *on_failure = "cpu";
module_param(on_failure, charp, 0444);
MODULE_PARM_DESC(on_failure, "What a request gets that the device fails or, when it is out of service, does not take: cpu (default), software's result; error, EIO");

static bool fail_with_error;
static atomic64_t fallbacks;

struct cipher_request {
	struct xtp_job job;
	struct skcipher_request *req;
	struct llist_node redo;
	bool decrypt;
	u8 iv[AES_BLOCK_SIZE] __aligned(8);
	struct scatterlist src[2], dst[2];
	struct skcipher_request software;	/* with its context behind */
};

u64 xtp_fallbacks(void)
{
	return atomic64_read(&fallbacks);
}

static bool is_xts(struct crypto_skcipher *tfm)
{
	return crypto_skcipher_ivsize(tfm);
}

/* The size of its data units, if it may have several of them; else 0. */
static unsigned int unit_size(struct skcipher_request *req)
{
	struct cipher_ctx *ctx = crypto_skcipher_ctx(crypto_skcipher_reqtfm(req));

	return xt_unit_size(req) ?: ctx->data_unit_size;
}

/* Plus 1, of all 16 bytes. */
static void next_iv(u8 *iv)
{
	unsigned int i = 0;

	while (i < AES_BLOCK_SIZE && !++iv[i])
		i++;
}

/* Whether the last unit's tweak is beyond 2^128, where counting starts over at 0. */
static bool iv_passes_end(const u8 *iv, unsigned int units)
{
	return get_unaligned_le64(iv + 8) == U64_MAX &&
	       get_unaligned_le64(iv) + (units - 1) < units - 1;
}

/* --- software */

static int in_software(struct skcipher_request *req, bool may_sleep)
{
	struct crypto_skcipher *tfm = crypto_skcipher_reqtfm(req);
	struct cipher_ctx *ctx = crypto_skcipher_ctx(tfm);
	struct cipher_request *r = skcipher_request_ctx(req);
	const bool several = unit_size(req);
	const unsigned int unit = unit_size(req) ?: req->cryptlen;
	struct scatterlist *src = req->src, *dst = req->dst;
	unsigned int src_at = 0, dst_at = 0, left = req->cryptlen;
	u8 iv[AES_BLOCK_SIZE];
	int error = 0;

	atomic64_inc(&fallbacks);
	if (several && req->cryptlen % unit)
		return -EINVAL;
	if (several && !req->cryptlen)
		return 0;
	if (is_xts(tfm))
		memcpy(iv, req->iv, sizeof(iv));
	skcipher_request_set_tfm(&r->software, ctx->software);
	skcipher_request_set_callback(&r->software, may_sleep ? CRYPTO_TFM_REQ_MAY_SLEEP : 0,
				      NULL, NULL);
	do {
		struct scatterlist *from = src, *to = dst;

		if (several) {
			from = scatterwalk_ffwd(r->src, src, src_at);
			to = req->src == req->dst ? from : scatterwalk_ffwd(r->dst, dst, dst_at);
		}
		if (is_xts(tfm)) {
			memcpy(r->iv, iv, sizeof(iv));
			next_iv(iv);
		}
		skcipher_request_set_crypt(&r->software, from, to, unit, r->iv);
		error = r->decrypt ? crypto_skcipher_decrypt(&r->software) :
				     crypto_skcipher_encrypt(&r->software);
		left -= unit;
		for (src_at += unit; left && src_at >= src->length; src = sg_next(src))
			src_at -= src->length;
		for (dst_at += unit; left && dst_at >= dst->length; dst = sg_next(dst))
			dst_at -= dst->length;
	} while (left && !error);
	memzero_explicit(r->iv, sizeof(r->iv));
	return error;
}

/* Requests that the device had, or would have had: not where its completions are. */
static LLIST_HEAD(to_redo);
static struct workqueue_struct *redo_queue;

static void redo_all(struct work_struct *work)
{
	struct llist_node *list = llist_reverse_order(llist_del_all(&to_redo));
	struct cipher_request *r, *next;

	llist_for_each_entry_safe(r, next, list, redo) {
		int error = in_software(r->req, false);

		local_bh_disable();
		skcipher_request_complete(r->req, error);
		local_bh_enable();
		cond_resched();
	}
}

static DECLARE_WORK(redo_work, redo_all);

/* --- the device */

static void done(struct xtp_job *job, enum xtp_outcome outcome)
{
	struct cipher_request *r = container_of(job, struct cipher_request, job);

	if (outcome == XTP_DONE) {
		skcipher_request_complete(r->req, 0);
	} else if (outcome == XTP_FAILED && (fail_with_error || job->src == job->dst)) {
		/* In place, what it was to work on may be gone. */
		skcipher_request_complete(r->req, -EIO);
	} else {
		llist_add(&r->redo, &to_redo);
		queue_work(redo_queue, &redo_work);
	}
}

static void entered(struct xtp_job *job)
{
	struct cipher_request *r = container_of(job, struct cipher_request, job);

	skcipher_request_complete(r->req, -EINPROGRESS);
}

/* Whether two memories of that length overlap without being the same. */
static bool shares(phys_addr_t a, phys_addr_t b, unsigned int bytes)
{
	return a != b && (a < b ? b - a : a - b) < bytes;
}

/*
 * Whether the device can get at the data where they are. Two lists of the same memory are
 * in place. Memory that both share is not for the device; it is looked for at the same
 * place of both, which is everywhere where both are one piece. Elsewhere it is not seen;
 * the kernel's ciphers in software would then read what they have written.
 */
static bool is_reachable(const struct xtp_caps *caps, struct xtp_job *job,
			 struct skcipher_request *req)
{
	struct scatterlist *src = req->src, *dst = req->dst;
	unsigned int src_at = 0, dst_at = 0, left = req->cryptlen;
	unsigned int same = 0, different = 0;

	job->src_pieces = 1;
	job->dst_pieces = 1;
	for (;;) {
		unsigned int n = min3(src->length - src_at, dst->length - dst_at, left);

		if (!n || !IS_ALIGNED(src->offset + src_at, AES_BLOCK_SIZE) ||
		    !IS_ALIGNED(dst->offset + dst_at, AES_BLOCK_SIZE) ||
		    !IS_ALIGNED(n, AES_BLOCK_SIZE))
			return false;
		if (shares(sg_phys(src) + src_at, sg_phys(dst) + dst_at, n))
			return false;
		if (sg_phys(src) + src_at == sg_phys(dst) + dst_at)
			same++;
		else
			different++;
		src_at += n;
		dst_at += n;
		left -= n;
		if (!left)
			break;
		if (src_at == src->length) {
			src = sg_next(src);
			src_at = 0;
			job->src_pieces++;
		}
		if (dst_at == dst->length) {
			dst = sg_next(dst);
			dst_at = 0;
			job->dst_pieces++;
		}
		if (!src || !dst)
			return false;
	}
	job->src = req->src;
	job->dst = different ? req->dst : req->src;
	return (!same || !different) && job->src_pieces <= caps->pieces &&
	       job->dst_pieces <= caps->pieces;
}

/* Makes a job of a request, if it is one for the device. */
static bool make_job(const struct xtp_caps *caps, struct skcipher_request *req)
{
	struct crypto_skcipher *tfm = crypto_skcipher_reqtfm(req);
	struct cipher_ctx *ctx = crypto_skcipher_ctx(tfm);
	struct cipher_request *r = skcipher_request_ctx(req);
	struct xtp_job *job = &r->job;
	const unsigned int unit = unit_size(req) ?: req->cryptlen;

	if (!req->cryptlen || req->cryptlen > caps->bytes)
		return false;
	if (!is_xts(tfm)) {
		job->op = XTENT_ENGINE_OP_ECB;
		job->log2_unit = ilog2(AES_BLOCK_SIZE);
		job->key = &ctx->block_key;
	} else if (!is_power_of_2(unit) || unit < 512 || unit > 4096) {
		return false;
	} else if (xtp_runs_xts(caps) && caps->units & unit / 512) {
		if (iv_passes_end(req->iv, req->cryptlen / unit))
			return false;
		job->op = XTENT_ENGINE_OP_RUN;
		job->log2_unit = ilog2(unit);
		job->key = &ctx->run_key;
	} else if (caps->level >= 2 && unit == req->cryptlen && unit <= caps->xts_bytes) {
		job->op = XTENT_ENGINE_OP_XTS;
		job->log2_unit = ilog2(unit);
		job->key = &ctx->block_key;
	} else {
		return false;
	}
	if (!job->key->id || !(caps->key_bits & (job->key->is_aes256 ? 2 : 1)) ||
	    !(caps->ciphers & BIT(job->key->cipher)) ||
	    !IS_ALIGNED(req->cryptlen, 1u << job->log2_unit) || !is_reachable(caps, job, req))
		return false;
	job->bytes = req->cryptlen;
	job->units = req->cryptlen >> job->log2_unit;
	/*
	 * One block by the CPU rather than by the engine's ECB: that would be a second request
	 * and a second interrupt before the first byte of data.
	 */
	if (job->op == XTENT_ENGINE_OP_XTS)
		aes_encrypt(&ctx->tweak_key, job->tweak, req->iv);
	else if (job->op == XTENT_ENGINE_OP_RUN)
		memcpy(job->tweak, req->iv, sizeof(job->tweak));
	return true;
}

static int crypt(struct skcipher_request *req, bool decrypt)
{
	struct cipher_request *r = skcipher_request_ctx(req);
	const u32 flags = req->base.flags;
	struct xtp_device *xtp;
	int error = -ENODEV;

	r->req = req;
	r->decrypt = decrypt;
	r->job.done = done;
	r->job.decrypt = decrypt;
	r->job.entered = flags & CRYPTO_TFM_REQ_MAY_BACKLOG ? entered : NULL;
	rcu_read_lock();
	xtp = rcu_dereference(xtp_active);
	if (xtp)
		error = make_job(&xtp->caps, req) ? xtp_submit(xtp, &r->job) : -EOPNOTSUPP;
	rcu_read_unlock();
	if (error == -EINPROGRESS || error == -EBUSY)
		return error;
	/* The device does not take it, and it may be encrypted. */
	memzero_explicit(r->job.tweak, sizeof(r->job.tweak));
	if (error == -ENOSPC || (error == -EIO && fail_with_error))
		return error;
	return in_software(req, flags & CRYPTO_TFM_REQ_MAY_SLEEP);
}

int xtp_encrypt(struct skcipher_request *req)
{
	return crypt(req, false);
}

int xtp_decrypt(struct skcipher_request *req)
{
	return crypt(req, true);
}

/* What a request of ours takes beside the crypto API's part. */
unsigned int xtp_request_bytes(struct crypto_skcipher *software)
{
	return sizeof(struct cipher_request) + crypto_skcipher_reqsize(software);
}

int xtp_requests_init(void)
{
	if (!strcmp(on_failure, "error")) {
		fail_with_error = true;
	} else if (strcmp(on_failure, "cpu")) {
		pr_err("xtent_pci: on_failure is cpu or error\n");
		return -EINVAL;
	}
	redo_queue = alloc_workqueue("xtent_pci_redo", WQ_MEM_RECLAIM | WQ_UNBOUND, 1);
	return redo_queue ? 0 : -ENOMEM;
}

void xtp_requests_exit(void)
{
	destroy_workqueue(redo_queue);
}
