//! A batch of sectors, and what is read and written of each.

use super::{Ahead, BATCH, BLOCK, RunEnd};
use core::marker::PhantomData;
use core::ptr;

/// One sector: where its bytes come from and where they go.
#[derive(Clone, Copy)]
pub(crate) struct Sector {
    pub(super) src: *const u8,
    pub(super) dst: *mut u8,
}

impl Sector {
    /// None: its pointers must not be used.
    pub(crate) const NONE: Self = Self {
        src: ptr::null(),
        dst: ptr::null_mut(),
    };

    /// Readable for the sector size while the stream lives. The same as
    /// [`Self::dst`], or not overlapping it.
    #[inline(always)]
    pub(crate) fn src(&self) -> *const u8 {
        self.src
    }

    /// Writable for the sector size while the stream lives.
    #[inline(always)]
    pub(crate) fn dst(&self) -> *mut u8 {
        self.dst
    }

    /// That at `offset`, in bytes, from this one.
    #[inline(always)]
    fn at(self, offset: usize) -> Self {
        Self {
            src: self.src.wrapping_add(offset),
            dst: self.dst.wrapping_add(offset),
        }
    }
}

/// Consecutive sectors of a run.
pub(crate) struct Consecutive {
    pub(super) first: Sector,
    pub(super) len: usize,
    pub(super) count: u64,
    pub(super) end: RunEnd,
}

impl Consecutive {
    /// How many there are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What the IV of the first one counts.
    #[inline(always)]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The end of the run that they are from.
    #[inline(always)]
    pub(crate) fn end(&self) -> RunEnd {
        self.end
    }

    /// The sector at `offset`, in bytes, from the first one.
    #[inline(always)]
    pub(crate) fn at(&self, offset: usize) -> Sector {
        self.first.at(offset)
    }
}

/// Up to [`BATCH`] following sectors of a stream.
pub(crate) struct Batch<'a> {
    pub(super) sectors: [Sector; BATCH],
    pub(super) ivs: [u128; BATCH],
    pub(super) len: usize,
    /// What the IVs count, at the first sector, if they are left to the kernel.
    pub(super) count: Option<u64>,
    pub(super) bytes: usize,
    /// Of the run that the last of them is from.
    pub(super) end: RunEnd,
    pub(super) _borrow: PhantomData<&'a mut [u8]>,
}

#[cfg(test)]
impl<'a> Batch<'a> {
    /// A message of any length in place, for vectors that have no sector's.
    pub(crate) fn of_one(data: &'a mut [u8]) -> Self {
        let dst = data.as_mut_ptr();
        let mut sectors = [Sector::NONE; BATCH];
        sectors[0] = Sector { src: dst, dst };
        Self {
            sectors,
            ivs: [0; BATCH],
            len: 1,
            count: None,
            bytes: data.len(),
            end: RunEnd::NONE,
            _borrow: PhantomData,
        }
    }
}

impl Batch<'_> {
    /// The sectors.
    #[inline(always)]
    pub(crate) fn sectors(&self) -> &[Sector] {
        &self.sectors[..self.len]
    }

    /// Their IVs, before any encryption, as little-endian integers; behind the
    /// last sector's stands anything.
    #[inline(always)]
    pub(crate) fn ivs(&self) -> &[u128; BATCH] {
        &self.ivs
    }

    /// Room for the IVs of consecutive sectors, which are left to the kernel: see
    /// [`super::Sectors::fill_places`].
    #[inline(always)]
    pub(crate) fn ivs_mut(&mut self) -> &mut [u128; BATCH] {
        &mut self.ivs
    }

    /// Sector `i`, whether [`super::Sectors::fill_places`] has filled the batch or
    /// [`super::Sectors::fill`].
    #[inline(always)]
    pub(crate) fn sector(&self, i: usize) -> Sector {
        if self.count.is_none() {
            return self.sectors()[i];
        }
        self.sectors[0].at(i * self.bytes)
    }

    /// What the IV of the first sector counts, if the sectors are consecutive
    /// and their IVs have not been made: see [`super::Sectors::fill_places`].
    #[inline(always)]
    pub(crate) fn count(&self) -> Option<u64> {
        self.count
    }

    /// How many sectors there are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The end of the run that the last of them is from.
    #[inline(always)]
    pub(crate) fn end(&self) -> RunEnd {
        self.end
    }

    /// What will be worked on a little after the bytes at `src`, which are one of the sectors'.
    #[inline(always)]
    pub(crate) fn ahead(&self, src: *const u8) -> Ahead {
        self.end.ahead(src)
    }

    /// Makes it empty.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Block `block` of sector `sector`.
    #[inline(always)]
    pub(crate) fn load(&self, sector: usize, block: usize) -> [u8; BLOCK] {
        let offset = block * BLOCK;
        assert!(offset < self.bytes);
        // SAFETY: a sector in `sectors()` is readable for `bytes` bytes, a
        // multiple of the block, and `offset` is one below it.
        unsafe { ptr::read_unaligned(self.sectors()[sector].src.add(offset).cast()) }
    }

    /// Writes block `block` of sector `sector`.
    #[inline(always)]
    pub(crate) fn store(&mut self, sector: usize, block: usize, bytes: [u8; BLOCK]) {
        let offset = block * BLOCK;
        assert!(offset < self.bytes);
        // SAFETY: as in `load`; the destination is borrowed mutably by the stream.
        unsafe { ptr::write_unaligned(self.sectors()[sector].dst.add(offset).cast(), bytes) }
    }
}
