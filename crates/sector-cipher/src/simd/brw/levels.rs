//! A subtree whose leaves lie side by side, and then what joins them, level by level.

use super::super::Vector;
use super::{HEAD, HashKey, SUBTREE, Sum, Tree};
use crate::here::MapHere;
use crate::run::BLOCK;

/// Leaves of a subtree: its first 31 blocks are eight times the two of a leaf, a block that is
/// added, and one that joins.
const LEAVES: usize = SUBTREE / 4;

/// The hash of the subtree of a sector of 512 bytes at `src`, but for its last block, in lane 0. Its
/// leaves lie side by side, and so does what joins them, level by level: for a sector that
/// has no others beside it, in half of the time that [`Tree`] takes.
///
/// # Safety
/// The sector is readable.
#[inline(always)]
pub(in crate::simd) unsafe fn subtree<V: Vector>(key: &HashKey, src: *const u8) -> V {
    let mut trees = [Sum::none(); LEAVES];
    let mut behind = [V::zero(); LEAVES];
    unroll!(I in 0 1 2 3 4 5 6 7, if I * V::BLOCKS < LEAVES {
        // SAFETY: the caller's promise.
        let four = [0, 1, 2, 3].map_here(
            #[inline(always)]
            |i| unsafe { hashed(src, 4 * I + i) },
        );
        let [first, second, third, fourth] = V::transpose(four);
        let halves = [first.low_halves(second), first.high_halves(second)];
        trees[I] = Tree::leaf(key, halves).plus_block(third);
        behind[I] = fourth;
    });
    join_pairs::<V, 2>(key, &mut trees, &mut behind);
    join_pairs::<V, 3>(key, &mut trees, &mut behind);
    join_pairs::<V, 4>(key, &mut trees, &mut behind);
    trees[0].reduce()
}

/// Vector `i` of the blocks that are hashed, which begin with the third, from whole vectors of the sector.
/// Behind it there is nothing.
///
/// # Safety
/// The sector is readable.
#[inline(always)]
unsafe fn hashed<V: Vector>(src: *const u8, i: usize) -> V {
    let (block, next) = (i * V::BLOCKS, (i + 1) * V::BLOCKS);
    // SAFETY: in the sector.
    unsafe {
        if V::BLOCKS <= HEAD {
            from_block(src, block + HEAD)
        } else {
            from_block::<V>(src, block).two_further(from_block(src, next))
        }
    }
}

/// The vector from that block of the sector on, zero behind its end.
///
/// # Safety
/// The sector is readable.
#[inline(always)]
unsafe fn from_block<V: Vector>(src: *const u8, block: usize) -> V {
    if block >= SUBTREE {
        return V::zero();
    }
    // SAFETY: in the sector, of which it is a whole number of vectors away from both ends.
    unsafe { V::load(src.add(block * BLOCK)) }
}

/// Joins trees of 2^`LEVEL` blocks with what is behind them, two and two, side by side.
#[inline(always)]
fn join_pairs<V: Vector, const LEVEL: usize>(
    key: &HashKey,
    trees: &mut [Sum<V>; LEAVES],
    behind: &mut [V; LEAVES],
) {
    let count = SUBTREE >> LEVEL;
    unroll!(I in 0 1 2 3, if 2 * I * V::BLOCKS < count {
        // If they are one vector, with itself.
        let other = if (2 * I + 1) * V::BLOCKS < count { 2 * I + 1 } else { 2 * I };
        let (left, right) = Sum::unzip(trees[2 * I], trees[other]);
        let (joining, next) = V::unzip(behind[2 * I], behind[other]);
        // On every CPU: with the other way as well it would take longer to compile.
        let factor = joining.xor(key.power(LEVEL));
        trees[I] = Sum::three_products(left.reduce(), factor).plus(right);
        behind[I] = next;
    });
}

impl<V: Vector> Sum<V> {
    /// The lanes of `a` and then `b`, those with even numbers apart from those with odd ones.
    #[inline(always)]
    fn unzip(a: Self, b: Self) -> (Self, Self) {
        let low = V::unzip(a.low, b.low);
        let middle = V::unzip(a.middle, b.middle);
        let high = V::unzip(a.high, b.high);
        let block = V::unzip(a.block, b.block);
        (
            Self {
                low: low.0,
                middle: middle.0,
                high: high.0,
                block: block.0,
            },
            Self {
                low: low.1,
                middle: middle.1,
                high: high.1,
                block: block.1,
            },
        )
    }
}
