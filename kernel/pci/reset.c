// SPDX-License-Identifier: GPL-2.0
/*
 * A device that is started, stopped, silent or wrong. One that is silent or reports a
 * fault is reset and goes on, unless it has done nothing through several resets, or is
 * reset too often; one that did what cannot be is reset and not used again, as nothing it
 * said is worth anything. No memory is given back before the device is known to be at rest.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "device.h"

/* Resets in a row, with nothing completed in between, before it is dead. */
#define RESETS 3

/* Resets in RECENT_MS, whatever was in between. */
#define RECENT 16
#define RECENT_MS 60000

/* The most that a reset takes, which waits for the bus. */
#define RESET_MS 1000

/* How often the watchdog looks, and again when something should have been told. */
#define WATCH_MS 100
#define DOUBT_MS 50

static const char *fault_name(u32 code)
{
	switch (code) {
	case XTENT_ENGINE_FAULT_DESCRIPTOR:
		return "it could not read a submission";
	case XTENT_ENGINE_FAULT_COMPLETION:
		return "it could not write a completion";
	case XTENT_ENGINE_FAULT_DOORBELL:
		return "it got an index that cannot be";
	case XTENT_ENGINE_FAULT_ERASE:
		return "it could not erase what a failed request left";
	case XTENT_ENGINE_FAULT_WIPED:
		return "its keys were wiped";
	case XTENT_ENGINE_FAULT_RING:
		return "it got a ring that cannot be";
	}
	return "it reports a fault";
}

/* With the lock held. */
void xtp_trouble_locked(struct xtp_device *xtp, enum xtp_trouble trouble, const char *reason)
{
	lockdep_assert_held(&xtp->lock);
	/* What was completed before a reset is looked at in it, and may be worse than its reason. */
	if (xtp->state != XTP_UP && xtp->state != XTP_DRAINING &&
	    !(xtp->state == XTP_RESETTING && trouble > max(xtp->trouble, XTP_FAULT)))
		return;
	WRITE_ONCE(xtp->state, XTP_RESETTING);
	xtp->trouble = trouble;
	xtp->reason = reason;
	queue_work(xtp->queue, &xtp->reset_work);
	wake_up(&xtp->drained);
}

void xtp_trouble(struct xtp_device *xtp, enum xtp_trouble trouble, const char *reason)
{
	spin_lock_bh(&xtp->lock);
	xtp_trouble_locked(xtp, trouble, reason);
	spin_unlock_bh(&xtp->lock);
}

/* Looks at the state of a device that is silent, or that has a fault. */
void xtp_doubt(struct xtp_device *xtp)
{
	const unsigned int epoch = READ_ONCE(xtp->epoch);
	u32 status = xtp_read(xtp, XTENT_ENGINE_REG_STATUS);

	if (status == XTP_ALL_ONES) {
		xtp_trouble(xtp, XTP_GONE, "its registers read all ones");
	} else if (XTP_GET(status, STATUS_FAULT)) {
		u32 fault = xtp_read(xtp, XTENT_ENGINE_REG_FAULT);

		spin_lock_bh(&xtp->lock);
		/* Else it was reset meanwhile. */
		if (epoch == xtp->epoch)
			xtp_trouble_locked(xtp, XTP_FAULT,
					   fault_name(XTP_GET(fault, FAULT_CODE)));
		spin_unlock_bh(&xtp->lock);
	}
}

/* Whether it is as after power-on. */
static int reset(struct xtp_device *xtp)
{
	const unsigned long end = jiffies + msecs_to_jiffies(RESET_MS);
	unsigned int n, us = 2;
	u32 value;

	xtp_write(xtp, XTENT_ENGINE_REG_CTRL, XTP_PUT(1, CTRL_RESET));
	for (;;) {
		bool late = time_after(jiffies, end);

		value = xtp_read(xtp, XTENT_ENGINE_REG_STATUS);
		if (value == XTP_ALL_ONES)
			return -ENODEV;
		if (XTP_GET(value, STATUS_READY))
			break;
		if (late)
			return -ETIMEDOUT;
		usleep_range(us, 2 * us);
		us = min(2 * us, 1000u);
	}
	/* What was reset is off. */
	value = xtp_read(xtp, XTENT_ENGINE_REG_CTRL);
	for (n = 0; n < xtp->rings; n++)
		value |= xtp_read(xtp, xtp_ring_register(&xtp->ring[n], XTENT_ENGINE_RING_CONTROL)) |
			 xtp_read(xtp, xtp_ring_register(&xtp->ring[n], XTENT_ENGINE_RING_STATE));
	return value & 1 ? -EIO : 0;
}

/*
 * Brings the device to rest: reset, or, with an error, off the bus. If it were to stay on
 * it against our word, nothing could be done but to say so.
 */
int xtp_stop(struct xtp_device *xtp)
{
	int r = reset(xtp);
	u16 command;

	if (!r)
		return 0;
	pci_clear_master(xtp->pdev);
	pci_read_config_word(xtp->pdev, PCI_COMMAND, &command);
	/* All ones: it is not there, and nobody is to write. */
	if (command != 0xffff && command & PCI_COMMAND_MASTER)
		dev_crit(&xtp->pdev->dev, "it cannot be kept off the bus\n");
	return r;
}

/* Sets a device to work that was reset. */
static int start(struct xtp_device *xtp)
{
	const u32 every = XTP_EVERY_RING | XTP_INT_FAULT;
	u32 status;

	spin_lock_bh(&xtp->lock);
	xtp_rings_clear(xtp);
	spin_unlock_bh(&xtp->lock);
	xtp_rings_start(xtp);
	xtp_write(xtp, XTENT_ENGINE_REG_INT_STATUS, every);
	xtp_write(xtp, XTENT_ENGINE_REG_INT_SET, (BIT(xtp->rings) - 1) | XTP_INT_FAULT);
	xtp_write(xtp, XTENT_ENGINE_REG_CTRL, XTP_PUT(1, CTRL_ENABLE));
	status = xtp_read(xtp, XTENT_ENGINE_REG_STATUS);
	if (status == XTP_ALL_ONES)
		return -ENODEV;
	return XTP_GET(status, STATUS_FAULT) ? -EIO : 0;
}

/* Whether it may be reset once more. With the lock held. */
static bool may_go_on(struct xtp_device *xtp)
{
	xtp->barren = xtp->worked ? 1 : xtp->barren + 1;
	if (time_after(jiffies, xtp->recent_since + msecs_to_jiffies(RECENT_MS))) {
		xtp->recent_since = jiffies;
		xtp->recent = 0;
	}
	xtp->recent++;
	return xtp->barren <= RESETS && xtp->recent <= RECENT && xtp->trouble <= XTP_FAULT;
}

static void reset_work(struct work_struct *work)
{
	struct xtp_device *xtp = container_of(work, struct xtp_device, reset_work);
	struct device *dev = &xtp->pdev->dev;
	bool again;
	int r;

	/* Worse trouble, found in the last one, has been seen to. */
	if (READ_ONCE(xtp->state) != XTP_RESETTING)
		return;
	r = xtp_stop(xtp);
	/* What was completed before is done. */
	xtp_look(xtp, XTP_EVERY_RING);
	xtp_reclaim(xtp);
	spin_lock_bh(&xtp->lock);
	xtp->counters.resets++;
	again = may_go_on(xtp) && !r;
	spin_unlock_bh(&xtp->lock);
	if (again && start(xtp)) {
		xtp_stop(xtp);
		again = false;
	}
	spin_lock_bh(&xtp->lock);
	/* Else it is to be off, meanwhile; dead is dead. */
	if (!again)
		WRITE_ONCE(xtp->state, XTP_DEAD);
	else if (xtp->state == XTP_RESETTING && xtp->trouble <= XTP_FAULT)
		WRITE_ONCE(xtp->state, XTP_UP);
	spin_unlock_bh(&xtp->lock);
	if (again) {
		dev_warn_ratelimited(dev, "reset: %s\n", xtp->reason);
	} else {
		pci_clear_master(xtp->pdev);
		dev_err(dev, "out of service: %s%s\n", xtp->reason,
			r ? ", and it cannot be reset" : "");
	}
}

static bool is_late(const struct xtp_ring *ring, unsigned long ms)
{
	return ring->tail != ring->head &&
	       time_after(jiffies, ring->progress + msecs_to_jiffies(ms));
}

/*
 * Looks for what nobody has told: completions whose interrupt is lost, faults, and that
 * nothing happens.
 */
static void watch_work(struct work_struct *work)
{
	struct xtp_device *xtp = container_of(work, struct xtp_device, watch_work.work);
	unsigned int n, ms = min(WATCH_MS, max(xtp_watchdog / 4, 1u));
	bool late = false, slow = !xtp->fault_vector, doubt = false;
	u32 lost = 0;

	spin_lock_bh(&xtp->lock);
	for (n = 0; n < xtp->rings; n++) {
		struct xtp_ring *ring = &xtp->ring[n];

		/* It was there the last time too: no interrupt takes as long. */
		if (ring->doubted && ring->seen == ring->head)
			lost |= BIT(n);
		ring->doubted = ring->seen == ring->head && ring->tail != ring->head &&
				xtp_is_ready(xtp, ring);
		doubt |= ring->doubted;
		ring->seen = ring->head;
		slow |= is_late(ring, ms);
		late |= is_late(ring, xtp_watchdog);
	}
	xtp->counters.lost_interrupts += hweight32(lost);
	if (xtp->jobs && (xtp->state == XTP_UP || xtp->state == XTP_DRAINING))
		queue_delayed_work(xtp->queue, &xtp->watch_work,
				   msecs_to_jiffies(doubt ? min(ms, DOUBT_MS) : ms));
	spin_unlock_bh(&xtp->lock);

	/* While it is not cleared there is no other one. */
	if (lost) {
		xtp_write(xtp, XTENT_ENGINE_REG_INT_STATUS, lost);
		/* And it is, before the look. */
		xtp_read(xtp, XTENT_ENGINE_REG_INT_STATUS);
	}
	if (slow)
		xtp_doubt(xtp);
	if (!lost && !late)
		return;
	xtp_look(xtp, XTP_EVERY_RING);
	/* Others look too, and each ring is to go on: what was late counts if it is so still. */
	spin_lock_bh(&xtp->lock);
	for (n = 0; late && n < xtp->rings; n++)
		if (is_late(&xtp->ring[n], xtp_watchdog))
			xtp_trouble_locked(xtp, XTP_SILENT, "it completes nothing");
	spin_unlock_bh(&xtp->lock);
}

/* There is something to wait for. */
void xtp_watch(struct xtp_device *xtp)
{
	if (xtp->jobs)
		queue_delayed_work(xtp->queue, &xtp->watch_work,
				   msecs_to_jiffies(min(WATCH_MS, max(xtp_watchdog / 4, 1u))));
}

void xtp_reset_init(struct xtp_device *xtp)
{
	xtp->recent_since = jiffies;
	INIT_WORK(&xtp->key_work, xtp_key_work);
	INIT_WORK(&xtp->reset_work, reset_work);
	INIT_DELAYED_WORK(&xtp->watch_work, watch_work);
}

/* Sets a device to work that is off, for jobs. With an error it is off the bus. */
int xtp_go(struct xtp_device *xtp)
{
	int r;

	if (READ_ONCE(xtp->state) == XTP_DEAD)
		return -EIO;
	/* Off the bus: what it was at when it could not be reset has no memory any more. */
	r = xtp_stop(xtp);
	if (!r) {
		pci_set_master(xtp->pdev);
		r = start(xtp);
	}
	if (r) {
		xtp_stop(xtp);
		pci_clear_master(xtp->pdev);
		return r;
	}
	spin_lock_bh(&xtp->lock);
	WRITE_ONCE(xtp->state, XTP_UP);
	spin_unlock_bh(&xtp->lock);
	return 0;
}

static bool is_drained(struct xtp_device *xtp)
{
	bool drained;

	spin_lock_bh(&xtp->lock);
	drained = !xtp->jobs || xtp->state != XTP_DRAINING;
	spin_unlock_bh(&xtp->lock);
	return drained;
}

/*
 * Has the device end what it is at, and brings it to rest. What waits goes elsewhere, and
 * nothing comes any more. A device that is dead, or was about to be, stays that.
 */
void xtp_quiesce(struct xtp_device *xtp)
{
	LIST_HEAD(untouched);

	spin_lock_bh(&xtp->lock);
	if (xtp->state == XTP_UP)
		WRITE_ONCE(xtp->state, XTP_DRAINING);
	list_splice_init(&xtp->waiting, &untouched);
	xtp->waiting_jobs = 0;
	spin_unlock_bh(&xtp->lock);
	xtp_finish(xtp, &untouched, XTP_UNTOUCHED);

	/* If it does not, the watchdog sees to it. */
	wait_event(xtp->drained, is_drained(xtp));
	spin_lock_bh(&xtp->lock);
	if (xtp->state == XTP_RESETTING && xtp->trouble >= XTP_BROKEN)
		WRITE_ONCE(xtp->state, XTP_DEAD);
	else if (xtp->state != XTP_DEAD)
		WRITE_ONCE(xtp->state, XTP_OFF);
	spin_unlock_bh(&xtp->lock);
	cancel_work_sync(&xtp->reset_work);
	cancel_work_sync(&xtp->key_work);
	cancel_delayed_work_sync(&xtp->watch_work);
	xtp_stop(xtp);
	/* If trouble ended the waiting, what was completed before is done all the same. */
	xtp_look(xtp, XTP_EVERY_RING);
	xtp_reclaim(xtp);
}
