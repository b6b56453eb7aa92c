//! Counter mode on vectors side by side.

use super::{RoundKeys, Vector};

/// The numbers of blocks one after the other, from `first` on, as 32-bit words
/// that wrap.
#[inline(always)]
pub(super) fn numbers<V: Vector>(first: u32) -> V {
    V::from_fn(|lane| {
        #[allow(clippy::cast_possible_truncation, reason = "there are four lanes")]
        let lane = lane as u32;
        u128::from(first.wrapping_add(lane))
    })
}

/// The numbers of `N` vectors one after the other; `next` are those of the
/// first, and goes on to those behind the last.
#[inline(always)]
pub(super) fn following<V: Vector, const N: usize>(next: &mut V) -> [V; N] {
    let step = V::splat(V::BLOCKS as u128);
    let mut numbers = [*next; N];
    for i in 1..N {
        // One after the other: the compiler would keep a register for each
        // distance from the first.
        numbers[i] = numbers[i - 1].add32(step).pin();
    }
    *next = numbers[N - 1].add32(step);
    numbers
}

/// What [`xctr`] needs of where the counter starts: what precedes AES's first
/// round is a sum as well, so that it is done once for all counters.
#[inline(always)]
pub(super) fn xctr_start<V: Vector>(keys: &RoundKeys, start: V) -> V {
    let mut x = [start];
    V::aes_start(&mut x, keys);
    x[0]
}

/// The counters of XCTR, the counter mode of HCTR2 (ePrint 2021/1441) and of
/// FAST (ePrint 2017/849), up to AES's first round: a block's is the sum,
/// without carries, of the start and its number.
#[inline(always)]
pub(super) fn xctr<V: Vector, const N: usize>(start: V, mut numbers: [V; N]) -> [V; N] {
    for number in &mut numbers {
        *number = number.xor(start);
    }
    numbers
}

/// The numbers of the blocks of the largest sector, one behind the other.
#[repr(C, align(64))]
pub(super) struct Numbers([u128; 256]);

/// Those of FAST, where the third block has number one.
pub(super) static FROM_THIRD: Numbers = {
    let mut numbers = [0; 256];
    let mut block = 0;
    while block < numbers.len() {
        numbers[block] = (block as u128).wrapping_sub(1);
        block += 1;
    }
    Numbers(numbers)
};

impl Numbers {
    /// A block's.
    #[inline(always)]
    pub(super) fn one(&self, block: usize) -> u128 {
        self.0[block]
    }

    /// Those from `block` on, a multiple of the vector's lanes.
    #[inline(always)]
    pub(super) fn from<V: Vector>(&self, block: usize) -> V {
        let numbers = &self.0[block..][..V::BLOCKS];
        // SAFETY: as many blocks as the vector has.
        unsafe { V::load(numbers.as_ptr().cast()) }
    }
}
