// SPDX-License-Identifier: GPL-2.0
/*
 * Any skcipher of the crypto API: one request a sector, since for these a longer
 * request is one longer data unit. The request is allocated once per run.
 */
#include <linux/sched.h>
#include <linux/scatterlist.h>

#include "xtent.h"

int xt_skcipher_create(struct dm_target *ti, struct xt_target *xt, const char *api)
{
	struct crypto_skcipher *tfm;
	int r;

	tfm = crypto_alloc_skcipher(api, 0, CRYPTO_ALG_ALLOCATES_MEMORY);
	if (IS_ERR(tfm)) {
		ti->error = "The kernel has no such cipher";
		return PTR_ERR(tfm);
	}
	xt->tfm = tfm;
	xt->iv_size = crypto_skcipher_ivsize(tfm);
	if (xt->iv_size > XT_MAX_IV) {
		ti->error = "The cipher's IV is too long";
		return -EINVAL;
	}
	if (!xt->iv_size) {
		xt->iv_mode = XT_IV_NONE;
	} else if (xt->iv_mode != XT_IV_NONE && xt->iv_size < sizeof(u64)) {
		ti->error = "The cipher's IV is too short for sector numbers";
		return -EINVAL;
	}
	r = mempool_init_kmalloc_pool(&xt->requests, 16,
				      sizeof(struct skcipher_request) +
				      crypto_skcipher_reqsize(tfm));
	if (r)
		ti->error = "Cannot allocate requests";
	return r;
}

void xt_skcipher_destroy(struct xt_target *xt)
{
	mempool_exit(&xt->requests);
	if (xt->tfm)
		crypto_free_skcipher(xt->tfm);
}

static void set_piece(struct scatterlist *sg, const struct bio_vec *bv, unsigned int skip,
		      unsigned int len)
{
	unsigned int offset = bv->bv_offset + skip;

	sg_init_table(sg, 1);
	sg_set_page(sg, bv->bv_page + (offset >> PAGE_SHIFT), len, offset_in_page(offset));
}

/* May sleep. */
blk_status_t xt_skcipher_crypt(struct xt_target *xt, bool encrypt, u64 sector,
			       struct bio *src, struct bvec_iter src_iter,
			       struct bio *dst, struct bvec_iter dst_iter)
{
	const unsigned int size = SECTOR_SIZE << xt->sector_shift;
	DECLARE_CRYPTO_WAIT(wait);
	struct skcipher_request *req;
	struct scatterlist from, to;
	u8 iv[XT_MAX_IV] __aligned(8);
	int r = 0;

	xt_count_run(xt, src_iter.bi_size >> (SECTOR_SHIFT + xt->sector_shift));
	req = mempool_alloc(&xt->requests, GFP_NOIO);
	skcipher_request_set_tfm(req, xt->tfm);
	/*
	 * Not MAY_SLEEP: a cipher would then allocate with GFP_KERNEL, which may wait
	 * for writes that wait for this one.
	 */
	skcipher_request_set_callback(req, CRYPTO_TFM_REQ_MAY_BACKLOG, crypto_req_done, &wait);
	while (src_iter.bi_size && !r) {
		struct bio_vec in = mp_bvec_iter_bvec(src->bi_io_vec, src_iter);
		struct bio_vec out = mp_bvec_iter_bvec(dst->bi_io_vec, dst_iter);
		unsigned int len = min(in.bv_len, out.bv_len);
		unsigned int done;

		if (len & (size - 1)) {
			r = -EIO;
			break;
		}
		for (done = 0; done < len && !r; done += size) {
			set_piece(&from, &in, done, size);
			set_piece(&to, &out, done, size);
			xt_make_iv(xt, sector, iv);
			skcipher_request_set_crypt(req, &from, src == dst ? &from : &to, size, iv);
			r = crypto_wait_req(encrypt ? crypto_skcipher_encrypt(req) :
						      crypto_skcipher_decrypt(req), &wait);
			sector += 1 << xt->sector_shift;
		}
		bio_advance_iter(src, &src_iter, len);
		bio_advance_iter(dst, &dst_iter, len);
		cond_resched();
	}
	memzero_explicit(req, sizeof(*req) + crypto_skcipher_reqsize(xt->tfm));
	mempool_free(req, &xt->requests);
	return r ? BLK_STS_IOERR : BLK_STS_OK;
}
