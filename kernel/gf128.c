// SPDX-License-Identifier: GPL-2.0
/*
 * Multiplication with the integer multiplier, without tables: the bits of each
 * operand are taken in four classes, three zeros apart, so that no carry reaches
 * a bit of the same class.
 */
#include <linux/bitrev.h>

#include "gf128.h"

#define CLASS 0x1111111111111111ull

/* The low 64 bits of the carry-less product. */
static u64 low_product(u64 a, u64 b)
{
	u64 product = 0;
	int i, j;

	for (i = 0; i < 4; i++) {
		u64 sum = 0;

		for (j = 0; j < 4; j++)
			sum ^= (a & CLASS << j) * (b & CLASS << ((i - j) & 3));
		product |= sum & CLASS << i;
	}
	return product;
}

static u64 reverse(u64 x)
{
	x = (x & 0x5555555555555555ull) << 1 | (x >> 1 & 0x5555555555555555ull);
	x = (x & 0x3333333333333333ull) << 2 | (x >> 2 & 0x3333333333333333ull);
	x = (x & 0x0f0f0f0f0f0f0f0full) << 4 | (x >> 4 & 0x0f0f0f0f0f0f0f0full);
	return __builtin_bswap64(x);
}

/* All 128 bits: the high ones are the low ones of the product of the mirror images. */
static struct gf128 product64(u64 a, u64 b)
{
	return (struct gf128){
		.low = low_product(a, b),
		.high = reverse(low_product(reverse(a), reverse(b))) >> 1,
	};
}

void gf128_mul_portable(struct gf128 *product, const struct gf128 *a, const struct gf128 *b)
{
	struct gf128 low = product64(a->low, b->low);
	struct gf128 high = product64(a->high, b->high);
	struct gf128 middle = product64(a->low ^ a->high, b->low ^ b->high);
	u64 top;

	/* Karatsuba's method. */
	gf128_add(&middle, &low);
	gf128_add(&middle, &high);
	low.high ^= middle.low;
	high.low ^= middle.high;

	/* x^128 and above: times x^7 + x^2 + x + 1, twice, since the first reaches x^134. */
	top = high.high >> 57 ^ high.high >> 62 ^ high.high >> 63;
	low.high ^= high.high ^ high.high << 1 ^ high.high << 2 ^ high.high << 7;
	high.low ^= top;
	low.high ^= high.low >> 57 ^ high.low >> 62 ^ high.low >> 63;
	low.low ^= high.low ^ high.low << 1 ^ high.low << 2 ^ high.low << 7;
	*product = low;
}
