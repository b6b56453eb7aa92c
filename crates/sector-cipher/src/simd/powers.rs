//! The powers of a hash's key, for a hash that is a polynomial in the key: with
//! all of them at hand there is one reduction for a whole sector.

use super::Vector;
use super::field::Pair;
use core::ops::Range;

/// Blocks of the largest sector.
const BLOCKS: usize = 256;

/// One power for each block of a sector, highest first. Blocks that the hash
/// leaves out have zero.
#[repr(C, align(64))]
pub(super) struct Powers {
    values: [u128; BLOCKS],
    /// The sums of their halves, two in each element, for pairs of vectors one
    /// behind the other: of one block, 2, and 4.
    sums: [[u128; BLOCKS / 2]; 3],
}

impl Powers {
    pub(super) const ZERO: Self = Self {
        values: [0; BLOCKS],
        sums: [[0; BLOCKS / 2]; 3],
    };

    /// Sets the powers of `hashed`, which are blocks of a sector of `blocks`.
    /// The last block's is `power`, whether it is hashed or not, and the others
    /// follow by `times_key`. Returns the one that follows the first hashed
    /// block's.
    #[inline(always)]
    pub(super) fn set<V: Vector>(
        &mut self,
        blocks: usize,
        hashed: Range<usize>,
        mut power: V,
        times_key: impl Fn(V) -> V,
    ) -> V {
        for block in (hashed.start..blocks).rev() {
            if hashed.contains(&block) {
                self.values[block] = power.blocks()[0];
                let sum = power.xor(power.swap_halves()).blocks()[0];
                for (i, sums) in self.sums.iter_mut().enumerate() {
                    let lanes = 1 << i;
                    let (pair, second) = (block / (2 * lanes), block / lanes % 2);
                    let half = u128::from(u64::MAX) << (64 * second);
                    sums[pair * lanes + block % lanes] |= sum & half;
                }
            }
            power = times_key(power);
        }
        power
    }

    /// The factors of the blocks `more` behind `offset`, in bytes, in a sector.
    ///
    /// # Safety
    /// Both are multiples of two vectors' size, and the sum is in a sector.
    #[inline(always)]
    pub(super) unsafe fn at<V: Vector>(&self, offset: usize, more: usize) -> Pair<V> {
        debug_assert!(offset + more + 2 * V::BYTES <= size_of_val(&self.values));
        let values = (&raw const self.values).cast::<u8>();
        let sums = (&raw const self.sums[V::BLOCKS.trailing_zeros() as usize]).cast::<u8>();
        // SAFETY: a sector has no more blocks than the table.
        unsafe {
            let values = values.add(offset).add(more);
            Pair {
                values: [V::load(values), V::load(values.add(V::BYTES))],
                // Halved apart, so that what the compiler knows of one is in the address.
                sums: V::load(sums.add(offset / 2).add(more / 2)),
            }
        }
    }
}
