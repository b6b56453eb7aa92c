// SPDX-License-Identifier: GPL-2.0
/* XTS on VAES and VPCLMULQDQ with AVX2: two blocks a vector. */
#include <linux/minmax.h>
#include <linux/string.h>
#include <immintrin.h>

#include "xts.h"

#define ISA vaes256
#define V __m256i
#define BLOCKS 2
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define BROADCAST(p) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(p)))
#define XOR(a, b) _mm256_xor_si256(a, b)
#define SHL(v, n) _mm256_slli_epi64(v, n)
#define SHR(v, n) _mm256_srli_epi64(v, n)
#define UP(v, n) _mm256_bslli_epi128(v, n)
#define DOWN(v, n) _mm256_bsrli_epi128(v, n)
#define CLMUL(a, b, halves) _mm256_clmulepi64_epi128(a, b, halves)
#define FIRST(p, polynomial) first_masks(p, polynomial)
#define ENC(x, k) _mm256_aesenc_epi128(x, k)
#define ENCLAST(x, k) _mm256_aesenclast_epi128(x, k)
#define DEC(x, k) _mm256_aesdec_epi128(x, k)
#define DECLAST(x, k) _mm256_aesdeclast_epi128(x, k)
#define FORGET() _mm256_zeroall()

static __always_inline V first_masks(const u8 *tweak, V polynomial)
{
	const V left = _mm256_set_epi64x(1, 1, 0, 0);
	const V right = _mm256_set_epi64x(63, 63, 64, 64);
	V x = BROADCAST(tweak);
	V carry = _mm256_srlv_epi64(x, right);

	return XOR(XOR(_mm256_sllv_epi64(x, left), UP(carry, 8)),
		   CLMUL(carry, polynomial, 0x01));
}

#include "xts_x86.h"
