//! What a CPU's vectors can do.

use super::{RoundKeys, WideKeys};
use crate::here::{MapHere, ZipHere};

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

/// A vector of 128-bit blocks side by side ("lanes"), on a CPU that has the
/// instructions. All operations work lane by lane unless they say otherwise.
///
/// Using it outside [`Vector::call`] is right but slow: nothing is inlined. A
/// CPU without the instructions must never come here; `arch::crypt` sees to it.
pub(crate) trait Vector: Copy {
    /// Lanes: 1, 2 or 4.
    const BLOCKS: usize;
    /// Bytes in a vector.
    const BYTES: usize = 16 * Self::BLOCKS;
    /// The vector of one lane on the same CPU.
    type One: Vector<One = Self::One>;

    /// Runs a kernel with the CPU's features. Its closure is `#[inline(always)]`:
    /// a large one may stay outside otherwise, where the features are not.
    ///
    /// # Safety
    /// The CPU has them.
    unsafe fn call<R>(kernel: impl FnOnce() -> R) -> R;

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

    /// Four consecutive blocks for each lane, lane by lane in `x`, become
    /// vectors of the first blocks, the second, the third and the fourth ones.
    fn transpose(x: [Self; 4]) -> [Self; 4];
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
    /// The low halves of both, that of `self` below that of `b`.
    fn low_halves(self, b: Self) -> Self;
    /// The high halves of both, that of `self` below that of `b`.
    fn high_halves(self, b: Self) -> Self;

    /// Itself, computed here: the compiler does not move it behind what follows.
    #[inline(always)]
    fn pin(self) -> Self {
        self
    }

    /// Exclusive or.
    fn xor(self, b: Self) -> Self;
    /// Exclusive or of three.
    fn xor3(self, b: Self, c: Self) -> Self;
    /// And.
    fn and(self, b: Self) -> Self;
    /// The carry-less product of 64-bit halves: bit 0 of `HALVES` selects the
    /// high one of `self`, bit 4 that of `b` (as `pclmulqdq`).
    fn clmul<const HALVES: i32>(self, b: Self) -> Self;
    /// Adds to `sum`, which is the low, the middle and the high parts of
    /// carry-less products, those of `x[0]` and `y[0]` and of `x[1]` and `y[1]`.
    /// The middle parts are of sums of halves (Karatsuba): those of `y[0]` are
    /// in the low halves of `halves`, those of `y[1]` in the high ones.
    #[inline(always)]
    fn add_products(sum: &mut [Self; 3], x: [Self; 2], y: [Self; 2], halves: Self) {
        let [p, q] = x.map_here(
            #[inline(always)]
            |x| x.xor(x.swap_halves()),
        );
        sum[0] = sum[0].xor3(x[0].clmul::<0x00>(y[0]), x[1].clmul::<0x00>(y[1]));
        sum[1] = sum[1].xor3(p.clmul::<0x00>(halves), q.clmul::<0x11>(halves));
        sum[2] = sum[2].xor3(x[0].clmul::<0x11>(y[0]), x[1].clmul::<0x11>(y[1]));
    }
    /// [`Self::add_products`] with both of `x` from memory, one behind the other.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    unsafe fn add_products_at(sum: &mut [Self; 3], src: *const u8, y: [Self; 2], halves: Self) {
        // SAFETY: the caller's promise.
        let x = unsafe { [Self::load(src), Self::load(src.add(Self::BYTES))] };
        Self::add_products(sum, x, y, halves);
    }
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

    /// Times x^`LEFT` in the field of XTS, where bit i is x^i and x^128 is
    /// x^7 + x^2 + x + 1. `RIGHT` is 64 - `LEFT`, and neither is 0.
    #[inline(always)]
    fn times_x<const LEFT: u32, const RIGHT: u32>(self) -> Self {
        self.times_x_with::<LEFT, RIGHT>(self.swap_halves())
    }
    /// [`Self::times_x`] with the same vector at hand, its halves swapped.
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
        match Self::BLOCKS {
            1 => self.times_x::<8, 56>(),
            2 => self.times_x::<16, 48>(),
            _ => self.times_x::<32, 32>(),
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
    /// Step `step` of `COUNT` masks, eight or sixteen vectors: `first`, which has a
    /// mask times 1, x, x^2, ... in its lanes, and what follows it. They come in
    /// any order that leaves the even ones before the odd ones: with number 2 `step`
    /// at first. `first` is asked for in step 0, and `state` is kept from step to step.
    #[inline(always)]
    fn mask<const COUNT: usize>(
        state: &mut [Self; 5],
        first: impl FnOnce() -> Self,
        step: usize,
    ) -> Self {
        if step == 0 {
            state[0] = first();
            state[1] = state[0].swap_halves();
        }
        let [first, swapped, ..] = *state;
        Self::times_x_of_vectors(first, swapped, 2 * step % COUNT + 2 * step / COUNT)
    }
    /// Lane `i` is the block times x^i in that field.
    fn powers_of_x(block: Self::One) -> Self;
    /// Words 0 and 1 of both, alternately, from `self` first.
    fn unpack32_low(self, b: Self) -> Self;
    /// Words 2 and 3 of both, alternately, from `self` first.
    fn unpack32_high(self, b: Self) -> Self;
    /// The inverse of [`Self::transpose`]: the first lanes of the four vectors,
    /// then the second ones, and so on. With one lane, or with four, it is the
    /// same.
    #[inline(always)]
    fn transpose_lanes(x: [Self; 4]) -> [Self; 4] {
        Self::transpose(x)
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
    /// Tells the compiler that all of these depend on each other, so that it
    /// leaves what makes one of them on the same side of what uses another.
    #[inline(always)]
    fn order(_x: &mut [Self; 4], _y: &mut [Self; 3]) {}

    /// Leaves both as they are, but the compiler knows them only together from
    /// here on. Work that is spread over the rounds of AES stays there if its
    /// operands are tied to the AES state, and is collected in one place if not.
    #[inline(always)]
    fn tie(&mut self, _other: &mut Self) {}

    /// Expands an AES key of 16, 24 or 32 bytes and returns the rounds.
    fn expand(key: &[u8], keys: &mut RoundKeys) -> usize;
    /// Round keys for decryption, from those for encryption.
    fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys, rounds: usize);
    /// What precedes round 1: on most CPUs adds the first round key.
    fn aes_start<const N: usize>(x: &mut [Self; N], keys: &RoundKeys);
    /// [`Self::aes_start`] after adding `masks`.
    fn aes_start_with<const N: usize>(x: &mut [Self; N], keys: &RoundKeys, masks: &[Self; N]);
    /// Round `ROUND`, from 1 on, not the last.
    fn aes_round<const N: usize, const ENCRYPT: bool, const ROUND: usize>(
        x: &mut [Self; N],
        keys: &RoundKeys,
    );
    /// The last round, and then adds `masks`.
    fn aes_finish<const N: usize, const ENCRYPT: bool, const ROUNDS: usize>(
        x: &mut [Self; N],
        keys: &RoundKeys,
        masks: &[Self; N],
    );

    /// How many vectors side by side keep the AES units busiest and leave
    /// registers for other work: 8 or 16.
    const ABREAST: usize = 8;
    /// [`Self::aes_start_with`] from wide keys.
    #[inline(always)]
    fn wide_start_with<const N: usize>(x: &mut [Self; N], keys: &WideKeys, masks: &[Self; N]) {
        Self::aes_start_with(x, &keys.narrow, masks);
    }
    /// [`Self::aes_round`] from wide keys.
    #[inline(always)]
    fn wide_round<const N: usize, const ENCRYPT: bool, const ROUND: usize>(
        x: &mut [Self; N],
        keys: &WideKeys,
    ) {
        Self::aes_round::<N, ENCRYPT, ROUND>(x, &keys.narrow);
    }
    /// [`Self::aes_finish`] from wide keys.
    #[inline(always)]
    fn wide_finish<const N: usize, const ENCRYPT: bool, const ROUNDS: usize>(
        x: &mut [Self; N],
        keys: &WideKeys,
        masks: &[Self; N],
    ) {
        Self::aes_finish::<N, ENCRYPT, ROUNDS>(x, &keys.narrow, masks);
    }
    /// [`Self::aes_finish`] from wide keys, the masks from memory.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    unsafe fn wide_finish_loading<const N: usize, const ENCRYPT: bool, const ROUNDS: usize>(
        x: &mut [Self; N],
        keys: &WideKeys,
        masks: &[*const u8; N],
    ) {
        // SAFETY: the caller's promise.
        let masks = masks.map_here(
            #[inline(always)]
            |mask| unsafe { Self::load(mask) },
        );
        Self::aes_finish::<N, ENCRYPT, ROUNDS>(x, &keys.narrow, &masks);
    }
    /// [`Self::aes_finish`] with masks that are at `src`, one behind the other.
    /// Writes what it gives to `dst`, which is the same or apart, and returns it.
    ///
    /// # Safety
    /// `N` vectors are readable at `src` and writable at `dst`.
    #[inline(always)]
    unsafe fn aes_finish_between<const N: usize, const ENCRYPT: bool, const ROUNDS: usize>(
        mut x: [Self; N],
        keys: &RoundKeys,
        src: *const u8,
        dst: *mut u8,
    ) -> [Self; N] {
        let mut masks = x;
        for (i, mask) in masks.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *mask = unsafe { Self::load(src.add(i * Self::BYTES)) };
        }
        Self::aes_finish::<N, ENCRYPT, ROUNDS>(&mut x, keys, &masks);
        for (i, x) in x.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { x.store(dst.add(i * Self::BYTES)) };
        }
        x
    }
}
