//! 128-bit vectors: AES-NI, PCLMULQDQ, AVX.

use super::{V256, schedule};
use crate::here::from_fn;
use crate::simd::{Aes, Clmul, Lanes, RoundKeys, Tuning, Vector};
use core::arch::x86_64::*;

/// 128-bit vector.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct V128(pub(super) __m128i);

rounds! {
    V128, __m128i, xmm_reg, "aes,avx";
    round_of_eight, 8 from RoundKeys, "vmovdqa {k}, xmmword", 16:
        0 x0 1 x1 2 x2 3 x3 4 x4 5 x5 6 x6 7 x7;
}

#[inline(always)]
fn key(keys: &RoundKeys, round: usize) -> V128 {
    // SAFETY: the CPU has the features; a round key is sixteen bytes, aligned.
    V128(unsafe { _mm_load_si128(schedule::fresh(keys).at(round).cast()) })
}

impl Lanes for V128 {
    const BLOCKS: usize = 1;
    type One = V128;

    memory!(1: _mm_loadu_si128, _mm_storeu_si128);
    shifts!(_mm_sll_epi64, _mm_srl_epi64);
    rotations!(__m128i, xmm_reg, "avx", "xmmword": _mm_or_si128, _mm_sll_epi32, _mm_srl_epi32);

    operations! {
        fn zero() = _mm_setzero_si128;
        fn low_halves(self, b) = _mm_unpacklo_epi64;
        fn high_halves(self, b) = _mm_unpackhi_epi64;
        fn unpack32_low(self, b) = _mm_unpacklo_epi32;
        fn unpack32_high(self, b) = _mm_unpackhi_epi32;
        fn xor(self, b) = _mm_xor_si128;
        fn and(self, b) = _mm_and_si128;
        fn swap_halves(self) = _mm_shuffle_epi32::<0x4e>;
        fn shl_bytes<const N: i32>(self) = _mm_slli_si128::<N>;
        fn shr_bytes<const N: i32>(self) = _mm_srli_si128::<N>;
        fn behind<const N: i32>(self, low) = _mm_alignr_epi8::<N>;
        fn shuffle_bytes(self, order) = _mm_shuffle_epi8;
        fn add32(self, b) = _mm_add_epi32;
        fn add64(self, b) = _mm_add_epi64;
        fn mul32(self, b) = _mm_mul_epu32;
        fn shuffle32<const ORDER: i32>(self) = _mm_shuffle_epi32::<ORDER>;
    }

    #[inline(always)]
    fn splat(block: u128) -> Self {
        Self(schedule::vector(block))
    }

    #[inline(always)]
    unsafe fn gather(src: [*const u8; 4]) -> Self {
        intrinsics!(_mm_loadu_si128(src[0].cast()))
    }

    #[inline(always)]
    fn spread(block: V128) -> Self {
        block
    }

    #[inline(always)]
    fn lane<const I: i32>(self) -> V128 {
        self
    }

    #[inline(always)]
    fn alone(block: V128) -> Self {
        block
    }

    #[inline(always)]
    fn unzip(a: Self, b: Self) -> (Self, Self) {
        (a, b)
    }

    #[inline(always)]
    fn zip(even: Self, odd: Self) -> (Self, Self) {
        (even, odd)
    }

    #[inline(always)]
    fn fold(self) -> V128 {
        self
    }

    #[inline(always)]
    fn fold_add64(self) -> Self {
        self
    }

    #[inline(always)]
    fn transpose(x: [Self; 4]) -> [Self; 4] {
        x
    }

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        intrinsics!(_mm_xor_si128(self.0, _mm_xor_si128(b.0, c.0)))
    }
}

impl Clmul for V128 {
    operations! {
        fn clmul<const HALVES: i32>(self, b) = _mm_clmulepi64_si128::<HALVES>;
    }

    #[inline(always)]
    fn powers_of_x<const HOW: u8>(block: V128) -> Self {
        block
    }
}

impl Aes for V128 {
    key_schedule!();

    aes! {
        fn aes_start_from, aes_round, aes_finish from RoundKeys, key;
        rounds of 8: round_of_eight;
        encrypt: _mm_aesenc_si128, _mm_aesenclast_si128;
        decrypt: _mm_aesdec_si128, _mm_aesdeclast_si128;
    }
}

impl Tuning for V128 {
    #[inline(always)]
    fn three_products() -> bool {
        super::ports::three_products::<16>()
    }
    hints!(V128, xmm_reg, "avx");
}

// SAFETY: `has_aes_ni` asks for what the intrinsics and the assembly are declared with, and
// `has_integers` for AVX2 as the longer vectors do.
unsafe impl Vector for V128 {
    type Integers = V256<false>;

    #[inline(always)]
    fn has_integers() -> bool {
        super::ports::long_integers() && super::has_avx2()
    }

    fn detect() -> bool {
        super::has_aes_ni()
    }

    #[target_feature(enable = "aes,avx,pclmulqdq,sse4.1")]
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R {
        kernel()
    }
}
