// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps several requests of a bio under way, and waits for them. Nothing but the
 * landing of a job happens where drivers complete requests; each next step is
 * made by whoever waits, so that it may take its time.
 *
 * Whoever holds no job waits for one of the target's reserve; whoever holds one
 * does not, but goes on with what it has. So all come to their end without
 * memory.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "cost.h"
#include "flight.h"

/* Jobs that a target has in reserve. */
#define RESERVE 4

static unsigned int sector_size(const struct xt_target *xt)
{
	return SECTOR_SIZE << xt->sector_shift;
}

/*
 * What the cipher wants, at most 128 bytes in the crypto API, to which sectors are
 * aligned anyway; and nothing that shares a cache line with what a CPU writes.
 */
static size_t alignment(const struct xt_target *xt)
{
	return max_t(size_t, ARCH_KMALLOC_MINALIGN, crypto_skcipher_alignmask(xt->tfm) + 1);
}

static unsigned int most_pieces(const struct xt_target *xt)
{
	return min_t(unsigned int, xt->run_bytes / sector_size(xt), XT_RUN_PIECES);
}

/* Both powers of two, to which kmalloc() aligns. */
static size_t tweak_bytes(const struct xt_target *xt)
{
	return max_t(size_t, xt->run_bytes / sector_size(xt) * AES_BLOCK_SIZE, alignment(xt));
}

static size_t request_bytes(const struct xt_target *xt)
{
	return sizeof(struct skcipher_request) + crypto_skcipher_reqsize(xt->tfm);
}

static void free_job(void *element, void *data)
{
	struct xt_job *job = element;

	kfree(job->req);
	kfree(job->to);
	kfree(job->tweaks);
	kfree(job->masks);
	kfree(job);
}

/* kmalloc() for whatever drivers may reach by DMA. */
static void *alloc_job(gfp_t gfp, void *data)
{
	const struct xt_target *xt = data;
	const unsigned int pieces = most_pieces(xt);
	struct xt_job *job = kzalloc(sizeof(*job), gfp);

	if (!job)
		return NULL;
	job->req = kzalloc(request_bytes(xt) + alignment(xt) + XT_MAX_IV, gfp);
	job->to = kmalloc_array(2 * pieces, sizeof(*job->to), gfp);
	if (xt->tweak_tfm) {
		job->tweaks = kmalloc(tweak_bytes(xt), gfp);
		job->masks = kmalloc(XT_MASK_BYTES, gfp);
	}
	if (!job->req || !job->to || (xt->tweak_tfm && (!job->tweaks || !job->masks))) {
		free_job(job, NULL);
		return NULL;
	}
	job->iv = PTR_ALIGN((u8 *)job->req + request_bytes(xt), alignment(xt));
	job->from = job->to + pieces;
	sg_init_table(job->to, pieces);
	sg_init_table(job->from, pieces);
	return job;
}

int xt_flight_init(struct dm_target *ti, struct xt_target *xt)
{
	int r = mempool_init(&xt->jobs, RESERVE, alloc_job, free_job, xt);

	if (r)
		ti->error = "No memory for the requests";
	return r;
}

void xt_flight_exit(struct xt_target *xt)
{
	mempool_exit(&xt->jobs);
}

/* In the driver's context. That a request left a backlog is no news: see fly(). */
static void request_done(xt_callback_arg *arg, int error)
{
	struct xt_job *job = xt_callback_data(arg);
	struct xt_flight *flight = job->flight;

	if (error == -EINPROGRESS)
		return;
	job->error = error;
	llist_add(&job->node, &flight->landed);
	/* The flight, on a stack, ends only after its waiter has seen this. */
	complete(&flight->landing);
}

struct skcipher_request *xt_job_request(struct xt_job *job, struct crypto_skcipher *tfm)
{
	skcipher_request_set_tfm(job->req, tfm);
	/*
	 * Not MAY_SLEEP: a cipher would then allocate with GFP_KERNEL, which may wait
	 * for writes that wait for this one.
	 */
	skcipher_request_set_callback(job->req, CRYPTO_TFM_REQ_MAY_BACKLOG, request_done, job);
	xt_count(job->flight->xt, requests, 1);
	return job->req;
}

/* An idle job, if another may be under way. Waits for the first one only. */
static struct xt_job *get_job(struct xt_flight *flight)
{
	struct xt_target *xt = flight->xt;
	struct llist_node *node = llist_del_first(&flight->idle);
	struct xt_job *job;

	if (node)
		return llist_entry(node, struct xt_job, node);
	if (flight->jobs == xt->options.in_flight)
		return NULL;
	job = mempool_alloc(&xt->jobs, flight->jobs ? GFP_NOWAIT | __GFP_NOWARN : GFP_NOIO);
	if (!job)
		return NULL;
	job->flight = flight;
	flight->jobs++;
	return job;
}

static void put_jobs(struct xt_flight *flight)
{
	struct xt_target *xt = flight->xt;
	struct llist_node *node;

	while ((node = llist_del_first(&flight->idle))) {
		struct xt_job *job = llist_entry(node, struct xt_job, node);

		/* Drivers may keep intermediate values there. */
		memzero_explicit(job->req, request_bytes(xt));
		mempool_free(job, &xt->jobs);
	}
}

static void set_piece(struct scatterlist *sg, const struct bio_vec *bv, unsigned int len)
{
	sg_unmark_end(sg);
	sg_set_page(sg, bv->bv_page + (bv->bv_offset >> PAGE_SHIFT), len,
		    offset_in_page(bv->bv_offset));
}

/* Gives a job the next run of the bios. A sector that lies in two pieces is refused. */
static int take_run(struct xt_flight *flight, struct xt_job *job)
{
	struct xt_target *xt = flight->xt;
	unsigned int limit = min(flight->src_iter.bi_size, xt_run_limit(xt, flight->sector));
	const unsigned int most = most_pieces(xt);
	unsigned int bytes = 0, n;

	job->stage = XT_STAGE_NEW;
	job->sector = flight->sector;
	job->src_iter = flight->src_iter;
	job->dst_iter = flight->dst_iter;
	for (n = 0; bytes < limit && n < most; n++) {
		struct bio_vec in = mp_bvec_iter_bvec(flight->src->bi_io_vec, flight->src_iter);
		struct bio_vec out = mp_bvec_iter_bvec(flight->dst->bi_io_vec, flight->dst_iter);
		unsigned int len = min3(in.bv_len, out.bv_len, limit - bytes);

		if (len & (sector_size(xt) - 1))
			return -EIO;
		set_piece(&job->to[n], &out, len);
		if (flight->src != flight->dst)
			set_piece(&job->from[n], &in, len);
		bio_advance_iter(flight->src, &flight->src_iter, len);
		bio_advance_iter(flight->dst, &flight->dst_iter, len);
		bytes += len;
	}
	sg_mark_end(&job->to[n - 1]);
	sg_mark_end(&job->from[n - 1]);
	job->bytes = bytes;
	job->src_iter.bi_size = bytes;
	job->dst_iter.bi_size = bytes;
	flight->sector += bytes >> SECTOR_SHIFT;
	xt_cost_run(job, XT_ROW_OTHER, 1);
	return 0;
}

static int step(struct xt_job *job)
{
	return job->flight->xt->ops->step(job);
}

/* A job that has landed, and what becomes of it. */
static int land(struct xt_flight *flight, struct xt_job **job)
{
	wait_for_completion(&flight->landing);
	*job = llist_entry(llist_del_first(&flight->landed), struct xt_job, node);
	/* What was waited for is the time of its engine. */
	xt_clock_was(&flight->clock,
		     (*job)->stage == XT_STAGE_TWEAKS ? XT_ROW_IV_ENGINE : XT_ROW_ENGINE);
	xt_clock_enter(&flight->clock, XT_ROW_OTHER);
	return (*job)->error ?: step(*job);
}

/*
 * A driver that says -EBUSY has taken the request, but its queue is full: nothing
 * more goes there before one of ours has landed.
 */
static int fly(struct xt_flight *flight)
{
	bool crowded = false;
	int error = 0;

	while (flight->under_way || (flight->src_iter.bi_size && !error)) {
		struct xt_job *job = NULL;
		int r;

		if (flight->src_iter.bi_size && !error && !crowded)
			job = get_job(flight);
		if (job) {
			flight->under_way++;
			r = take_run(flight, job) ?: step(job);
		} else {
			r = land(flight, &job);
			crowded = false;
		}
		if (r == -EBUSY) {
			xt_count(flight->xt, busy, 1);
			crowded = true;
		}
		if (r != -EBUSY && r != -EINPROGRESS) {
			flight->under_way--;
			if (flight->xt->ops->forget)
				flight->xt->ops->forget(job);
			llist_add(&job->node, &flight->idle);
			error = error ?: r;
		}
		cond_resched();
	}
	return error;
}

/* Sleeps, whatever the pass says of it. */
blk_status_t xt_fly(struct xt_target *xt, const struct xt_pass *pass)
{
	struct xt_flight flight = {
		.xt = xt,
		.encrypt = pass->encrypt,
		.src = pass->src,
		.dst = pass->dst,
		.src_iter = pass->src_iter,
		.dst_iter = pass->dst_iter,
		.sector = pass->sector,
	};
	int r;

	init_completion(&flight.landing);
	xt_clock_start(&flight.clock);
	xt_cost_bio(&flight);
	r = fly(&flight);
	put_jobs(&flight);
	xt_clock_stop(&flight.clock, xt);
	if (r)
		DMERR_LIMIT("%s: the cipher failed: %d", crypto_skcipher_driver_name(xt->tfm), r);
	return r ? BLK_STS_IOERR : BLK_STS_OK;
}
