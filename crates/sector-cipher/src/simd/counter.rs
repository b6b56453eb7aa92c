//! Counter mode on vectors side by side.

use super::{Lanes, RoundKeys, Vector, fresh};
use crate::here::from_fn;
use core::ptr;

/// What [`xctr`] needs of where the counter starts: what precedes AES's rounds
/// is a sum as well, so that it is done once for all counters.
#[inline(always)]
pub(super) fn xctr_start<V: Vector>(keys: &RoundKeys, start: V) -> V {
    let mut x = [start];
    V::aes_before(&mut x, keys);
    x[0]
}

/// The counters of XCTR, the counter mode of HCTR2 (ePrint 2021/1441) and of
/// FAST (ePrint 2017/849), up to AES's rounds: a block's is the sum,
/// without carries, of the start and its number. They are those of `N` vectors from `block`
/// on, a multiple of as many blocks.
///
/// Above the first `N` vectors' numbers there is one sum for all of them, but that numbers which
/// begin below zero have, in the first vector, one more borrow. The compiler must not know what is in
/// the tables: it would make the sums of the start and the first numbers before a sector's first
/// step, and have no registers to keep them in.
#[inline(always)]
pub(super) fn xctr<V: Vector, const N: usize>(
    start: V,
    numbers: &'static Numbers,
    block: usize,
) -> [V; N] {
    let above = start.xor(fresh(&FROM_FIRST).splat(block));
    let mut x = fresh(numbers).vectors::<V, N>();
    x[0] = fresh(numbers).from::<V>(block).xor(start);
    for x in &mut x[1..] {
        *x = above.xor(*x);
    }
    x
}

/// Those of HCTR2 and XCB, which count from zero.
pub(super) static FROM_FIRST: Numbers = Numbers::less(0);

/// Those of FAST, where the third block has number one.
pub(super) static FROM_THIRD: Numbers = Numbers::less(1);

/// The numbers of the blocks of the largest sector, one behind the other.
#[repr(C, align(64))]
pub(super) struct Numbers([u128; 256]);

impl Numbers {
    /// Of each block its place, less `by`.
    const fn less(by: u128) -> Self {
        let mut numbers = [0; 256];
        let mut block = 0;
        while block < numbers.len() {
            numbers[block] = (block as u128).wrapping_sub(by);
            block += 1;
        }
        Self(numbers)
    }

    /// A block's, in all lanes.
    #[inline(always)]
    pub(super) fn splat<V: Vector>(&self, block: usize) -> V {
        debug_assert!(block < self.0.len());
        let number = &self.0[block % self.0.len()];
        // SAFETY: a block.
        V::spread(unsafe { V::One::load(ptr::from_ref(number).cast()) })
    }

    /// Those from `block` on, a multiple of the vector's lanes.
    #[inline(always)]
    pub(super) fn from<V: Vector>(&self, block: usize) -> V {
        debug_assert!(block < self.0.len() && block.is_multiple_of(V::BLOCKS));
        // Which is how the compiler knows that they are there.
        let block = block & (self.0.len() - V::BLOCKS);
        let numbers = &self.0[block..][..V::BLOCKS];
        // SAFETY: as many blocks as the vector has.
        unsafe { V::load(numbers.as_ptr().cast()) }
    }

    /// Those of the first `N` vectors.
    #[inline(always)]
    pub(super) fn vectors<V: Vector, const N: usize>(&self) -> [V; N] {
        from_fn(
            #[inline(always)]
            |i| self.from(i * V::BLOCKS),
        )
    }
}
