/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XTS's masks, from encrypted tweaks: what the CPU does for an engine that knows ECB only.
 * Nothing of the kernel but its types: rtl/soc counts the cycles of this code.
 */
#ifndef XTENT_XTS_MASKS_H
#define XTENT_XTS_MASKS_H

#include <asm/byteorder.h>
#include <linux/types.h>

/* Times x, in constant time: what leaves the top is worth x^7 + x^2 + x + 1. */
static inline void xt_next_mask(u64 *low, u64 *high)
{
	u64 carry = (u64)((s64)*high >> 63) & 0x87;

	*high = *high << 1 | *low >> 63;
	*low = *low << 1 ^ carry;
}

/* Masks of `bytes` bytes, those of whole sectors of `blocks` blocks, from their tweaks. */
static inline void xt_make_masks(__le64 *mask, const __le64 *tweak, unsigned int bytes,
				 unsigned int blocks)
{
	const __le64 *end = mask + bytes / sizeof(*mask);

	for (; mask != end; tweak += 2) {
		u64 low = le64_to_cpu(tweak[0]), high = le64_to_cpu(tweak[1]);
		unsigned int i;

		for (i = 0; i < blocks; i++) {
			*mask++ = cpu_to_le64(low);
			*mask++ = cpu_to_le64(high);
			xt_next_mask(&low, &high);
		}
	}
}

#endif
