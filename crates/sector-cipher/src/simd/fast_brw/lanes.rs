//! Counter mode over the text of all lanes, with the hashes between the rounds of AES.

use super::super::brw::{STEPS, Tree};
use super::super::{RoundKeys, Vector, counter};
use super::Keys;
use crate::arch::LINE;
use crate::run::{Ahead, BLOCK, RunEnd};
use core::ptr;

const LAST_TEN: usize = RoundKeys::LAST_TEN;

/// What all lanes take.
pub(super) struct Lanes<V> {
    pub(super) src: [*const u8; 4],
    pub(super) dst: [*mut u8; 4],
    /// The numbers of their first blocks in their sectors.
    pub(super) first: [usize; 4],
    /// What their counters start with, up to AES's rounds: the seed, and
    /// the number of the first block that is counted.
    pub(super) starts: [V; 4],
    /// What will be worked on a little later.
    pub(super) later: Ahead,
}

/// Which lane vector `i` of quarter `k` belongs to, and at which of its blocks
/// it starts.
#[inline(always)]
const fn place<V: Vector>(k: usize, i: usize) -> (usize, usize) {
    let (quad, i) = (2 * k + i / 4, i % 4);
    let part = i % (4 / V::BLOCKS) * V::BLOCKS;
    (i / (4 / V::BLOCKS), 4 * quad + part)
}

impl<V: Vector> Lanes<V> {
    #[inline(always)]
    pub(super) fn none() -> Self {
        Self {
            src: [ptr::null(); 4],
            dst: [ptr::null_mut(); 4],
            first: [0; 4],
            starts: [V::zero(); 4],
            later: RunEnd::NONE.ahead(ptr::null()),
        }
    }

    /// Quarter `K` of the text.
    ///
    /// # Safety
    /// The sectors are there.
    #[inline(always)]
    pub(super) unsafe fn load<const K: usize>(&self) -> [V; 8] {
        let mut x = [V::zero(); 8];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, block) = place::<V>(K, I);
            // SAFETY: inside the lane.
            x[I] = unsafe { V::load(self.src[lane].wrapping_add(block * BLOCK)) };
        });
        x
    }

    /// Quarter `K` through counter mode; between the rounds the hash of the
    /// quarter before, `BEFORE`, whose text is `x`: this one's takes its place. If
    /// `AHEAD`, the first hash of quarter `K` of `ahead` as well, and what will be
    /// worked on a little later is asked for.
    ///
    /// # Safety
    /// The sectors and the seeds are there.
    #[inline(always)]
    pub(super) unsafe fn count<const K: usize, const BEFORE: usize, const AHEAD: bool>(
        &self,
        keys: &Keys,
        tree: &mut Tree<V>,
        x: &mut [V; 8],
        ahead: &Self,
        ahead_tree: &mut Tree<V>,
    ) {
        let aes = &keys.aes;
        let mut y = [V::zero(); 8];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, block) = place::<V>(K, I);
            let start = self.starts[lane];
            y[I] = if block == 0 {
                // The number before a lane's is no sum of the two parts.
                let first = self.first[lane];
                let number = counter::FROM_THIRD.splat(first + 1);
                start.xor3(number, counter::FROM_THIRD.from(first))
            } else {
                start.xor(counter::FROM_THIRD.from(block))
            };
        });
        V::wide_early::<8, true>(&mut y, aes);
        unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
            V::wide_round::<8, true, ROUND>(&mut y, aes);
            // The steps go evenly between the rounds.
            unroll!(STEP in 0 1 2 3 4 5 6 7, if ROUND == LAST_TEN + 1 + STEP * 8 / (STEPS - 1) {
                tree.step::<BEFORE, STEP>(&keys.hash, x);
                tree.pin::<STEP>();
                if AHEAD {
                    let mut text = [V::zero(); 8];
                    if STEP == 1 || STEP == 5 {
                        // SAFETY: the caller's promise.
                        text = unsafe { ahead.load::<K>() };
                    }
                    ahead_tree.step::<K, STEP>(&keys.hash, &text);
                    ahead_tree.pin::<STEP>();
                    // Where lanes are one behind the other, a quarter of what they take.
                    let quarter = 8 * V::BYTES;
                    ahead.later.ask(K * quarter / LINE + STEP, (K + 1) * quarter);
                }
            });
        });
        let mut text = [ptr::null(); 8];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, block) = place::<V>(K, I);
            text[I] = self.src[lane].wrapping_add(block * BLOCK);
        });
        // SAFETY: inside the lanes.
        unsafe { V::wide_finish_loading::<8, true>(&mut y, aes, &text) };
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, block) = place::<V>(K, I);
            // SAFETY: inside the lane.
            unsafe { y[I].store(self.dst[lane].wrapping_add(block * BLOCK)) };
        });
        *x = y;
    }
}
