// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/module/host_clock/parameters/now, in User Mode Linux: the CPU time that the
 * guest's kernel has had, and the time that has passed, both in nanoseconds and by the host's
 * clocks. The guest's own accounts only count ticks, and some tick late.
 *
 * The kernel is one process of the host. The guest's programs and the helper that reads and writes
 * the files behind its disks are others, which do not count.
 *
 * .../aes: CPU time that the rounds of AES-256 take alone, and for how many bytes. No
 * implementation is faster, and neighbours on the same core slow both alike.
 */
#include <linux/module.h>
#include <asm/cpufeature.h>

#define HOST_CLOCK_GETTIME 228
#define HOST_CLOCK_MONOTONIC 1
#define HOST_CLOCK_PROCESS_CPUTIME_ID 2

/* A module runs as the host's user code does, so it may ask the host. */
static u64 host_clock(long which)
{
	s64 time[2] = { 0, 0 };
	long result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"((long)HOST_CLOCK_GETTIME), "D"(which), "S"(time)
		     : "rcx", "r11", "memory");
	return result ? 0 : time[0] * NSEC_PER_SEC + time[1];
}

static int get_now(char *buffer, const struct kernel_param *kp)
{
	u64 cpu = host_clock(HOST_CLOCK_PROCESS_CPUTIME_ID);
	u64 wall = host_clock(HOST_CLOCK_MONOTONIC);

	return sysfs_emit(buffer, "%llu %llu\n", cpu, wall);
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

static int get_aes(char *buffer, const struct kernel_param *kp)
{
	const bool wide = boot_cpu_has(X86_FEATURE_VAES) && boot_cpu_has(X86_FEATURE_AVX512F);
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
