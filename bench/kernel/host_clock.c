// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/module/host_clock/parameters/now, in User Mode Linux: the CPU time that the
 * guest's kernel has had, the time that has passed, and the CPU times that the program which asks and the
 * server of a disk have had, all in nanoseconds and by the host's clocks. The guest's own accounts
 * only count ticks, and some tick late.
 *
 * The kernel is one process of the host. The guest's programs and the helper that reads and writes
 * the files behind its disks are others.
 *
 * .../server: the host's process that serves a disk, 0 for none, whose time is 0.
 *
 * .../aes: CPU time that the rounds of AES-256 take alone, and for how many bytes. No
 * implementation is faster, and neighbours on the same core slow both alike. only_aesni: by the
 * instructions that a CPU without VAES has.
 */
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/mm_types.h>
#include <linux/version.h>
#include <asm/cpufeature.h>

#include "host_clock.h"

/* As the C library's clock_getcpuclockid(). */
#define HOST_CLOCK_OF(pid) ((~(long)(pid) << 3) | 2)

/* The process of the host that a program is. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#define HOST_PID(mm) ((mm)->context.id.pid)
#else
#define HOST_PID(mm) ((mm)->context.id.u.pid)
#endif

static int server;
module_param(server, int, 0644);

static int get_now(char *buffer, const struct kernel_param *kp)
{
	u64 cpu = host_clock(HOST_CLOCK_PROCESS_CPUTIME_ID);
	u64 wall = host_clock(HOST_CLOCK_MONOTONIC);
	u64 program = host_clock(HOST_CLOCK_OF(HOST_PID(current->mm)));
	u64 served = server ? host_clock(HOST_CLOCK_OF(server)) : 0;

	if (!program || (server && !served))
		return -ESRCH;
	return sysfs_emit(buffer, "%llu %llu %llu %llu\n", cpu, wall, program, served);
}

static const struct kernel_param_ops now_ops = { .get = get_now };
module_param_cb(now, &now_ops, NULL, 0444);

/*
 * Independent rounds, as many under way as the unit wants. The compiler uses no such
 * registers in a kernel, and User Mode Linux saves those of its programs itself.
 */
#define LANES 12
#define AES_ROUNDS 14
#define LOOPS 4000000
#define ONE_ROUND(instruction)						       \
	({ asm volatile(".irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12\n\t"   \
			instruction "\n\t.endr"); })

static bool only_aesni;
module_param(only_aesni, bool, 0444);

static int get_aes(char *buffer, const struct kernel_param *kp)
{
	const bool wide = !only_aesni && boot_cpu_has(X86_FEATURE_VAES) && boot_cpu_has(X86_FEATURE_AVX512F);
	u64 blocks = (u64)LOOPS * LANES * (wide ? 4 : 1);
	u64 start = host_clock(HOST_CLOCK_PROCESS_CPUTIME_ID);
	unsigned int i;

	for (i = 0; i < LOOPS; i++) {
		if (wide)
			ONE_ROUND("vaesenc %zmm0, %zmm\\n, %zmm\\n");
		else
			ONE_ROUND("aesenc %xmm0, %xmm\\n");
	}
	return sysfs_emit(buffer, "%llu %llu\n", host_clock(HOST_CLOCK_PROCESS_CPUTIME_ID) - start,
			  blocks * 16 / AES_ROUNDS);
}

static const struct kernel_param_ops aes_ops = { .get = get_aes };
module_param_cb(aes, &aes_ops, NULL, 0444);

MODULE_DESCRIPTION("The host's clocks inside User Mode Linux");
MODULE_LICENSE("GPL");
