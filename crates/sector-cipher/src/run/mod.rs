//! What the kernels see of a request: a stream of sectors, from wherever they
//! come. A run in place, a run from source to destination and a list of
//! runs all become the same stream, so that there is one kernel for the
//! three and none of them stops at a run's end.
#![allow(unsafe_code)]

mod ahead;
mod batch;
mod iv;

use crate::arch::{put, settled};
use crate::here::ZipHere;
use crate::{Foreign, Run, RunError};
pub(crate) use ahead::{Ahead, RunEnd};
pub(crate) use batch::{Batch, Consecutive, Sector};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::{ptr, slice};
#[cfg(any(test, feature = "hazmat"))]
use iv::ALL_ONES;
pub(crate) use iv::IvRule;

/// Bytes in an AES block.
pub(crate) const BLOCK: usize = 16;

/// Sectors whose IVs are made together.
pub(crate) const BATCH: usize = 8;

/// What comes after the present run.
enum Rest<'a, 'b> {
    /// Other runs, in place.
    Runs(slice::IterMut<'a, Run<'b>>),
    /// The same run, from another place.
    From(slice::Iter<'a, Foreign<'b>>),
    /// The same run, to another place.
    Into(slice::Iter<'a, Foreign<'b>>),
}

impl Rest<'_, '_> {
    /// Whether there is nothing. Asked of the slices: an iterator's length is a division.
    #[inline(always)]
    fn is_empty(&self) -> bool {
        match self {
            Self::Runs(runs) => runs.as_slice().is_empty(),
            Self::From(pieces) | Self::Into(pieces) => pieces.as_slice().is_empty(),
        }
    }
}

/// The stream of sectors of one request.
pub(crate) struct Sectors<'a, 'b> {
    src: *const u8,
    dst: *mut u8,
    /// Sectors left of the present run.
    left: usize,
    /// Number of the next sector, in 512-byte units.
    next: u64,
    rest: Rest<'a, 'b>,
    bytes: usize,
    rule: &'a IvRule,
}

impl<'a, 'b> Sectors<'a, 'b> {
    /// A run in place.
    pub(crate) fn in_place(
        rule: &'a IvRule,
        first: u64,
        data: &'a mut [u8],
    ) -> Result<Self, RunError> {
        check(rule, first, data.len())?;
        let dst = data.as_mut_ptr();
        Ok(Self::run(rule, first, dst, dst, data.len()))
    }

    /// One sector in place, with the IV of [`IvRule::of_tweak`]. `data` has its length.
    #[cfg(any(test, feature = "hazmat"))]
    pub(crate) fn of_tweak(rule: &'a IvRule, data: &'a mut [u8]) -> Self {
        assert_eq!(data.len(), rule.size.bytes());
        let dst = data.as_mut_ptr();
        Self::run(rule, ALL_ONES, dst, dst, data.len())
    }

    /// A run from `source` to `dest`.
    pub(crate) fn between(
        rule: &'a IvRule,
        first: u64,
        source: &'a [u8],
        dest: &'a mut [u8],
    ) -> Result<Self, RunError> {
        check_equal(source.len(), dest.len())?;
        check(rule, first, source.len())?;
        let (src, dst) = (source.as_ptr(), dest.as_mut_ptr());
        Ok(Self::run(rule, first, src, dst, source.len()))
    }

    /// Several runs in place.
    pub(crate) fn runs(rule: &'a IvRule, runs: &'a mut [Run<'b>]) -> Result<Self, RunError> {
        // All are checked before the first byte is changed.
        for run in runs.iter() {
            check(rule, run.first, run.data.len())?;
        }
        let mut sectors = Self::run(rule, 0, ptr::null(), ptr::null_mut(), 0);
        sectors.rest = Rest::Runs(runs.iter_mut());
        Ok(sectors)
    }

    /// A run from pieces of whole sectors to `dest`.
    pub(crate) fn from_foreign(
        rule: &'a IvRule,
        first: u64,
        source: &'a [Foreign<'b>],
        dest: &'a mut [u8],
    ) -> Result<Self, RunError> {
        let len = check_pieces(rule, first, source)?;
        check_equal(len, dest.len())?;
        let mut sectors = Self::run(rule, first, ptr::null(), dest.as_mut_ptr(), 0);
        sectors.rest = Rest::From(source.iter());
        Ok(sectors)
    }

    /// A run from `source` to pieces of whole sectors.
    pub(crate) fn into_foreign(
        rule: &'a IvRule,
        first: u64,
        source: &'a [u8],
        dest: &'a [Foreign<'b>],
    ) -> Result<Self, RunError> {
        let len = check_pieces(rule, first, dest)?;
        check_equal(source.len(), len)?;
        let mut sectors = Self::run(rule, first, source.as_ptr(), ptr::null_mut(), 0);
        sectors.rest = Rest::Into(dest.iter());
        Ok(sectors)
    }

    /// A run that has been checked.
    fn run(rule: &'a IvRule, first: u64, src: *const u8, dst: *mut u8, len: usize) -> Self {
        let bytes = rule.size.bytes();
        let left = len >> rule.log_bytes;
        Self {
            src,
            dst,
            left,
            next: first,
            rest: Rest::Runs([].iter_mut()),
            bytes,
            rule,
        }
    }

    /// Bytes of every sector.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many sectors are left, if they are one run; `None` if further runs
    /// follow.
    #[inline(always)]
    pub(crate) fn left(&self) -> Option<usize> {
        self.rest.is_empty().then_some(self.left)
    }

    /// An empty batch, to be filled.
    #[inline(always)]
    pub(crate) fn empty_batch(&self) -> Batch<'a> {
        Batch {
            sectors: [Sector::NONE; BATCH],
            ivs: [0; BATCH],
            len: 0,
            count: None,
            bytes: self.bytes,
            end: RunEnd::NONE,
            _borrow: PhantomData,
        }
    }

    /// Replaces the batch by the next sectors, as many as there are up to
    /// [`BATCH`]; none at the end.
    #[inline(always)]
    pub(crate) fn fill(&mut self, batch: &mut Batch<'a>) {
        batch.count = None;
        batch.len = self.take(&mut batch.sectors, &mut batch.ivs);
        batch.end = self.end();
    }

    /// The end of the present run, which the sector taken last is from.
    #[inline(always)]
    pub(crate) fn end(&self) -> RunEnd {
        RunEnd(self.src.wrapping_add(self.left * self.bytes))
    }

    /// The next sectors and their IVs, as many as there is room for. Tells how many.
    #[inline(always)]
    pub(crate) fn take(&mut self, sectors: &mut [Sector], ivs: &mut [u128]) -> usize {
        let sectors = ptr::from_mut(sectors) as *mut [MaybeUninit<Sector>];
        let ivs = ptr::from_mut(ivs) as *mut [MaybeUninit<u128>];
        // SAFETY: borrowed mutably for as long, and nothing but values is written.
        unsafe { self.take_new(&mut *sectors, &mut *ivs) }
    }

    /// The same, into room that has not been written before.
    #[inline(never)]
    pub(crate) fn take_new(
        &mut self,
        sectors: &mut [MaybeUninit<Sector>],
        ivs: &mut [MaybeUninit<u128>],
    ) -> usize {
        let mut places = sectors.iter_mut().zip_here(ivs);
        let room = places.len();
        loop {
            let count = self.left.min(places.len());
            // Not in their places, through which each would wait for the one before.
            let (mut src, mut dst, mut next) = (self.src, self.dst, self.next);
            for (sector, iv) in places.by_ref().take(count) {
                sector.write(Sector { src, dst });
                put(iv, self.rule.iv(next));
                src = src.wrapping_add(self.bytes);
                dst = dst.wrapping_add(self.bytes);
                next = next.wrapping_add(self.rule.units);
            }
            (self.src, self.dst, self.next) = (src, dst, next);
            self.left -= count;
            if places.len() == 0 {
                return room;
            }
            if !self.go_on() {
                return room - places.len();
            }
        }
    }

    /// Goes on to the next run, or to the next place of this one; false if there is none.
    fn go_on(&mut self) -> bool {
        let (next, len) = match &mut self.rest {
            Rest::Runs(runs) => {
                let Some(run) = runs.next() else {
                    return false;
                };
                let start = run.data.as_mut_ptr();
                ((start.cast_const(), start, run.first), run.data.len())
            }
            Rest::From(pieces) => {
                let Some(piece) = pieces.next() else {
                    return false;
                };
                (
                    (piece.start().cast_const(), self.dst, self.next),
                    piece.len(),
                )
            }
            Rest::Into(pieces) => {
                let Some(piece) = pieces.next() else {
                    return false;
                };
                ((self.src, piece.start(), self.next), piece.len())
            }
        };
        (self.src, self.dst, self.next) = next;
        self.left = len >> self.rule.log_bytes;
        true
    }

    /// The next sector of the present run, which has one, and its IV.
    #[inline(always)]
    pub(crate) fn one(&mut self) -> (Sector, u128) {
        assert!(self.left != 0);
        let (src, dst, iv) = (self.src, self.dst, self.rule.iv(self.next));
        self.src = src.wrapping_add(self.bytes);
        self.dst = dst.wrapping_add(self.bytes);
        self.next = self.next.wrapping_add(self.rule.units);
        self.left -= 1;
        (Sector { src, dst }, iv)
    }

    /// The next sectors, `most` of them or what is left, if they are consecutive. Their IVs are
    /// left to the kernel, which makes them as vectors: numbers on their way from one kind of
    /// register to the other take the place of AES rounds.
    #[inline(always)]
    pub(crate) fn consecutive(&mut self, most: usize) -> Option<Consecutive> {
        let len = self.left.min(most);
        if len < most && !self.rest.is_empty() {
            return None;
        }
        let end = self.end();
        let (src, dst) = (settled(self.src), settled(self.dst.cast_const()).cast_mut());
        let count = self.next >> self.rule.shift;
        // Nobody asks for what is behind the last sector of all.
        self.src = src.wrapping_add(most * self.bytes);
        self.dst = dst.wrapping_add(most * self.bytes);
        self.next = self.next.wrapping_add(most as u64 * self.rule.units);
        self.left -= len;
        Some(Consecutive {
            first: Sector { src, dst },
            len,
            count,
            end,
        })
    }

    /// [`Self::fill`], but leaves the IVs of consecutive sectors to the kernel. Returns
    /// [`Batch::count`], which takes some time to be read from the batch.
    #[inline(always)]
    pub(crate) fn fill_places(&mut self, batch: &mut Batch<'a>) -> Option<u64> {
        let Some(places) = self.consecutive(BATCH) else {
            self.fill(batch);
            return None;
        };
        batch.sectors[0] = places.first;
        batch.len = places.len;
        batch.count = Some(places.count);
        batch.end = places.end;
        Some(places.count)
    }

    /// What the IV counts from a sector to those behind it, and the bits of the
    /// count in the IV: as it is, and with its sixteen bytes reversed.
    #[inline(always)]
    pub(crate) fn counting(&self) -> (&[u128; BATCH], &[u128; 2]) {
        (&self.rule.steps, &self.rule.masks)
    }
}

/// The same for a run in pieces, each of which has to be whole sectors; its length.
fn check_pieces(rule: &IvRule, first: u64, pieces: &[Foreign<'_>]) -> Result<usize, RunError> {
    let mut len = 0_usize;
    for piece in pieces {
        check(rule, first, piece.len())?;
        let sum = len.checked_add(piece.len());
        len = sum.ok_or(RunError::BeyondLast { first })?;
    }
    check(rule, first, len)?;
    Ok(len)
}

fn check_equal(source: usize, dest: usize) -> Result<(), RunError> {
    match source == dest {
        true => Ok(()),
        false => Err(RunError::Unequal { source, dest }),
    }
}

/// The boundary check: after it `len` is whole sectors, and all of them have a number.
fn check(rule: &IvRule, first: u64, len: usize) -> Result<(), RunError> {
    let sector_size = rule.size.bytes();
    // Powers of two: no division, which takes as long as some blocks do.
    if len & (sector_size - 1) != 0 {
        return Err(RunError::Length { len, sector_size });
    }
    if first & (rule.units - 1) != 0 {
        return Err(RunError::FirstSector { first, sector_size });
    }
    // The number of units, less one, goes up to the last number.
    if (len as u64 / 512).saturating_sub(1) > u64::MAX - first {
        return Err(RunError::BeyondLast { first });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IvMode, SectorCount, SectorSize};

    fn plain64() -> IvRule {
        let size = SectorSize::new(512).unwrap();
        IvRule::new(IvMode::Plain64, size, SectorCount::Units512)
    }

    #[test]
    fn the_last_number_is_the_last() {
        let mut data = [0; 4 * 512];
        let rule = plain64();
        let mut sectors = Sectors::in_place(&rule, u64::MAX - 3, &mut data).unwrap();
        let mut batch = sectors.empty_batch();
        sectors.fill(&mut batch);
        assert_eq!(batch.len(), 4);
        let max = u128::from(u64::MAX);
        assert_eq!(batch.ivs()[..4], [max - 3, max - 2, max - 1, max]);
        let first = u64::MAX - 2;
        assert_eq!(
            Sectors::in_place(&rule, first, &mut data).err(),
            Some(RunError::BeyondLast { first })
        );
        // Nothing may stand anywhere.
        assert!(Sectors::in_place(&rule, u64::MAX, &mut []).is_ok());
    }

    #[test]
    fn batches_cross_runs_and_skip_empty_ones() {
        let (mut a, mut b, mut c) = ([0; 3 * 512], [0; 0], [0; 7 * 512]);
        let rule = plain64();
        let mut runs = [
            Run {
                first: 100,
                data: &mut b,
            },
            Run {
                first: 10,
                data: &mut a,
            },
            Run {
                first: 20,
                data: &mut c,
            },
        ];
        let mut sectors = Sectors::runs(&rule, &mut runs).unwrap();
        let mut batch = sectors.empty_batch();
        sectors.fill(&mut batch);
        assert_eq!(batch.len(), 8);
        assert_eq!(batch.ivs(), &[10, 11, 12, 20, 21, 22, 23, 24]);
        sectors.fill(&mut batch);
        assert_eq!((batch.len(), &batch.ivs()[..2]), (2, &[25, 26][..]));
        sectors.fill(&mut batch);
        assert_eq!(batch.len(), 0);
        sectors.fill(&mut batch);
        assert_eq!(batch.len(), 0);
    }
}
