/* SPDX-License-Identifier: GPL-2.0 */
/* The clocks of the machine that User Mode Linux runs on, for measurements. */
#ifndef XTENT_HOST_CLOCK_H
#define XTENT_HOST_CLOCK_H

#include <linux/time64.h>
#include <linux/types.h>

#define HOST_CLOCK_GETTIME 228
#define HOST_CLOCK_MONOTONIC 1
#define HOST_CLOCK_PROCESS_CPUTIME_ID 2

/* A module runs as the host's user code does, so it may ask the host. 0 if that refuses. */
static inline u64 host_clock(long which)
{
	s64 time[2] = { 0, 0 };
	long result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"((long)HOST_CLOCK_GETTIME), "D"(which), "S"(time)
		     : "rcx", "r11", "memory");
	return result ? 0 : time[0] * NSEC_PER_SEC + time[1];
}

#endif
