/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests to the crypto API, several under way at once. Each has memory of its
 * own, with whatever the driver may look at until it has completed.
 */
#ifndef XTENT_FLIGHT_H
#define XTENT_FLIGHT_H

#include <linux/completion.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "xtent.h"

/* The most that one request takes, in bytes and in pieces of memory. */
#define XT_RUN_BYTES SZ_1M
#define XT_RUN_PIECES BIO_MAX_VECS

/* The most requests of a bio under way, and how many unless the table says. */
#define XT_MAX_IN_FLIGHT 64
#define XT_IN_FLIGHT 16

/* Masks are made for this many bytes at a time: the longest sector. */
#define XT_MASK_BYTES 4096

/* A bio on its way through the crypto API: one call, on its caller's stack. */
struct xt_flight {
	struct xt_target *xt;
	bool encrypt;
	struct bio *src, *dst;		/* the same, or not */
	struct bvec_iter src_iter, dst_iter;	/* what is left of them */
	u64 sector;			/* where that begins */
	struct llist_head idle;		/* jobs without a request under way */
	unsigned int jobs;		/* idle or not */
	unsigned int under_way;
	struct llist_head landed;	/* jobs whose request has completed */
	struct completion landing;	/* as often as jobs came to `landed` */
	struct xt_clock clock;
};

enum xt_stage {
	XT_STAGE_NEW,
	XT_STAGE_TWEAKS,	/* the tweaks are with the engine */
	XT_STAGE_DATA,		/* the data are with the cipher or engine */
};

/* A run of sectors under way, with the request for it. */
struct xt_job {
	struct llist_node node;
	struct xt_flight *flight;
	enum xt_stage stage;
	int error;			/* of the request that landed */
	u64 sector;			/* where the run begins */
	unsigned int bytes;
	struct bvec_iter src_iter, dst_iter;
	struct scatterlist *from, *to;	/* in place: `to` alone */
	/* For an engine: IVs, then tweaks; and the masks of some blocks. */
	struct scatterlist tweaks_sg;
	u8 *tweaks, *masks;
	u8 *iv;				/* behind the request */
	struct skcipher_request *req;
};

/* How a target's jobs look, which is known when its cipher is. */
int xt_flight_init(struct dm_target *ti, struct xt_target *xt);
void xt_flight_exit(struct xt_target *xt);

/* The request of a job, for this cipher. What the driver says to it goes to the flight. */
struct skcipher_request *xt_job_request(struct xt_job *job, struct crypto_skcipher *tfm);

#endif
