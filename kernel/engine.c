// SPDX-License-Identifier: GPL-2.0
/*
 * XTS over an engine that knows ECB only. A run of sectors takes it two requests,
 * whatever its length: one encrypts all IVs with the tweak key, one encrypts or
 * decrypts all data with the data key. Tweaks times the powers of x, and both
 * XORs, are the CPU's.
 */
#include <crypto/algapi.h>
#include <crypto/xts.h>
#include <linux/fips.h>
#include <linux/highmem.h>

#include "cost.h"
#include "flight.h"
#include "xts_masks.h"

static struct crypto_skcipher *alloc_engine(const char *api)
{
	return crypto_alloc_skcipher(api, 0, CRYPTO_ALG_ALLOCATES_MEMORY);
}

static bool is_ecb(struct crypto_skcipher *tfm)
{
	return !strncmp(crypto_tfm_alg_name(crypto_skcipher_tfm(tfm)), "ecb(", 4) &&
	       crypto_skcipher_blocksize(tfm) == XTS_BLOCK_SIZE && !crypto_skcipher_ivsize(tfm);
}

static const struct xt_cipher_ops engine_ops;

int xt_engine_create(struct dm_target *ti, struct xt_target *xt, const char *api)
{
	unsigned int request_size = xt->options.request_size;
	struct crypto_skcipher *tfm;

	xt->ops = &engine_ops;
	/* Its masks would be this module's. */
	if (fips_enabled) {
		ti->error = "In FIPS mode XTS is the crypto API's";
		return -EINVAL;
	}
	tfm = alloc_engine(api);
	if (IS_ERR(tfm)) {
		ti->error = "The kernel has no such engine; instances go by their driver names";
		return PTR_ERR(tfm);
	}
	xt->tfm = tfm;
	if (!is_ecb(tfm)) {
		ti->error = "An engine is ECB with blocks of 16 bytes, such as ecb(aes)";
		return -EINVAL;
	}
	/* By the name of the driver: two engines with requests of one size. */
	tfm = alloc_engine(crypto_skcipher_driver_name(xt->tfm));
	if (IS_ERR(tfm)) {
		ti->error = "The engine cannot be had twice, for two keys";
		return PTR_ERR(tfm);
	}
	xt->tweak_tfm = tfm;
	if (crypto_skcipher_reqsize(tfm) > crypto_skcipher_reqsize(xt->tfm)) {
		ti->error = "The engine wants longer requests for one key than for another";
		return -EINVAL;
	}
	if (request_size && request_size < xt->options.sector_size) {
		ti->error = "request_size is less than a sector";
		return -EINVAL;
	}
	xt->iv_size = XTS_BLOCK_SIZE;
	xt->run_bytes = request_size ?: XT_RUN_BYTES;
	return xt_flight_init(ti, xt);
}

static int set_key(struct xt_target *xt, const u8 *key, unsigned int key_size)
{
	int r = xts_verify_key(xt->tfm, key, key_size);

	r = r ?: crypto_skcipher_setkey(xt->tfm, key, key_size / 2);
	return r ?: crypto_skcipher_setkey(xt->tweak_tfm, key + key_size / 2, key_size / 2);
}

/* The masks of whole sectors, from their tweaks. */
static void make_masks(struct xt_job *job, const u8 *tweak, unsigned int bytes)
{
	xt_make_masks((__le64 *)job->masks, (const __le64 *)tweak, bytes,
		      job->flight->xt->options.sector_size / XTS_BLOCK_SIZE);
}

/*
 * The run's data from one bio to another, or in place, XOR its masks: those of whole
 * sectors at a time, which may lie across pages, as memory that is no multiple of a
 * sector's size away from a page's begin does.
 */
static void xor_run(struct xt_job *job, struct bio *src, struct bvec_iter src_iter,
		    enum xt_row row)
{
	struct xt_flight *flight = job->flight;
	struct bvec_iter dst_iter = job->dst_iter;
	const u8 *tweak = job->tweaks;
	unsigned int made = 0, used = 0;

	while (dst_iter.bi_size) {
		/* Page by page, since 32-bit machines map only some of them. */
		struct bio_vec in = bvec_iter_bvec(src->bi_io_vec, src_iter);
		struct bio_vec out = bvec_iter_bvec(flight->dst->bi_io_vec, dst_iter);
		unsigned int len;
		u8 *from, *to;

		if (used == made) {
			xt_clock_enter(&flight->clock, XT_ROW_TWEAK);
			made = min_t(unsigned int, dst_iter.bi_size, XT_MASK_BYTES);
			make_masks(job, tweak, made);
			tweak += made / flight->xt->options.sector_size * XTS_BLOCK_SIZE;
			used = 0;
			xt_clock_enter(&flight->clock, row);
		}
		len = min3(in.bv_len, out.bv_len, made - used);
		from = bvec_kmap_local(&in);
		to = bvec_kmap_local(&out);
		crypto_xor_cpy(to, from, job->masks + used, len);
		kunmap_local(to);
		kunmap_local(from);
		used += len;
		bio_advance_iter_single(src, &src_iter, len);
		bio_advance_iter_single(flight->dst, &dst_iter, len);
	}
	xt_cost_run(job, row, 1);
	xt_cost_run(job, XT_ROW_TWEAK, 2);
	xt_clock_enter(&flight->clock, XT_ROW_OTHER);
}

static unsigned int tweak_bytes(const struct xt_job *job)
{
	return job->bytes / job->flight->xt->options.sector_size * XTS_BLOCK_SIZE;
}

static void make_ivs(struct xt_job *job)
{
	struct xt_target *xt = job->flight->xt;
	u64 sector = job->sector;
	unsigned int i;

	xt_clock_enter(&job->flight->clock, XT_ROW_TWEAK);
	for (i = 0; i < tweak_bytes(job); i += XTS_BLOCK_SIZE) {
		xt_make_iv(xt, sector, job->tweaks + i);
		sector += 1 << xt->sector_shift;
	}
	xt_clock_enter(&job->flight->clock, XT_ROW_OTHER);
}

static int encrypt_ivs(struct xt_job *job)
{
	struct xt_clock *clock = &job->flight->clock;
	struct skcipher_request *req = xt_job_request(job, job->flight->xt->tweak_tfm);
	int r;

	job->stage = XT_STAGE_TWEAKS;
	sg_init_one(&job->tweaks_sg, job->tweaks, tweak_bytes(job));
	skcipher_request_set_crypt(req, &job->tweaks_sg, &job->tweaks_sg, tweak_bytes(job), NULL);
	xt_clock_enter(clock, XT_ROW_IV_ENGINE);
	xt_cost_run(job, XT_ROW_IV_ENGINE, 1);
	r = crypto_skcipher_encrypt(req);
	xt_clock_enter(clock, XT_ROW_OTHER);
	return r;
}

/* In place: the first XOR has brought the data to where they go. */
static int crypt_data(struct xt_job *job)
{
	struct xt_clock *clock = &job->flight->clock;
	struct skcipher_request *req = xt_job_request(job, job->flight->xt->tfm);
	int r;

	job->stage = XT_STAGE_DATA;
	skcipher_request_set_crypt(req, job->to, job->to, job->bytes, NULL);
	xt_clock_enter(clock, XT_ROW_ENGINE);
	xt_cost_run(job, XT_ROW_ENGINE, 1);
	r = job->flight->encrypt ? crypto_skcipher_encrypt(req) : crypto_skcipher_decrypt(req);
	xt_clock_enter(clock, XT_ROW_OTHER);
	return r;
}

/* Whoever knows a tweak and the data may change blocks at will. */
static void forget(struct xt_job *job)
{
	memzero_explicit(job->tweaks, tweak_bytes(job));
	memzero_explicit(job->masks, min_t(unsigned int, job->bytes, XT_MASK_BYTES));
}

static int step(struct xt_job *job)
{
	struct xt_flight *flight = job->flight;
	int r;

	switch (job->stage) {
	case XT_STAGE_NEW:
		make_ivs(job);
		r = encrypt_ivs(job);
		if (r)
			return r;
		fallthrough;
	case XT_STAGE_TWEAKS:
		xor_run(job, flight->src, job->src_iter, XT_ROW_XOR1);
		r = crypt_data(job);
		if (r)
			return r;
		fallthrough;
	case XT_STAGE_DATA:
		xor_run(job, flight->dst, job->dst_iter, XT_ROW_XOR2);
		break;
	}
	return 0;
}

static const struct xt_cipher_ops engine_ops = {
	.name = xt_skcipher_name,
	.set_key = set_key,
	.wipe_key = xt_skcipher_wipe_key,
	.crypt = xt_fly,
	.may_sleep = true,
	.step = step,
	.forget = forget,
	.destroy = xt_skcipher_destroy,
};
