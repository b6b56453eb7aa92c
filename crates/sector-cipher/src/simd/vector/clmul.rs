//! Products of polynomials over two elements, and the field of XTS.

use super::Lanes;

/// Multiplies masks by powers of x in the way that suits the CPU, which is asked each time.
pub(crate) const ASK: u8 = 0;
/// With shifts of bits, where the vectors have another way: somebody has asked.
pub(crate) const SHIFT: u8 = 1;
/// Without; and without `vpermt2b`, which takes as long as three other instructions where shifts take AES's turn.
pub(crate) const ROTATE: u8 = 2;

/// For [`Lanes::shuffle_bytes`]: the last byte of a block at byte 0, the last two at byte 2 and the
/// last three at byte 5, with zeros between. There is room for their products with
/// x^7 + x^2 + x + 1, which reach into the byte behind: what moves out when the block moves up
/// by one byte, two and three.
pub(crate) const LAST_BYTES: u128 = 0xffff_ffff_ffff_ffff_0f0e_0dff_0f0e_ff0f;

/// A vector times x^(`$i` `BLOCKS`), from itself and the same with its halves
/// swapped.
macro_rules! times_vectors {
    ($first:expr, $swapped:expr, $i:literal) => {
        match Self::BLOCKS {
            1 => $first.times_x_with::<$i, { 64 - $i }>($swapped),
            2 => $first.times_x_with::<{ 2 * $i }, { 64 - 2 * $i }>($swapped),
            _ => $first.times_x_with::<{ 4 * $i }, { 64 - 4 * $i }>($swapped),
        }
    };
}

/// Carry-less multiplication, and what is made of it for the field of XTS.
///
/// The product is `pclmulqdq` or `vpclmulqdq` on x86-64, and `pmull` on 64-bit ARM.
pub(crate) trait Clmul: Lanes {
    /// The carry-less product of 64-bit halves: bit 0 of `HALVES` selects the
    /// high one of `self`, bit 4 that of `b` (as `pclmulqdq`).
    fn clmul<const HALVES: i32>(self, b: Self) -> Self;
    /// Times x^`LEFT` in the field of XTS, where bit i is x^i and x^128 is
    /// x^7 + x^2 + x + 1. `RIGHT` is 64 - `LEFT`, and neither is 0; `swapped` is the
    /// same vector, its halves swapped.
    #[inline(always)]
    fn times_x_with<const LEFT: u32, const RIGHT: u32>(self, swapped: Self) -> Self {
        // What leaves the low half enters the high one. What leaves the high
        // half is multiplied by what x^128 is; it stands in the low half
        // already, once, so that the 1 is left out.
        let out = swapped.shr64::<RIGHT>();
        let carry = out.clmul::<0x00>(Self::splat(0x86));
        self.shl64::<LEFT>().xor3(out, carry)
    }
    /// Times x^(8 `BLOCKS`) in that field.
    #[inline(always)]
    fn times_x_of_group(self) -> Self {
        // Whole bytes move. What moves out is multiplied by what x^128 is.
        macro_rules! moved {
            ($count:literal) => {
                self.shr_bytes::<{ 16 - $count }>()
                    .clmul::<0x00>(Self::splat(0x87))
                    .xor(self.shl_bytes::<$count>())
            };
        }
        match Self::BLOCKS {
            1 => moved!(1),
            2 => moved!(2),
            _ => moved!(4),
        }
    }
    /// `first` times x^(`i` `BLOCKS`), where `i` is below 8; `swapped` is `first` with its
    /// halves swapped.
    #[inline(always)]
    fn times_x_of_vectors(first: Self, swapped: Self, i: usize) -> Self {
        match i {
            0 => first,
            1 => times_vectors!(first, swapped, 1),
            2 => times_vectors!(first, swapped, 2),
            3 => times_vectors!(first, swapped, 3),
            4 => times_vectors!(first, swapped, 4),
            5 => times_vectors!(first, swapped, 5),
            6 => times_vectors!(first, swapped, 6),
            7 => times_vectors!(first, swapped, 7),
            _ => unreachable!("there are eight"),
        }
    }
    /// Lane `i` is the block times x^i in that field. `HOW` is [`ASK`], [`SHIFT`] or [`ROTATE`].
    fn powers_of_x<const HOW: u8>(block: Self::One) -> Self;
}
