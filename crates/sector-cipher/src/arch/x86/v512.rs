//! 512-bit vectors: VAES and VPCLMULQDQ with AVX-512.

use super::schedule;
use super::v512_masks::*;
use super::v512_rounds::*;
use super::{V128, V256};
use crate::here::from_fn;
use crate::simd::{Aes, Clmul, Lanes, RoundKeys, Tuning, Vector, WideKeys};
use core::arch::x86_64::*;

/// 512-bit vector.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct V512(pub(super) __m512i);

/// A round key, in all lanes.
#[inline(always)]
fn wide_key(keys: &WideKeys, round: usize) -> V512 {
    // SAFETY: the CPU has the features; there are 64 bytes, aligned.
    V512(unsafe { _mm512_load_si512(schedule::fresh(keys).at(round).cast()) })
}

#[inline(always)]
fn key(keys: &RoundKeys, round: usize) -> V512 {
    // SAFETY: the CPU has the features; a round key is sixteen bytes, aligned.
    V512(unsafe { _mm512_broadcast_i32x4(_mm_load_si128(schedule::fresh(keys).at(round).cast())) })
}

/// The first and the second blocks of four vectors.
#[inline(always)]
fn lower_blocks([a, b, c, d]: [V512; 4]) -> [V512; 2] {
    // SAFETY: the CPU has the features.
    unsafe {
        let ab = _mm512_shuffle_i64x2::<0x44>(a.0, b.0);
        let cd = _mm512_shuffle_i64x2::<0x44>(c.0, d.0);
        [
            V512(_mm512_shuffle_i64x2::<0x88>(ab, cd)),
            V512(_mm512_shuffle_i64x2::<0xdd>(ab, cd)),
        ]
    }
}

impl Lanes for V512 {
    const BLOCKS: usize = 4;
    type One = V128;

    memory!(4: _mm512_loadu_si512, _mm512_storeu_si512);
    shifts!(_mm512_sll_epi64, _mm512_srl_epi64);

    operations! {
        fn zero() = _mm512_setzero_si512;
        fn low_halves(self, b) = _mm512_unpacklo_epi64;
        fn high_halves(self, b) = _mm512_unpackhi_epi64;
        fn unpack32_low(self, b) = _mm512_unpacklo_epi32;
        fn unpack32_high(self, b) = _mm512_unpackhi_epi32;
        fn xor(self, b) = _mm512_xor_si512;
        fn xor3(self, b, c) = _mm512_ternarylogic_epi64::<0x96>;
        fn and(self, b) = _mm512_and_si512;
        fn swap_halves(self) = _mm512_shuffle_epi32::<0x4e>;
        fn shl_bytes<const N: i32>(self) = _mm512_bslli_epi128::<N>;
        fn shr_bytes<const N: i32>(self) = _mm512_bsrli_epi128::<N>;
        fn behind<const N: i32>(self, low) = _mm512_alignr_epi8::<N>;
        fn shuffle_bytes(self, order) = _mm512_shuffle_epi8;
        fn add32(self, b) = _mm512_add_epi32;
        fn add64(self, b) = _mm512_add_epi64;
        fn mul32(self, b) = _mm512_mul_epu32;
        fn shuffle32<const ORDER: i32>(self) = _mm512_shuffle_epi32::<ORDER>;
    }

    #[inline(always)]
    fn splat(block: u128) -> Self {
        Self::spread(V128(schedule::vector(block)))
    }

    #[inline(always)]
    unsafe fn load_front(src: *const u8) -> Self {
        intrinsics!(_mm512_zextsi256_si512(_mm256_loadu_si256(src.cast())))
    }

    #[inline(always)]
    unsafe fn gather(src: [*const u8; 4]) -> Self {
        intrinsics!({
            let low = V256::<true>::gather(src).0;
            let high = V256::<true>::gather([src[2], src[3], src[2], src[3]]).0;
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        })
    }

    #[inline(always)]
    unsafe fn scatter(self, dst: [*mut u8; 4]) {
        // SAFETY: the CPU has the features, and the caller's promise.
        unsafe {
            _mm_storeu_si128(dst[0].cast(), _mm512_castsi512_si128(self.0));
            _mm_storeu_si128(dst[1].cast(), _mm512_extracti32x4_epi32::<1>(self.0));
            _mm_storeu_si128(dst[2].cast(), _mm512_extracti32x4_epi32::<2>(self.0));
            _mm_storeu_si128(dst[3].cast(), _mm512_extracti32x4_epi32::<3>(self.0));
        }
    }

    #[inline(always)]
    fn spread(block: V128) -> Self {
        intrinsics!(_mm512_broadcast_i32x4(block.0))
    }

    #[inline(always)]
    fn lane<const I: i32>(self) -> V128 {
        // SAFETY: the CPU has the features.
        V128(unsafe { _mm512_extracti32x4_epi32::<I>(self.0) })
    }

    #[inline(always)]
    fn alone(block: V128) -> Self {
        intrinsics!(_mm512_zextsi128_si512(block.0))
    }

    #[inline(always)]
    fn unzip(a: Self, b: Self) -> (Self, Self) {
        (
            intrinsics!(_mm512_shuffle_i64x2::<0x88>(a.0, b.0)),
            intrinsics!(_mm512_shuffle_i64x2::<0xdd>(a.0, b.0)),
        )
    }

    #[inline(always)]
    fn zip(even: Self, odd: Self) -> (Self, Self) {
        let low = intrinsics!(_mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0));
        let high = intrinsics!(_mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4));
        (
            intrinsics!(_mm512_permutex2var_epi64(even.0, low.0, odd.0)),
            intrinsics!(_mm512_permutex2var_epi64(even.0, high.0, odd.0)),
        )
    }

    #[inline(always)]
    fn fold(self) -> V128 {
        // SAFETY: the CPU has the features.
        unsafe {
            V256::<true>(_mm256_xor_si256(
                _mm512_castsi512_si256(self.0),
                _mm512_extracti64x4_epi64::<1>(self.0),
            ))
            .fold()
        }
    }

    #[inline(always)]
    fn fold_each([a, b, c, d]: [Self; 4]) -> Self {
        // Half of the lanes of two, one below the other.
        let half = |a: Self, b: Self| {
            let low = intrinsics!(_mm512_shuffle_i64x2::<0x44>(a.0, b.0));
            low.xor(intrinsics!(_mm512_shuffle_i64x2::<0xee>(a.0, b.0)))
        };
        let (ab, cd) = (half(a, b), half(c, d));
        let even = intrinsics!(_mm512_shuffle_i64x2::<0x88>(ab.0, cd.0));
        even.xor(intrinsics!(_mm512_shuffle_i64x2::<0xdd>(ab.0, cd.0)))
    }

    #[inline(always)]
    fn fold_add64(self) -> V128 {
        // SAFETY: the CPU has the features.
        unsafe {
            V256::<true>(_mm256_add_epi64(
                _mm512_castsi512_si256(self.0),
                _mm512_extracti64x4_epi64::<1>(self.0),
            ))
            .fold_add64()
        }
    }

    #[inline(always)]
    fn transpose([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        // SAFETY: the CPU has the features.
        unsafe {
            let ab = _mm512_shuffle_i64x2::<0xee>(a.0, b.0);
            let cd = _mm512_shuffle_i64x2::<0xee>(c.0, d.0);
            let [first, second] = lower_blocks([a, b, c, d]);
            [
                first,
                second,
                Self(_mm512_shuffle_i64x2::<0x88>(ab, cd)),
                Self(_mm512_shuffle_i64x2::<0xdd>(ab, cd)),
            ]
        }
    }

    #[inline(always)]
    fn two_further(self, next: Self) -> Self {
        intrinsics!(_mm512_shuffle_i64x2::<0x4e>(self.0, next.0))
    }

    #[inline(always)]
    fn transpose_halves([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        // SAFETY: the CPU has the features.
        unsafe {
            // Low halves of both vectors' last two blocks, then high ones.
            let order = _mm512_set_epi64(15, 13, 7, 5, 14, 12, 6, 4);
            let ab = _mm512_permutex2var_epi64(a.0, order, b.0);
            let cd = _mm512_permutex2var_epi64(c.0, order, d.0);
            let [first, second] = lower_blocks([a, b, c, d]);
            [
                first,
                second,
                Self(_mm512_shuffle_i64x2::<0x44>(ab, cd)),
                Self(_mm512_shuffle_i64x2::<0xee>(ab, cd)),
            ]
        }
    }

    #[inline(always)]
    fn rotl32<const N: u32>(self) -> Self {
        let count = Self::splat(u128::from(N) * 0x1_0000_0001_0000_0001_0000_0001);
        intrinsics!(_mm512_rolv_epi32(self.0, count.0))
    }
}

impl Clmul for V512 {
    operations! {
        fn clmul<const HALVES: i32>(self, b) = _mm512_clmulepi64_epi128::<HALVES>;
    }

    #[inline(always)]
    fn powers_of_x<const HOW: u8>(block: V128) -> Self {
        powers_of_x::<HOW>(block)
    }
}

impl Aes for V512 {
    key_schedule!();

    aes! {
        fn aes_start_from, aes_round, aes_finish from RoundKeys, key;
        rounds of 8: round_of_eight;
        rounds of 16: round_of_sixteen;
        encrypt: _mm512_aesenc_epi128, _mm512_aesenclast_epi128;
        decrypt: _mm512_aesdec_epi128, _mm512_aesdeclast_epi128;
    }
}

impl Tuning for V512 {
    const ABREAST: usize = 16;

    #[inline(always)]
    fn three_products() -> bool {
        super::ports::three_products::<64>()
    }

    #[inline(always)]
    fn shifts() -> bool {
        super::ports::shifts()
    }

    hints!(V512, zmm_reg, "avx512f");

    aes! {
        fn wide_start_from, wide_round, wide_finish from WideKeys, wide_key;
        rounds of 16: wide_round_of_sixteen;
        rounds of 8: wide_round_of_eight;
        rounds of 1: wide_round_of_one;
        encrypt: _mm512_aesenc_epi128, _mm512_aesenclast_epi128;
        decrypt: _mm512_aesdec_epi128, _mm512_aesdeclast_epi128;
    }

    #[inline(always)]
    fn mask<const COUNT: usize, const HOW: u8>(
        state: &mut [Self; 5],
        more: Self,
        first: impl FnOnce() -> Self,
        step: usize,
    ) -> Self {
        mask::<COUNT, HOW>(state, more, first, step)
    }

    #[inline(always)]
    fn start_from_sums<const N: usize, const FIRST: usize>(
        x: &mut [Self; N],
        keys: &WideKeys,
        sums: &[Self; N],
    ) {
        let first = wide_key(keys, FIRST).xor(wide_key(keys, RoundKeys::LAST));
        each!(I < N, x[I] = x[I].xor3(first, sums[I]));
    }

    #[inline(always)]
    fn finish_with_sums<const N: usize, const ENCRYPT: bool>(
        x: &mut [Self; N],
        _keys: &WideKeys,
        sums: &[Self; N],
    ) {
        each!(I < N, {
            x[I] = if ENCRYPT {
                intrinsics!(_mm512_aesenclast_epi128(x[I].0, sums[I].0))
            } else {
                intrinsics!(_mm512_aesdeclast_epi128(x[I].0, sums[I].0))
            };
        });
    }

    #[inline(always)]
    fn add_products(sum: &mut [Self; 3], x: [Self; 2], y: [Self; 2], halves: Self) {
        // SAFETY: the CPU has the features.
        unsafe { add_products(sum, x, y, halves) };
    }

    #[inline(always)]
    unsafe fn add_products_at(sum: &mut [Self; 3], src: *const u8, y: [Self; 2], halves: Self) {
        // SAFETY: the caller's promise, and the CPU has the features.
        unsafe { add_products_at(sum, src, y, halves) };
    }

    #[inline(always)]
    unsafe fn wide_finish_loading<const N: usize, const ENCRYPT: bool>(
        x: &mut [Self; N],
        keys: &WideKeys,
        masks: &[*const u8; N],
    ) {
        // The key first, so that masks need no loads of their own.
        let last = wide_key(keys, RoundKeys::LAST);
        each!(I < N, {
            // SAFETY: the caller's promise.
            let last = last.xor(unsafe { Self::load(masks[I]) });
            x[I] = if ENCRYPT {
                intrinsics!(_mm512_aesenclast_epi128(x[I].0, last.0))
            } else {
                intrinsics!(_mm512_aesdeclast_epi128(x[I].0, last.0))
            };
        });
    }

    #[inline(always)]
    unsafe fn aes_finish_between<const N: usize, const ENCRYPT: bool>(
        mut x: [Self; N],
        keys: &RoundKeys,
        src: *const u8,
        dst: *mut u8,
    ) -> [Self; N] {
        if const { ENCRYPT && N == 8 } {
            let eight = x.as_mut_ptr().cast::<[Self; 8]>();
            // SAFETY: the caller's promise, there are as many vectors, and the CPU has the
            // features.
            unsafe { *eight = finish_eight(&*eight, keys, src, dst) };
            return x;
        }
        let mut masks = x;
        each!(I < N, {
            // SAFETY: the caller's promise.
            masks[I] = unsafe { Self::load(src.add(I * Self::BYTES)) };
        });
        Self::aes_finish::<N, ENCRYPT>(&mut x, keys, &masks);
        each!(I < N, {
            // SAFETY: the caller's promise.
            unsafe { x[I].store(dst.add(I * Self::BYTES)) };
        });
        x
    }
}

// SAFETY: `has_vaes512` asks for what the intrinsics and the assembly are declared with.
unsafe impl Vector for V512 {
    type Integers = Self;

    fn detect() -> bool {
        super::has_vaes512()
    }

    #[target_feature(
        enable = "aes,avx2,avx512f,avx512bw,avx512vbmi,avx512vl,vaes,pclmulqdq,vpclmulqdq,sse4.1"
    )]
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R {
        kernel()
    }
}
