//! What HCTR2, FAST and XCB have in common: a hash of most of the sector, a
//! few AES calls in the middle, counter mode over the part that was hashed, and
//! a hash of what that gave.
//!
//! Sectors go through in groups of four. While one group is in counter mode,
//! with its second hash, the first hash of the group after the next is worked
//! out, and in between, for the group that is next, all that depends on the
//! first hash: no unit waits for the serial part. What there is once per sector
//! is done for a group at a time, one sector in each lane.
//!
//! All runs over whole vectors of the sector. The few blocks that are neither
//! hashed nor in counter mode have the power zero in the hash; what counter
//! mode makes of them is overwritten when the sector is finished.

use super::field::{Factor, Products};
use super::powers::Powers;
use super::{Vector, counter};
use crate::run::{BATCH, BLOCK, Batch, Sector, Sectors};
use core::ptr;

/// Sectors in a group.
const GROUP: usize = 4;

/// Vectors side by side in counter mode.
const VECTORS: usize = 4;

/// A cipher of this form.
pub(super) trait Scheme {
    /// The number of the sector's first block in counter mode.
    const FIRST: u32;
    /// Blocks as the hash takes them.
    fn element<V: Vector>(block: V) -> V;
    /// The powers of the hash's key, one for each block.
    fn powers(&self) -> &Powers;
    /// Counter mode over vectors with the block numbers given.
    fn counter_mode<V: Vector, const N: usize, const ROUNDS: usize>(
        &self,
        start: V,
        numbers: [V; N],
        data: &[V; N],
    ) -> [V; N];
    /// Between the first hash and counter mode, for the sectors of a group from
    /// `lane` on: leaves where the counter starts.
    fn middle<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
        &self,
        group: &mut Group,
        lane: usize,
    );
    /// After the second hash: writes the blocks that are left.
    fn finish<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
        &self,
        group: &mut Group,
        lane: usize,
    );
}

/// A block of each sector of a group.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Lanes([u128; GROUP]);

impl Lanes {
    const ZERO: Self = Self([0; GROUP]);

    /// Those from `lane` on, a multiple of the vector's lanes.
    #[inline(always)]
    pub(super) fn get<V: Vector>(&self, lane: usize) -> V {
        let lanes = &self.0[lane..][..V::BLOCKS];
        // SAFETY: as many blocks as the vector has.
        unsafe { V::load(lanes.as_ptr().cast()) }
    }

    /// Replaces those from `lane` on.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, lane: usize, blocks: V) {
        let lanes = &mut self.0[lane..][..V::BLOCKS];
        // SAFETY: as many blocks as the vector has.
        unsafe { blocks.store(lanes.as_mut_ptr().cast()) };
    }
}

/// The hash of each sector of a group, without tweak and reduction.
#[derive(Clone, Copy)]
pub(super) struct Hashes([Lanes; 3]);

impl Hashes {
    const ZERO: Self = Self([Lanes::ZERO; 3]);

    #[inline(always)]
    pub(super) fn get<V: Vector>(&self, lane: usize) -> Products<V> {
        let [low, middle, high] = &self.0;
        Products::from_parts([low.get(lane), middle.get(lane), high.get(lane)])
    }

    /// That of one sector.
    #[inline(always)]
    fn set<V: Vector>(&mut self, lane: usize, hash: Products<V>) {
        let parts = hash.fold().into_parts();
        for (lanes, part) in self.0.iter_mut().zip(parts) {
            lanes.set(lane, part);
        }
    }
}

/// A group of sectors on its way.
#[derive(Clone, Copy)]
pub(super) struct Group {
    sectors: [Sector; GROUP],
    len: usize,
    /// Bytes of a sector.
    pub(super) bytes: usize,
    /// Tweaks; behind the last sector's stands anything.
    pub(super) tweaks: Lanes,
    /// Of what came in.
    pub(super) before: Hashes,
    /// Of what counter mode gave.
    pub(super) after: Hashes,
    /// Where counter mode starts.
    pub(super) start: Lanes,
    /// What the middle leaves to the end.
    pub(super) kept: [Lanes; 2],
}

impl Group {
    /// The next sectors of the stream: one half of a batch, and then the other.
    fn fill<'a>(&mut self, sectors: &mut Sectors<'a, '_>, batch: &mut Batch<'a>, second: bool) {
        let first = if second {
            GROUP
        } else {
            sectors.fill(batch);
            0
        };
        self.len = batch.len().saturating_sub(first).min(GROUP);
        if self.len != 0 {
            for lane in 0..GROUP {
                // Lanes without a sector have one that is there, for reading.
                let from = first + lane.min(self.len - 1);
                self.sectors[lane] = batch.sectors()[from];
                self.tweaks.0[lane] = batch.ivs()[from];
            }
        }
    }

    /// Of the sectors from `lane` on, the source's block at `offset`, in bytes.
    #[inline(always)]
    pub(super) fn load<V: Vector>(&self, lane: usize, offset: usize) -> V {
        assert!(offset <= self.bytes - BLOCK);
        let at = core::array::from_fn(|i| {
            let lane = (lane + i).min(GROUP - 1);
            self.sectors[lane].src().wrapping_add(offset)
        });
        // SAFETY: blocks of sectors.
        unsafe { V::gather(at) }
    }

    /// Replaces the destination's block at `offset`.
    #[inline(always)]
    pub(super) fn store<V: Vector>(&self, lane: usize, offset: usize, blocks: V) {
        assert!(offset <= self.bytes - BLOCK);
        let blocks = blocks.blocks();
        let sectors = self.sectors[..self.len].iter().skip(lane);
        for (sector, block) in sectors.zip(&blocks[..V::BLOCKS]) {
            let dst = sector.dst().wrapping_add(offset);
            // SAFETY: a block of a sector.
            unsafe { ptr::copy_nonoverlapping(ptr::from_ref(block).cast(), dst, BLOCK) };
        }
    }
}

/// Encrypts or decrypts the stream.
#[inline(always)]
pub(super) fn crypt<S: Scheme, V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    scheme: &S,
    mut sectors: Sectors<'_, '_>,
) {
    const { assert!(2 * GROUP == BATCH) };
    let bytes = sectors.bytes();
    let mut batch = sectors.empty_batch();
    let none = Group {
        sectors: [Sector::NONE; GROUP],
        len: 0,
        bytes,
        tweaks: Lanes::ZERO,
        before: Hashes::ZERO,
        after: Hashes::ZERO,
        start: Lanes::ZERO,
        kept: [Lanes::ZERO; 2],
    };
    let mut groups = [none; 4];
    let mut step = 0_usize;
    loop {
        // Four groups, each one step behind the next.
        let [first, second, third, fourth] = [0, 3, 2, 1].map(|i| (step + i) % 4);
        let mut hashed = groups[first];
        hashed.fill(&mut sectors, &mut batch, step % 2 == 1);
        groups[first] = hashed;
        if groups.iter().all(|group| group.len == 0) {
            return;
        }
        for i in 0..GROUP {
            if i == 0 {
                for lane in (0..groups[fourth].len).step_by(V::BLOCKS) {
                    scheme.finish::<V, ROUNDS, ENCRYPT>(&mut groups[fourth], lane);
                }
                groups[fourth].len = 0;
            } else if i == 1 {
                for lane in (0..groups[second].len).step_by(V::BLOCKS) {
                    scheme.middle::<V, ROUNDS, ENCRYPT>(&mut groups[second], lane);
                }
            }
            let present = &groups[third];
            let count = i < present.len;
            let (sector, start) = (present.sectors[i], V::splat(present.start.0[i]));
            let ahead = &groups[first];
            let hash = i < ahead.len;
            let ahead = ahead.sectors[i].src();
            // SAFETY: the sectors are there.
            unsafe {
                match (count, hash) {
                    (true, true) => {
                        let (before, after) =
                            pass::<S, V, ROUNDS, true, true>(scheme, bytes, sector, start, ahead);
                        groups[first].before.set(i, before);
                        groups[third].after.set(i, after);
                    }
                    (true, false) => {
                        let (_, after) =
                            pass::<S, V, ROUNDS, true, false>(scheme, bytes, sector, start, ahead);
                        groups[third].after.set(i, after);
                    }
                    (false, true) => {
                        let (before, _) =
                            pass::<S, V, ROUNDS, false, true>(scheme, bytes, sector, start, ahead);
                        groups[first].before.set(i, before);
                    }
                    (false, false) => {}
                }
            }
        }
        step += 1;
    }
}

/// Counter mode and second hash of `sector`, the first hash of the one at
/// `ahead`, or both. The hashes of the latter and of the former.
///
/// # Safety
/// A sector of `bytes` bytes that is taken is readable, and `sector` writable.
#[inline(always)]
unsafe fn pass<S: Scheme, V: Vector, const ROUNDS: usize, const COUNT: bool, const HASH: bool>(
    scheme: &S,
    bytes: usize,
    sector: Sector,
    start: V,
    ahead: *const u8,
) -> (Products<V>, Products<V>) {
    let (mut before, mut after) = (Products::zero(), Products::zero());
    let mut next = counter::numbers::<V>(S::FIRST);
    for offset in (0..bytes).step_by(VECTORS * V::BYTES) {
        let at = [0, 1, 2, 3].map(|i| offset + i * V::BYTES);
        // SAFETY: all inside the sectors.
        unsafe {
            let powers: [Factor<V>; VECTORS] = at.map(|at| scheme.powers().at(at));
            if HASH {
                let data = at.map(|at| S::element(V::load(ahead.add(at))));
                before.add_two(data[0], powers[0], data[1], powers[1]);
                before.add_two(data[2], powers[2], data[3], powers[3]);
            }
            if COUNT {
                let data = at.map(|at| V::load(sector.src().add(at)));
                let numbers = counter::following(&mut next);
                let data = scheme.counter_mode::<V, VECTORS, ROUNDS>(start, numbers, &data);
                for (data, at) in data.into_iter().zip(at) {
                    data.store(sector.dst().add(at));
                }
                let data = data.map(S::element);
                after.add_two(data[0], powers[0], data[1], powers[1]);
                after.add_two(data[2], powers[2], data[3], powers[3]);
            }
        }
    }
    (before, after)
}
