// SPDX-License-Identifier: GPL-2.0
/* Multiplication with PCLMULQDQ. */
#include <linux/kernel.h>
#include <immintrin.h>

#include "gf128.h"

void gf128_mul_pclmul(struct gf128 *product, const struct gf128 *a, const struct gf128 *b)
{
	const __m128i polynomial = _mm_cvtsi32_si128(0x87);
	__m128i x = _mm_loadu_si128((const __m128i *)a);
	__m128i y = _mm_loadu_si128((const __m128i *)b);
	__m128i low = _mm_clmulepi64_si128(x, y, 0x00);
	__m128i high = _mm_clmulepi64_si128(x, y, 0x11);
	__m128i middle = _mm_xor_si128(_mm_clmulepi64_si128(x, y, 0x01),
				       _mm_clmulepi64_si128(x, y, 0x10));
	__m128i upper;

	low = _mm_xor_si128(low, _mm_slli_si128(middle, 8));
	high = _mm_xor_si128(high, _mm_srli_si128(middle, 8));
	upper = _mm_clmulepi64_si128(high, polynomial, 0x01);
	high = _mm_xor_si128(high, _mm_srli_si128(upper, 8));
	low = _mm_xor_si128(low, _mm_slli_si128(upper, 8));
	low = _mm_xor_si128(low, _mm_clmulepi64_si128(high, polynomial, 0x00));
	_mm_storeu_si128((__m128i *)product, low);
}
