//! What is kept of each subtree, or of each sector, between the phases.

use super::super::{Vector, wipe};
use super::SUBTREES;
use crate::run::BLOCK;
use core::mem::MaybeUninit;
use core::slice;

/// A block for each subtree, or for each sector. They are written in whole
/// vectors before they are read.
#[repr(C, align(64))]
pub(super) struct Blocks(MaybeUninit<[u128; SUBTREES]>);

impl Blocks {
    pub(super) const NONE: Self = Self(MaybeUninit::uninit());

    /// Where block `index` is.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> *const u8 {
        debug_assert!(index < SUBTREES);
        self.0.as_ptr().cast::<u128>().wrapping_add(index).cast()
    }

    /// Those from `index` on, a multiple of the vector's lanes.
    ///
    /// # Safety
    /// They have been written.
    #[inline(always)]
    pub(super) unsafe fn get<V: Vector>(&self, index: usize) -> V {
        // SAFETY: whole vectors of blocks, and the caller's promise.
        unsafe { V::load(self.at(index)) }
    }

    /// Replaces those from `index` on, a multiple of the vector's lanes.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, index: usize, blocks: V) {
        debug_assert!(index < SUBTREES);
        let place = self.0.as_mut_ptr().cast::<u128>().wrapping_add(index);
        // SAFETY: whole vectors of blocks.
        unsafe { blocks.store(place.cast()) };
    }

    /// Room for the first `count`, to be written.
    #[inline(always)]
    pub(super) fn room(&mut self, count: usize) -> &mut [MaybeUninit<u128>] {
        let place = self.0.as_mut_ptr().cast();
        // SAFETY: an array is its elements, and these need not have been written.
        let all = unsafe { slice::from_raw_parts_mut(place, SUBTREES) };
        &mut all[..count]
    }

    /// Overwrites the vectors of the first `count`.
    #[inline(always)]
    pub(super) fn wipe<V: Vector>(&mut self, count: usize) {
        let bytes = count.next_multiple_of(V::BLOCKS) * BLOCK;
        // SAFETY: whole vectors of blocks.
        unsafe { wipe::<V>(self.0.as_mut_ptr().cast(), bytes) };
    }
}
