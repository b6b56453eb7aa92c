//! 256-bit vectors: VAES and VPCLMULQDQ with AVX2.

use super::V128;
use super::schedule;
use crate::here::{ZipHere, from_fn};
use crate::simd::{Aes, Clmul, Lanes, RoundKeys, Tuning, Vector};
use core::arch::x86_64::*;

/// 256-bit vector.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct V256(pub(super) __m256i);

/// Intrinsics of the CPU's features, which are there: see [`Vector`].
macro_rules! intrinsics {
    ($value:expr) => {
        // SAFETY: the CPU has the features of every operation of this vector.
        Self(unsafe { $value })
    };
}

/// One AES round on eight vectors side by side, the round key loaded once.
/// Assembly, because the compiler, seeing eight independent chains, may put
/// them one behind the other again.
macro_rules! round_of_eight {
    ($instruction:literal, $x:expr, $keys:expr, $round:ident) => {{
        let x = $x;
        let _round_key: __m256i;
        // SAFETY: computes on registers and reads one round key.
        unsafe {
            core::arch::asm!(
                "vbroadcasti128 {k}, xmmword ptr [{keys} + {offset}]",
                concat!($instruction, " {x0}, {x0}, {k}"),
                concat!($instruction, " {x1}, {x1}, {k}"),
                concat!($instruction, " {x2}, {x2}, {k}"),
                concat!($instruction, " {x3}, {x3}, {k}"),
                concat!($instruction, " {x4}, {x4}, {k}"),
                concat!($instruction, " {x5}, {x5}, {k}"),
                concat!($instruction, " {x6}, {x6}, {k}"),
                concat!($instruction, " {x7}, {x7}, {k}"),
                x0 = inout(ymm_reg) x[0].0,
                x1 = inout(ymm_reg) x[1].0,
                x2 = inout(ymm_reg) x[2].0,
                x3 = inout(ymm_reg) x[3].0,
                x4 = inout(ymm_reg) x[4].0,
                x5 = inout(ymm_reg) x[5].0,
                x6 = inout(ymm_reg) x[6].0,
                x7 = inout(ymm_reg) x[7].0,
                k = out(ymm_reg) _round_key,
                keys = in(reg) $keys.at(0),
                offset = const 16 * $round,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
    }};
}

/// One round on eight vectors.
#[target_feature(enable = "aes,avx2,vaes")]
#[inline]
fn round_of_eight<const ENCRYPT: bool, const ROUND: usize>(x: &mut [V256; 8], keys: &RoundKeys) {
    if ENCRYPT {
        round_of_eight!("vaesenc", x, keys, ROUND);
    } else {
        round_of_eight!("vaesdec", x, keys, ROUND);
    }
}

/// An empty piece of assembly between all of these.
#[target_feature(enable = "avx2")]
#[inline]
fn hand_through(x: &mut [V256; 4], y: &mut [V256; 3]) {
    // SAFETY: it does nothing.
    unsafe {
        core::arch::asm!(
            "/* {} {} {} {} {} {} {} */",
            inout(ymm_reg) x[0].0,
            inout(ymm_reg) x[1].0,
            inout(ymm_reg) x[2].0,
            inout(ymm_reg) x[3].0,
            inout(ymm_reg) y[0].0,
            inout(ymm_reg) y[1].0,
            inout(ymm_reg) y[2].0,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
}

/// See [`Tuning::tie`].
#[target_feature(enable = "avx2")]
#[inline]
fn tie(a: &mut V256, b: &mut V256) {
    // SAFETY: an empty piece of assembly, that hands both through.
    unsafe {
        core::arch::asm!(
            "/* {} {} */",
            inout(ymm_reg) a.0,
            inout(ymm_reg) b.0,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
}

#[inline(always)]
fn key(keys: &RoundKeys, round: usize) -> V256 {
    // SAFETY: the CPU has the features; a round key is sixteen bytes, aligned.
    V256(unsafe { _mm256_broadcastsi128_si256(_mm_load_si128(keys.at(round).cast())) })
}

/// Hands a vector through a piece of assembly, which keeps its place.
#[target_feature(enable = "avx")]
#[inline]
fn pin(mut x: __m256i) -> __m256i {
    // SAFETY: it is empty.
    unsafe {
        core::arch::asm!("/* {} */", inout(ymm_reg) x, options(nomem, nostack, preserves_flags));
    }
    x
}

impl Lanes for V256 {
    const BLOCKS: usize = 2;
    type One = V128;

    #[inline(always)]
    fn zero() -> Self {
        intrinsics!(_mm256_setzero_si256())
    }

    #[inline(always)]
    fn splat(block: u128) -> Self {
        Self::spread(V128(schedule::vector(block)))
    }

    #[inline(always)]
    fn from_fn(block: impl FnMut(usize) -> u128) -> Self {
        let blocks: [u128; Self::BLOCKS] = from_fn(block);
        // SAFETY: as many bytes as the vector has.
        unsafe { Self::load(blocks.as_ptr().cast()) }
    }

    #[inline(always)]
    fn blocks(self) -> [u128; 4] {
        let mut blocks = [0; 4];
        // SAFETY: no fewer bytes than the vector has.
        unsafe { self.store(blocks.as_mut_ptr().cast()) };
        blocks
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the CPU has the features, and the caller's promise.
        Self(unsafe { _mm256_loadu_si256(src.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(dst.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn gather(src: [*const u8; 4]) -> Self {
        // SAFETY: as above.
        Self(unsafe {
            _mm256_inserti128_si256::<1>(
                _mm256_castsi128_si256(_mm_loadu_si128(src[0].cast())),
                _mm_loadu_si128(src[1].cast()),
            )
        })
    }

    #[inline(always)]
    unsafe fn scatter(self, dst: [*mut u8; 4]) {
        // SAFETY: as above.
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
    fn low_halves(self, b: Self) -> Self {
        intrinsics!(_mm256_unpacklo_epi64(self.0, b.0))
    }

    #[inline(always)]
    fn high_halves(self, b: Self) -> Self {
        intrinsics!(_mm256_unpackhi_epi64(self.0, b.0))
    }

    #[inline(always)]
    fn unpack32_low(self, b: Self) -> Self {
        intrinsics!(_mm256_unpacklo_epi32(self.0, b.0))
    }

    #[inline(always)]
    fn unpack32_high(self, b: Self) -> Self {
        intrinsics!(_mm256_unpackhi_epi32(self.0, b.0))
    }

    #[inline(always)]
    fn xor(self, b: Self) -> Self {
        intrinsics!(_mm256_xor_si256(self.0, b.0))
    }

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        intrinsics!(_mm256_xor_si256(self.0, _mm256_xor_si256(b.0, c.0)))
    }

    #[inline(always)]
    fn and(self, b: Self) -> Self {
        intrinsics!(_mm256_and_si256(self.0, b.0))
    }

    #[inline(always)]
    fn swap_halves(self) -> Self {
        intrinsics!(_mm256_shuffle_epi32::<0x4e>(self.0))
    }

    #[inline(always)]
    fn shl_bytes<const N: i32>(self) -> Self {
        intrinsics!(_mm256_bslli_epi128::<N>(self.0))
    }

    #[inline(always)]
    fn shr_bytes<const N: i32>(self) -> Self {
        intrinsics!(_mm256_bsrli_epi128::<N>(self.0))
    }

    #[inline(always)]
    fn behind<const N: i32>(self, low: Self) -> Self {
        intrinsics!(_mm256_alignr_epi8::<N>(self.0, low.0))
    }

    #[inline(always)]
    fn shuffle_bytes(self, order: Self) -> Self {
        intrinsics!(_mm256_shuffle_epi8(self.0, order.0))
    }

    #[inline(always)]
    fn shl64<const N: u32>(self) -> Self {
        intrinsics!(_mm256_sll_epi64(self.0, _mm_cvtsi32_si128(N.cast_signed())))
    }

    #[inline(always)]
    fn shr64<const N: u32>(self) -> Self {
        intrinsics!(_mm256_srl_epi64(self.0, _mm_cvtsi32_si128(N.cast_signed())))
    }

    #[inline(always)]
    fn add32(self, b: Self) -> Self {
        intrinsics!(_mm256_add_epi32(self.0, b.0))
    }

    #[inline(always)]
    fn add64(self, b: Self) -> Self {
        intrinsics!(_mm256_add_epi64(self.0, b.0))
    }

    #[inline(always)]
    fn mul32(self, b: Self) -> Self {
        intrinsics!(_mm256_mul_epu32(self.0, b.0))
    }

    #[inline(always)]
    fn rotl32<const N: u32>(self) -> Self {
        // Whole bytes by one shuffle.
        let order = match N {
            8 => Self::splat(0x0e0d_0c0f_0a09_080b_0605_0407_0201_0003),
            16 => Self::splat(0x0d0c_0f0e_0908_0b0a_0504_0706_0100_0302),
            _ => {
                return intrinsics!(_mm256_or_si256(
                    _mm256_sll_epi32(self.0, _mm_cvtsi32_si128(N.cast_signed())),
                    _mm256_srl_epi32(self.0, _mm_cvtsi32_si128(32 - N.cast_signed()))
                ));
            }
        };
        intrinsics!(_mm256_shuffle_epi8(self.0, order.0))
    }

    #[inline(always)]
    fn shuffle32<const ORDER: i32>(self) -> Self {
        intrinsics!(_mm256_shuffle_epi32::<ORDER>(self.0))
    }
}

impl Clmul for V256 {
    #[inline(always)]
    fn clmul<const HALVES: i32>(self, b: Self) -> Self {
        intrinsics!(_mm256_clmulepi64_epi128::<HALVES>(self.0, b.0))
    }

    #[inline(always)]
    fn times_x_of_group(self) -> Self {
        let carry = intrinsics!(_mm256_bsrli_epi128::<14>(self.0)).clmul::<0x00>(Self::splat(0x87));
        carry.xor(intrinsics!(_mm256_bslli_epi128::<2>(self.0)))
    }

    #[inline(always)]
    fn powers_of_x(block: V128) -> Self {
        let block = Self::spread(block);
        // A shift by 64 leaves zero.
        let right = intrinsics!(_mm256_set_epi64x(63, 63, 64, 64));
        let left = intrinsics!(_mm256_set_epi64x(1, 1, 0, 0));
        let out = intrinsics!(_mm256_srlv_epi64(block.swap_halves().0, right.0));
        let carry = out.clmul::<0x00>(Self::splat(0x86));
        intrinsics!(_mm256_sllv_epi64(block.0, left.0)).xor3(out, carry)
    }
}

impl Aes for V256 {
    #[inline(always)]
    fn expand(key: &[u8], keys: &mut RoundKeys) -> usize {
        // SAFETY: the CPU has the features.
        unsafe { schedule::expand(key, keys) }
    }

    #[inline(always)]
    fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys, rounds: usize) {
        // SAFETY: the CPU has the features.
        unsafe { schedule::invert(encrypt, decrypt, rounds) }
    }

    #[inline(always)]
    fn aes_start<const N: usize>(x: &mut [Self; N], keys: &RoundKeys) {
        let first = key(schedule::fresh(keys), 0);
        for x in x {
            *x = x.xor(first);
        }
    }

    #[inline(always)]
    fn aes_start_with<const N: usize>(x: &mut [Self; N], keys: &RoundKeys, masks: &[Self; N]) {
        let first = key(schedule::fresh(keys), 0);
        for (x, mask) in x.iter_mut().zip_here(masks) {
            *x = x.xor3(first, *mask);
        }
    }

    #[inline(always)]
    fn aes_round<const N: usize, const ENCRYPT: bool, const ROUND: usize>(
        x: &mut [Self; N],
        keys: &RoundKeys,
    ) {
        if let Ok(x) = <&mut [Self; 8]>::try_from(&mut x[..]) {
            // SAFETY: the CPU has the features.
            unsafe { round_of_eight::<ENCRYPT, ROUND>(x, keys) };
            return;
        }
        let key = key(schedule::fresh(keys), ROUND);
        for x in x {
            *x = if ENCRYPT {
                intrinsics!(_mm256_aesenc_epi128(x.0, key.0))
            } else {
                intrinsics!(_mm256_aesdec_epi128(x.0, key.0))
            };
        }
    }

    #[inline(always)]
    fn aes_finish<const N: usize, const ENCRYPT: bool, const ROUNDS: usize>(
        x: &mut [Self; N],
        keys: &RoundKeys,
        masks: &[Self; N],
    ) {
        let last = key(schedule::fresh(keys), ROUNDS);
        for (x, mask) in x.iter_mut().zip_here(masks) {
            let last = last.xor(*mask);
            *x = if ENCRYPT {
                intrinsics!(_mm256_aesenclast_epi128(x.0, last.0))
            } else {
                intrinsics!(_mm256_aesdeclast_epi128(x.0, last.0))
            };
        }
    }
}

impl Tuning for V256 {
    #[inline(always)]
    fn pin(self) -> Self {
        intrinsics!(pin(self.0))
    }

    #[inline(always)]
    fn order(x: &mut [Self; 4], y: &mut [Self; 3]) {
        // SAFETY: an empty piece of assembly, that hands the vectors through.
        unsafe { hand_through(x, y) }
    }

    #[inline(always)]
    fn tie(&mut self, other: &mut Self) {
        // SAFETY: the CPU has the features.
        unsafe { tie(self, other) };
    }

    /// From the fifth on each is x^8 times the one four before: whole bytes move, and
    /// the units that shift bits are those of AES.
    #[inline(always)]
    fn mask<const COUNT: usize>(
        state: &mut [Self; 5],
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
                let carry = intrinsics!(_mm256_bsrli_epi128::<15>(one.0));
                let moved = intrinsics!(_mm256_bslli_epi128::<1>(one.0));
                moved.xor(carry.clmul::<0x00>(Self::splat(0x87)))
            }
        };
        // Of the two steps before.
        *one = *other;
        *other = mask;
        mask
    }
}

impl Vector for V256 {
    #[target_feature(enable = "aes,avx2,vaes,pclmulqdq,vpclmulqdq,sse4.1")]
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R {
        kernel()
    }
}
