// SPDX-License-Identifier: GPL-2.0
/*
 * From bios to runs of sectors: pieces of memory that belong to consecutive
 * sectors, and to several requests, fill batches together.
 */
#include <linux/sched.h>

#include "xtent.h"

struct gather {
	struct xt_target *xt;
	bool encrypt;
	unsigned int limit;		/* sectors in a batch */
	struct xt_batch batch;
};

static unsigned int sector_size(const struct xt_target *xt)
{
	return SECTOR_SIZE << xt->sector_shift;
}

static void flush(struct gather *g)
{
	if (g->batch.count)
		xt_xts_crypt(g->xt->xts, g->encrypt, &g->batch, sector_size(g->xt));
	g->batch.count = 0;
}

static void start(struct gather *g, struct xt_target *xt, bool encrypt)
{
	g->xt = xt;
	g->encrypt = encrypt;
	g->limit = min_t(unsigned int, XT_BATCH, XT_SECTION_BYTES / sector_size(xt));
	g->batch.count = 0;
	g->batch.big_endian = xt->iv_mode == XT_IV_PLAIN64BE;
}

static void add(struct gather *g, const u8 *src, u8 *dst, u64 sector)
{
	unsigned int i = g->batch.count++;

	g->batch.src[i] = src;
	g->batch.dst[i] = dst;
	g->batch.iv[i] = xt_iv_number(g->xt, sector);
	if (g->batch.count == g->limit)
		flush(g);
}

/*
 * All sectors of a request. Pieces that are no whole sectors cannot be: the
 * target's limits forbid them; a caller that ignores that gets an error.
 */
static blk_status_t add_bio(struct gather *g, u64 sector, struct bio *src,
			    struct bvec_iter src_iter, struct bio *dst,
			    struct bvec_iter dst_iter)
{
	const unsigned int size = sector_size(g->xt);

	xt_count_run(g->xt, src_iter.bi_size >> (SECTOR_SHIFT + g->xt->sector_shift));
	while (src_iter.bi_size) {
		struct bio_vec from = mp_bvec_iter_bvec(src->bi_io_vec, src_iter);
		struct bio_vec to = mp_bvec_iter_bvec(dst->bi_io_vec, dst_iter);
		unsigned int len = min(from.bv_len, to.bv_len);
		const u8 *in = page_address(from.bv_page) + from.bv_offset;
		u8 *out = page_address(to.bv_page) + to.bv_offset;
		unsigned int i;

		if (len & (size - 1))
			return BLK_STS_IOERR;
		for (i = 0; i < len; i += size) {
			add(g, in + i, out + i, sector);
			sector += 1 << g->xt->sector_shift;
		}
		bio_advance_iter(src, &src_iter, len);
		bio_advance_iter(dst, &dst_iter, len);
	}
	return BLK_STS_OK;
}

/* Encrypts or decrypts a request, from one bio to another, or in place. */
blk_status_t xt_crypt(struct xt_target *xt, bool encrypt, u64 sector, struct bio *src,
		      struct bvec_iter src_iter, struct bio *dst, struct bvec_iter dst_iter)
{
	struct gather g;
	blk_status_t status;

	if (!xt->xts)
		return xt_fly(xt, encrypt, sector, src, src_iter, dst, dst_iter);
	start(&g, xt, encrypt);
	status = add_bio(&g, sector, src, src_iter, dst, dst_iter);
	flush(&g);
	return status;
}

/*
 * Decrypts XTS reads in place, several small ones in one batch, and completes each
 * when its last sector is done.
 */
void xt_decrypt_all(struct xt_target *xt, struct llist_node *ios)
{
	struct llist_node *waiting = ios;
	unsigned int bytes = 0, count = 0;
	struct xt_io *io, *next;
	struct gather g;

	start(&g, xt, false);
	llist_for_each_entry_safe(io, next, ios, node) {
		struct bio *bio = io->bio;

		bio->bi_status = add_bio(&g, io->sector, bio, io->iter, bio, io->iter);
		bytes += io->iter.bi_size;
		count++;
		if (io->node.next && bytes < XT_SECTION_BYTES)
			continue;
		flush(&g);
		if (count > 1)
			xt_count(xt, merged, count);
		/* `io` is the last of those that wait; each is gone when completed. */
		while (count--) {
			struct xt_io *one = llist_entry(waiting, struct xt_io, node);

			waiting = waiting->next;
			xt_complete_read(one);
		}
		bytes = 0;
		count = 0;
		cond_resched();
	}
}
