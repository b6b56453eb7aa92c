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

use super::field::Products;
use super::powers::Powers;
use super::{RoundKeys, Vector, counter, wipe};
use crate::run::{BATCH, BLOCK, Batch, Sector, Sectors};
use core::ptr;

/// Sectors in a group.
const GROUP: usize = 4;

/// Vectors side by side in counter mode.
const VECTORS: usize = 4;

/// Before which sectors of a group the serial parts come.
const MIDDLE: usize = 1;
const FINISH: usize = 2;
const MIDDLE_SECOND: usize = 3;

/// A cipher of this form.
pub(super) trait Scheme {
    /// The number of the sector's first block in counter mode.
    const FIRST: u32;
    /// Blocks as the hash takes them.
    fn element<V: Vector>(block: V) -> V;
    /// The powers of the hash's key, one for each block.
    fn powers(&self) -> &Powers;
    /// The AES key of counter mode.
    fn counter_keys(&self) -> &RoundKeys;
    /// The counters of the blocks with these numbers, up to the first round.
    fn counters<V: Vector, const N: usize>(&self, start: V, numbers: [V; N]) -> [V; N];
    /// Between the first hash and counter mode, for the sectors of a group from
    /// `lane` on: leaves where the counter starts.
    fn middle<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
        &self,
        group: &mut Group,
        lane: usize,
    );
    /// The rest of that, if it is long.
    #[inline(always)]
    fn middle_second<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
        &self,
        _group: &mut Group,
        _lane: usize,
    ) {
    }
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
    let mut used = 0;
    let mut step = 0_usize;
    let mut output = Output::none();
    loop {
        // Four groups, each one step behind the next.
        let [first, second, third, fourth] = [0, 3, 2, 1].map(|i| (step + i) % 4);
        groups[first].fill(&mut sectors, &mut batch, step % 2 == 1);
        if groups[first].len != 0 {
            used = used.max(first + 1);
        }
        for i in 0..GROUP {
            if i == MIDDLE {
                for lane in (0..groups[second].len).step_by(V::BLOCKS) {
                    scheme.middle::<V, ROUNDS, ENCRYPT>(&mut groups[second], lane);
                }
            } else if i == FINISH {
                for lane in (0..groups[fourth].len).step_by(V::BLOCKS) {
                    scheme.finish::<V, ROUNDS, ENCRYPT>(&mut groups[fourth], lane);
                }
                groups[fourth].len = 0;
            } else if i == MIDDLE_SECOND {
                for lane in (0..groups[second].len).step_by(V::BLOCKS) {
                    scheme.middle_second::<V, ROUNDS, ENCRYPT>(&mut groups[second], lane);
                }
            }
            let present = &groups[third];
            let count = i < present.len;
            let (sector, start) = (present.sectors[i], V::splat(present.start.0[i]));
            let previous = if i == 0 { fourth } else { third };
            let pass = Pass {
                scheme,
                bytes,
                sector,
                start,
                ahead: groups[first].sectors[i].src(),
            };
            let hash = i < groups[first].len;
            // SAFETY: the sectors are there.
            let (before, after) = unsafe {
                match (count, hash) {
                    (true, true) => pass.run::<ROUNDS, true, true>(&mut output),
                    (true, false) => pass.run::<ROUNDS, true, false>(&mut output),
                    (false, true) => pass.run::<ROUNDS, false, true>(&mut output),
                    (false, false) => pass.run::<ROUNDS, false, false>(&mut output),
                }
            };
            if hash {
                groups[first].before.set(i, before);
            }
            if let Some(after) = after {
                groups[previous].after.set((i + GROUP - 1) % GROUP, after);
            }
        }
        if groups.iter().all(|group| group.len == 0) {
            break;
        }
        step += 1;
    }
    // A hash of data that somebody knows tells them the hash's key. A group has
    // no destructor, and as it is aligned its size is whole vectors.
    // SAFETY: groups; all bytes zero is one as well.
    unsafe { wipe::<V>((&raw mut groups).cast(), used * size_of::<Group>()) };
}

/// What counter mode has written and the hash not yet taken in.
struct Output<V> {
    /// The end of a sector.
    blocks: [V; VECTORS],
    /// The hash of what came before it.
    hash: Products<V>,
    there: bool,
}

impl<V: Vector> Output<V> {
    #[inline(always)]
    fn none() -> Self {
        Self {
            blocks: [V::zero(); VECTORS],
            hash: Products::zero(),
            there: false,
        }
    }
}

/// What is done with one sector, or with two.
struct Pass<'k, S, V> {
    scheme: &'k S,
    /// Bytes of a sector.
    bytes: usize,
    /// The sector in counter mode.
    sector: Sector,
    start: V,
    /// The sector that is hashed.
    ahead: *const u8,
}

impl<S: Scheme, V: Vector> Pass<'_, S, V> {
    /// Bytes taken at a time.
    const STEP: usize = VECTORS * V::BYTES;

    /// Counter mode if `COUNT`, and the second hash of all but the end; the
    /// first hash of another sector if `HASH`. Returns the latter, and the
    /// second hash of the sector that was in counter mode before.
    ///
    /// # Safety
    /// The sectors that are taken are there.
    #[inline(always)]
    unsafe fn run<const ROUNDS: usize, const COUNT: bool, const HASH: bool>(
        &self,
        output: &mut Output<V>,
    ) -> (Products<V>, Option<Products<V>>) {
        let mut before = Products::zero();
        let (mut offset, mut behind) = (0, self.bytes - Self::STEP);
        let mut after = None;
        if COUNT {
            let mut next = counter::numbers::<V>(S::FIRST);
            // SAFETY: all inside the sectors.
            unsafe {
                self.step::<ROUNDS, HASH>(offset, behind, &mut next, &mut before, output);
                if output.there {
                    after = Some(output.hash);
                }
                output.hash = Products::zero();
                output.there = true;
                while offset < behind {
                    offset += Self::STEP;
                    self.step::<ROUNDS, HASH>(
                        offset,
                        offset - Self::STEP,
                        &mut next,
                        &mut before,
                        output,
                    );
                }
            }
        } else {
            if output.there {
                // SAFETY: inside the table.
                unsafe {
                    self.add::<0>(&mut output.hash, behind, &output.blocks);
                    self.add::<2>(&mut output.hash, behind, &output.blocks);
                }
                after = Some(output.hash);
                output.there = false;
            }
            if HASH {
                behind += Self::STEP;
                while offset < behind {
                    // SAFETY: inside the sector.
                    unsafe {
                        let data = self.elements(self.ahead, offset);
                        self.add::<0>(&mut before, offset, &data);
                        self.add::<2>(&mut before, offset, &data);
                    }
                    offset += Self::STEP;
                }
            }
        }
        (before, after)
    }

    /// One step of counter mode, and of the hashes: of the other sector at the
    /// same offset, and of the step before, at `behind`.
    ///
    /// # Safety
    /// The offsets are inside the sectors.
    #[inline(always)]
    unsafe fn step<const ROUNDS: usize, const HASH: bool>(
        &self,
        offset: usize,
        behind: usize,
        next: &mut V,
        before: &mut Products<V>,
        output: &mut Output<V>,
    ) {
        let keys = self.scheme.counter_keys();
        let numbers = counter::following::<V, VECTORS>(next);
        let mut x = self.scheme.counters(self.start, numbers);
        // SAFETY: the caller's promise.
        unsafe {
            let data = self.load(self.sector.src(), offset);
            let ahead = if HASH {
                self.elements(self.ahead, offset)
            } else {
                [V::zero(); VECTORS]
            };
            unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
                V::aes_round::<VECTORS, true, ROUND>(&mut x, keys);
                // The products go evenly between the rounds.
                let spacing = (ROUNDS - 2) / 4;
                if ROUND.is_multiple_of(spacing) {
                    match ROUND / spacing {
                        1 if HASH => {
                            self.add::<0>(before, offset, &ahead);
                            before.order(&mut x);
                        }
                        2 if HASH => {
                            self.add::<2>(before, offset, &ahead);
                            before.order(&mut x);
                        }
                        3 => {
                            self.add::<0>(&mut output.hash, behind, &output.blocks);
                            output.hash.order(&mut x);
                        }
                        4 => {
                            self.add::<2>(&mut output.hash, behind, &output.blocks);
                            output.hash.order(&mut x);
                        }
                        _ => {}
                    }
                }
            });
            V::aes_finish::<VECTORS, true, ROUNDS>(&mut x, keys, &data);
            for (i, (x, block)) in x.iter().zip(&mut output.blocks).enumerate() {
                x.store(self.sector.dst().add(offset + i * V::BYTES));
                *block = S::element(*x);
            }
        }
    }

    /// # Safety
    /// A step at the offset is inside the sector.
    #[inline(always)]
    unsafe fn load(&self, sector: *const u8, offset: usize) -> [V; VECTORS] {
        let mut data = [V::zero(); VECTORS];
        for (i, data) in data.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *data = unsafe { V::load(sector.add(offset + i * V::BYTES)) };
        }
        data
    }

    /// The same as the hash takes them.
    ///
    /// # Safety
    /// As for [`Self::load`].
    #[inline(always)]
    unsafe fn elements(&self, sector: *const u8, offset: usize) -> [V; VECTORS] {
        // SAFETY: the caller's promise.
        let mut data = unsafe { self.load(sector, offset) };
        for data in &mut data {
            *data = S::element(*data);
        }
        data
    }

    /// Adds two vectors of `data`, from `FIRST` on, to a hash. The data is that
    /// at `offset`.
    ///
    /// # Safety
    /// The offset is inside a sector.
    #[inline(always)]
    unsafe fn add<const FIRST: usize>(
        &self,
        hash: &mut Products<V>,
        offset: usize,
        data: &[V; VECTORS],
    ) {
        let powers = self.scheme.powers();
        let offset = offset + FIRST * V::BYTES;
        // SAFETY: the caller's promise.
        unsafe {
            hash.add_two(
                data[FIRST],
                powers.at(offset),
                data[FIRST + 1],
                powers.at(offset + V::BYTES),
            );
        }
    }
}
