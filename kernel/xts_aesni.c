// SPDX-License-Identifier: GPL-2.0
/* XTS on AES-NI, for CPUs without AVX. */
#define ISA aesni
#define MASKS_BY_PRODUCTS 0
#define FORGET() forget()

static __always_inline void forget(void)
{
	asm volatile(".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n\t"
		     "pxor %%xmm\\n, %%xmm\\n\n\t"
		     ".endr"
		     : : : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
		     "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

#include "xts_one_block.h"
