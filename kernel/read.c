// SPDX-License-Identifier: GPL-2.0
/*
 * Reads: the bio goes down as it is, without a copy, and is decrypted in place
 * when it comes back: at once where the context allows it, else on a work queue
 * together with the other reads that completed on the same CPU meanwhile.
 */
#include "xtent.h"

/* The most that is decrypted in a soft interrupt, whose time others wait for. */
#define XT_SOFTIRQ_BYTES 65536

void xt_complete_read(struct xt_io *io)
{
	bio_endio(io->bio);
}

static bool decrypt_here(const struct xt_target *xt, unsigned int bytes)
{
	/* The crypto API may sleep. */
	if (!xt->xts || !xt_xts_usable_here())
		return false;
	return !in_serving_softirq() || bytes <= XT_SOFTIRQ_BYTES;
}

static void read_work(struct work_struct *work)
{
	struct xt_io *io = container_of(work, struct xt_io, work);
	struct bio *bio = io->bio;

	bio->bi_status = xt_crypt(io->xt, false, io->sector, bio, io->iter, bio, io->iter);
	xt_complete_read(io);
}

static void read_end_io(struct bio *bio)
{
	struct xt_io *io = bio->bi_private;
	struct xt_target *xt = io->xt;
	struct xt_done *done;

	bio->bi_end_io = io->end_io;
	bio->bi_private = io->private;
	if (bio->bi_status) {
		bio_endio(bio);
		return;
	}
	if (decrypt_here(xt, io->iter.bi_size)) {
		bio->bi_status = xt_crypt(xt, false, io->sector, bio, io->iter, bio, io->iter);
		bio_endio(bio);
		return;
	}
	xt_count(xt, queued, 1);
	/* Long ones, and the crypto API's, spread over the CPUs. */
	if (!xt->xts || io->iter.bi_size >= XT_SECTION_BYTES) {
		INIT_WORK(&io->work, read_work);
		queue_work(xt->read_queue, &io->work);
		return;
	}
	/*
	 * Without preemption between both: the target is destroyed only after such
	 * sections have ended, and then waits for the queue.
	 */
	done = get_cpu_ptr(xt->done);
	if (llist_add(&io->node, &done->reads))
		queue_work(xt->read_queue, &done->work);
	put_cpu_ptr(xt->done);
}

/* The reads that completed on one CPU since it last ran. */
void xt_read_done_work(struct work_struct *work)
{
	struct xt_done *done = container_of(work, struct xt_done, work);

	xt_decrypt_all(done->xt, llist_reverse_order(llist_del_all(&done->reads)));
}

int xt_map_read(struct xt_target *xt, struct xt_io *io)
{
	struct bio *bio = io->bio;

	xt_count(xt, reads, 1);
	xt_count(xt, read_sectors, bio_sectors(bio) >> xt->sector_shift);
	io->end_io = bio->bi_end_io;
	io->private = bio->bi_private;
	bio->bi_end_io = read_end_io;
	bio->bi_private = io;
	return DM_MAPIO_REMAPPED;
}
