// SPDX-License-Identifier: GPL-2.0
/*
 * Key slots. There may be more keys than slots: a job's key is loaded when the job is the
 * first that waits, into a free slot or that of the key that was used least recently. A
 * command waits for requests that are under way, so a work queue gives it.
 */
#include <linux/delay.h>

#include "../compat.h"
#include "device.h"

enum command {
	NOTHING,
	LOAD = 1,	/* as KEY_CMD has them */
	CLEAR = 2,
};

void xtp_key_new(struct xtp_key *key, u8 cipher, const u8 *bytes, unsigned int size, bool is_aes256)
{
	static atomic64_t last;

	xtp_key_forget(key);
	key->cipher = cipher;
	key->size = size;
	key->is_aes256 = is_aes256;
	key->refused = false;
	memcpy(key->bytes, bytes, size);
	key->id = atomic64_inc_return(&last);
}

/* The key goes: from here, and from the device. It has no jobs. */
void xtp_key_forget(struct xtp_key *key)
{
	struct xtp_device *xtp;
	unsigned int n;

	if (!key->id)
		return;
	rcu_read_lock();
	xtp = rcu_dereference(xtp_active);
	if (xtp) {
		spin_lock_bh(&xtp->lock);
		for (n = 0; n < xtp->caps.slots; n++) {
			struct xtp_slot *slot = &xtp->slot[n];

			if (slot->state == XTP_SLOT_EMPTY || slot->key != key->id)
				continue;
			slot->state = XTP_SLOT_STALE;
			/* What is off was reset, which has wiped it. */
			if (xtp->state == XTP_UP)
				queue_work(xtp->queue, &xtp->key_work);
		}
		spin_unlock_bh(&xtp->lock);
	}
	rcu_read_unlock();
	memzero_explicit(key, sizeof(*key));
}

/* The slot that a key's jobs may use now. With the lock held. */
struct xtp_slot *xtp_slot_of(struct xtp_device *xtp, u64 key)
{
	unsigned int n;

	for (n = 0; n < xtp->caps.slots; n++) {
		struct xtp_slot *slot = &xtp->slot[n];

		if (slot->state == XTP_SLOT_LOADED && slot->key == key && !slot->closing)
			return slot;
	}
	return NULL;
}

/* A slot for another key: empty, or else the one whose use is longest ago. */
static struct xtp_slot *victim(struct xtp_device *xtp, bool with_users)
{
	struct xtp_slot *found = NULL;
	unsigned int n;

	for (n = 0; n < xtp->caps.slots; n++) {
		struct xtp_slot *slot = &xtp->slot[n];

		if (slot->state == XTP_SLOT_EMPTY)
			return slot;
		if (slot->state != XTP_SLOT_LOADED || (slot->users && !with_users))
			continue;
		if (!found || slot->used < found->used)
			found = slot;
	}
	return found;
}

/* What is to be done next, with a slot; its key's copy is the caller's to wipe. */
static enum command next_command(struct xtp_device *xtp, struct xtp_slot **which,
				 struct xtp_key *key)
{
	struct xtp_slot *slot;
	struct xtp_job *job;
	unsigned int n;

	lockdep_assert_held(&xtp->lock);
	xtp->key_waits = false;
	if (xtp->state != XTP_UP)
		return NOTHING;
	for (n = 0; n < xtp->caps.slots; n++) {
		slot = &xtp->slot[n];
		if (slot->state == XTP_SLOT_STALE && !slot->users) {
			*which = slot;
			return CLEAR;
		}
	}
	job = list_first_entry_or_null(&xtp->waiting, struct xtp_job, node);
	if (!job)
		return NOTHING;
	for (n = 0; n < xtp->caps.slots; n++) {
		slot = &xtp->slot[n];
		if (slot->state == XTP_SLOT_LOADED && slot->key == job->key->id) {
			slot->closing = false;
			return NOTHING;
		}
	}
	slot = victim(xtp, false);
	if (!slot) {
		/* Keys that are always in use must not keep this one out. */
		slot = victim(xtp, true);
		if (slot)
			slot->closing = true;
		xtp->key_waits = true;
		return NOTHING;
	}
	*key = *job->key;
	slot->state = XTP_SLOT_LOADING;
	slot->closing = false;
	slot->key = key->id;
	slot->used = xtp->submitted;
	*which = slot;
	return LOAD;
}

/* Has the device do it. An error is trouble that was told, or a reset under way. */
static int give(struct xtp_device *xtp, unsigned int slot, enum command command,
		const struct xtp_key *key)
{
	const unsigned long end = jiffies + msecs_to_jiffies(xtp_watchdog);
	u32 word = XTP_PUT(slot, KEY_CMD_SLOT) | XTP_PUT(command, KEY_CMD_COMMAND);
	unsigned int i, us = 2;
	u32 status;

	if (command == LOAD) {
		for (i = 0; i < key->size; i += 4)
			xtp_write(xtp, XTENT_ENGINE_REG_KEY_DATA + i,
				  get_unaligned_le32(key->bytes + i));
		word |= XTP_PUT(key->cipher, KEY_CMD_CIPHER) |
			XTP_PUT(key->is_aes256, KEY_CMD_KEY_BITS);
	}
	xtp_write(xtp, XTENT_ENGINE_REG_KEY_CMD, word);
	for (;;) {
		/* Whether time was up is looked at before, not after. */
		bool late = time_after(jiffies, end);

		status = xtp_read(xtp, XTENT_ENGINE_REG_KEY_STATUS);
		if (status == XTP_ALL_ONES) {
			xtp_trouble(xtp, XTP_GONE, "its registers read all ones");
			return -ENODEV;
		}
		if (!XTP_GET(status, KEY_STATUS_BUSY))
			return XTP_GET(status, KEY_STATUS_RESULT);
		if (READ_ONCE(xtp->state) != XTP_UP && READ_ONCE(xtp->state) != XTP_DRAINING)
			return -EAGAIN;
		if (late) {
			xtp_trouble(xtp, XTP_SILENT, "it does not carry out a key command");
			return -ETIMEDOUT;
		}
		usleep_range(us, 2 * us);
		us = min(2 * us, 1000u);
	}
}

/* A key that the device does not want: its jobs are not for it. */
static void refuse(struct xtp_device *xtp, u64 id, struct list_head *untouched)
{
	struct xtp_job *job, *next;

	list_for_each_entry_safe(job, next, &xtp->waiting, node) {
		if (job->key->id != id)
			continue;
		job->key->refused = true;
		list_move_tail(&job->node, untouched);
		xtp->waiting_jobs--;
	}
}

void xtp_key_work(struct work_struct *work)
{
	struct xtp_device *xtp = container_of(work, struct xtp_device, key_work);
	struct xtp_slot *slot = NULL;
	LIST_HEAD(untouched);
	struct xtp_key key;

	for (;;) {
		enum command command;
		int result;

		spin_lock_bh(&xtp->lock);
		command = next_command(xtp, &slot, &key);
		spin_unlock_bh(&xtp->lock);
		if (command == NOTHING)
			break;
		result = give(xtp, slot - xtp->slot, command, &key);
		spin_lock_bh(&xtp->lock);
		if (result > 0 && command == LOAD) {
			/* Whatever it holds now. */
			slot->state = XTP_SLOT_STALE;
			refuse(xtp, key.id, &untouched);
			dev_warn_ratelimited(&xtp->pdev->dev, "it refuses a key, for reason %d\n",
					     result);
		} else if (result > 0) {
			xtp_trouble_locked(xtp, XTP_BROKEN, "it does not clear a key");
		} else if (result < 0) {
			/* Then it is about to be reset. */
		} else if (command == CLEAR) {
			slot->state = XTP_SLOT_EMPTY;
		} else {
			xtp->counters.key_loads++;
			if (slot->state == XTP_SLOT_LOADING)
				slot->state = XTP_SLOT_LOADED;
		}
		spin_unlock_bh(&xtp->lock);
		if (command == LOAD)
			memzero_explicit(&key, sizeof(key));
		if (result < 0)
			break;
	}
	xtp_pump(xtp);
	xtp_finish(xtp, &untouched, XTP_UNTOUCHED);
}
