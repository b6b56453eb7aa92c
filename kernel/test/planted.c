// SPDX-License-Identifier: GPL-2.0
/*
 * Does on purpose what a checking kernel has to report, so that a test can tell a
 * clean log from one that nobody writes: what=kasan, sleep, leak or lockdep.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

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

static int __init planted_init(void)
{
	void *lost;
	int i;

	if (!strcmp(what, "kasan")) {
		use_after_free();
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
