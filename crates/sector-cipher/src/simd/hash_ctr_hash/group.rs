//! A group of sectors on its way through a hash-counter-hash mode.

use crate::here::{ZipHere, from_fn};
use crate::run::{BLOCK, RunEnd, Sector, Sectors};
use crate::simd::field::Products;
use crate::simd::{Vector, ivs};
use core::mem::MaybeUninit;
use core::{ptr, slice};

/// Sectors in a group, at most.
pub(super) const GROUP: usize = 4;

/// A block of each sector of a group.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(in crate::simd) struct SectorBlocks([u128; GROUP]);

impl SectorBlocks {
    const ZERO: Self = Self([0; GROUP]);

    /// Those from `lane` on, a multiple of the vector's lanes.
    #[inline(always)]
    pub(in crate::simd) fn get<V: Vector>(&self, lane: usize) -> V {
        let lanes = &self.0[lane..][..V::BLOCKS];
        // SAFETY: as many blocks as the vector has.
        unsafe { V::load(lanes.as_ptr().cast()) }
    }

    /// Replaces those from `lane` on.
    #[inline(always)]
    pub(in crate::simd) fn set<V: Vector>(&mut self, lane: usize, blocks: V) {
        let lanes = &mut self.0[lane..][..V::BLOCKS];
        // SAFETY: as many blocks as the vector has.
        unsafe { blocks.store(lanes.as_mut_ptr().cast()) };
    }

    /// That of one sector, in all lanes.
    #[inline(always)]
    pub(super) fn splat<V: Vector>(&self, lane: usize) -> V {
        V::spread(self.get::<V::One>(lane))
    }
}

/// The hash of each sector of a group, without tweak and reduction: what has
/// been added up in each lane of the vectors that went through the sector. There is nothing
/// in it before it has been set.
pub(super) struct Sums<V>([MaybeUninit<Products<V>>; GROUP]);

impl<V: Vector> Sums<V> {
    #[inline(always)]
    pub(super) fn unset() -> Self {
        Self([MaybeUninit::uninit(); GROUP])
    }

    /// Sets that of the sector in `lane`.
    #[inline(always)]
    pub(super) fn set(&mut self, lane: usize, hash: Products<V>) {
        self.0[lane].write(hash);
    }

    /// Sets those behind `len` sectors which [`Self::get`] reads with theirs: to nothing.
    #[inline(always)]
    pub(super) fn pad(&mut self, len: usize) {
        for lane in len..len.next_multiple_of(V::BLOCKS) {
            self.set(lane, Products::zero());
        }
    }

    /// The hashes of the sectors from `lane` on, a multiple of the vector's
    /// lanes, each in a lane.
    ///
    /// # Safety
    /// They have been set, or padded.
    #[inline(always)]
    pub(super) unsafe fn get(&self, lane: usize) -> Products<V> {
        let lanes = &self.0[lane..][..V::BLOCKS];
        // SAFETY: the caller's promise.
        let lanes = unsafe { slice::from_raw_parts(lanes.as_ptr().cast(), lanes.len()) };
        Products::fold_each(lanes)
    }
}

/// A group of sectors.
#[derive(Clone, Copy)]
pub(in crate::simd) struct Group {
    pub(super) sectors: [Sector; GROUP],
    pub(super) len: usize,
    /// Of the run that the last of them is from.
    pub(super) end: RunEnd,
    /// Bytes of a sector.
    pub(in crate::simd) bytes: usize,
    /// Tweaks; behind the last sector's stands anything.
    pub(in crate::simd) tweaks: SectorBlocks,
    /// Where counter mode starts.
    pub(in crate::simd) start: SectorBlocks,
    /// What the middle leaves to the end.
    pub(in crate::simd) kept: [SectorBlocks; 2],
}

impl Group {
    /// One without sectors, for sectors of `bytes` bytes.
    #[inline(always)]
    pub(super) fn none(bytes: usize) -> Self {
        Self {
            sectors: [Sector::NONE; GROUP],
            len: 0,
            end: RunEnd::NONE,
            bytes,
            tweaks: SectorBlocks::ZERO,
            start: SectorBlocks::ZERO,
            kept: [SectorBlocks::ZERO; 2],
        }
    }

    /// That of one sector.
    #[inline(always)]
    pub(super) fn of_one(sector: Sector, bytes: usize, tweak: u128) -> Self {
        Self {
            sectors: [sector; GROUP],
            len: 1,
            end: RunEnd::NONE,
            bytes,
            tweaks: SectorBlocks([tweak, 0, 0, 0]),
            start: SectorBlocks::ZERO,
            kept: [SectorBlocks::ZERO; 2],
        }
    }

    /// The next sectors of the stream, `len` at most.
    #[inline(always)]
    pub(super) fn fill<V: Vector>(&mut self, sectors: &mut Sectors<'_, '_>, len: usize) {
        let Some(places) = sectors.consecutive(len) else {
            return self.fill_over_ends(sectors, len);
        };
        self.len = places.len();
        self.end = places.end();
        for lane in 0..GROUP {
            // Lanes without a sector have one that is there, for reading.
            let number = if lane < self.len { lane } else { 0 };
            self.sectors[lane] = places.at(number * self.bytes);
        }
        for lane in (0..GROUP).step_by(V::BLOCKS) {
            let vector = lane / V::BLOCKS;
            let tweaks = ivs::consecutive::<V>(sectors, places.count(), vector);
            self.tweaks.set(lane, tweaks);
        }
    }

    /// The same over the ends of runs.
    #[cold]
    #[inline(never)]
    fn fill_over_ends(&mut self, sectors: &mut Sectors<'_, '_>, len: usize) {
        self.len = sectors.take(&mut self.sectors[..len], &mut self.tweaks.0[..len]);
        self.end = sectors.end();
        for lane in self.len..GROUP {
            self.sectors[lane] = self.sectors[0];
        }
    }

    /// Of the sectors from `lane` on, the source's block at `offset`, in bytes.
    #[inline(always)]
    pub(in crate::simd) fn load<V: Vector>(&self, lane: usize, offset: usize) -> V {
        assert!(offset <= self.bytes - BLOCK);
        let at = from_fn(|i| {
            let lane = (lane + i).min(GROUP - 1);
            self.sectors[lane].src().wrapping_add(offset)
        });
        // SAFETY: blocks of sectors.
        unsafe { V::gather(at) }
    }

    /// Replaces the destination's block at `offset`.
    #[inline(always)]
    pub(in crate::simd) fn store<V: Vector>(&self, lane: usize, offset: usize, blocks: V) {
        assert!(offset <= self.bytes - BLOCK);
        if lane + V::BLOCKS <= self.len {
            let at = from_fn(|i| {
                let lane = (lane + i).min(GROUP - 1);
                self.sectors[lane].dst().wrapping_add(offset)
            });
            // SAFETY: blocks of sectors.
            unsafe { blocks.scatter(at) };
            return;
        }
        let blocks = blocks.blocks();
        let sectors = self.sectors[..self.len].iter().skip(lane);
        for (sector, block) in sectors.zip_here(&blocks[..V::BLOCKS]) {
            let dst = sector.dst().wrapping_add(offset);
            // SAFETY: a block of a sector.
            unsafe { ptr::copy_nonoverlapping(ptr::from_ref(block).cast(), dst, BLOCK) };
        }
    }
}
