//! Masks of XTS and EME2 as [`V512`]: a block times powers of x, with few instructions that take
//! the turns of AES rounds. On Intel's CPUs those are shifts of bits.

use super::{V128, V512, ports};
use crate::here::MapHere;
use crate::simd::{ASK, Clmul, LAST_BYTES, Lanes, ROTATE, SHIFT};
use core::arch::x86_64::*;

/// See [`Tuning::mask`](crate::simd::Tuning::mask).
#[inline(always)]
pub(super) fn mask<const COUNT: usize, const HOW: u8>(
    state: &mut [V512; 5],
    more: V512,
    first: impl FnOnce() -> V512,
    step: usize,
) -> V512 {
    if COUNT == 16 {
        mask_of_sixteen::<HOW>(state, more, first, step)
    } else if HOW == ROTATE {
        sum_of_eight(state, more, first, step)
    } else {
        mask_of_eight::<HOW>(state, first, step).xor(more)
    }
}

/// One of eight. In two series, from x^0 and from x^4 on, in which each is x^8 times the one before:
/// whole bytes move up, and those that move out come back as their product with
/// x^7 + x^2 + x + 1, which reaches into the byte behind. There all three of a series have
/// the same, that of the last byte, so that it is added once, and what is left for each is
/// one instruction that puts bytes together.
#[inline(always)]
fn mask_of_eight<const HOW: u8>(
    state: &mut [V512; 5],
    first: impl FnOnce() -> V512,
    step: usize,
) -> V512 {
    let [block, base, products, ..] = state;
    let order = match step % 4 {
        0 => {
            *block = if step == 0 {
                first()
            } else {
                times_x_by::<HOW>(*block, &BY_4)
            };
            let out = block.shuffle_bytes(V512::splat(LAST_BYTES));
            *products = out.clmul::<0x00>(V512::splat(0x87));
            *base = block.xor(products.shr_bytes::<8>());
            return *block;
        }
        1 => &UP[0],
        2 => &UP[1],
        _ => &UP[2],
    };
    // SAFETY: the CPU has the features, and there are 64 bytes, aligned.
    unsafe {
        let order = _mm512_load_si512((&raw const order.0).cast());
        V512(_mm512_permutex2var_epi8(base.0, order, products.0))
    }
}

/// The same with `more` in it, for CPUs on which `vpermt2b` takes as long as three others (Intel's): bytes
/// that move up, and products that go below them, are added together with it.
#[inline(always)]
fn sum_of_eight(
    state: &mut [V512; 5],
    more: V512,
    first: impl FnOnce() -> V512,
    step: usize,
) -> V512 {
    let [block, products, ..] = state;
    let (moved, order) = match step % 4 {
        0 => {
            *block = if step == 0 {
                first()
            } else {
                times_x_by::<ROTATE>(*block, &BY_4)
            };
            let out = block.shuffle_bytes(V512::splat(LAST_BYTES));
            *products = out.clmul::<0x00>(V512::splat(0x87));
            return block.xor(more);
        }
        1 => (block.shl_bytes::<1>(), product_at(0, 2)),
        2 => (block.shl_bytes::<2>(), product_at(2, 3)),
        _ => (block.shl_bytes::<3>(), product_at(5, 4)),
    };
    moved.xor3(products.shuffle_bytes(V512::splat(order)), more)
}

/// The order, for `vpshufb`, that takes `count` bytes from byte `from` on to the front, with zeros behind.
const fn product_at(from: u128, count: u32) -> u128 {
    let mut order = u128::MAX;
    let mut i = 0;
    while i < count {
        order = order & !(0xff << (8 * i)) | (from + i as u128) << (8 * i);
        i += 1;
    }
    order
}

/// For `vpermt2b`: which byte of two vectors comes where.
#[repr(C, align(64))]
struct Order([u8; 64]);

/// In each lane the bytes of the first vector, up by one, two and three, and below them those
/// of the product of as many, see [`LAST_BYTES`], from the second.
static UP: [Order; 3] = [up(1, 0), up(2, 2), up(3, 5)];

const fn up(by: u8, product: u8) -> Order {
    let mut order = [0; 64];
    let mut i = 0;
    while i < 64 {
        let byte = i % 16;
        order[i as usize] = if byte < by { 64 + i + product } else { i - by };
        i += 1;
    }
    Order(order)
}

/// One of sixteen. In two series, from x^0 and from x^4 on, in which each is x^8 times the one before:
/// whole bytes move, and those that move out come back as their products with x^7 + x^2 + x + 1.
#[inline(always)]
fn mask_of_sixteen<const HOW: u8>(
    state: &mut [V512; 5],
    more: V512,
    first: impl FnOnce() -> V512,
    step: usize,
) -> V512 {
    let [block, low, high, ..] = state;
    let by = step % 8;
    if by == 0 {
        *block = if step == 0 {
            first()
        } else {
            times_x_by::<HOW>(*block, &BY_4)
        };
        [*low, *high] = last_bytes_times_polynomial(*block);
        return block.xor(more);
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
    let low = V512(unsafe { _mm512_shuffle_epi8(high.0, order.0) });
    moved.xor(low).xor(more)
}

/// See [`Clmul::powers_of_x`].
#[inline(always)]
pub(super) fn powers_of_x<const HOW: u8>(block: V128) -> V512 {
    times_x_by::<HOW>(V512::spread(block), &BY_LANE)
}

/// Both halves of each lane to the left, by fewer than 64 bits.
#[repr(C, align(64))]
struct Rotation {
    /// For `vpmultishiftqb`, which rotates: at which bit each byte starts.
    order: [u8; 64],
    /// The bits of each half that come round.
    round: [u64; 8],
    /// For shifts: by how many bits, and by how many those go that come round.
    left: [u64; 8],
    right: [u64; 8],
}

impl Rotation {
    const fn new(bits: [u8; 4]) -> Self {
        let mut rotation = Self {
            order: [0; 64],
            round: [0; 8],
            left: [0; 8],
            right: [0; 8],
        };
        let mut byte = 0;
        while byte < 64 {
            let bits = bits[byte / 16];
            #[allow(clippy::cast_possible_truncation, reason = "below 64")]
            let from = 8 * (byte % 8) as u8;
            rotation.order[byte] = (64 + from - bits) % 64;
            rotation.round[byte / 8] = (1 << bits) - 1;
            rotation.left[byte / 8] = bits as u64;
            rotation.right[byte / 8] = 64 - bits as u64;
            byte += 1;
        }
        rotation
    }
}

/// By the number of the lane.
static BY_LANE: Rotation = Rotation::new([0, 1, 2, 3]);
/// By four bits.
static BY_4: Rotation = Rotation::new([4; 4]);

/// Times x^n in the field of XTS, with n what the rotation says for a lane: in the way that
/// leaves most AES rounds beside it.
#[inline(always)]
fn times_x_by<const HOW: u8>(block: V512, rotation: &Rotation) -> V512 {
    if HOW == SHIFT || HOW == ASK && ports::shifts() {
        times_x_shifted(block, rotation)
    } else {
        times_x_rotated(block, rotation)
    }
}

/// The same, by shifts.
#[inline(always)]
fn times_x_shifted(block: V512, rotation: &Rotation) -> V512 {
    // SAFETY: the CPU has the features, and both are 64 bytes, aligned.
    unsafe {
        let left = _mm512_load_si512((&raw const rotation.left).cast());
        let right = _mm512_load_si512((&raw const rotation.right).cast());
        // What leaves a half belongs to the other one. At the bottom it is what leaves the
        // block, and stands there once, which is the 1 in what x^128 is.
        let out = V512(_mm512_srlv_epi64(block.swap_halves().0, right));
        let moved = V512(_mm512_sllv_epi64(block.0, left));
        moved.xor3(out, out.clmul::<0x00>(V512::splat(0x86)))
    }
}

/// The same, without shifts of bits.
#[inline(always)]
fn times_x_rotated(block: V512, rotation: &Rotation) -> V512 {
    // SAFETY: the CPU has the features, and both are 64 bytes, aligned.
    unsafe {
        let order = _mm512_load_si512((&raw const rotation.order).cast());
        let round = _mm512_load_si512((&raw const rotation.round).cast());
        let rotated = V512(_mm512_multishift_epi64_epi8(order, block.0));
        let swapped = rotated.swap_halves();
        // What comes round belongs to the other half, as above.
        let moved = _mm512_ternarylogic_epi64::<0xd8>(rotated.0, swapped.0, round);
        let out = swapped.and(V512(round));
        V512(moved).xor(out.clmul::<0x00>(V512::splat(0x86)))
    }
}

/// The last eight bytes of each lane times x^7 + x^2 + x + 1, which takes two bytes each: in their
/// places the first of all of them, and the second.
#[inline(always)]
fn last_bytes_times_polynomial(block: V512) -> [V512; 2] {
    // Each in the place of two, so that products do not touch: bytes 12 to 15 as the
    // low half, 8 to 11 as the high one.
    let apart = V512::splat(0xff0b_ff0a_ff09_ff08_ff0f_ff0e_ff0d_ff0c);
    let polynomial = V512::splat(0x87);
    let first = V512::splat(0x0604_0200_0e0c_0a08_ffff_ffff_ffff_ffff);
    let second = V512::splat(0x0705_0301_0f0d_0b09_ffff_ffff_ffff_ffff);
    // SAFETY: the CPU has the features.
    unsafe {
        let apart = V512(_mm512_shuffle_epi8(block.0, apart.0));
        let products = apart.clmul::<0x00>(polynomial);
        let products = products.low_halves(apart.clmul::<0x01>(polynomial));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::double;
    use crate::simd::Cpu;

    /// On any CPU that has the vectors, whatever it takes itself.
    #[test]
    fn shifted_and_rotated_are_the_same() {
        let Some(cpu) = Cpu::<V512>::detect() else {
            return;
        };
        cpu.call(|| {
            for block in [
                1,
                1 << 63,
                1 << 127,
                u128::MAX,
                0xfedc << 112 | 0x3210 << 48 | 1,
            ] {
                for (rotation, by) in [(&BY_LANE, [0, 1, 2, 3]), (&BY_4, [4; 4])] {
                    let expected = by.map(|by| (0..by).fold(block, |it, _| double(it)));
                    let block = V512::splat(block);
                    assert_eq!(times_x_shifted(block, rotation).blocks(), expected);
                    assert_eq!(times_x_rotated(block, rotation).blocks(), expected);
                }
            }
        });
    }
}
