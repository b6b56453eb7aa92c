// SPDX-License-Identifier: GPL-2.0
/* What `dmsetup status` tells: counters, and how long the runs were. */
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/module.h>

#include "xtent.h"

static bool timing;
module_param(timing, bool, 0644);
MODULE_PARM_DESC(timing, "Tell in the status where the time of the crypto API's requests goes");

/*
 * Some 30 readings are made for 4096 bytes: the CPU's counter, where there is one,
 * is faster than any clock, and under User Mode Linux much finer. But it knows nothing of
 * simulated time, in which reading the clock takes some, unless interrupts are off.
 */
u64 xt_ticks_now(void)
{
#ifdef XT_COST_MODEL
	unsigned long flags;
	u64 now;

	local_irq_save(flags);
	now = ktime_get_ns();
	local_irq_restore(flags);
	return now;
#elif defined(CONFIG_X86_64)
	u32 low, high;

	asm volatile("rdtsc" : "=a" (low), "=d" (high));
	return (u64)high << 32 | low;
#else
	return ktime_get_ns();
#endif
}

/* When the module was loaded: what a tick is worth comes from the time since. */
static u64 first_tick, first_ns;

void xt_clock_init(void)
{
	first_tick = xt_ticks_now();
	first_ns = ktime_get_ns();
}

void xt_clock_start(struct xt_clock *clock)
{
	clock->runs = READ_ONCE(timing);
	clock->row = XT_ROW_OTHER;
	if (clock->runs)
		clock->since = xt_ticks_now();
}

void xt_clock_switch(struct xt_clock *clock, enum xt_row row)
{
	u64 now = xt_ticks_now();

	clock->ticks[clock->row] += now - clock->since;
	clock->row = row;
	clock->since = now;
}

void xt_clock_stop(struct xt_clock *clock, struct xt_target *xt)
{
	unsigned int i;

	if (!clock->runs)
		return;
	xt_clock_switch(clock, XT_ROW_OTHER);
	for (i = 0; i < XT_ROWS; i++)
		xt_count(xt, ticks[i], clock->ticks[i]);
}

/* Nobody else writes this CPU's counter, but whoever emits the status may read it. */
static void add(u64 *counter, u64 n)
{
	WRITE_ONCE(*counter, *counter + n);
}

/*
 * A request, which is a run of so many sectors. All at once, and without interrupts off:
 * where it is given to the target, nobody but whoever gives it counts these.
 */
void xt_count_request(struct xt_target *xt, bool write, unsigned int sectors)
{
	unsigned int class = min_t(unsigned int, ilog2(sectors), XT_RUN_CLASSES - 1);
	struct xt_counters *c = get_cpu_ptr(xt->counters);

	if (write) {
		add(&c->writes, 1);
		add(&c->write_sectors, sectors);
	} else {
		add(&c->reads, 1);
		add(&c->read_sectors, sectors);
	}
	add(&c->runs[class], 1);
	put_cpu_ptr(xt->counters);
}

/*
 * By the rate of all, so that rows sum to their total. A counter of ticks starts over when the machine sleeps: for
 * a while the sums are more than has passed since, and a quotient of more than 64 bits would be a trap.
 */
static u64 in_ns(u64 ticks, u64 passed_ns, u64 passed_ticks)
{
	if (mul_u64_u64_shr(ticks, passed_ns, 64) >= passed_ticks)
		return U64_MAX;
	return mul_u64_u64_div_u64(ticks, passed_ns, passed_ticks);
}

/* The rows in nanoseconds, and their sum. */
static unsigned int emit_times(const struct xt_counters *sum, char *result,
			       unsigned int maxlen, unsigned int sz)
{
	static const char * const names[XT_ROWS] = {
		[XT_ROW_OTHER] = "other",
		[XT_ROW_TWEAK] = "tweak",
		[XT_ROW_IV_ENGINE] = "iv_engine",
		[XT_ROW_XOR1] = "xor1",
		[XT_ROW_XOR2] = "xor2",
		[XT_ROW_ENGINE] = "engine",
	};
	const u64 passed_ticks = (xt_ticks_now() - first_tick) ?: 1;
	const u64 passed_ns = ktime_get_ns() - first_ns;
	u64 total = 0;
	unsigned int i;

	for (i = 0; i < XT_ROWS; i++)
		total += sum->ticks[i];
	if (!total)
		return sz;
	DMEMIT(" ns");
	for (i = 0; i < XT_ROWS; i++)
		DMEMIT(" %s %llu", names[i], in_ns(sum->ticks[i], passed_ns, passed_ticks));
	DMEMIT(" total %llu", in_ns(total, passed_ns, passed_ticks));
	return sz;
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
		sum.deferred += READ_ONCE(c->deferred);
		sum.merged += READ_ONCE(c->merged);
		sum.requests += READ_ONCE(c->requests);
		sum.busy += READ_ONCE(c->busy);
		for (i = 0; i < XT_RUN_CLASSES; i++)
			sum.runs[i] += READ_ONCE(c->runs[i]);
		for (i = 0; i < XT_ROWS; i++)
			sum.ticks[i] += READ_ONCE(c->ticks[i]);
	}
	DMEMIT("%s%s", xt->tweak_tfm ? "engine:" : xt->takes_runs ? "runs:" : "",
	       xt->ops->name(xt));
	DMEMIT(" reads %llu writes %llu", sum.reads, sum.writes);
	DMEMIT(" read_sectors %llu write_sectors %llu", sum.read_sectors, sum.write_sectors);
	DMEMIT(" queued %llu merged %llu runs", sum.queued, sum.merged);
	for (i = 0; i < XT_RUN_CLASSES; i++)
		DMEMIT("%c%llu", i ? ',' : ' ', sum.runs[i]);
	DMEMIT(" requests %llu busy %llu deferred %llu", sum.requests, sum.busy, sum.deferred);
	*size = emit_times(&sum, result, maxlen, sz);
}
