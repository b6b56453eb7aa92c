// SPDX-License-Identifier: GPL-2.0
/* XTS on VAES and VPCLMULQDQ with AVX-512: four blocks a vector. */
#include <linux/minmax.h>
#include <linux/string.h>
#include <immintrin.h>

#include "xts.h"

#define ISA vaes512
#define V __m512i
#define BLOCKS 4
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512(p, v)
#define BROADCAST(p) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(p)))
#define XOR(a, b) _mm512_xor_si512(a, b)
#define SHL(v, n) _mm512_slli_epi64(v, n)
#define SHR(v, n) _mm512_srli_epi64(v, n)
#define UP(v, n) _mm512_bslli_epi128(v, n)
#define DOWN(v, n) _mm512_bsrli_epi128(v, n)
#define CLMUL(a, b, halves) _mm512_clmulepi64_epi128(a, b, halves)
#define FIRST(p, polynomial) first_masks(p, polynomial)
#define ENC(x, k) _mm512_aesenc_epi128(x, k)
#define ENCLAST(x, k) _mm512_aesenclast_epi128(x, k)
#define DEC(x, k) _mm512_aesdec_epi128(x, k)
#define DECLAST(x, k) _mm512_aesdeclast_epi128(x, k)

static __always_inline void forget(void)
{
	asm volatile("vzeroall\n\t"
		     ".irp n, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n\t"
		     "vpxord %%zmm\\n, %%zmm\\n, %%zmm\\n\n\t"
		     ".endr"
		     : : : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
		     "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
		     "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23",
		     "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
}
#define FORGET() forget()

static __always_inline V first_masks(const u8 *tweak, V polynomial)
{
	const V left = _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0);
	const V right = _mm512_set_epi64(61, 61, 62, 62, 63, 63, 64, 64);
	V x = BROADCAST(tweak);
	V carry = _mm512_srlv_epi64(x, right);

	return XOR(XOR(_mm512_sllv_epi64(x, left), UP(carry, 8)),
		   CLMUL(carry, polynomial, 0x01));
}

#include "xts_x86.h"
