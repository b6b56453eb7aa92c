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
        numbers[i] = numbers[i - 1].add32(step);
    }
    *next = numbers[N - 1].add32(step);
    numbers
}

/// The counters of XCTR, the counter mode of HCTR2 (ePrint 2021/1441) and of
/// FAST (ePrint 2017/849), up to AES's first round: a block's is the sum,
/// without carries, of `start` and its number.
#[inline(always)]
pub(super) fn xctr<V: Vector, const N: usize>(
    keys: &RoundKeys,
    start: V,
    numbers: [V; N],
) -> [V; N] {
    let mut x = numbers;
    V::aes_start_with(&mut x, keys, &[start; N]);
    x
}
