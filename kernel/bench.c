// SPDX-License-Identifier: GPL-2.0
/*
 * What a request takes of the CPU, by a driver of the crypto API and by dm-xtent's own XTS.
 * Only with CONFIG_XTENT_BENCH=y, for bench/papers/pays.py. What is written to
 * /sys/module/dm_xtent/parameters/bench is measured:
 *
 *   CIPHER SECTOR BYTES IN_FLIGHT write|read
 *
 * CIPHER is a driver, which gets a request a run if it takes runs, else one a sector;
 * or `isa`, dm-xtent's own XTS; or `nothing`, the crypto API alone. The data are in pages as
 * bios have them, written elsewhere or read in place. Reading it gives, of the quickest of
 * several slices of time: requests, nanoseconds of the CPU, nanoseconds that passed,
 * and nanoseconds within the calls, until these return.
 */
#include <linux/completion.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <crypto/internal/skcipher.h>

#include "compat.h"
#include "xtent.h"
#ifdef CONFIG_UML
#include "host_clock.h"
#endif

#define PAGES 256
#define MOST_IN_FLIGHT 16
#define KEY_BYTES 64

/* Of each kind, and how long one is at least. */
#define SLICES 3
#define SLICE_NS (2 * NSEC_PER_MSEC)

struct job {
	struct skcipher_request *req;
	struct scatterlist from[PAGES], to[PAGES];
	u8 iv[XT_MAX_IV] __aligned(8);
};

struct bench {
	struct crypto_skcipher *tfm;	/* or NULL: isa */
	bool takes_runs;
	unsigned int sector, bytes, in_flight;
	bool write;
	struct page *from[PAGES], *to[PAGES];
	struct job job[MOST_IN_FLIGHT];
	struct xt_xts xts;
	struct xt_batch batch;
	u8 key[KEY_BYTES];
	atomic_t left;			/* requests under way */
	struct completion landed;
	int error;
	u64 in_calls;			/* ticks */
};

struct slice {
	u64 requests, cpu, wall, in_calls;	/* nanoseconds */
};

static struct slice best;

#ifdef CONFIG_UML
/* Another process that gets the CPU meanwhile does not count. */
static u64 cpu_now(void) { return host_clock(HOST_CLOCK_PROCESS_CPUTIME_ID); }
#else
static u64 cpu_now(void) { return ktime_get_ns(); }
#endif

/* --- by the crypto API */

static void land(struct bench *b, int error)
{
	if (error)
		b->error = error;
	if (atomic_dec_and_test(&b->left))
		complete(&b->landed);
}

static void request_done(xt_callback_arg *arg, int error)
{
	if (error != -EINPROGRESS)
		land(xt_callback_data(arg), error);
}

/* A driver that is busy has the request all the same. */
static void call(struct bench *b, struct job *job, struct scatterlist *from,
		 struct scatterlist *to, unsigned int bytes, u64 number)
{
	int r;

	memset(job->iv, 0, sizeof(job->iv));
	*(__le64 *)job->iv = cpu_to_le64(number);
	skcipher_request_set_tfm(job->req, b->tfm);
	skcipher_request_set_callback(job->req, CRYPTO_TFM_REQ_MAY_BACKLOG, request_done, b);
	skcipher_request_set_crypt(job->req, from, to, bytes, job->iv);
	r = b->write ? crypto_skcipher_encrypt(job->req) : crypto_skcipher_decrypt(job->req);
	if (r != -EINPROGRESS && r != -EBUSY)
		land(b, r);
}

static void by_runs(struct bench *b)
{
	unsigned int i;

	for (i = 0; i < b->in_flight; i++) {
		struct job *job = &b->job[i];

		call(b, job, b->write ? job->from : job->to, job->to, b->bytes, i);
	}
}

/* A request a sector, one after the other: the driver is synchronous. */
static void by_sectors(struct bench *b)
{
	struct job *job = &b->job[0];
	struct scatterlist from, to;
	unsigned int at;

	sg_init_table(&from, 1);
	sg_init_table(&to, 1);
	for (at = 0; at < b->bytes; at += b->sector) {
		sg_set_page(&to, b->to[at >> PAGE_SHIFT], b->sector, offset_in_page(at));
		sg_set_page(&from, b->from[at >> PAGE_SHIFT], b->sector, offset_in_page(at));
		call(b, job, b->write ? &from : &to, &to, b->sector, at / b->sector);
	}
}

/* --- by dm-xtent's own XTS, in batches as in batch.c */

static void by_isa(struct bench *b)
{
	const unsigned int limit = min_t(unsigned int, XT_BATCH, xt_xts_section_bytes() / b->sector);
	struct xt_batch *batch = &b->batch;
	unsigned int at, i;

	for (at = 0; at < b->bytes; at += b->sector) {
		i = batch->count++;
		batch->iv[i] = at / b->sector;
		batch->dst[i] = page_address(b->to[at >> PAGE_SHIFT]) + offset_in_page(at);
		batch->src[i] = batch->dst[i];
		if (b->write)
			batch->src[i] = page_address(b->from[at >> PAGE_SHIFT]) + offset_in_page(at);
		if (batch->count < limit && at + b->sector < b->bytes)
			continue;
		xt_xts_crypt(&b->xts, b->write, batch, b->sector);
		batch->count = 0;
	}
	atomic_set(&b->left, 0);
	complete(&b->landed);
}

/* --- measuring */

static unsigned int requests(const struct bench *b)
{
	if (!b->tfm || b->takes_runs)
		return b->in_flight;
	return b->bytes / b->sector;
}

static void once(struct bench *b)
{
	atomic_set(&b->left, requests(b));
	if (!b->tfm)
		by_isa(b);
	else if (b->takes_runs)
		by_runs(b);
	else
		by_sectors(b);
}

/* With `split`, also how long it is within the calls, for which clocks are read. */
static void measure(struct bench *b, unsigned int times, bool split, struct slice *slice)
{
	u64 cpu = cpu_now(), wall = ktime_get_ns(), first = xt_ticks_now(), ticks;
	unsigned int i;

	b->in_calls = 0;
	for (i = 0; i < times; i++) {
		u64 start = split ? xt_ticks_now() : 0;

		once(b);
		if (split)
			b->in_calls += xt_ticks_now() - start;
		wait_for_completion(&b->landed);
	}
	ticks = (xt_ticks_now() - first) ?: 1;
	slice->wall = ktime_get_ns() - wall;
	slice->cpu = cpu_now() - cpu;
	slice->requests = (u64)times * (b->tfm && !b->takes_runs ? 1 : b->in_flight);
	slice->in_calls = mul_u64_u64_div_u64(b->in_calls, slice->wall, ticks);
}

static void keep_best(struct bench *b)
{
	struct slice slice, split = { .in_calls = U64_MAX };
	unsigned int i, times = 1;

	/* What is allocated and loaded on first use does not count. */
	once(b);
	wait_for_completion(&b->landed);
	for (;;) {
		measure(b, times, false, &best);
		if (best.cpu >= SLICE_NS)
			break;
		times *= 2;
		cond_resched();
	}
	for (i = 0; i < SLICES && !b->error; i++) {
		measure(b, times, false, &slice);
		if (slice.cpu < best.cpu)
			best = slice;
		measure(b, times, true, &slice);
		if (slice.in_calls < split.in_calls)
			split = slice;
		cond_resched();
	}
	best.in_calls = split.in_calls;
}

/* --- what is measured */

static int do_nothing(struct skcipher_request *req)
{
	return 0;
}

static int take_any_key(struct crypto_skcipher *tfm, const u8 *key, unsigned int size)
{
	return 0;
}

static struct skcipher_alg nothing = {
	.base.cra_name = "nothing",
	.base.cra_driver_name = "nothing",
	.base.cra_blocksize = 1,
	.base.cra_module = THIS_MODULE,
	.min_keysize = KEY_BYTES,
	.max_keysize = KEY_BYTES,
	.ivsize = 16,
	.setkey = take_any_key,
	.encrypt = do_nothing,
	.decrypt = do_nothing,
};

static int alloc_pages_of(struct bench *b)
{
	unsigned int i;

	/* In turns: two pages of a list are no neighbours. */
	for (i = 0; i < PAGES; i++) {
		b->to[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		b->from[i] = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!b->to[i] || !b->from[i])
			return -ENOMEM;
	}
	return 0;
}

static int set_up_requests(struct bench *b)
{
	const unsigned int pieces = DIV_ROUND_UP(b->bytes, PAGE_SIZE);
	unsigned int i, n;

	for (i = 0; i < b->in_flight; i++) {
		struct job *job = &b->job[i];

		job->req = skcipher_request_alloc(b->tfm, GFP_KERNEL);
		if (!job->req)
			return -ENOMEM;
		sg_init_table(job->from, pieces);
		sg_init_table(job->to, pieces);
		for (n = 0; n < pieces; n++) {
			unsigned int len = min_t(unsigned int, PAGE_SIZE, b->bytes - n * PAGE_SIZE);

			sg_set_page(&job->from[n], b->from[n], len, 0);
			sg_set_page(&job->to[n], b->to[n], len, 0);
		}
	}
	return 0;
}

static int set_up(struct bench *b, const char *cipher)
{
	int r = alloc_pages_of(b);

	if (r)
		return r;
	init_completion(&b->landed);
	get_random_bytes(b->key, sizeof(b->key));
	if (!strcmp(cipher, "isa")) {
		b->xts.backend = xt_xts_choose();
		if (!b->xts.backend)
			return -ENODEV;
		return xt_xts_set_key(&b->xts, b->key, sizeof(b->key));
	}
	b->tfm = crypto_alloc_skcipher(cipher, 0, 0);
	if (IS_ERR(b->tfm))
		return PTR_ERR(b->tfm);
	if (crypto_skcipher_ivsize(b->tfm) > XT_MAX_IV)
		return -EINVAL;
	b->takes_runs = !strcmp(cipher, "nothing") || xt_run_begin(b->tfm, b->sector);
	if (!b->takes_runs && crypto_skcipher_tfm(b->tfm)->__crt_alg->cra_flags & CRYPTO_ALG_ASYNC)
		return -EINVAL;
	return crypto_skcipher_setkey(b->tfm, b->key, sizeof(b->key)) ?: set_up_requests(b);
}

static void tear_down(struct bench *b)
{
	unsigned int i;

	for (i = 0; i < MOST_IN_FLIGHT; i++)
		skcipher_request_free(b->job[i].req);
	if (!IS_ERR_OR_NULL(b->tfm))
		crypto_free_skcipher(b->tfm);
	for (i = 0; i < PAGES; i++) {
		if (b->to[i])
			__free_page(b->to[i]);
		if (b->from[i])
			__free_page(b->from[i]);
	}
	kvfree_sensitive(b, sizeof(*b));
}

static int set_bench(const char *value, const struct kernel_param *kp)
{
	struct bench *b = kvzalloc(sizeof(*b), GFP_KERNEL);
	char cipher[64], way[8];
	bool registered = false;
	int r = -EINVAL;

	if (!b)
		return -ENOMEM;
	memset(&best, 0, sizeof(best));
	if (sscanf(value, "%63s %u %u %u %7s", cipher, &b->sector, &b->bytes, &b->in_flight,
		   way) != 5)
		goto out;
	if (b->sector < 512 || b->sector > PAGE_SIZE || !is_power_of_2(b->sector) || !b->bytes ||
	    b->bytes % b->sector || b->bytes > PAGES * PAGE_SIZE || !b->in_flight ||
	    b->in_flight > MOST_IN_FLIGHT || (strcmp(way, "write") && strcmp(way, "read")))
		goto out;
	b->write = !strcmp(way, "write");
	if (!strcmp(cipher, "nothing")) {
		r = crypto_register_skcipher(&nothing);
		if (r)
			goto out;
		registered = true;
	}
	r = set_up(b, cipher);
	if (!r) {
		keep_best(b);
		r = b->error;
	}
out:
	tear_down(b);
	if (registered)
		crypto_unregister_skcipher(&nothing);
	return r;
}

static int get_bench(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%llu %llu %llu %llu\n", best.requests, best.cpu, best.wall,
			  best.in_calls);
}

static const struct kernel_param_ops bench_ops = { .set = set_bench, .get = get_bench };
module_param_cb(bench, &bench_ops, NULL, 0644);
MODULE_PARM_DESC(bench, "Measures what a request takes: see bench.c");
