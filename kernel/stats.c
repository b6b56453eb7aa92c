// SPDX-License-Identifier: GPL-2.0
/* What `dmsetup status` tells: counters, and how long the runs were. */
#include <linux/log2.h>

#include "xtent.h"

void xt_count_run(struct xt_target *xt, unsigned int sectors)
{
	unsigned int class = min_t(unsigned int, ilog2(sectors), XT_RUN_CLASSES - 1);

	xt_count(xt, runs[class], 1);
}

void xt_emit_status(struct xt_target *xt, char *result, unsigned int maxlen,
		    unsigned int *size)
{
	struct xt_counters sum = {};
	unsigned int sz = *size;
	int cpu, i;

	for_each_possible_cpu(cpu) {
		const struct xt_counters *c = per_cpu_ptr(xt->counters, cpu);

		sum.reads += READ_ONCE(c->reads);
		sum.writes += READ_ONCE(c->writes);
		sum.read_sectors += READ_ONCE(c->read_sectors);
		sum.write_sectors += READ_ONCE(c->write_sectors);
		sum.queued += READ_ONCE(c->queued);
		sum.merged += READ_ONCE(c->merged);
		for (i = 0; i < XT_RUN_CLASSES; i++)
			sum.runs[i] += READ_ONCE(c->runs[i]);
	}
	DMEMIT("%s", xt->xts ? xt->xts->backend->name : crypto_skcipher_driver_name(xt->tfm));
	DMEMIT(" reads %llu writes %llu", sum.reads, sum.writes);
	DMEMIT(" read_sectors %llu write_sectors %llu", sum.read_sectors, sum.write_sectors);
	DMEMIT(" queued %llu merged %llu runs", sum.queued, sum.merged);
	for (i = 0; i < XT_RUN_CLASSES; i++)
		DMEMIT("%c%llu", i ? ',' : ' ', sum.runs[i]);
	*size = sz;
}
