// SPDX-License-Identifier: GPL-2.0
/*
 * Does on purpose what a checking kernel has to report, so that a test can tell a
 * clean log from one that nobody writes: what=kasan, kcsan, sleep, leak or lockdep. And what
 * a program has to see whose registers these are: what=registers, for CPUs with AVX-512.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

static char *what = "";
module_param(what, charp, 0);

static DEFINE_SPINLOCK(first);
static DEFINE_SPINLOCK(second);

static void use_after_free(void)
{
	u8 *bytes = kmalloc(100, GFP_KERNEL);

	kfree(bytes);
	OPTIMIZER_HIDE_VAR(bytes);
	READ_ONCE(bytes[7]);
}

static void in_order(spinlock_t *outer, spinlock_t *inner)
{
	spin_lock(outer);
	spin_lock(inner);
	spin_unlock(inner);
	spin_unlock(outer);
}

/*
 * Two that count at the same time, on a CPU each, and no one tells the compiler. The checker looks at one access of
 * some thousands, and at the CPU of whoever else is there for some dozen microseconds.
 */
static unsigned long counted;
static DECLARE_COMPLETION(done);

static void count(void)
{
	int i;

	for (i = 0; i < 1000000; i++) {
		counted++;
		barrier();
	}
}

static void count_too(struct work_struct *work)
{
	complete(&done);
	count();
}

static int race(void)
{
	struct work_struct work;
	unsigned int cpu = cpumask_any_but(cpu_online_mask, raw_smp_processor_id());

	if (cpu >= nr_cpu_ids)
		return -ENODEV;
	INIT_WORK_ONSTACK(&work, count_too);
	schedule_work_on(cpu, &work);
	wait_for_completion(&done);
	count();
	flush_work(&work);
	destroy_work_on_stack(&work);
	return 0;
}

/* A soft interrupt that uses the FPU and does not say so. */
static struct timer_list spoiler;
static int spoiled;

static void spoil_registers(struct timer_list *timer)
{
#ifdef CONFIG_X86_64
	asm volatile("vpxorq %zmm17, %zmm17, %zmm17\n"
		     "kxorq %k3, %k3, %k3\n");
#endif
	if (++spoiled < 20)
		mod_timer(timer, jiffies + 1);
	else
		complete(&done);
}

static void spoil(void)
{
	timer_setup(&spoiler, spoil_registers, 0);
	mod_timer(&spoiler, jiffies + 1);
	wait_for_completion(&done);
	/* For who has completed it. */
	synchronize_rcu();
}

static int __init planted_init(void)
{
	void *lost;
	int i;

	if (!strcmp(what, "kasan")) {
		use_after_free();
	} else if (!strcmp(what, "kcsan")) {
		return race();
	} else if (!strcmp(what, "registers")) {
		spoil();
	} else if (!strcmp(what, "sleep")) {
		spin_lock(&first);
		might_sleep();
		spin_unlock(&first);
	} else if (!strcmp(what, "leak")) {
		/*
		 * Of the last, a stack may still hold the address, and in Linux 7 the
		 * allocator's sheaves, which are scanned, those of dozens.
		 */
		for (i = 0; i < 500; i++) {
			lost = kmalloc(100, GFP_KERNEL);
			OPTIMIZER_HIDE_VAR(lost);
		}
	} else if (!strcmp(what, "lockdep")) {
		in_order(&first, &second);
		in_order(&second, &first);
	} else {
		return -EINVAL;
	}
	return 0;
}

static void __exit planted_exit(void)
{
}

module_init(planted_init);
module_exit(planted_exit);

MODULE_DESCRIPTION("Faults for tests of tests");
MODULE_LICENSE("GPL");
