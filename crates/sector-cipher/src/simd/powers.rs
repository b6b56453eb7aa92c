//! The powers of a hash's key, for a hash that is a polynomial in the key: with
//! all of them at hand there is one reduction for a whole sector.

use super::Vector;
use super::field::Factor;
use core::ops::Range;

/// Blocks of the largest sector.
const BLOCKS: usize = 256;

/// One power for each block of a sector, highest first. Blocks that the hash
/// leaves out have zero.
#[repr(C, align(64))]
pub(super) struct Powers {
    values: [u128; BLOCKS],
    /// The sums of their halves, in the low half.
    sums: [u128; BLOCKS],
}

impl Powers {
    pub(super) const ZERO: Self = Self {
        values: [0; BLOCKS],
        sums: [0; BLOCKS],
    };

    /// Sets the powers of `hashed`, which are blocks of a sector of `blocks`.
    /// The last block's is `power`, whether it is hashed or not, and the others
    /// follow by `times_key`. Returns the first block's.
    #[inline(always)]
    pub(super) fn set<V: Vector>(
        &mut self,
        blocks: usize,
        hashed: Range<usize>,
        mut power: V,
        times_key: impl Fn(V) -> V,
    ) -> V {
        for block in (0..blocks).rev() {
            if hashed.contains(&block) {
                self.values[block] = power.blocks()[0];
                self.sums[block] = power.xor(power.swap_halves()).blocks()[0];
            }
            if block != 0 {
                power = times_key(power);
            }
        }
        power
    }

    /// The factors of the blocks at `offset`, in bytes, in a sector.
    ///
    /// # Safety
    /// The offset is a multiple of the vector's size, and in a sector.
    #[inline(always)]
    pub(super) unsafe fn at<V: Vector>(&self, offset: usize) -> Factor<V> {
        debug_assert!(offset + V::BYTES <= size_of_val(&self.values));
        // SAFETY: a sector has no more blocks than the table.
        unsafe {
            Factor::with_sum(
                V::load(self.values.as_ptr().cast::<u8>().add(offset)),
                V::load(self.sums.as_ptr().cast::<u8>().add(offset)),
            )
        }
    }
}
