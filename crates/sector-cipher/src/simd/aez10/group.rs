//! Groups: where they are, and how their blocks come and go.

use super::super::Vector;
use super::super::two_pass::Step;
use crate::here::MapHere;
use core::ptr;

/// Vectors of left or right blocks in flight, a *group*. With twice as many,
/// the blocks that wait for a later layer do not fit in registers.
pub(super) const LANES: usize = 8;

/// Vectors of left or right blocks that go together, a *quartet* of each: half a
/// group. Every sector is a multiple of as many.
pub(super) const QUARTET: usize = LANES / 2;

/// A quartet of a step.
#[derive(Clone, Copy)]
pub(super) struct Quartet {
    pub(super) sector: usize,
    /// Where it begins in the sector.
    pub(super) offset: usize,
    /// Whether it is the first or the last of its sector.
    pub(super) first: bool,
    pub(super) last: bool,
}

impl Quartet {
    /// Bytes of a quartet.
    #[inline(always)]
    pub(super) fn size<V: Vector>() -> usize {
        2 * QUARTET * V::BYTES
    }

    /// How many a step has.
    #[inline(always)]
    pub(super) fn count<V: Vector, S>(step: &Step<S>, bytes: usize) -> usize {
        step.sectors().len() * bytes / Self::size::<V>()
    }

    /// Those of the group that begins with number `index`; the last in place of any
    /// behind it.
    #[inline(always)]
    pub(super) fn group<V: Vector, S>(step: &Step<S>, index: usize, bytes: usize) -> [Self; 2] {
        let log = (bytes / Self::size::<V>()).trailing_zeros();
        let last = Self::count::<V, S>(step, bytes) - 1;
        [index.min(last), (index + 1).min(last)].map_here(
            #[inline(always)]
            |index| {
                let sector = index >> log;
                let offset = (index - (sector << log)) * Self::size::<V>();
                Self {
                    sector,
                    offset,
                    first: offset == 0,
                    last: offset + Self::size::<V>() == bytes,
                }
            },
        )
    }

    /// Where each of a group comes from.
    #[inline(always)]
    pub(super) fn sources<S>(step: &Step<S>, group: &[Self; 2]) -> [*const u8; 2] {
        group.map_here(
            #[inline(always)]
            |at| step.sectors()[at.sector].src().wrapping_add(at.offset),
        )
    }

    /// Where each of a group goes.
    #[inline(always)]
    pub(super) fn destinations<S>(step: &Step<S>, group: &[Self; 2]) -> [*mut u8; 2] {
        group.map_here(
            #[inline(always)]
            |at| step.sectors()[at.sector].dst().wrapping_add(at.offset),
        )
    }

    /// Where each of a group is between the passes.
    #[inline(always)]
    pub(super) fn between<S>(group: [Self; 2], step: &Step<S>, bytes: usize) -> [*mut u8; 2] {
        group.map_here(
            #[inline(always)]
            |at| step.between().wrapping_add(at.sector * bytes + at.offset),
        )
    }
}

/// Vectors `i` of the left and of the right blocks of a group.
///
/// # Safety
/// The quartets are readable.
#[inline(always)]
pub(super) unsafe fn pairs<V: Vector>(src: [*const u8; 2], i: usize) -> (V, V) {
    let src = src[i / QUARTET].wrapping_add(2 * (i % QUARTET) * V::BYTES);
    // SAFETY: the caller's promise.
    let (a, b) = unsafe { (V::load(src), V::load(src.add(V::BYTES))) };
    V::unzip(a, b)
}

/// The result of a group, not written yet.
pub(super) struct Done<V> {
    pub(super) left: [V; LANES],
    pub(super) right: [V; LANES],
    /// Where its quartets go.
    pub(super) dst: [*mut u8; 2],
}

impl<V: Vector> Done<V> {
    /// That of no group.
    #[inline(always)]
    pub(super) fn none() -> Self {
        Self {
            left: [V::zero(); LANES],
            right: [V::zero(); LANES],
            dst: [ptr::null_mut(); 2],
        }
    }

    /// Writes vectors `i` of left and right blocks.
    ///
    /// # Safety
    /// The quartets are writable.
    #[inline(always)]
    pub(super) unsafe fn write(&self, i: usize) {
        let (a, b) = V::zip(self.left[i], self.right[i]);
        let dst = self.dst[i / QUARTET].wrapping_add(2 * (i % QUARTET) * V::BYTES);
        // SAFETY: the caller's promise.
        unsafe {
            a.store(dst);
            b.store(dst.add(V::BYTES));
        }
    }
}
