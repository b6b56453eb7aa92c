// SPDX-License-Identifier: GPL-2.0
/*
 * Reads: the bio goes down as it is, without a copy, and is decrypted in place
 * when it comes back. Where a bio completes, others wait for the CPU: interrupts are
 * off, or preemption, or the thread of an interrupt runs before all others. So short reads
 * are decrypted there, or in a soft interrupt soon after where the FPU cannot be had, as
 * long as they do not take too much time together; all others on a work queue.
 */
#include <linux/sched.h>
#include <linux/timekeeping.h>

#include "xtent.h"

/* The longest that one read may take where it completes, by xt_xts_ns(). */
#define XT_COMPLETION_NS 16000

/*
 * What all targets have decrypted where bios completed on this CPU counts twice, as time that
 * lies ahead of now. As long as no more than this lies ahead, another read may follow:
 * one after the other they take this plus XT_COMPLETION_NS at most, and in the long run
 * half of the CPU.
 */
#define XT_AHEAD_NS 8000

static DEFINE_PER_CPU(u64, ahead_until);

static bool take_time(u64 ns)
{
	u64 now = ktime_get_ns();
	u64 *until = get_cpu_ptr(&ahead_until);
	u64 from = max(now, *until);
	bool taken = from - now <= XT_AHEAD_NS;

	/* An interrupt between both makes it a little wrong, nothing worse. */
	if (taken)
		*until = from + 2 * ns;
	put_cpu_ptr(&ahead_until);
	return taken;
}

/*
 * What was decrypted since then took longer than take_time() was told, if it was asked, as it does
 * where xt_xts_ns() is cut short: otherwise such a CPU would do nothing else.
 */
static void take_rest(u64 since)
{
	u64 now = ktime_get_ns();
	u64 *until = get_cpu_ptr(&ahead_until);

	*until = max(*until, now + (now - since));
	put_cpu_ptr(&ahead_until);
}

enum place {
	HERE,
	SOON,		/* in a soft interrupt */
	QUEUE,
};

/*
 * Whoever reads pays: of RAM disks, and of devices that are polled. Not a process that serves the
 * disk, nor one that polls and is told of others' reads.
 */
static bool reader_pays(const struct xt_io *io)
{
	return in_task() && !in_softirq() && current == io->reader &&
	       !(current->flags & PF_KTHREAD);
}

static enum place place_of(const struct xt_target *xt, const struct xt_io *io)
{
	bool usable = xt_xts_usable_here();
	u64 ns;

	if (xt->ops->may_sleep)
		return QUEUE;
	if (usable && reader_pays(io))
		return HERE;
	ns = xt_xts_ns(io->iter.bi_size);
	if (ns > XT_COMPLETION_NS)
		return QUEUE;
	if (!usable)
		return SOON;
	return xt->options.no_read_workqueue || take_time(ns) ? HERE : QUEUE;
}

void xt_complete_read(struct xt_io *io)
{
	bio_endio(io->bio);
}

static void decrypt(struct xt_io *io, bool may_rest)
{
	struct bio *bio = io->bio;
	const struct xt_pass pass = {
		.may_rest = may_rest,
		.sector = io->sector,
		.src = bio,
		.dst = bio,
		.src_iter = io->iter,
		.dst_iter = io->iter,
	};

	bio->bi_status = io->xt->ops->crypt(io->xt, &pass);
	xt_complete_read(io);
}

static void read_work(struct work_struct *work)
{
	decrypt(container_of(work, struct xt_io, work), true);
}

/*
 * Without preemption between adding and queueing, here and below: the target is
 * destroyed only after such sections have ended, and then waits for both.
 */
static void wait_for_queue(struct xt_target *xt, struct xt_io *io)
{
	struct xt_done *done;

	xt_count(xt, queued, 1);
	/* Long ones, and the crypto API's, spread over the CPUs. */
	if (xt->ops->may_sleep || xt_xts_ns(io->iter.bi_size) > XT_COMPLETION_NS) {
		INIT_WORK(&io->work, read_work);
		queue_work(xt->read_queue, &io->work);
		return;
	}
	done = get_cpu_ptr(xt->done);
	if (llist_add(&io->node, &done->reads))
		queue_work(xt->read_queue, &done->work);
	put_cpu_ptr(xt->done);
}

static void wait_for_bh(struct xt_target *xt, struct xt_io *io)
{
	struct xt_done *done = get_cpu_ptr(xt->done);

	if (llist_add(&io->node, &done->soon))
		xt_bh_schedule(&done->bh, xt->options.high_priority);
	put_cpu_ptr(xt->done);
}

static void read_end_io(struct bio *bio)
{
	struct xt_io *io = bio->bi_private;
	struct xt_target *xt = io->xt;
	bool counts;
	u64 since;

	bio->bi_end_io = io->end_io;
	bio->bi_private = io->private;
	if (bio->bi_status) {
		bio_endio(bio);
		return;
	}
	switch (place_of(xt, io)) {
	case HERE:
		counts = xt_xts_takes_longer() && !reader_pays(io);
		since = counts ? ktime_get_ns() : 0;
		decrypt(io, false);
		/* The request is gone. */
		if (counts)
			take_rest(since);
		break;
	case SOON:
		wait_for_bh(xt, io);
		break;
	case QUEUE:
		wait_for_queue(xt, io);
		break;
	}
}

/*
 * In a soft interrupt: the reads that completed in interrupts of this CPU since it last ran. How
 * long ago that is nobody knows, so what there is time for is asked here and not where they
 * completed.
 */
static void read_bh(struct xt_bh *bh)
{
	struct xt_done *done = container_of(bh, struct xt_done, bh);
	struct xt_target *xt = done->xt;
	struct llist_node *ios = llist_reverse_order(llist_del_all(&done->soon));
	struct llist_node **end = &ios;
	struct llist_node *rest, *next;

	/* Otherwise it has come between someone's use of the FPU. */
	if (xt_xts_usable_here()) {
		while (*end && (xt->options.no_read_workqueue ||
				take_time(xt_xts_ns(llist_entry(*end, struct xt_io, node)
						    ->iter.bi_size)))) {
			xt_count(xt, deferred, 1);
			end = &(*end)->next;
		}
	}
	rest = *end;
	*end = NULL;
	for (; rest; rest = next) {
		next = rest->next;
		wait_for_queue(xt, llist_entry(rest, struct xt_io, node));
	}
	if (ios) {
		u64 since = xt_xts_takes_longer() ? ktime_get_ns() : 0;

		xt_decrypt_all(xt, ios, false);
		if (since)
			take_rest(since);
	}
}

/* The reads that completed on one CPU since it last ran. */
static void read_done_work(struct work_struct *work)
{
	struct xt_done *done = container_of(work, struct xt_done, work);

	xt_decrypt_all(done->xt, llist_reverse_order(llist_del_all(&done->reads)), true);
}

int xt_map_read(struct xt_target *xt, struct xt_io *io)
{
	struct bio *bio = io->bio;

	xt_count_request(xt, false, bio_sectors(bio) >> xt->sector_shift);
	io->end_io = bio->bi_end_io;
	io->private = bio->bi_private;
	io->reader = current;
	bio->bi_end_io = read_end_io;
	bio->bi_private = io;
	return DM_MAPIO_REMAPPED;
}

int xt_init_read(struct xt_target *xt)
{
	int cpu;

	xt->done = alloc_percpu(struct xt_done);
	if (!xt->done)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		struct xt_done *done = per_cpu_ptr(xt->done, cpu);

		done->xt = xt;
		init_llist_head(&done->soon);
		init_llist_head(&done->reads);
		xt_bh_init(&done->bh, read_bh);
		INIT_WORK(&done->work, read_done_work);
	}
	return 0;
}

/* No read is under way; the last one's soft interrupt, or work, may not have returned. */
void xt_exit_read(struct xt_target *xt)
{
	int cpu;

	if (!xt->done)
		return;
	for_each_possible_cpu(cpu)
		xt_bh_flush(&per_cpu_ptr(xt->done, cpu)->bh);
	if (xt->read_queue)
		destroy_workqueue(xt->read_queue);
	free_percpu(xt->done);
}
