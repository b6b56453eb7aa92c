// SPDX-License-Identifier: GPL-2.0
/*
 * From bios to runs of sectors: pieces of memory that belong to consecutive
 * sectors, and to several requests, fill batches together.
 */
#include <linux/sched.h>
#include <linux/slab.h>

#include "xtent.h"

struct gather {
	struct xt_target *xt;
	bool encrypt;
	bool may_rest;			/* between batches */
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
	if (g->may_rest)
		cond_resched();
}

static void start(struct gather *g, struct xt_target *xt, bool encrypt, bool may_rest)
{
	g->xt = xt;
	g->encrypt = encrypt;
	g->may_rest = may_rest;
	g->limit = min_t(unsigned int, XT_BATCH, xt_xts_section_bytes() / sector_size(xt));
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
static blk_status_t add_bio(struct gather *g, const struct xt_pass *pass)
{
	const unsigned int size = sector_size(g->xt);
	struct bvec_iter src_iter = pass->src_iter;
	struct bvec_iter dst_iter = pass->dst_iter;
	u64 sector = pass->sector;

	while (src_iter.bi_size) {
		struct bio_vec from = mp_bvec_iter_bvec(pass->src->bi_io_vec, src_iter);
		struct bio_vec to = mp_bvec_iter_bvec(pass->dst->bi_io_vec, dst_iter);
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
		bio_advance_iter(pass->src, &src_iter, len);
		bio_advance_iter(pass->dst, &dst_iter, len);
	}
	return BLK_STS_OK;
}

static blk_status_t crypt(struct xt_target *xt, const struct xt_pass *pass)
{
	struct gather g __uninitialized;
	blk_status_t status;

	start(&g, xt, pass->encrypt, pass->may_rest);
	status = add_bio(&g, pass);
	flush(&g);
	return status;
}

/*
 * Decrypts XTS reads in place, several small ones in one batch, and completes each
 * when its last sector is done.
 */
void xt_decrypt_all(struct xt_target *xt, struct llist_node *ios, bool may_rest)
{
	struct llist_node *waiting = ios;
	unsigned int bytes = 0, count = 0;
	struct xt_io *io, *next;
	struct gather g __uninitialized;

	start(&g, xt, false, may_rest);
	llist_for_each_entry_safe(io, next, ios, node) {
		struct bio *bio = io->bio;
		const struct xt_pass pass = {
			.sector = io->sector,
			.src = bio,
			.dst = bio,
			.src_iter = io->iter,
			.dst_iter = io->iter,
		};

		bio->bi_status = add_bio(&g, &pass);
		bytes += io->iter.bi_size;
		count++;
		if (io->node.next && bytes < xt_xts_section_bytes())
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
	}
}

static const char *name(const struct xt_target *xt)
{
	return xt->xts->backend->name;
}

static int set_key(struct xt_target *xt, const u8 *key, unsigned int key_size)
{
	return xt_xts_set_key(xt->xts, key, key_size);
}

static int wipe_key(struct xt_target *xt)
{
	memzero_explicit(&xt->xts->data, sizeof(xt->xts->data));
	memzero_explicit(&xt->xts->tweak, sizeof(xt->xts->tweak));
	return 0;
}

static void destroy(struct xt_target *xt)
{
	kfree_sensitive(xt->xts);
}

static const struct xt_cipher_ops batch_ops = {
	.name = name,
	.set_key = set_key,
	.wipe_key = wipe_key,
	.crypt = crypt,
	.destroy = destroy,
};

int xt_batch_create(struct dm_target *ti, struct xt_target *xt,
		    const struct xt_xts_backend *backend)
{
	xt->ops = &batch_ops;
	if (xt->options.request_size) {
		ti->error = "request_size is for engines; on the CPU all of a bio is one run";
		return -EINVAL;
	}
	xt->xts = kzalloc(sizeof(*xt->xts), GFP_KERNEL);
	if (!xt->xts) {
		ti->error = "Out of memory";
		return -ENOMEM;
	}
	xt->xts->backend = backend;
	xt->iv_size = AES_BLOCK_SIZE;
	return 0;
}
