/* SPDX-License-Identifier: GPL-2.0 */
/*
 * XTS on AES-NI, one block a vector. The file that includes this defines ISA, a suffix,
 * FORGET(), see xts_x86.h, and MASKS_BY_PRODUCTS, see xts_groups.h.
 */
#include <linux/minmax.h>
#include <linux/string.h>
#include <immintrin.h>

#include "xts.h"

#define V __m128i
#define BLOCKS 1
#define LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define BROADCAST(p) LOAD(p)
#define XOR(a, b) _mm_xor_si128(a, b)
#define SHL(v, n) _mm_slli_epi64(v, n)
#define SHR(v, n) _mm_srli_epi64(v, n)
#define UP(v, n) _mm_slli_si128(v, n)
#define DOWN(v, n) _mm_srli_si128(v, n)
#define CLMUL(a, b, halves) _mm_clmulepi64_si128(a, b, halves)
#define ENC(x, k) _mm_aesenc_si128(x, k)
#define ENCLAST(x, k) _mm_aesenclast_si128(x, k)
#define DEC(x, k) _mm_aesdec_si128(x, k)
#define DECLAST(x, k) _mm_aesdeclast_si128(x, k)

/*
 * On some CPUs a product occupies a unit that AES needs, or takes much longer than this. A sum with
 * itself is started by more units than a shift.
 */
static __always_inline V times_x(V v, V polynomial)
{
	V carries = _mm_srai_epi32(_mm_shuffle_epi32(v, 0x13), 31);

	return XOR(_mm_add_epi64(v, v), _mm_and_si128(carries, polynomial));
}

#include "xts_x86.h"
