// SPDX-License-Identifier: GPL-2.0
/*
 * What the CPU's work takes in simulated time, of parameters: bench/papers/run.py makes them
 * from instructions that were counted.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/math64.h>
#include <linux/module.h>

#include "cost.h"

/* Of the clock of User Mode Linux, in picoseconds: by less it may be late but not early. */
#define STEP (256 * 1000)

enum { PER_BIO, PER_REQUEST, PER_PIECE, PER_SECTOR, PER_BLOCK, PER };

static long cost[XT_ROWS * PER];
module_param_array(cost, long, NULL, 0644);
MODULE_PARM_DESC(cost, "Picoseconds by a bio, request, piece of memory, sector and block, of each row");

/* What is not a whole step yet waits for more of its row, so that none is lost. */
static atomic64_t owed[XT_ROWS];

static void spend(enum xt_row row, s64 picoseconds)
{
	s64 steps = div_s64(atomic64_add_return(picoseconds, &owed[row]), STEP);

	if (steps <= 0)
		return;
	atomic64_sub(steps * STEP, &owed[row]);
	ndelay(steps * (STEP / 1000));
}

void xt_cost_bio(struct xt_flight *flight)
{
	xt_clock_enter(&flight->clock, XT_ROW_OTHER);
	spend(XT_ROW_OTHER, cost[XT_ROW_OTHER * PER + PER_BIO]);
}

void xt_cost_run(const struct xt_job *job, enum xt_row row, unsigned int parts)
{
	const long *per = cost + row * PER;
	s64 all = per[PER_REQUEST];

	all += (s64)per[PER_PIECE] * DIV_ROUND_UP(job->bytes, PAGE_SIZE);
	all += (s64)per[PER_SECTOR] * (job->bytes / job->flight->xt->options.sector_size);
	all += (s64)per[PER_BLOCK] * (job->bytes / 16);
	xt_clock_enter(&job->flight->clock, row);
	spend(row, div_s64(all, parts));
}
