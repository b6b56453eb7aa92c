// SPDX-License-Identifier: GPL-2.0
/*
 * Any skcipher of the crypto API: one request a sector, since for these a longer
 * request is one longer data unit.
 */
#include "flight.h"

int xt_skcipher_create(struct dm_target *ti, struct xt_target *xt, const char *api)
{
	struct crypto_skcipher *tfm;

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
	if (xt->options.request_size) {
		ti->error = "request_size is for engines, which take runs";
		return -EINVAL;
	}
	xt->run_bytes = xt->options.sector_size;
	return xt_flight_init(ti, xt);
}

void xt_skcipher_destroy(struct xt_target *xt)
{
	xt_flight_exit(xt);
	crypto_free_skcipher(xt->tweak_tfm);
	crypto_free_skcipher(xt->tfm);
}

/* How many bytes from this sector on one request may take. */
unsigned int xt_run_limit(const struct xt_target *xt, u64 sector)
{
	return xt->run_bytes;
}

int xt_skcipher_step(struct xt_job *job)
{
	struct xt_flight *flight = job->flight;
	struct xt_target *xt = flight->xt;
	struct skcipher_request *req;
	int r;

	if (job->stage != XT_STAGE_NEW)
		return 0;
	job->stage = XT_STAGE_DATA;
	xt_make_iv(xt, job->sector, job->iv);
	req = xt_job_request(job, xt->tfm);
	skcipher_request_set_crypt(req, flight->src == flight->dst ? job->to : job->from, job->to,
				   job->bytes, job->iv);
	xt_clock_enter(&flight->clock, XT_ROW_ENGINE);
	r = flight->encrypt ? crypto_skcipher_encrypt(req) : crypto_skcipher_decrypt(req);
	xt_clock_enter(&flight->clock, XT_ROW_OTHER);
	return r;
}
