/* SPDX-License-Identifier: GPL-2.0 */
/* What kernels from 6.1 on name differently: every question of their version is here. */
#ifndef XTENT_COMPAT_H
#define XTENT_COMPAT_H

#include <linux/blkdev.h>
#include <linux/interrupt.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <crypto/aes.h>

/* hex2bin() was in kernel.h. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#include <linux/hex.h>
#include <linux/unaligned.h>
#else
#include <linux/kernel.h>
#include <asm/unaligned.h>
#endif

/* The namespace of a module is a string now. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
#define XT_CRYPTO_INTERNAL "CRYPTO_INTERNAL"
#else
#define XT_CRYPTO_INTERNAL CRYPTO_INTERNAL
#endif

/* A callback of the crypto API gets its data, where it once got the request. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
#define xt_callback_arg void
#define xt_callback_data(arg) (arg)
#else
#define xt_callback_arg struct crypto_async_request
#define xt_callback_data(arg) ((arg)->data)
#endif

/* Requests of several data units, of the series in patches/, if the kernel has it: Kbuild asks. */
#ifdef XT_UNIT_SIZE
#include <crypto/skcipher.h>
#define XT_ALG_SEVERAL_UNITS CRYPTO_ALG_REQ_SEG
#define xt_unit_size(req) ((req)->unit_size)
#else
#define XT_ALG_SEVERAL_UNITS 0
#define xt_unit_size(req) 0
#endif

/* Work queues that are not unbound have to say so. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
#define WQ_PERCPU 0
#endif

/* Work for a soft interrupt of the CPU that asks for it. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
#define xt_bh work_struct
#define xt_bh_init(bh, function) INIT_WORK(bh, function)

static inline void xt_bh_schedule(struct xt_bh *bh, bool high_priority)
{
	queue_work(high_priority ? system_bh_highpri_wq : system_bh_wq, bh);
}

#define xt_bh_flush(bh) cancel_work_sync(bh)
#else
#define xt_bh tasklet_struct
#define xt_bh_init(bh, function) tasklet_setup(bh, function)

static inline void xt_bh_schedule(struct xt_bh *bh, bool high_priority)
{
	if (high_priority)
		tasklet_hi_schedule(bh);
	else
		tasklet_schedule(bh);
}

#define xt_bh_flush(bh) tasklet_kill(bh)
#endif

/*
 * Whether no target may split this bio that DM gives to it: an atomic write, and, where DM
 * has done so itself, a write to a mapped device with zones, whose order DM keeps. A device of nothing but conventional zones is mapped as one without. Kernels since 6.10 that
 * lack "dm: Always split write BIOs to zoned device limits" split none but those over the border of a zone, and
 * take it from a target; where they have it by a stable release, and are not named here, no such bio comes.
 */
static inline bool xt_may_not_be_split(struct bio *bio)
{
#ifdef REQ_ATOMIC
	if (bio->bi_opf & REQ_ATOMIC)
		return true;
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0) || \
	(LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 44) && LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0))
	return bio_data_dir(bio) == WRITE && bdev_is_zoned(bio->bi_bdev);
#else
	return false;
#endif
}

/*
 * Until 6.10 DM makes a write of an append to a zone and no target may split it, but looks at this
 * limit alone.
 */
static inline void xt_limit_appends(struct queue_limits *limits, unsigned int sectors)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 10, 0)
	limits->max_zone_append_sectors = min(limits->max_zone_append_sectors, sectors);
#endif
}

/* Atomic writes, which DM gives to targets that say so from 6.16 on: none is longer than this. */
#ifdef DM_TARGET_ATOMIC_WRITES
#define XT_ATOMIC_WRITES DM_TARGET_ATOMIC_WRITES

static inline void xt_limit_atomic_writes(struct queue_limits *limits, unsigned int bytes)
{
	/* Otherwise the disk below has none. */
	if (limits->atomic_write_hw_unit_max) {
		limits->atomic_write_hw_max = min(limits->atomic_write_hw_max, bytes);
		limits->atomic_write_hw_unit_max = min(limits->atomic_write_hw_unit_max, bytes);
	}
}
#else
#define XT_ATOMIC_WRITES 0
#define xt_limit_atomic_writes(limits, bytes) ((void)0)
#endif

/* AES of single blocks has a key of its own, in a form that is the CPU's affair. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 0, 0)
#define xt_aes_key aes_enckey
#define xt_aes_set_key aes_prepareenckey
#else
#define xt_aes_key crypto_aes_ctx
#define xt_aes_set_key aes_expandkey
#endif

#endif
