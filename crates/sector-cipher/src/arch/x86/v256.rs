//! 256-bit vectors: AVX2 with VAES and VPCLMULQDQ, or with AES-NI and PCLMULQDQ on one half
//! after the other.

use super::V128;
use super::schedule;
use crate::here::from_fn;
use crate::simd::{Aes, Clmul, Lanes, RoundKeys, Tuning, Vector};
use core::arch::x86_64::*;

/// 256-bit vector. Without `WHOLE`, its rounds of AES and its products are those of its halves.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct V256<const WHOLE: bool = true>(pub(super) __m256i);

rounds! {
    V256<true>, __m256i, ymm_reg, "aes,avx2,vaes";
    round_of_eight, 8 from RoundKeys, "vbroadcasti128 {k}, xmmword", 16:
        0 x0 1 x1 2 x2 3 x3 4 x4 5 x5 6 x6 7 x7;
}

#[inline(always)]
fn key<const WHOLE: bool>(keys: &RoundKeys, round: usize) -> V256<WHOLE> {
    // SAFETY: the CPU has the features; a round key is sixteen bytes, aligned.
    V256(unsafe {
        _mm256_broadcastsi128_si256(_mm_load_si128(schedule::fresh(keys).at(round).cast()))
    })
}

impl<const WHOLE: bool> Lanes for V256<WHOLE> {
    const BLOCKS: usize = 2;
    type One = V128;

    memory!(2: _mm256_loadu_si256, _mm256_storeu_si256);
    shifts!(_mm256_sll_epi64, _mm256_srl_epi64);
    rotations!(__m256i, ymm_reg, "avx2", "ymmword": _mm256_or_si256, _mm256_sll_epi32, _mm256_srl_epi32);

    operations! {
        fn zero() = _mm256_setzero_si256;
        fn low_halves(self, b) = _mm256_unpacklo_epi64;
        fn high_halves(self, b) = _mm256_unpackhi_epi64;
        fn unpack32_low(self, b) = _mm256_unpacklo_epi32;
        fn unpack32_high(self, b) = _mm256_unpackhi_epi32;
        fn xor(self, b) = _mm256_xor_si256;
        fn and(self, b) = _mm256_and_si256;
        fn swap_halves(self) = _mm256_shuffle_epi32::<0x4e>;
        fn shl_bytes<const N: i32>(self) = _mm256_bslli_epi128::<N>;
        fn shr_bytes<const N: i32>(self) = _mm256_bsrli_epi128::<N>;
        fn behind<const N: i32>(self, low) = _mm256_alignr_epi8::<N>;
        fn shuffle_bytes(self, order) = _mm256_shuffle_epi8;
        fn add32(self, b) = _mm256_add_epi32;
        fn add64(self, b) = _mm256_add_epi64;
        fn mul32(self, b) = _mm256_mul_epu32;
        fn shuffle32<const ORDER: i32>(self) = _mm256_shuffle_epi32::<ORDER>;
    }

    #[inline(always)]
    fn splat(block: u128) -> Self {
        Self::spread(V128(schedule::vector(block)))
    }

    #[inline(always)]
    unsafe fn gather(src: [*const u8; 4]) -> Self {
        intrinsics!(_mm256_inserti128_si256::<1>(
            _mm256_castsi128_si256(_mm_loadu_si128(src[0].cast())),
            _mm_loadu_si128(src[1].cast()),
        ))
    }

    #[inline(always)]
    unsafe fn scatter(self, dst: [*mut u8; 4]) {
        // SAFETY: the CPU has the features, and the caller's promise.
        unsafe {
            _mm_storeu_si128(dst[0].cast(), _mm256_castsi256_si128(self.0));
            _mm_storeu_si128(dst[1].cast(), _mm256_extracti128_si256::<1>(self.0));
        }
    }

    #[inline(always)]
    fn spread(block: V128) -> Self {
        intrinsics!(_mm256_broadcastsi128_si256(block.0))
    }

    #[inline(always)]
    fn lane<const I: i32>(self) -> V128 {
        // SAFETY: the CPU has the features.
        V128(unsafe { _mm256_extracti128_si256::<I>(self.0) })
    }

    #[inline(always)]
    fn alone(block: V128) -> Self {
        intrinsics!(_mm256_zextsi128_si256(block.0))
    }

    #[inline(always)]
    fn unzip(a: Self, b: Self) -> (Self, Self) {
        (
            intrinsics!(_mm256_permute2x128_si256::<0x20>(a.0, b.0)),
            intrinsics!(_mm256_permute2x128_si256::<0x31>(a.0, b.0)),
        )
    }

    #[inline(always)]
    fn zip(even: Self, odd: Self) -> (Self, Self) {
        Self::unzip(even, odd)
    }

    #[inline(always)]
    fn fold(self) -> V128 {
        // SAFETY: the CPU has the features.
        unsafe {
            V128(_mm_xor_si128(
                _mm256_castsi256_si128(self.0),
                _mm256_extracti128_si256::<1>(self.0),
            ))
        }
    }

    #[inline(always)]
    fn fold_each([a, b, ..]: [Self; 4]) -> Self {
        let (even, odd) = Self::unzip(a, b);
        even.xor(odd)
    }

    #[inline(always)]
    fn fold_add64(self) -> V128 {
        // SAFETY: the CPU has the features.
        unsafe {
            V128(_mm_add_epi64(
                _mm256_castsi256_si128(self.0),
                _mm256_extracti128_si256::<1>(self.0),
            ))
        }
    }

    #[inline(always)]
    fn transpose([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        [
            intrinsics!(_mm256_permute2x128_si256::<0x20>(a.0, c.0)),
            intrinsics!(_mm256_permute2x128_si256::<0x31>(a.0, c.0)),
            intrinsics!(_mm256_permute2x128_si256::<0x20>(b.0, d.0)),
            intrinsics!(_mm256_permute2x128_si256::<0x31>(b.0, d.0)),
        ]
    }

    #[inline(always)]
    fn transpose_lanes([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        [
            intrinsics!(_mm256_permute2x128_si256::<0x20>(a.0, b.0)),
            intrinsics!(_mm256_permute2x128_si256::<0x20>(c.0, d.0)),
            intrinsics!(_mm256_permute2x128_si256::<0x31>(a.0, b.0)),
            intrinsics!(_mm256_permute2x128_si256::<0x31>(c.0, d.0)),
        ]
    }

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        intrinsics!(_mm256_xor_si256(self.0, _mm256_xor_si256(b.0, c.0)))
    }
}

/// What `$one` makes of the halves of two vectors.
macro_rules! by_halves {
    ($(fn $name:ident $(<const $n:ident: $number:ty>)? = $one:path;)*) => {$(
        #[target_feature(enable = "aes,avx2,pclmulqdq")]
        #[inline]
        fn $name $(<const $n: $number>)? (a: __m256i, b: __m256i) -> __m256i {
            let low = $one(_mm256_castsi256_si128(a), _mm256_castsi256_si128(b));
            let high = $one(_mm256_extracti128_si256::<1>(a), _mm256_extracti128_si256::<1>(b));
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
        }
    )*};
}

by_halves! {
    fn encrypt_halves = _mm_aesenc_si128;
    fn encrypt_last_halves = _mm_aesenclast_si128;
    fn decrypt_halves = _mm_aesdec_si128;
    fn decrypt_last_halves = _mm_aesdeclast_si128;
    fn multiply_halves<const HALVES: i32> = _mm_clmulepi64_si128::<HALVES>;
}

impl<const WHOLE: bool> Clmul for V256<WHOLE> {
    #[inline(always)]
    fn clmul<const HALVES: i32>(self, b: Self) -> Self {
        if WHOLE {
            intrinsics!(_mm256_clmulepi64_epi128::<HALVES>(self.0, b.0))
        } else {
            intrinsics!(multiply_halves::<HALVES>(self.0, b.0))
        }
    }

    #[inline(always)]
    fn powers_of_x<const HOW: u8>(block: V128) -> Self {
        let block = Self::spread(block);
        // A shift by 64 leaves zero.
        let right = intrinsics!(_mm256_set_epi64x(63, 63, 64, 64));
        let left = intrinsics!(_mm256_set_epi64x(1, 1, 0, 0));
        let out = intrinsics!(_mm256_srlv_epi64(block.swap_halves().0, right.0));
        let carry = out.clmul::<0x00>(Self::splat(0x86));
        intrinsics!(_mm256_sllv_epi64(block.0, left.0)).xor3(out, carry)
    }
}

impl Aes for V256<true> {
    key_schedule!();

    aes! {
        fn aes_start_from, aes_round, aes_finish from RoundKeys, key;
        rounds of 8: round_of_eight;
        encrypt: _mm256_aesenc_epi128, _mm256_aesenclast_epi128;
        decrypt: _mm256_aesdec_epi128, _mm256_aesdeclast_epi128;
    }
}

impl Aes for V256<false> {
    key_schedule!();

    aes! {
        fn aes_start_from, aes_round, aes_finish from RoundKeys, key;
        encrypt: encrypt_halves, encrypt_last_halves;
        decrypt: decrypt_halves, decrypt_last_halves;
    }
}

impl Tuning for V256<true> {
    #[inline(always)]
    fn three_products() -> bool {
        super::ports::three_products::<32>()
    }
    hints!(V256<true>, ymm_reg, "avx2");

    /// From the fifth on each is x^8 times the one four before: whole bytes move, and
    /// the units that shift bits are those of AES.
    #[inline(always)]
    fn mask<const COUNT: usize, const HOW: u8>(
        state: &mut [Self; 5],
        more: Self,
        first: impl FnOnce() -> Self,
        step: usize,
    ) -> Self {
        let [block, swapped, one, other, _] = state;
        if step == 0 {
            *block = first();
            *swapped = block.swap_halves();
        }
        let mask = match step {
            0 => *block,
            1 => block.times_x_with::<4, 60>(*swapped),
            4 => block.times_x_with::<2, 62>(*swapped),
            5 => block.times_x_with::<6, 58>(*swapped),
            _ => {
                let (carry, moved) = (one.shr_bytes::<15>(), one.shl_bytes::<1>());
                moved.xor(carry.clmul::<0x00>(Self::splat(0x87)))
            }
        };
        // Of the two steps before.
        *one = *other;
        *other = mask;
        mask.xor(more)
    }
}

impl Tuning for V256<false> {
    hints!(V256<false>, ymm_reg, "avx2");
}

// SAFETY: `has_vaes256` asks for what the intrinsics and the assembly are declared with.
unsafe impl Vector for V256<true> {
    type Integers = Self;

    fn detect() -> bool {
        super::has_vaes256()
    }

    #[target_feature(enable = "aes,avx2,vaes,pclmulqdq,vpclmulqdq,sse4.1")]
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R {
        kernel()
    }
}

// SAFETY: `has_avx2` asks for what the intrinsics are declared with.
unsafe impl Vector for V256<false> {
    type Integers = Self;

    fn detect() -> bool {
        super::has_avx2()
    }

    #[target_feature(enable = "aes,avx2,pclmulqdq,sse4.1")]
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R {
        kernel()
    }
}
