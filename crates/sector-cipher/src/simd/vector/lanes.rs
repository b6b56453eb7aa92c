//! What is done lane by lane, and between lanes.

use super::Vector;
use crate::here::{MapHere, ZipHere};

/// A vector of 128-bit blocks side by side ("lanes"): memory, places, bits and integers. All
/// operations work lane by lane unless they say otherwise.
///
/// On x86-64 these are the integer instructions of AVX (SSE4.1 in their form of three
/// operands), AVX2 and AVX-512; on 64-bit ARM those of NEON.
pub(crate) trait Lanes: Copy {
    /// Lanes: 1, 2 or 4.
    const BLOCKS: usize;
    /// Bytes in a vector.
    const BYTES: usize = 16 * Self::BLOCKS;
    /// The vector of one lane on the same CPU.
    type One: Vector<One = Self::One>;
    /// Zeros.
    fn zero() -> Self;
    /// The same block, as a little-endian integer, in every lane.
    fn splat(block: u128) -> Self;
    /// Lane `i` is `block(i)`.
    fn from_fn(block: impl FnMut(usize) -> u128) -> Self;
    /// The block in lane `i`; zero behind the last lane.
    fn blocks(self) -> [u128; 4];
    /// Reads `BYTES` bytes, at any alignment.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn load(src: *const u8) -> Self;
    /// Reads the first two blocks, zeros behind them; of a vector with fewer
    /// lanes all of it.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    unsafe fn load_front(src: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::load(src) }
    }
    /// Writes `BYTES` bytes, at any alignment.
    ///
    /// # Safety
    /// They are writable.
    unsafe fn store(self, dst: *mut u8);
    /// Lane `i` is the block at `src[i]`; pointers behind the last lane are not used.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn gather(src: [*const u8; 4]) -> Self;
    /// Writes lane `i` to `dst[i]`; pointers behind the last lane are not used.
    ///
    /// # Safety
    /// They are writable.
    #[inline(always)]
    unsafe fn scatter(self, dst: [*mut u8; 4]) {
        for (block, dst) in self.blocks().into_iter().zip_here(dst).take(Self::BLOCKS) {
            // SAFETY: the caller's promise.
            unsafe { dst.cast::<u128>().write_unaligned(block.to_le()) };
        }
    }
    /// The block in each lane of `block`, which has one.
    fn spread(block: Self::One) -> Self;
    /// The block in lane `I`, which there is.
    fn lane<const I: i32>(self) -> Self::One;
    /// The block in lane 0, zeros in the others.
    fn alone(block: Self::One) -> Self;
    /// The blocks of `a` and then `b`, those with even numbers apart from
    /// those with odd ones.
    fn unzip(a: Self, b: Self) -> (Self, Self);
    /// The inverse of [`Self::unzip`].
    fn zip(even: Self, odd: Self) -> (Self, Self);
    /// The sum (exclusive or) of all lanes.
    fn fold(self) -> Self::One;
    /// Lane `i` is the sum of all lanes of `x[i]`; those behind the last lane
    /// are not used.
    #[inline(always)]
    fn fold_each(x: [Self; 4]) -> Self {
        let sums = x.map_here(
            #[inline(always)]
            |x| x.fold(),
        );
        let sum = |i: usize| (&raw const sums[i]).cast();
        // SAFETY: blocks.
        unsafe { Self::gather([sum(0), sum(1), sum(2), sum(3)]) }
    }
    /// The 64-bit sums over all lanes.
    #[inline(always)]
    fn fold_add64(self) -> Self::One {
        let blocks = self.blocks();
        let mut sum = Self::One::splat(blocks[0]);
        for &block in &blocks[1..Self::BLOCKS] {
            sum = sum.add64(Self::One::splat(block));
        }
        sum
    }
    /// Four consecutive blocks for each lane, lane by lane in `x`, become
    /// vectors of the first blocks, the second, the third and the fourth ones.
    fn transpose(x: [Self; 4]) -> [Self; 4];
    /// The last two blocks of `self` and the first two of `next`: of vectors with four lanes.
    #[inline(always)]
    fn two_further(self, _next: Self) -> Self {
        unreachable!("of vectors with four lanes")
    }
    /// As [`Self::transpose`], but of the third and fourth blocks first both
    /// low halves, then both high ones.
    #[inline(always)]
    fn transpose_halves(x: [Self; 4]) -> [Self; 4] {
        let [first, second, third, fourth] = Self::transpose(x);
        [
            first,
            second,
            third.low_halves(fourth),
            third.high_halves(fourth),
        ]
    }
    /// The inverse of [`Self::transpose`]: the first lanes of the four vectors,
    /// then the second ones, and so on. With one lane, or with four, it is the
    /// same.
    #[inline(always)]
    fn transpose_lanes(x: [Self; 4]) -> [Self; 4] {
        Self::transpose(x)
    }
    /// The low halves of both, that of `self` below that of `b`.
    fn low_halves(self, b: Self) -> Self;
    /// The high halves of both, that of `self` below that of `b`.
    fn high_halves(self, b: Self) -> Self;
    /// Words 0 and 1 of both, alternately, from `self` first.
    fn unpack32_low(self, b: Self) -> Self;
    /// Words 2 and 3 of both, alternately, from `self` first.
    fn unpack32_high(self, b: Self) -> Self;
    /// Exclusive or.
    fn xor(self, b: Self) -> Self;
    /// Exclusive or of three.
    fn xor3(self, b: Self, c: Self) -> Self;
    /// And.
    fn and(self, b: Self) -> Self;
    /// The low half in the high one's place, and the other way round.
    fn swap_halves(self) -> Self;
    /// All bytes up by `N`, zeros behind them.
    fn shl_bytes<const N: i32>(self) -> Self;
    /// All bytes down by `N`, zeros before them.
    fn shr_bytes<const N: i32>(self) -> Self;
    /// The bytes of `low` from `N` on, and behind them as many of `self` as there is
    /// room for.
    fn behind<const N: i32>(self, low: Self) -> Self;
    /// Byte `i` is that with the number in byte `i` of `order`, or zero if that is 255.
    fn shuffle_bytes(self, order: Self) -> Self;
    /// The last byte first.
    #[inline(always)]
    fn reverse_bytes(self) -> Self {
        self.shuffle_bytes(Self::splat(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f))
    }
    /// Each 64-bit half to the left by `N` bits.
    fn shl64<const N: u32>(self) -> Self;
    /// Each 64-bit half to the right by `N` bits.
    fn shr64<const N: u32>(self) -> Self;
    /// 32-bit sums.
    fn add32(self, b: Self) -> Self;
    /// 64-bit sums.
    fn add64(self, b: Self) -> Self;
    /// 64-bit products of the low 32 bits of each half.
    fn mul32(self, b: Self) -> Self;
    /// Each 32-bit word rotated to the left by `N` bits.
    fn rotl32<const N: u32>(self) -> Self;
    /// Word `i` of each lane becomes its word `(ORDER >> 2 i) & 3`.
    fn shuffle32<const ORDER: i32>(self) -> Self;
}
