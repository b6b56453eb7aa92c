// SPDX-License-Identifier: GPL-2.0
/*
 * Any skcipher of the crypto API: one request a sector, since for these a longer
 * request is one longer data unit. But those that have declared so (xtent_run.h)
 * take a run in one, if the IVs of its sectors count up by 1.
 */
#include <linux/random.h>

#include "cost.h"
#include "flight.h"

static const struct xt_cipher_ops skcipher_ops;

static bool iv_counts_up(const struct xt_target *xt)
{
	if (xt->iv_mode != XT_IV_PLAIN && xt->iv_mode != XT_IV_PLAIN64)
		return false;
	return !xt->sector_shift || xt->options.iv_large_sectors;
}

int xt_skcipher_create(struct dm_target *ti, struct xt_target *xt, const char *api)
{
	const unsigned int size = xt->options.sector_size;
	const unsigned int request_size = xt->options.request_size;
	struct crypto_skcipher *tfm;

	xt->ops = &skcipher_ops;
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
	xt->takes_runs = iv_counts_up(xt) && xt_run_begin(tfm, size);
	if (request_size && !xt->takes_runs) {
		ti->error = "request_size is for engines, and drivers that take runs with such IVs";
		return -EINVAL;
	}
	if (request_size && request_size < size) {
		ti->error = "request_size is less than a sector";
		return -EINVAL;
	}
	xt->run_bytes = xt->takes_runs ? request_size ?: XT_RUN_BYTES : size;
	return xt_flight_init(ti, xt);
}

const char *xt_skcipher_name(const struct xt_target *xt)
{
	return crypto_skcipher_driver_name(xt->tfm);
}

static int set_key(struct xt_target *xt, const u8 *key, unsigned int key_size)
{
	return crypto_skcipher_setkey(xt->tfm, key, key_size);
}

/* The crypto API has no other way to overwrite a key than by another. */
int xt_skcipher_wipe_key(struct xt_target *xt)
{
	get_random_bytes(xt->noise, xt->key_size);
	return xt->ops->set_key(xt, xt->noise, xt->key_size);
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
	u64 left;

	if (!xt->takes_runs)
		return xt->run_bytes;
	/*
	 * To where the number starts over at 0, while the cipher's counter would go on: behind the last sector,
	 * or the last one that 32 bits count.
	 */
	left = -sector >> (xt->options.iv_large_sectors ? xt->sector_shift : 0);
	if (xt->iv_mode == XT_IV_PLAIN)
		left = lower_32_bits(-xt_iv_number(xt, sector));
	if (!left || left > xt->run_bytes / xt->options.sector_size)
		return xt->run_bytes;
	return left * xt->options.sector_size;
}

static int step(struct xt_job *job)
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
	xt_cost_run(job, XT_ROW_ENGINE, 1);
	r = flight->encrypt ? crypto_skcipher_encrypt(req) : crypto_skcipher_decrypt(req);
	xt_clock_enter(&flight->clock, XT_ROW_OTHER);
	return r;
}

static const struct xt_cipher_ops skcipher_ops = {
	.name = xt_skcipher_name,
	.set_key = set_key,
	.wipe_key = xt_skcipher_wipe_key,
	.crypt = xt_fly,
	.may_sleep = true,
	.step = step,
	.destroy = xt_skcipher_destroy,
};
