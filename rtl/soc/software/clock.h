/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Where the cycles go: at any time the clock is in one row. */
#ifndef SOC_CLOCK_H
#define SOC_CLOCK_H

#include "soc.h"

struct clock {
	enum soc_row row;
	uint32_t since;
	uint32_t cycles[SOC_ROWS];
};

extern struct clock clock;

static inline uint32_t cycle(void)
{
	uint32_t now;

	asm volatile("csrr %0, mcycle" : "=r"(now) : : "memory");
	return now;
}

/* Instructions so far. */
static inline uint32_t retired(void)
{
	uint32_t now;

	asm volatile("csrr %0, minstret" : "=r"(now) : : "memory");
	return now;
}

/* From `now` on, time goes to another row. */
static inline void clock_enter_at(enum soc_row row, uint32_t now)
{
	clock.cycles[clock.row] += now - clock.since;
	clock.since = now;
	clock.row = row;
}

static inline void clock_enter(enum soc_row row)
{
	clock_enter_at(row, cycle());
}

#endif
