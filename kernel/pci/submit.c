// SPDX-License-Identifier: GPL-2.0
/* Jobs on their way to the device: mapped for it, in the queue, in a ring. */
#include <linux/dma-mapping.h>

#include "device.h"

struct submission {
	u8 op, flags, slot, log2_unit;
	__le16 step, zero0;
	__le32 units, zero1;
	u8 tweak[AES_BLOCK_SIZE];
	__le64 source, destination;
	__le32 source_entries, destination_entries;
	__le64 cookie;
};

struct entry {
	__le64 address;
	__le32 length, zero;
};

static_assert(sizeof(struct submission) == XTENT_ENGINE_SQE_BYTES);
static_assert(offsetof(struct submission, log2_unit) == XTENT_ENGINE_SQE_LOG2_UNIT);
static_assert(offsetof(struct submission, units) == XTENT_ENGINE_SQE_UNITS);
static_assert(offsetof(struct submission, tweak) == XTENT_ENGINE_SQE_TWEAK);
static_assert(offsetof(struct submission, destination) == XTENT_ENGINE_SQE_DESTINATION);
static_assert(offsetof(struct submission, source_entries) == XTENT_ENGINE_SQE_SOURCE_ENTRIES);
static_assert(offsetof(struct submission, cookie) == XTENT_ENGINE_SQE_COOKIE);
static_assert(sizeof(struct entry) == XTENT_ENGINE_ENTRY_BYTES);
static_assert(offsetof(struct entry, length) == XTENT_ENGINE_ENTRY_LENGTH);

static bool in_place(const struct xtp_job *job)
{
	return job->src == job->dst;
}

static size_t list_bytes(const struct xtp_device *xtp)
{
	return xtp->caps.pieces * sizeof(struct entry);
}

int xtp_rings_alloc(struct xtp_device *xtp)
{
	struct device *dev = &xtp->pdev->dev;
	const unsigned int entries = 1 << xtp->log2_ring;
	unsigned int i, n;

	for (n = 0; n < xtp->rings; n++) {
		struct xtp_ring *ring = &xtp->ring[n];

		ring->number = n;
		ring->submissions = dmam_alloc_coherent(dev, entries * XTENT_ENGINE_SQE_BYTES,
							&ring->submissions_at, GFP_KERNEL);
		ring->completions = dmam_alloc_coherent(dev, entries * XTENT_ENGINE_CQE_BYTES,
							&ring->completions_at, GFP_KERNEL);
		ring->jobs = devm_kcalloc(dev, entries, sizeof(*ring->jobs), GFP_KERNEL);
		ring->lists = devm_kcalloc(dev, entries, sizeof(*ring->lists), GFP_KERNEL);
		ring->lists_at = devm_kcalloc(dev, entries, sizeof(*ring->lists_at), GFP_KERNEL);
		if (!ring->submissions || !ring->completions || !ring->jobs || !ring->lists ||
		    !ring->lists_at)
			return -ENOMEM;
		for (i = 0; i < entries; i++) {
			ring->lists[i] = dmam_alloc_coherent(dev, 2 * list_bytes(xtp),
							     &ring->lists_at[i], GFP_KERNEL);
			if (!ring->lists[i])
				return -ENOMEM;
		}
	}
	return 0;
}

/* Of a device that is at rest: nothing has happened, no key is loaded. With the lock held. */
void xtp_rings_clear(struct xtp_device *xtp)
{
	const unsigned int entries = 1 << xtp->log2_ring;
	unsigned int n;

	lockdep_assert_held(&xtp->lock);
	for (n = 0; n < xtp->rings; n++) {
		struct xtp_ring *ring = &xtp->ring[n];

		memset(ring->submissions, 0, entries * XTENT_ENGINE_SQE_BYTES);
		memset(ring->completions, 0, entries * XTENT_ENGINE_CQE_BYTES);
		ring->tail = 0;
		ring->head = 0;
		ring->seen = 0;
		ring->rung = true;
		ring->doubted = false;
	}
	memset(xtp->slot, 0, sizeof(xtp->slot));
	xtp->key_waits = false;
	WRITE_ONCE(xtp->epoch, xtp->epoch + 1);
	xtp->worked = false;
	xtp->failures = 0;
}

void xtp_rings_start(struct xtp_device *xtp)
{
	/* Without a timer and `when_empty`, the last completions would never be told. */
	const bool several = xtp_coalesce_count > 1;
	const u32 us = several ? clamp(xtp_coalesce_us, 1u, XTP_MASK(RING_COALESCE_US)) : 0;
	const u32 count = several ? min(xtp_coalesce_count, XTP_MASK(RING_COALESCE_COUNT)) : 1;
	unsigned int n;

	for (n = 0; n < xtp->rings; n++) {
		const struct xtp_ring *ring = &xtp->ring[n];
		const struct {
			unsigned int at;
			u32 value;
		} writes[] = {
			{ XTENT_ENGINE_RING_SQ_LO, lower_32_bits(ring->submissions_at) },
			{ XTENT_ENGINE_RING_SQ_HI, upper_32_bits(ring->submissions_at) },
			{ XTENT_ENGINE_RING_CQ_LO, lower_32_bits(ring->completions_at) },
			{ XTENT_ENGINE_RING_CQ_HI, upper_32_bits(ring->completions_at) },
			{ XTENT_ENGINE_RING_SIZE, XTP_PUT(xtp->log2_ring, RING_SIZE_LOG2) },
			{ XTENT_ENGINE_RING_COALESCE,
			  XTP_PUT(count, RING_COALESCE_COUNT) | XTP_PUT(us, RING_COALESCE_US) },
			{ XTENT_ENGINE_RING_CONTROL, XTP_PUT(1, RING_CONTROL_ENABLE) |
			  XTP_PUT(several, RING_CONTROL_WHEN_EMPTY) },
		};
		unsigned int i;

		for (i = 0; i < ARRAY_SIZE(writes); i++)
			xtp_write(xtp, xtp_ring_register(ring, writes[i].at), writes[i].value);
	}
}

/* An encrypted tweak is not for others, as the key that made it. */
void xtp_forget_tweak(struct xtp_ring *ring, unsigned int index)
{
	struct submission *sub = (void *)(ring->submissions + index * sizeof(*sub));

	memzero_explicit(sub->tweak, sizeof(sub->tweak));
}

static bool is_aligned(struct scatterlist *sgs, unsigned int mapped)
{
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(sgs, sg, mapped, i)
		if (!IS_ALIGNED(sg_dma_address(sg), AES_BLOCK_SIZE))
			return false;
	return true;
}

static int map(struct xtp_device *xtp, struct xtp_job *job)
{
	struct device *dev = &xtp->pdev->dev;

	job->dst_mapped = 0;
	job->src_mapped = dma_map_sg(dev, job->src, job->src_pieces,
				     in_place(job) ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE);
	if (!job->src_mapped)
		return -EOPNOTSUPP;
	if (!in_place(job)) {
		job->dst_mapped = dma_map_sg(dev, job->dst, job->dst_pieces, DMA_FROM_DEVICE);
		if (!job->dst_mapped)
			goto unmap;
	}
	/* As the pieces are, unless they had to be copied elsewhere. */
	if (is_aligned(job->src, job->src_mapped) && is_aligned(job->dst, job->dst_mapped))
		return 0;
unmap:
	xtp_unmap(xtp, job);
	return -EOPNOTSUPP;
}

void xtp_unmap(struct xtp_device *xtp, struct xtp_job *job)
{
	struct device *dev = &xtp->pdev->dev;

	dma_unmap_sg(dev, job->src, job->src_pieces,
		     in_place(job) ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE);
	if (job->dst_mapped)
		dma_unmap_sg(dev, job->dst, job->dst_pieces, DMA_FROM_DEVICE);
}

/* Writes a list, and gives the number of its entries; or none for one piece, at `address`. */
static u32 put_list(struct scatterlist *sgs, unsigned int mapped, unsigned int bytes,
		    struct entry *list, u64 *address)
{
	struct scatterlist *sg;
	unsigned int i;

	*address = sg_dma_address(sgs);
	if (sg_dma_len(sgs) >= bytes)
		return 0;
	for_each_sg(sgs, sg, mapped, i) {
		unsigned int len = min(sg_dma_len(sg), bytes);

		list[i].address = cpu_to_le64(sg_dma_address(sg));
		list[i].length = cpu_to_le32(len);
		list[i].zero = 0;
		bytes -= len;
		if (!bytes)
			break;
	}
	return i + 1;
}

/* Writes a job into a ring that has room. The device does not know yet. */
static void put(struct xtp_device *xtp, struct xtp_ring *ring, struct xtp_slot *slot,
		struct xtp_job *job)
{
	const unsigned int index = ring->tail & ((1 << xtp->log2_ring) - 1);
	struct submission *sub = (void *)(ring->submissions + index * sizeof(*sub));
	struct entry *lists = ring->lists[index];
	u64 source, destination = 0;
	u32 from, to = 0;
	u8 flags = job->decrypt << XTENT_ENGINE_FLAG_DECRYPT;

	from = put_list(job->src, job->src_mapped, job->bytes, lists, &source);
	if (from) {
		flags |= 1 << XTENT_ENGINE_FLAG_SOURCE_LIST;
		source = ring->lists_at[index];
	}
	if (in_place(job)) {
		flags |= 1 << XTENT_ENGINE_FLAG_IN_PLACE;
	} else {
		to = put_list(job->dst, job->dst_mapped, job->bytes, lists + xtp->caps.pieces,
			      &destination);
		if (to) {
			flags |= 1 << XTENT_ENGINE_FLAG_DESTINATION_LIST;
			destination = ring->lists_at[index] + list_bytes(xtp);
		}
	}
	job->slot = slot - xtp->slot;
	job->cookie = ++xtp->submitted;
	*sub = (struct submission){
		.op = job->op,
		.flags = flags,
		.slot = job->slot,
		.log2_unit = job->log2_unit,
		.step = cpu_to_le16(job->op == XTENT_ENGINE_OP_RUN),
		.units = cpu_to_le32(job->units),
		.source = cpu_to_le64(source),
		.destination = cpu_to_le64(destination),
		.source_entries = cpu_to_le32(from),
		.destination_entries = cpu_to_le32(to),
		.cookie = cpu_to_le64(job->cookie),
	};
	if (job->op != XTENT_ENGINE_OP_ECB)
		memcpy(sub->tweak, job->tweak, sizeof(sub->tweak));

	if (ring->tail == ring->head)
		ring->progress = jiffies;
	ring->jobs[index] = job;
	ring->tail++;
	ring->rung = false;
	slot->users++;
	slot->used = xtp->submitted;
	xtp->jobs++;
	xtp->counters.requests++;
	xtp->counters.runs += job->op == XTENT_ENGINE_OP_RUN;
}

/* Tells the device, once for all that was put in a ring. */
static void ring_doorbells(struct xtp_device *xtp)
{
	unsigned int n;

	for (n = 0; n < xtp->rings; n++) {
		struct xtp_ring *ring = &xtp->ring[n];

		if (ring->rung)
			continue;
		ring->rung = true;
		/* Behind what was written to memory: writel() sees to that. */
		xtp_write(xtp, xtp_ring_register(ring, XTENT_ENGINE_RING_TAIL), ring->tail);
	}
	xtp_watch(xtp);
}

/* The ring with the least to do, if there is room. */
static struct xtp_ring *room(struct xtp_device *xtp)
{
	u16 least = 1 << xtp->log2_ring;
	struct xtp_ring *found = NULL;
	unsigned int n;

	for (n = 0; n < xtp->rings; n++) {
		struct xtp_ring *ring = &xtp->ring[n];
		u16 under_way = ring->tail - ring->head;

		if (under_way < least) {
			least = under_way;
			found = ring;
		}
	}
	return found;
}

/*
 * Takes a job. As the crypto API has it: -EINPROGRESS, -EBUSY if it waits behind full
 * rings, -ENOSPC if it may not; and if it is not for the device, -EOPNOTSUPP, if that is
 * not in service, -ENODEV, or -EIO for good.
 */
int xtp_submit(struct xtp_device *xtp, struct xtp_job *job)
{
	bool waits = false;
	struct xtp_ring *ring;
	struct xtp_slot *slot;
	int r;

	r = map(xtp, job);
	if (r)
		return r;
	spin_lock_bh(&xtp->lock);
	job->backlogged = false;
	ring = room(xtp);
	slot = xtp_slot_of(xtp, job->key->id);
	if (xtp->state != XTP_UP) {
		r = xtp->state == XTP_DEAD ? -EIO : -ENODEV;
	} else if (job->key->refused) {
		r = -EOPNOTSUPP;
	} else if (list_empty(&xtp->waiting) && ring && slot) {
		put(xtp, ring, slot, job);
		ring_doorbells(xtp);
		r = -EINPROGRESS;
	} else if (xtp->jobs + xtp->waiting_jobs < xtp->rings << xtp->log2_ring) {
		/* For its key, or behind one that does. */
		waits = true;
		r = -EINPROGRESS;
	} else if (job->entered) {
		job->backlogged = true;
		waits = true;
		r = -EBUSY;
	} else {
		r = -ENOSPC;
	}
	if (waits) {
		list_add_tail(&job->node, &xtp->waiting);
		xtp->waiting_jobs++;
		if (!slot)
			queue_work(xtp->queue, &xtp->key_work);
	}
	spin_unlock_bh(&xtp->lock);
	if (r != -EINPROGRESS && r != -EBUSY)
		xtp_unmap(xtp, job);
	return r;
}

/* Puts what waits into rings, as there is room and as keys are there. */
void xtp_pump(struct xtp_device *xtp)
{
	LIST_HEAD(untouched);

	spin_lock_bh(&xtp->lock);
	while (xtp->state == XTP_UP && !list_empty(&xtp->waiting)) {
		struct xtp_job *job = list_first_entry(&xtp->waiting, struct xtp_job, node);
		struct xtp_ring *ring = room(xtp);
		struct xtp_slot *slot = xtp_slot_of(xtp, job->key->id);

		if (!ring)
			break;
		if (!slot) {
			/* While all slots are in use there is nothing that it could do. */
			if (!xtp->key_waits)
				queue_work(xtp->queue, &xtp->key_work);
			break;
		}
		list_del(&job->node);
		xtp->waiting_jobs--;
		if (job->backlogged) {
			/*
			 * Its owner may submit more when told, so not with the lock held; and
			 * before it can complete, so not when it is in the ring. What is in a ring is
			 * told to the device first: whoever stops it meanwhile waits for that to end.
			 */
			job->backlogged = false;
			ring_doorbells(xtp);
			spin_unlock(&xtp->lock);
			job->entered(job);
			spin_lock(&xtp->lock);
			if (xtp->state != XTP_UP) {
				list_add_tail(&job->node, &untouched);
				break;
			}
			list_add(&job->node, &xtp->waiting);
			xtp->waiting_jobs++;
			continue;
		}
		put(xtp, ring, slot, job);
	}
	if (xtp->state == XTP_UP)
		ring_doorbells(xtp);
	spin_unlock_bh(&xtp->lock);
	xtp_finish(xtp, &untouched, XTP_UNTOUCHED);
}
