// SPDX-License-Identifier: GPL-2.0
/*
 * Writes: encrypted into pages of our own, since the caller may look at its
 * pages meanwhile, and sent down as one bio. That happens in the writer's
 * context if the cipher and memory allow it at once. Otherwise a work queue does
 * it, which may wait for pages of the reserve: one request at a time takes from
 * it, and what it holds comes back when its write ends, so that writes go on
 * when there is no memory left.
 */
#include <linux/mm.h>

#include "xtent.h"

/*
 * Pages that all targets hold, their reserves with them; and how many of them
 * are for reserves.
 */
static atomic_long_t pages_used = ATOMIC_LONG_INIT(0);
static atomic_long_t pages_reserved = ATOMIC_LONG_INIT(0);

/* Pieces of memory are this long if there are such. */
#define XT_PIECE_ORDER 4

static long pages_allowed(void)
{
	/* dm-crypt's rule is two hundredths of memory; ours is at least enough for 16 requests. */
	return max_t(long, totalram_pages() / 50, 16 * BIO_MAX_VECS) +
	       atomic_long_read(&pages_reserved);
}

static void *pool_alloc(gfp_t gfp, void *data)
{
	struct page *page;

	/* The pool's first try, before its reserve. */
	if ((gfp & __GFP_NORETRY) && atomic_long_read(&pages_used) >= pages_allowed())
		return NULL;
	page = alloc_page(gfp);
	if (page)
		atomic_long_inc(&pages_used);
	return page;
}

static void pool_free(void *page, void *data)
{
	__free_page(page);
	atomic_long_dec(&pages_used);
}

static void free_clone(struct xt_target *xt, struct bio *clone)
{
	struct bio_vec *bv;
	int i;

	/* One entry a piece: __bio_add_page() does not merge them. */
	bio_for_each_bvec_all(bv, clone, i) {
		unsigned int order = compound_order(bv->bv_page);

		if (!order) {
			mempool_free(bv->bv_page, &xt->pages);
			continue;
		}
		__free_pages(bv->bv_page, order);
		atomic_long_sub(1 << order, &pages_used);
	}
	bio_put(clone);
}

static struct page *alloc_piece(unsigned int order)
{
	struct page *page;

	if (atomic_long_read(&pages_used) >= pages_allowed())
		return NULL;
	page = alloc_pages(GFP_NOWAIT | __GFP_NOWARN | __GFP_NORETRY | __GFP_NOMEMALLOC |
			   (order ? __GFP_COMP : 0), order);
	if (page)
		atomic_long_add(1 << order, &pages_used);
	return page;
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
	/* Whoever polls waits for the bio above, which is not the one that is submitted. */
	bio_clear_polled(clone);
	return clone;
}

/* With pieces of one size, and without waiting; NULL if there is no memory. */
static struct bio *clone_now(struct xt_io *io, unsigned int order)
{
	const unsigned int piece = PAGE_SIZE << order;
	unsigned int left = io->iter.bi_size;
	struct bio *clone;

	clone = alloc_clone(io, DIV_ROUND_UP(left, piece), GFP_NOWAIT | __GFP_NOWARN);
	if (!clone)
		return NULL;
	while (left) {
		unsigned int len = min(left, piece);
		/* The last piece may be a short one. */
		struct page *page = alloc_piece(min_t(unsigned int, order, get_order(len)));

		if (!page) {
			free_clone(io->xt, clone);
			return NULL;
		}
		__bio_add_page(clone, page, len, 0);
		left -= len;
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

static void encrypt_and_submit(struct xt_io *io, struct bio *clone)
{
	blk_status_t status;

	status = xt_crypt(io->xt, true, io->sector, io->bio, io->iter, clone, clone->bi_iter);
	if (status) {
		/* Nothing of it is written. */
		clone->bi_status = status;
		bio_endio(clone);
		return;
	}
	dm_submit_bio_remap(io->bio, clone);
}

static void write_work(struct work_struct *work)
{
	struct xt_io *io = container_of(work, struct xt_io, work);
	struct bio *clone = clone_any(io);

	if (!clone)
		clone = clone_later(io);
	encrypt_and_submit(io, clone);
}

int xt_map_write(struct xt_target *xt, struct xt_io *io)
{
	struct bio *clone;

	xt_count(xt, writes, 1);
	xt_count(xt, write_sectors, bio_sectors(io->bio) >> xt->sector_shift);
	/* The crypto API may sleep, which a writer's context may not like. */
	clone = xt->xts && xt_xts_usable_here() ? clone_any(io) : NULL;
	if (clone) {
		encrypt_and_submit(io, clone);
		return DM_MAPIO_SUBMITTED;
	}
	xt_count(xt, queued, 1);
	INIT_WORK(&io->work, write_work);
	queue_work(xt->write_queue, &io->work);
	return DM_MAPIO_SUBMITTED;
}

/* When the last target is gone, so are all pages. */
void xt_check_pages(void)
{
	WARN(atomic_long_read(&pages_used), "dm-xtent: %ld pages lost\n",
	     atomic_long_read(&pages_used));
}

int xt_init_write(struct xt_target *xt)
{
	int r;

	mutex_init(&xt->pages_lock);
	r = mempool_init(&xt->pages, BIO_MAX_VECS, pool_alloc, pool_free, NULL);
	if (!r) {
		xt->has_reserve = true;
		atomic_long_add(BIO_MAX_VECS, &pages_reserved);
	}
	return r ?: bioset_init(&xt->bios, 64, 0, BIOSET_NEED_BVECS);
}

void xt_exit_write(struct xt_target *xt)
{
	bioset_exit(&xt->bios);
	mempool_exit(&xt->pages);
	if (xt->has_reserve)
		atomic_long_sub(BIO_MAX_VECS, &pages_reserved);
	mutex_destroy(&xt->pages_lock);
}
