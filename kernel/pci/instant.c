// SPDX-License-Identifier: GPL-2.0
/*
 * To measure what the driver takes of the CPU: a device that completes at once, and
 * enciphers nothing. Only with CONFIG_XTENT_PCI_INSTANT=y, for bench/papers/pays.py. A real
 * device, or a simulated one, is there to be tested; from the time that `instant/on` says 1
 * its registers are neither read nor written, until it is reset or gone.
 */
#include <linux/interrupt.h>
#include <linux/panic.h>
#include <linux/sysfs.h>

#include "../compat.h"
#include "device.h"

/* That one; there is no more than one. */
static struct xtp_device *instant;
static u16 completed[XTP_MAX_RINGS];	/* modulo 2^16, as a ring's tail */
static int vector[XTP_MAX_RINGS];
static atomic64_t writes, reads;	/* that did not happen */

static bool is_instant(struct xtp_device *xtp)
{
	if (READ_ONCE(instant) != xtp)
		return false;
	if (READ_ONCE(xtp->state) == XTP_UP || READ_ONCE(xtp->state) == XTP_DRAINING)
		return true;
	/* It is about to be reset, and the real one goes on. */
	WRITE_ONCE(instant, NULL);
	return false;
}

/* As the device writes a completion: what says that it is there comes last. */
static void complete_next(struct xtp_device *xtp, struct xtp_ring *ring, u16 tail)
{
	const u16 at = completed[ring->number]++;
	const unsigned int index = at & ((1 << xtp->log2_ring) - 1);
	const struct xtp_job *job = ring->jobs[index];
	u8 *completion = ring->completions + index * XTENT_ENGINE_CQE_BYTES;
	const u32 phase = !(at >> xtp->log2_ring & 1);
	const u32 last = XTENT_ENGINE_STATUS_DONE |
			 phase << 8 * (XTENT_ENGINE_CQE_PHASE - XTENT_ENGINE_CQE_STATUS) |
			 (u32)tail << 8 * (XTENT_ENGINE_CQE_SQ_HEAD - XTENT_ENGINE_CQE_STATUS);

	put_unaligned_le64(job->cookie, completion + XTENT_ENGINE_CQE_COOKIE);
	put_unaligned_le32(job->units, completion + XTENT_ENGINE_CQE_UNITS_DONE);
	dma_wmb();
	WRITE_ONCE(*(__le32 *)(completion + XTENT_ENGINE_CQE_STATUS), cpu_to_le32(last));
}

/* Whether it does not happen. A ring's tail is written with the lock held. */
bool xtp_instant_write(struct xtp_device *xtp, unsigned int at, u32 value)
{
	unsigned int n;

	if (!is_instant(xtp))
		return false;
	atomic64_inc(&writes);
	for (n = 0; n < xtp->rings; n++) {
		struct xtp_ring *ring = &xtp->ring[n];

		if (at != xtp_ring_register(ring, XTENT_ENGINE_RING_TAIL))
			continue;
		while (completed[n] != (u16)value)
			complete_next(xtp, ring, value);
		irq_wake_thread(vector[n], ring);
	}
	return true;
}

/* Whether it does not happen, and reads 0: nothing is wrong, and a key command is done. */
bool xtp_instant_read(struct xtp_device *xtp)
{
	if (!is_instant(xtp))
		return false;
	atomic64_inc(&reads);
	return true;
}

static ssize_t on_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", is_instant(pci_get_drvdata(to_pci_dev(dev))));
}

/* 1, while nothing is under way. The way back is to bind the device anew. */
static ssize_t on_store(struct device *dev, struct device_attribute *attr, const char *buf,
			size_t size)
{
	struct xtp_device *xtp = pci_get_drvdata(to_pci_dev(dev));
	unsigned int n;
	int r = 0;
	bool on;

	if (kstrtobool(buf, &on) || !on)
		return -EINVAL;
	for (n = 0; n < xtp->rings; n++)
		vector[n] = pci_irq_vector(xtp->pdev, n);
	spin_lock_bh(&xtp->lock);
	if (xtp->state != XTP_UP || xtp->jobs || xtp->waiting_jobs) {
		r = -EBUSY;
	} else if (instant != xtp) {
		for (n = 0; n < xtp->rings; n++)
			completed[n] = xtp->ring[n].tail;
		WRITE_ONCE(instant, xtp);
	}
	spin_unlock_bh(&xtp->lock);
	if (r)
		return r;
	dev_warn(dev, "instant: from now on NOTHING IS ENCRYPTED\n");
	add_taint(TAINT_TEST, LOCKDEP_STILL_OK);
	return size;
}
static DEVICE_ATTR_RW(on);

#define COUNTER(name) \
static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *buf) \
{ \
	return sysfs_emit(buf, "%lld\n", atomic64_read(&name)); \
} \
static DEVICE_ATTR_RO(name)

COUNTER(writes);
COUNTER(reads);

static struct attribute *attributes[] = {
	&dev_attr_on.attr,
	&dev_attr_writes.attr,
	&dev_attr_reads.attr,
	NULL
};

const struct attribute_group xtp_instant_group = {
	.name = "instant",
	.attrs = attributes,
};
