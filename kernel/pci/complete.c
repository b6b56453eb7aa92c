// SPDX-License-Identifier: GPL-2.0
/* Completions: interrupts, what the rings hold, and whether that can be. */
#include <linux/bottom_half.h>
#include <linux/interrupt.h>

#include "../compat.h"
#include "device.h"

/* Requests that fail in a row before that is the device's fault. */
#define FAILURES 64

/* Completions that are taken before others may run. */
#define BUDGET 64

static u8 *next_completion(const struct xtp_device *xtp, const struct xtp_ring *ring)
{
	const unsigned int index = ring->head & ((1 << xtp->log2_ring) - 1);

	return ring->completions + index * XTENT_ENGINE_CQE_BYTES;
}

/* The last four bytes, which the device writes last: status, phase, sq_head. */
static u32 last_word(const u8 *completion)
{
	return le32_to_cpu(READ_ONCE(*(__le32 *)(completion + XTENT_ENGINE_CQE_STATUS)));
}

static u8 phase_of(u32 last)
{
	return last >> 8 * (XTENT_ENGINE_CQE_PHASE - XTENT_ENGINE_CQE_STATUS);
}

static u8 expected_phase(const struct xtp_device *xtp, const struct xtp_ring *ring)
{
	return !(ring->head >> xtp->log2_ring & 1);
}

/* Whether a completion is there that nobody has taken. With the lock held. */
bool xtp_is_ready(struct xtp_device *xtp, struct xtp_ring *ring)
{
	return phase_of(last_word(next_completion(xtp, ring))) == expected_phase(xtp, ring);
}

/* Takes the oldest job of a ring out of it. With the lock held. */
static struct xtp_job *take(struct xtp_device *xtp, struct xtp_ring *ring)
{
	const unsigned int index = ring->head & ((1 << xtp->log2_ring) - 1);
	struct xtp_job *job = ring->jobs[index];
	struct xtp_slot *slot = &xtp->slot[job->slot];

	xtp_forget_tweak(ring, index);
	ring->jobs[index] = NULL;
	ring->head++;
	ring->progress = jiffies;
	xtp->jobs--;
	slot->users--;
	if (!slot->users) {
		xtp->key_waits = false;
		if (xtp->state == XTP_UP && (slot->closing || slot->state == XTP_SLOT_STALE))
			queue_work(xtp->queue, &xtp->key_work);
	}
	return job;
}

/* Whether what it says counts: not that of one that did what cannot be. With the lock held. */
static bool is_believed(const struct xtp_device *xtp)
{
	return xtp->state != XTP_DEAD &&
	       !(xtp->state == XTP_RESETTING && xtp->trouble >= XTP_BROKEN);
}

/*
 * Takes a completion of a ring, if there is one, and gives its job. What cannot be is
 * trouble. With the lock held.
 */
static struct xtp_job *take_completion(struct xtp_device *xtp, struct xtp_ring *ring,
				       enum xtp_outcome *outcome)
{
	const u8 *completion = next_completion(xtp, ring);
	const u32 last = last_word(completion);
	const u8 status = last;
	const u16 sq_head = last >> 16;
	const u8 phase = phase_of(last);
	struct xtp_job *job;
	u16 ahead;
	u32 units;

	if (!is_believed(xtp) || phase == !expected_phase(xtp, ring))
		return NULL;
	/* What lies before the phase is read after it. */
	dma_rmb();
	if (phase > 1) {
		xtp_trouble_locked(xtp, XTP_BROKEN, "a completion has no phase");
		return NULL;
	}
	if (ring->tail == ring->head) {
		xtp_trouble_locked(xtp, XTP_BROKEN, "it completed what it was not asked to do");
		return NULL;
	}
	job = ring->jobs[ring->head & ((1 << xtp->log2_ring) - 1)];
	if (get_unaligned_le64(completion + XTENT_ENGINE_CQE_COOKIE) != job->cookie) {
		xtp_trouble_locked(xtp, XTP_BROKEN, "it completed another request than the oldest");
		return NULL;
	}
	ahead = sq_head - (u16)(ring->head + 1);
	if (ahead > (u16)(ring->tail - (u16)(ring->head + 1))) {
		xtp_trouble_locked(xtp, XTP_BROKEN, "it is done with more than it was given");
		return NULL;
	}
	units = get_unaligned_le32(completion + XTENT_ENGINE_CQE_UNITS_DONE);
	if (status == XTENT_ENGINE_STATUS_DONE && units == job->units) {
		*outcome = XTP_DONE;
		xtp->worked = true;
		xtp->failures = 0;
		xtp->counters.bytes += job->bytes;
	} else if (status && status <= XTENT_ENGINE_STATUS_WRITE && units <= job->units) {
		*outcome = XTP_FAILED;
		xtp->counters.failed++;
		if (status == XTENT_ENGINE_STATUS_SLOT || status == XTENT_ENGINE_STATUS_CIPHER) {
			xtp->slot[job->slot].state = XTP_SLOT_STALE;
			/* It refused before it read any data. */
			if (!units)
				*outcome = XTP_UNTOUCHED;
		}
		dev_warn_ratelimited(&xtp->pdev->dev, "a request failed with status %u\n", status);
		if (++xtp->failures == FAILURES)
			xtp_trouble_locked(xtp, XTP_FAULT, "it fails all requests");
	} else {
		xtp_trouble_locked(xtp, XTP_BROKEN, "a completion's status and units cannot be");
		return NULL;
	}
	return take(xtp, ring);
}

static void finish(struct xtp_device *xtp, struct xtp_job *job, enum xtp_outcome outcome)
{
	/* Who was told to wait is told to go on, as the crypto API wants, before the end. */
	if (job->backlogged)
		job->entered(job);
	xtp_unmap(xtp, job);
	memzero_explicit(job->tweak, sizeof(job->tweak));
	job->done(job, outcome);
}

/* Ends jobs that the device has no longer, or never had. */
void xtp_finish(struct xtp_device *xtp, struct list_head *jobs, enum xtp_outcome outcome)
{
	struct xtp_job *job, *next;

	local_bh_disable();
	list_for_each_entry_safe(job, next, jobs, node)
		finish(xtp, job, outcome);
	local_bh_enable();
}

/* Ends up to BUDGET jobs of a ring that have completed. */
static unsigned int look_once(struct xtp_device *xtp, struct xtp_ring *ring)
{
	struct list_head ended[] = {
		[XTP_DONE] = LIST_HEAD_INIT(ended[XTP_DONE]),
		[XTP_UNTOUCHED] = LIST_HEAD_INIT(ended[XTP_UNTOUCHED]),
		[XTP_FAILED] = LIST_HEAD_INIT(ended[XTP_FAILED]),
	};
	enum xtp_outcome outcome;
	struct xtp_job *job;
	unsigned int n = 0;

	spin_lock_bh(&xtp->lock);
	while (n < BUDGET && (job = take_completion(xtp, ring, &outcome))) {
		list_add_tail(&job->node, &ended[outcome]);
		n++;
	}
	if (n) {
		xtp_write(xtp, xtp_ring_register(ring, XTENT_ENGINE_RING_CQ_HEAD), ring->head);
		if (!xtp->jobs)
			wake_up(&xtp->drained);
	}
	spin_unlock_bh(&xtp->lock);
	if (n) {
		/* The device first, so that it has something to do meanwhile. */
		xtp_pump(xtp);
		for (outcome = 0; outcome < ARRAY_SIZE(ended); outcome++)
			xtp_finish(xtp, &ended[outcome], outcome);
	}
	return n;
}

/* Takes what has completed on these rings, and says how much that was. */
unsigned int xtp_look(struct xtp_device *xtp, u32 rings)
{
	unsigned int n, more, found = 0;

	for (n = 0; n < xtp->rings; n++) {
		if (!(rings >> n & 1))
			continue;
		do {
			more = look_once(xtp, &xtp->ring[n]);
			found += more;
			cond_resched();
		} while (more == BUDGET);
	}
	return found;
}

/* Ends everything, of a device that is at rest. */
void xtp_reclaim(struct xtp_device *xtp)
{
	LIST_HEAD(failed);
	LIST_HEAD(untouched);
	unsigned int n;

	spin_lock_bh(&xtp->lock);
	for (n = 0; n < xtp->rings; n++) {
		struct xtp_ring *ring = &xtp->ring[n];

		while (ring->tail != ring->head)
			list_add_tail(&take(xtp, ring)->node, &failed);
	}
	list_splice_init(&xtp->waiting, &untouched);
	xtp->waiting_jobs = 0;
	wake_up(&xtp->drained);
	spin_unlock_bh(&xtp->lock);
	xtp_finish(xtp, &failed, XTP_FAILED);
	xtp_finish(xtp, &untouched, XTP_UNTOUCHED);
}

/*
 * Clears interrupts, for certain: a write that is on its way still would clear those of
 * completions that are not there yet at the look. What comes from now on is an edge anew.
 */
static void acknowledge(struct xtp_device *xtp, u32 bits)
{
	xtp_write(xtp, XTENT_ENGINE_REG_INT_STATUS, bits);
	if (xtp_read(xtp, XTENT_ENGINE_REG_INT_STATUS) == XTP_ALL_ONES)
		xtp_trouble(xtp, XTP_GONE, "its registers read all ones");
}

static irqreturn_t wake_thread(int irq, void *data)
{
	return IRQ_WAKE_THREAD;
}

static irqreturn_t ring_thread(int irq, void *data)
{
	struct xtp_ring *ring = data;
	struct xtp_device *xtp = container_of(ring, struct xtp_device, ring[ring->number]);

	acknowledge(xtp, BIT(ring->number));
	xtp_look(xtp, BIT(ring->number));
	return IRQ_HANDLED;
}

static irqreturn_t fault_thread(int irq, void *data)
{
	struct xtp_device *xtp = data;

	acknowledge(xtp, XTP_INT_FAULT);
	xtp_doubt(xtp);
	return IRQ_HANDLED;
}

/*
 * A vector for each ring and one for faults. With fewer vectors there are fewer rings,
 * and the watchdog looks for faults.
 */
int xtp_vectors_init(struct xtp_device *xtp)
{
	const unsigned int wanted = xtp->caps.rings + 1;
	struct pci_dev *pdev = xtp->pdev;
	int got = pci_alloc_irq_vectors(pdev, 1, wanted, PCI_IRQ_MSIX);

	if (got < 0)
		return dev_err_probe(&pdev->dev, got, "no interrupt vector (MSI-X)\n");
	xtp->rings = min3(xtp->caps.rings, (unsigned int)got, num_possible_cpus());
	xtp->fault_vector = got == wanted;
	return 0;
}

/* When there are rings: a device may interrupt that has no reason to. */
int xtp_interrupts_init(struct xtp_device *xtp)
{
	struct pci_dev *pdev = xtp->pdev;
	unsigned int n;
	int r;

	for (n = 0; n < xtp->rings; n++) {
		r = request_threaded_irq(pci_irq_vector(pdev, n), wake_thread, ring_thread, 0,
					 "xtent_pci", &xtp->ring[n]);
		if (r)
			goto free;
	}
	if (xtp->fault_vector) {
		r = request_threaded_irq(pci_irq_vector(pdev, xtp->caps.rings), wake_thread,
					 fault_thread, 0, "xtent_pci fault", xtp);
		if (r)
			goto free;
	}
	return 0;

free:
	while (n--)
		free_irq(pci_irq_vector(pdev, n), &xtp->ring[n]);
	return dev_err_probe(&pdev->dev, r, "no interrupt\n");
}

void xtp_interrupts_exit(struct xtp_device *xtp)
{
	unsigned int n;

	for (n = 0; n < xtp->rings; n++)
		free_irq(pci_irq_vector(xtp->pdev, n), &xtp->ring[n]);
	if (xtp->fault_vector)
		free_irq(pci_irq_vector(xtp->pdev, xtp->caps.rings), xtp);
}
