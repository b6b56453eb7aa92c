//! The IVs of a batch, made as vectors where sectors are consecutive: numbers on their way
//! from one kind of register to the other take longer than a vector of them.

use super::{Vector, fresh};
use crate::here::MapHere;
use crate::run::{Batch, Sectors};
use core::ptr;

/// Vector `i` of a batch's IVs; `count` is [`Batch::count`].
#[inline(always)]
pub(super) fn ivs<V: Vector>(
    sectors: &Sectors<'_, '_>,
    batch: &Batch<'_>,
    count: Option<u64>,
    i: usize,
) -> V {
    if let Some(count) = count {
        return consecutive(sectors, count, i);
    }
    let ivs = &batch.ivs()[i * V::BLOCKS..][..V::BLOCKS];
    // Block by block, as they were written just before, because a CPU does not
    // put several such writes together for a read.
    let at = |lane: usize| ptr::from_ref(fresh(&ivs[lane % V::BLOCKS])).cast();
    // SAFETY: IVs of the batch.
    unsafe { V::gather([at(0), at(1), at(2), at(3)]) }
}

/// Vector `i` of the IVs of consecutive sectors, of which that of the first counts `count`.
#[inline(always)]
pub(super) fn consecutive<V: Vector>(sectors: &Sectors<'_, '_>, count: u64, i: usize) -> V {
    let (steps, masks) = sectors.counting();
    let steps = &steps[i * V::BLOCKS..][..V::BLOCKS];
    // SAFETY: as many steps as the vector has blocks.
    let steps = unsafe { V::load(steps.as_ptr().cast()) };
    let count = V::splat(u128::from(count)).add64(steps);
    let [little, big] = masks.map_here(V::splat);
    count.and(little).xor(count.reverse_bytes().and(big))
}

/// Replaces the batch by the next sectors, as [`Sectors::fill`] does, but leaves the places of
/// consecutive sectors to [`Batch::sector`].
#[inline(always)]
pub(super) fn fill<'a, V: Vector>(sectors: &mut Sectors<'a, '_>, batch: &mut Batch<'a>) {
    if let Some(count) = sectors.fill_places(batch) {
        for i in 0..batch.len().div_ceil(V::BLOCKS) {
            let ivs = consecutive::<V>(sectors, count, i);
            let place = &mut batch.ivs_mut()[i * V::BLOCKS..][..V::BLOCKS];
            // SAFETY: as many bytes as a vector has.
            unsafe { ivs.store(place.as_mut_ptr().cast()) };
        }
    }
}
