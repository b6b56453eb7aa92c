// SPDX-License-Identifier: GPL-2.0
/*
 * Writes: encrypted into pages of our own, since the caller may look at its
 * pages meanwhile, and sent down as one bio. That happens in the writer's
 * context if the cipher and memory allow it at once. Otherwise a work queue does
 * it, which may wait for pages of the reserve: one request at a time takes from
 * it, and what it holds comes back when its write ends, so that writes go on
 * when there is no memory left. Long writes of kernel threads and of whoever writes back
 * cached pages are spread over the CPUs by that queue.
 */
#include <linux/mm.h>
#include <linux/sched.h>

#include "xtent.h"

/* How many targets share the memory that writes may take. */
static atomic_t sharers = ATOMIC_INIT(0);

/*
 * Pieces of memory are this long if there are such: the longest of which the kernel keeps
 * lists for each CPU. For longer ones every CPU takes the lock of the zone.
 */
#define XT_PIECE_ORDER PAGE_ALLOC_COSTLY_ORDER

/* A write that takes no longer, by xt_xts_ns(), is encrypted sooner than handed over. */
#define XT_SPREAD_NS 16000

static bool may_take_pages(struct xt_target *xt)
{
	/* As in dm-crypt: two hundredths of memory for all, and enough for 16 requests each. */
	unsigned long all = (totalram_pages() - totalhigh_pages()) / 50;
	unsigned long share = max_t(unsigned long, all / max(atomic_read(&sharers), 1),
				    16 * BIO_MAX_VECS);

	return percpu_counter_read_positive(&xt->pages_used) < share;
}

/* Pages that are taken, or given back, which interrupts do. With one CPU a counter may be added to in several steps. */
static void count_pages(struct xt_target *xt, s64 pages)
{
	unsigned long flags = 0;

	if (!IS_ENABLED(CONFIG_SMP))
		local_irq_save(flags);
	percpu_counter_add(&xt->pages_used, pages);
	if (!IS_ENABLED(CONFIG_SMP))
		local_irq_restore(flags);
}

static void *pool_alloc(gfp_t gfp, void *data)
{
	/* The pool's first try, before its reserve. */
	if ((gfp & __GFP_NORETRY) && !may_take_pages(data))
		return NULL;
	return alloc_page(gfp);
}

static void pool_free(void *page, void *data)
{
	__free_page(page);
}

static void free_clone(struct xt_target *xt, struct bio *clone)
{
	unsigned int pages = 0;
	struct bio_vec *bv;
	int i;

	/* One entry a piece: __bio_add_page() does not merge them. */
	bio_for_each_bvec_all(bv, clone, i) {
		unsigned int order = compound_order(bv->bv_page);

		pages += 1 << order;
		if (order)
			__free_pages(bv->bv_page, order);
		else
			mempool_free(bv->bv_page, &xt->pages);
	}
	/* Once a request: where this CPU's operations are not one instruction, it costs more than the pages. */
	count_pages(xt, -(s64)pages);
	bio_put(clone);
}

static struct page *alloc_piece(unsigned int order)
{
	return alloc_pages(GFP_NOWAIT | __GFP_NOWARN | __GFP_NORETRY | __GFP_NOMEMALLOC |
			   (order ? __GFP_COMP : 0), order);
}

static void write_end_io(struct bio *clone)
{
	struct xt_io *io = clone->bi_private;
	struct bio *bio = io->bio;

	bio->bi_status = clone->bi_status;
	free_clone(io->xt, clone);
	bio_endio(bio);
}

static struct bio *alloc_clone(struct xt_io *io, unsigned int pieces, gfp_t gfp)
{
	struct xt_target *xt = io->xt;
	struct bio *clone;

	clone = bio_alloc_bioset(xt->dev->bdev, pieces, io->bio->bi_opf, gfp, &xt->bios);
	if (!clone)
		return NULL;
	clone->bi_private = io;
	clone->bi_end_io = write_end_io;
	clone->bi_iter.bi_sector = xt->start + io->offset;
	clone->bi_ioprio = io->bio->bi_ioprio;
	/* The cgroup whose data they are, as with write-back, not the one of this thread. */
	bio_clone_blkg_association(clone, io->bio);
	/* Whoever polls waits for the bio above, which is not the one that is submitted. */
	bio_clear_polled(clone);
	return clone;
}

/* With pieces of one size, and without waiting; NULL if there is no memory. */
static struct bio *clone_now(struct xt_io *io, unsigned int order)
{
	const unsigned int piece = PAGE_SIZE << order;
	unsigned int left = io->iter.bi_size, pages = 0;
	struct bio *clone;

	if (!may_take_pages(io->xt))
		return NULL;
	clone = alloc_clone(io, DIV_ROUND_UP(left, piece), GFP_NOWAIT | __GFP_NOWARN);
	if (!clone)
		return NULL;
	while (left) {
		unsigned int len = min(left, piece);
		/* The last piece may be a short one. */
		unsigned int its_order = min_t(unsigned int, order, get_order(len));
		struct page *page = alloc_piece(its_order);

		if (!page)
			break;
		__bio_add_page(clone, page, len, 0);
		pages += 1 << its_order;
		left -= len;
	}
	count_pages(io->xt, pages);
	if (left) {
		free_clone(io->xt, clone);
		return NULL;
	}
	return clone;
}

/* With pages of the reserve, if need be: waits until there are some. */
static struct bio *clone_later(struct xt_io *io)
{
	struct xt_target *xt = io->xt;
	unsigned int left = io->iter.bi_size;
	struct bio *clone;

	mutex_lock(&xt->pages_lock);
	clone = alloc_clone(io, DIV_ROUND_UP(left, PAGE_SIZE), GFP_NOIO);
	while (left) {
		unsigned int len = min_t(unsigned int, left, PAGE_SIZE);

		__bio_add_page(clone, mempool_alloc(&xt->pages, GFP_NOIO), len, 0);
		left -= len;
	}
	count_pages(xt, clone->bi_vcnt);
	mutex_unlock(&xt->pages_lock);
	return clone;
}

static struct bio *clone_any(struct xt_io *io)
{
	unsigned int order = min_t(unsigned int, XT_PIECE_ORDER, get_order(io->iter.bi_size));
	struct bio *clone = clone_now(io, order);

	if (!clone && order)
		clone = clone_now(io, 0);
	return clone;
}

/* What it returns if that fails is for the bio above: its clone is gone then, and nothing of it is written. */
static blk_status_t encrypt_and_submit(struct xt_io *io, struct bio *clone)
{
	const struct xt_pass pass = {
		.encrypt = true,
		/* Whoever submits a bio may sleep, and so may work. */
		.may_rest = in_task(),
		.sector = io->sector,
		.src = io->bio,
		.src_iter = io->iter,
		.dst = clone,
		.dst_iter = clone->bi_iter,
	};
	blk_status_t status = io->xt->ops->crypt(io->xt, &pass);

	if (status)
		free_clone(io->xt, clone);
	else
		dm_submit_bio_remap(io->bio, clone);
	return status;
}

static void write_work(struct work_struct *work)
{
	struct xt_io *io = container_of(work, struct xt_io, work);
	struct bio *clone = clone_any(io);
	blk_status_t status;

	if (!clone)
		clone = clone_later(io);
	status = encrypt_and_submit(io, clone);
	if (status) {
		io->bio->bi_status = status;
		bio_endio(io->bio);
	}
}

/* Whether the writer itself may encrypt, as far as the context goes. */
static bool may_be_here(const struct xt_target *xt)
{
	if (xt->ops->may_sleep)
		return xt->options.no_write_workqueue && in_task() && !irqs_disabled();
	return xt_xts_usable_here();
}

/*
 * Whether others should have a part in it: one thread alone writes back all pages of a
 * device, or of the file that it calls fsync() for, so that one CPU would encrypt them. Direct
 * I/O, which is marked, comes from as many threads as the program likes.
 */
static bool is_to_be_spread(const struct xt_target *xt, const struct xt_io *io)
{
	if (xt->options.no_write_workqueue || xt->options.same_cpu_crypt)
		return false;
	if (!xt->options.write_workqueue && !(current->flags & PF_KTHREAD) &&
	    io->bio->bi_opf & REQ_IDLE)
		return false;
	return xt_xts_ns(io->iter.bi_size) > XT_SPREAD_NS && num_online_cpus() > 1;
}

int xt_map_write(struct xt_target *xt, struct xt_io *io)
{
	struct bio *clone = NULL;

	xt_count_request(xt, true, bio_sectors(io->bio) >> xt->sector_shift);
	if (xt->write_in_order)
		clone = clone_any(io) ?: clone_later(io);
	else if (may_be_here(xt) && !is_to_be_spread(xt, io))
		clone = clone_any(io);
	/*
	 * Not ended here if that fails: until Linux 6.9 dm looks at the zone of a bio that was
	 * submitted, finds it invalid then, and ends the bio a second time.
	 */
	if (clone)
		return encrypt_and_submit(io, clone) ? DM_MAPIO_KILL : DM_MAPIO_SUBMITTED;
	xt_count(xt, queued, 1);
	INIT_WORK(&io->work, write_work);
	queue_work(xt->write_queue, &io->work);
	return DM_MAPIO_SUBMITTED;
}

int xt_init_write(struct xt_target *xt)
{
	int r;

	mutex_init(&xt->pages_lock);
	atomic_inc(&sharers);
	xt->shares_memory = true;
	r = percpu_counter_init(&xt->pages_used, 0, GFP_KERNEL);
	r = r ?: mempool_init(&xt->pages, BIO_MAX_VECS, pool_alloc, pool_free, xt);
	return r ?: bioset_init(&xt->bios, 64, 0, BIOSET_NEED_BVECS);
}

void xt_exit_write(struct xt_target *xt)
{
	if (!xt->shares_memory)
		return;
	bioset_exit(&xt->bios);
	mempool_exit(&xt->pages);
	if (percpu_counter_initialized(&xt->pages_used)) {
		s64 lost = percpu_counter_sum(&xt->pages_used);

		WARN(lost, "dm-xtent: %lld pages lost\n", lost);
		percpu_counter_destroy(&xt->pages_used);
	}
	atomic_dec(&sharers);
	mutex_destroy(&xt->pages_lock);
}
