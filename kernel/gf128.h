/* SPDX-License-Identifier: GPL-2.0 */
/*
 * GF(2^128) in the layout of XTS and FAST: bit i of the little-endian integer is
 * x^i, and x^128 is x^7 + x^2 + x + 1.
 */
#ifndef XTENT_GF128_H
#define XTENT_GF128_H

#include <linux/types.h>

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

#endif
