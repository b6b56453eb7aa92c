//! Masks of XTS and EME2 as [`V512`]: a block times powers of x, without shifts of
//! bits, which Intel's CPUs do where they do AES.

use super::{V128, V512};
use crate::here::MapHere;
use crate::simd::{Clmul, Lanes};
use core::arch::x86_64::*;

/// See [`Tuning::mask`](crate::simd::Tuning::mask). In two series, from x^0 and from x^4 on, in which each is
/// x^8 times the one before: whole bytes move, and those that move out come back as
/// their products with x^7 + x^2 + x + 1.
#[inline(always)]
pub(super) fn mask<const COUNT: usize>(
    state: &mut [V512; 5],
    first: impl FnOnce() -> V512,
    step: usize,
) -> V512 {
    let [block, low, high, ..] = state;
    let by = step % (COUNT / 2);
    if by == 0 {
        *block = if step == 0 {
            first()
        } else {
            times_x_by(*block, &BY_4)
        };
        // A series of eight masks has seven bytes that move out, of four three.
        [*low, *high] = if COUNT == 8 {
            last_bytes_times_polynomial::<false>(*block)
        } else {
            last_bytes_times_polynomial::<true>(*block)
        };
        return *block;
    }
    macro_rules! bytes_up {
        ($by:literal) => {
            // SAFETY: the CPU has the features.
            V512(unsafe { _mm512_alignr_epi8::<{ 16 - $by }>(block.0, low.0) })
        };
    }
    let moved = match by {
        1 => bytes_up!(1),
        2 => bytes_up!(2),
        3 => bytes_up!(3),
        4 => bytes_up!(4),
        5 => bytes_up!(5),
        6 => bytes_up!(6),
        _ => bytes_up!(7),
    };
    let order = V512::splat(last_bytes_from_one(by));
    // SAFETY: the CPU has the features.
    moved.xor(V512(unsafe { _mm512_shuffle_epi8(high.0, order.0) }))
}

/// See [`Clmul::powers_of_x`].
#[inline(always)]
pub(super) fn powers_of_x(block: V128) -> V512 {
    times_x_by(V512::spread(block), &BY_LANE)
}

/// A rotation of both halves of each lane to the left, by fewer than 64 bits.
/// Intel's CPUs shift and rotate bits of 64-byte vectors where they do AES, but take
/// bits from anywhere elsewhere.
#[repr(C, align(64))]
struct Rotation {
    /// For `vpmultishiftqb`: at which bit each byte starts.
    order: [u8; 64],
    /// The bits of each half that come round.
    round: [u64; 8],
}

impl Rotation {
    const fn new(bits: [u8; 4]) -> Self {
        let mut rotation = Self {
            order: [0; 64],
            round: [0; 8],
        };
        let mut byte = 0;
        while byte < 64 {
            let bits = bits[byte / 16];
            #[allow(clippy::cast_possible_truncation, reason = "below 64")]
            let from = 8 * (byte % 8) as u8;
            rotation.order[byte] = (64 + from - bits) % 64;
            rotation.round[byte / 8] = (1 << bits) - 1;
            byte += 1;
        }
        rotation
    }
}

/// By the number of the lane.
static BY_LANE: Rotation = Rotation::new([0, 1, 2, 3]);
/// By four bits.
static BY_4: Rotation = Rotation::new([4; 4]);

/// Times x^n in the field of XTS, with n what the rotation says for a lane.
#[inline(always)]
fn times_x_by(block: V512, rotation: &Rotation) -> V512 {
    // SAFETY: the CPU has the features, and both are 64 bytes, aligned.
    unsafe {
        let order = _mm512_load_si512((&raw const rotation.order).cast());
        let round = _mm512_load_si512((&raw const rotation.round).cast());
        let rotated = V512(_mm512_multishift_epi64_epi8(order, block.0));
        let swapped = rotated.swap_halves();
        // What comes round belongs to the other half. At the bottom it is what
        // leaves the block, and stands there once, which is the 1 in what x^128 is.
        let moved = _mm512_ternarylogic_epi64::<0xd8>(rotated.0, swapped.0, round);
        let out = swapped.and(V512(round));
        V512(moved).xor(out.clmul::<0x00>(V512::splat(0x86)))
    }
}

/// The last bytes of each lane, eight if `EIGHT` and four if not, times
/// x^7 + x^2 + x + 1, which takes two bytes each: in their places the first of all
/// of them, and the second.
#[inline(always)]
fn last_bytes_times_polynomial<const EIGHT: bool>(block: V512) -> [V512; 2] {
    // Each in the place of two, so that products do not touch: bytes 12 to 15 as the
    // low half, 8 to 11 as the high one.
    let apart = V512::splat(0xff0b_ff0a_ff09_ff08_ff0f_ff0e_ff0d_ff0c);
    let polynomial = V512::splat(0x87);
    let first = V512::splat(0x0604_0200_0e0c_0a08_ffff_ffff_ffff_ffff);
    let second = V512::splat(0x0705_0301_0f0d_0b09_ffff_ffff_ffff_ffff);
    // SAFETY: the CPU has the features.
    unsafe {
        let apart = V512(_mm512_shuffle_epi8(block.0, apart.0));
        let mut products = apart.clmul::<0x00>(polynomial);
        if EIGHT {
            products = products.low_halves(apart.clmul::<0x01>(polynomial));
        }
        [first, second].map_here(
            #[inline(always)]
            |order| V512(_mm512_shuffle_epi8(products.0, order.0)),
        )
    }
}

/// The order, for `vpshufb`, that takes the last `count` bytes, up to seven, to
/// bytes 1 and up, with zeros around.
const fn last_bytes_from_one(count: usize) -> u128 {
    let mut order = u128::MAX;
    let mut i = 0;
    while i < count {
        let at = 8 * (i + 1);
        order = order & !(0xff << at) | ((16 - count + i) as u128) << at;
        i += 1;
    }
    order
}
