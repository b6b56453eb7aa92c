//! 128-bit vectors: NEON with AES and PMULL.

use super::schedule;
use crate::here::{MapHere, ZipHere};
use crate::simd::{Aes, Clmul, Lanes, RoundKeys, Tuning, Vector, fresh};
use core::arch::aarch64::*;

/// 128-bit vector.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Neon(uint8x16_t);

/// Intrinsics of the CPU's features, which are there: see [`Vector`].
macro_rules! intrinsics {
    ($value:expr) => {
        // SAFETY: the CPU has the features of every operation of this vector.
        Self(unsafe { $value })
    };
}

/// The same on words of another size.
macro_rules! on_words {
    ($to:ident, $from:ident, $operation:ident, $($x:expr),+) => {
        intrinsics!($from($operation($($to($x)),+)))
    };
}

/// One AES round on eight vectors side by side, the round key loaded once.
/// Assembly, because the compiler, seeing eight independent chains, may put
/// them one behind the other again; and each pair of instructions must stay
/// together, for CPUs that run it as one.
macro_rules! round_of_eight {
    ($add_and_substitute:literal, $mix:literal, $x:expr, $keys:expr, $round:expr) => {{
        let x = $x;
        let _round_key: uint8x16_t;
        // SAFETY: computes on registers and reads one round key.
        unsafe {
            core::arch::asm!(
                "ldr {k:q}, [{keys}, #{offset}]",
                concat!($add_and_substitute, " {x0:v}.16b, {k:v}.16b"),
                concat!($mix, " {x0:v}.16b, {x0:v}.16b"),
                concat!($add_and_substitute, " {x1:v}.16b, {k:v}.16b"),
                concat!($mix, " {x1:v}.16b, {x1:v}.16b"),
                concat!($add_and_substitute, " {x2:v}.16b, {k:v}.16b"),
                concat!($mix, " {x2:v}.16b, {x2:v}.16b"),
                concat!($add_and_substitute, " {x3:v}.16b, {k:v}.16b"),
                concat!($mix, " {x3:v}.16b, {x3:v}.16b"),
                concat!($add_and_substitute, " {x4:v}.16b, {k:v}.16b"),
                concat!($mix, " {x4:v}.16b, {x4:v}.16b"),
                concat!($add_and_substitute, " {x5:v}.16b, {k:v}.16b"),
                concat!($mix, " {x5:v}.16b, {x5:v}.16b"),
                concat!($add_and_substitute, " {x6:v}.16b, {k:v}.16b"),
                concat!($mix, " {x6:v}.16b, {x6:v}.16b"),
                concat!($add_and_substitute, " {x7:v}.16b, {k:v}.16b"),
                concat!($mix, " {x7:v}.16b, {x7:v}.16b"),
                x0 = inout(vreg) x[0].0,
                x1 = inout(vreg) x[1].0,
                x2 = inout(vreg) x[2].0,
                x3 = inout(vreg) x[3].0,
                x4 = inout(vreg) x[4].0,
                x5 = inout(vreg) x[5].0,
                x6 = inout(vreg) x[6].0,
                x7 = inout(vreg) x[7].0,
                k = out(vreg) _round_key,
                keys = in(reg) $keys.at(0),
                offset = const 16 * ($round),
                options(pure, readonly, nostack, preserves_flags),
            );
        }
    }};
}

/// One round on eight vectors. The instruction adds its round key first, so
/// that it is the key of the round before.
#[target_feature(enable = "neon,aes")]
#[inline]
fn round_of_eight<const ENCRYPT: bool, const ROUND: usize>(x: &mut [Neon; 8], keys: &RoundKeys) {
    if ENCRYPT {
        round_of_eight!("aese", "aesmc", x, keys, ROUND - 1);
    } else {
        round_of_eight!("aesd", "aesimc", x, keys, ROUND - 1);
    }
}

/// One round on one vector.
#[target_feature(enable = "neon,aes")]
#[inline]
fn round<const ENCRYPT: bool>(x: Neon, key: Neon) -> Neon {
    Neon(if ENCRYPT {
        vaesmcq_u8(vaeseq_u8(x.0, key.0))
    } else {
        vaesimcq_u8(vaesdq_u8(x.0, key.0))
    })
}

/// The last round, but for the last round key.
#[target_feature(enable = "neon,aes")]
#[inline]
fn last_round<const ENCRYPT: bool>(x: Neon, key: Neon) -> Neon {
    Neon(if ENCRYPT {
        vaeseq_u8(x.0, key.0)
    } else {
        vaesdq_u8(x.0, key.0)
    })
}

/// The product of the low halves.
#[target_feature(enable = "neon,aes")]
#[inline]
fn multiply_low(a: Neon, b: Neon) -> Neon {
    let low = |x: Neon| vgetq_lane_p64::<0>(vreinterpretq_p64_u8(x.0));
    Neon(vreinterpretq_u8_p128(vmull_p64(low(a), low(b))))
}

/// The product of the high halves.
#[target_feature(enable = "neon,aes")]
#[inline]
fn multiply_high(a: Neon, b: Neon) -> Neon {
    let [a, b] = [a, b].map_here(|x| vreinterpretq_p64_u8(x.0));
    Neon(vreinterpretq_u8_p128(vmull_high_p64(a, b)))
}

#[inline(always)]
fn key(keys: &RoundKeys, round: usize) -> Neon {
    // SAFETY: the CPU has the features; a round key is sixteen bytes.
    Neon(unsafe { vld1q_u8(keys.at(round)) })
}

impl Lanes for Neon {
    const BLOCKS: usize = 1;
    type One = Neon;

    #[inline(always)]
    fn zero() -> Self {
        intrinsics!(vdupq_n_u8(0))
    }

    #[inline(always)]
    fn splat(block: u128) -> Self {
        // SAFETY: sixteen bytes of plain data either way.
        Self(unsafe { core::mem::transmute::<u128, uint8x16_t>(block) })
    }

    #[inline(always)]
    fn from_fn(mut block: impl FnMut(usize) -> u128) -> Self {
        Self::splat(block(0))
    }

    #[inline(always)]
    fn blocks(self) -> [u128; 4] {
        // SAFETY: sixteen bytes of plain data either way.
        let block = unsafe { core::mem::transmute::<uint8x16_t, u128>(self.0) };
        [block, 0, 0, 0]
    }

    #[inline(always)]
    unsafe fn load(src: *const u8) -> Self {
        // SAFETY: the CPU has the features, and the caller's promise.
        Self(unsafe { vld1q_u8(src) })
    }

    #[inline(always)]
    unsafe fn store(self, dst: *mut u8) {
        // SAFETY: the CPU has the features, and the caller's promise.
        unsafe { vst1q_u8(dst, self.0) }
    }

    #[inline(always)]
    unsafe fn gather(src: [*const u8; 4]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::load(src[0]) }
    }

    #[inline(always)]
    fn spread(block: Neon) -> Self {
        block
    }

    #[inline(always)]
    fn lane<const I: i32>(self) -> Neon {
        self
    }

    #[inline(always)]
    fn alone(block: Neon) -> Self {
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
    fn fold(self) -> Neon {
        self
    }

    #[inline(always)]
    fn transpose(x: [Self; 4]) -> [Self; 4] {
        x
    }

    #[inline(always)]
    fn low_halves(self, b: Self) -> Self {
        on_words!(
            vreinterpretq_u64_u8,
            vreinterpretq_u8_u64,
            vzip1q_u64,
            self.0,
            b.0
        )
    }

    #[inline(always)]
    fn high_halves(self, b: Self) -> Self {
        on_words!(
            vreinterpretq_u64_u8,
            vreinterpretq_u8_u64,
            vzip2q_u64,
            self.0,
            b.0
        )
    }

    #[inline(always)]
    fn unpack32_low(self, b: Self) -> Self {
        on_words!(
            vreinterpretq_u32_u8,
            vreinterpretq_u8_u32,
            vzip1q_u32,
            self.0,
            b.0
        )
    }

    #[inline(always)]
    fn unpack32_high(self, b: Self) -> Self {
        on_words!(
            vreinterpretq_u32_u8,
            vreinterpretq_u8_u32,
            vzip2q_u32,
            self.0,
            b.0
        )
    }

    #[inline(always)]
    fn xor(self, b: Self) -> Self {
        intrinsics!(veorq_u8(self.0, b.0))
    }

    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        self.xor(b.xor(c))
    }

    #[inline(always)]
    fn and(self, b: Self) -> Self {
        intrinsics!(vandq_u8(self.0, b.0))
    }

    #[inline(always)]
    fn swap_halves(self) -> Self {
        intrinsics!(vextq_u8::<8>(self.0, self.0))
    }

    #[inline(always)]
    fn shl_bytes<const N: i32>(self) -> Self {
        // Stable Rust knows no number that is sixteen less this one.
        const BYTES: u128 = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;
        self.shuffle_bytes(Self::splat(BYTES << (8 * N) | ((1 << (8 * N)) - 1)))
    }

    #[inline(always)]
    fn shr_bytes<const N: i32>(self) -> Self {
        Self::zero().behind::<N>(self)
    }

    #[inline(always)]
    fn behind<const N: i32>(self, low: Self) -> Self {
        intrinsics!(vextq_u8::<N>(low.0, self.0))
    }

    #[inline(always)]
    fn shuffle_bytes(self, order: Self) -> Self {
        intrinsics!(vqtbl1q_u8(self.0, order.0))
    }

    #[inline(always)]
    fn reverse_bytes(self) -> Self {
        Self(intrinsics!(vrev64q_u8(self.0)).0).swap_halves()
    }

    // Shifts by a register of one number each; the compiler knows it.

    #[inline(always)]
    fn shl64<const N: u32>(self) -> Self {
        let (to, from) = (vreinterpretq_u64_u8, vreinterpretq_u8_u64);
        intrinsics!(from(vshlq_u64(to(self.0), vdupq_n_s64(i64::from(N)))))
    }

    #[inline(always)]
    fn shr64<const N: u32>(self) -> Self {
        let (to, from) = (vreinterpretq_u64_u8, vreinterpretq_u8_u64);
        intrinsics!(from(vshlq_u64(to(self.0), vdupq_n_s64(-i64::from(N)))))
    }

    #[inline(always)]
    fn add32(self, b: Self) -> Self {
        on_words!(
            vreinterpretq_u32_u8,
            vreinterpretq_u8_u32,
            vaddq_u32,
            self.0,
            b.0
        )
    }

    #[inline(always)]
    fn add64(self, b: Self) -> Self {
        on_words!(
            vreinterpretq_u64_u8,
            vreinterpretq_u8_u64,
            vaddq_u64,
            self.0,
            b.0
        )
    }

    #[inline(always)]
    fn mul32(self, b: Self) -> Self {
        let (to, from) = (vreinterpretq_u64_u8, vreinterpretq_u8_u64);
        intrinsics!(from(vmull_u32(vmovn_u64(to(self.0)), vmovn_u64(to(b.0)))))
    }

    #[inline(always)]
    fn rotl32<const N: u32>(self) -> Self {
        if N == 16 {
            return on_words!(
                vreinterpretq_u16_u8,
                vreinterpretq_u8_u16,
                vrev32q_u16,
                self.0
            );
        }
        let shifted = |by: i32| {
            let (to, from) = (vreinterpretq_u32_u8, vreinterpretq_u8_u32);
            intrinsics!(from(vshlq_u32(to(self.0), vdupq_n_s32(by))))
        };
        let by = N.cast_signed();
        intrinsics!(vorrq_u8(shifted(by).0, shifted(by - 32).0))
    }

    #[inline(always)]
    fn shuffle32<const ORDER: i32>(self) -> Self {
        // Rotations are one instruction; any other order is a table look-up
        // inside a register, with indices that are constants.
        match ORDER {
            0x39 => intrinsics!(vextq_u8::<4>(self.0, self.0)),
            0x4e => intrinsics!(vextq_u8::<8>(self.0, self.0)),
            0x93 => intrinsics!(vextq_u8::<12>(self.0, self.0)),
            _ => {
                let word = |i: i32| {
                    0x0302_0100 + 0x0404_0404 * u128::from((ORDER >> (2 * i) & 3).cast_unsigned())
                };
                let order = word(0) | word(1) << 32 | word(2) << 64 | word(3) << 96;
                intrinsics!(vqtbl1q_u8(self.0, Self::splat(order).0))
            }
        }
    }
}

impl Clmul for Neon {
    #[inline(always)]
    fn clmul<const HALVES: i32>(self, b: Self) -> Self {
        let low = |x: Self, swap: i32| if swap == 0 { x } else { x.swap_halves() };
        // SAFETY: the CPU has the features.
        unsafe {
            if HALVES == 0x11 {
                multiply_high(self, b)
            } else {
                multiply_low(low(self, HALVES & 0x01), low(b, HALVES & 0x10))
            }
        }
    }

    #[inline(always)]
    fn times_x_of_group(self) -> Self {
        let carry = intrinsics!(vextq_u8::<15>(self.0, vdupq_n_u8(0)));
        let shifted = intrinsics!(vextq_u8::<15>(vdupq_n_u8(0), self.0));
        carry.clmul::<0x00>(Self::splat(0x87)).xor(shifted)
    }

    #[inline(always)]
    fn powers_of_x<const HOW: u8>(block: Neon) -> Self {
        block
    }
}

impl Aes for Neon {
    #[inline(always)]
    fn expand(key: &[u8], keys: &mut RoundKeys) {
        // SAFETY: the CPU has the features.
        unsafe { schedule::expand(key, keys) };
    }

    #[inline(always)]
    fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys) {
        // SAFETY: the CPU has the features.
        unsafe { schedule::invert(encrypt, decrypt) };
    }

    /// Nothing: the first round adds the first round key.
    #[inline(always)]
    fn aes_before<const N: usize>(_x: &mut [Self; N], _keys: &RoundKeys) {}

    #[inline(always)]
    fn aes_start_with<const N: usize, const ENCRYPT: bool>(
        x: &mut [Self; N],
        keys: &RoundKeys,
        masks: &[Self; N],
    ) {
        Self::aes_start_from::<N, 0>(x, keys, masks);
        Self::aes_early::<N, ENCRYPT>(x, keys);
    }

    #[inline(always)]
    fn aes_start_from<const N: usize, const FIRST: usize>(
        x: &mut [Self; N],
        _keys: &RoundKeys,
        masks: &[Self; N],
    ) {
        for (x, mask) in x.iter_mut().zip_here(masks) {
            *x = x.xor(*mask);
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
        let key = key(fresh(keys), ROUND - 1);
        for x in x {
            // SAFETY: the CPU has the features.
            *x = unsafe { round::<ENCRYPT>(*x, key) };
        }
    }

    #[inline(always)]
    fn aes_finish<const N: usize, const ENCRYPT: bool>(
        x: &mut [Self; N],
        keys: &RoundKeys,
        masks: &[Self; N],
    ) {
        let keys = fresh(keys);
        let (before, last) = (key(keys, RoundKeys::LAST - 1), key(keys, RoundKeys::LAST));
        for (x, mask) in x.iter_mut().zip_here(masks) {
            // SAFETY: the CPU has the features.
            let block = unsafe { last_round::<ENCRYPT>(*x, before) };
            *x = block.xor3(last, *mask);
        }
    }
}

impl Tuning for Neon {}

// SAFETY: `has_armv8` asks for what the intrinsics and the assembly are declared with.
unsafe impl Vector for Neon {
    type Integers = Self;

    fn detect() -> bool {
        super::has_armv8()
    }

    #[target_feature(enable = "neon,aes")]
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R {
        kernel()
    }
}
