/* SPDX-License-Identifier: GPL-2.0 */
/*
 * GF(2^128) in the layout of XTS and FAST: bit i of the little-endian integer is
 * x^i, and x^128 is x^7 + x^2 + x + 1.
 */
#ifndef XTENT_GF128_H
#define XTENT_GF128_H

#include <linux/types.h>
#include <asm/byteorder.h>

struct gf128 {
	u64 low, high;
};

/* In time that does not depend on the operands. `product` may be one of them. */
typedef void gf128_mul_fn(struct gf128 *product, const struct gf128 *a, const struct gf128 *b);

gf128_mul_fn gf128_mul_portable;
/* Only where the FPU may be used. */
gf128_mul_fn gf128_mul_pclmul;

static inline void gf128_add(struct gf128 *sum, const struct gf128 *a)
{
	sum->low ^= a->low;
	sum->high ^= a->high;
}

static inline void gf128_load(struct gf128 *x, const u8 *block)
{
	const __le64 *words = (const __le64 *)block;

	x->low = le64_to_cpup(words);
	x->high = le64_to_cpup(words + 1);
}

static inline void gf128_store(u8 *block, const struct gf128 *x)
{
	__le64 *words = (__le64 *)block;

	words[0] = cpu_to_le64(x->low);
	words[1] = cpu_to_le64(x->high);
}

#endif
