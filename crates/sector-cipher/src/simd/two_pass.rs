//! The stream of sectors for modes that go over a sector twice, with a serial
//! piece of work between the passes that takes AES's latency several times.
//!
//! A few sectors go together, a *step*: the first pass over each, then the work
//! between for all of them in the lanes of vectors. The second pass follows
//! behind the next step's first one, so that the CPU finds independent rounds
//! while it waits for the work between.

use super::{Vector, wipe};
use crate::run::{Sector, Sectors};
use core::mem::MaybeUninit;

/// Sectors of a step, at most.
pub(super) const SECTORS: usize = 8;

/// Bytes of a step, at most.
const BYTES: usize = 8192;

/// A block for each sector of a step.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct Lanes(pub(super) [u128; SECTORS]);

impl Lanes {
    pub(super) const ZERO: Self = Self([0; SECTORS]);

    /// Those of as many sectors as a vector has lanes, from `sector` on.
    #[inline(always)]
    pub(super) fn load<V: Vector>(&self, sector: usize) -> V {
        let blocks = &self.0[sector..][..V::BLOCKS];
        // SAFETY: as many bytes as a vector has.
        unsafe { V::load(blocks.as_ptr().cast()) }
    }

    /// The same, block by block: quicker than [`Self::load`] where they have
    /// just been written one by one. Behind sector `last` it repeats that one.
    #[inline(always)]
    pub(super) fn gather<V: Vector>(&self, sector: usize, last: usize) -> V {
        let block = |i: usize| (&raw const self.0[(sector + i).min(last)]).cast();
        // SAFETY: blocks.
        unsafe { V::gather([block(0), block(1), block(2), block(3)]) }
    }

    #[inline(always)]
    pub(super) fn store<V: Vector>(&mut self, sector: usize, x: V) {
        let blocks = &mut self.0[sector..][..V::BLOCKS];
        // SAFETY: as above.
        unsafe { x.store(blocks.as_mut_ptr().cast()) };
    }

    /// The block of one sector.
    #[inline(always)]
    pub(super) fn one<V: Vector>(&self, sector: usize) -> V::One {
        self.load::<V::One>(sector)
    }
}

/// What the first pass leaves for the second: as many bytes as the sectors have.
#[repr(C, align(64))]
struct Between([u8; BYTES]);

/// Sectors on their way.
pub(super) struct Step<S> {
    sectors: [Sector; SECTORS],
    len: usize,
    pub(super) tweaks: Lanes,
    between: *mut u8,
    /// Where a source to come probably is, to be fetched beside the second pass.
    ahead: *const u8,
    /// What the mode keeps of it besides.
    pub(super) state: S,
}

impl<S> Step<S> {
    #[inline(always)]
    fn new(state: S, between: *mut Between) -> Self {
        Self {
            sectors: [Sector::NONE; SECTORS],
            len: 0,
            tweaks: Lanes::ZERO,
            between: between.cast(),
            ahead: core::ptr::null(),
            state,
        }
    }

    #[inline(always)]
    pub(super) fn sectors(&self) -> &[Sector] {
        &self.sectors[..self.len]
    }

    /// Fetches some bytes of a source to come, those as far in as `offset`.
    #[inline(always)]
    pub(super) fn prefetch<V: Vector>(&self, offset: usize, bytes: usize) {
        V::prefetch(self.ahead.wrapping_add(offset), bytes);
    }

    /// The place for what the first pass leaves of sector 0; the others follow.
    #[inline(always)]
    pub(super) fn between(&self) -> *mut u8 {
        self.between
    }
}

/// A mode of this kind, with its key.
pub(super) trait TwoPass<V: Vector> {
    /// What it keeps of a step.
    type State: Copy;
    /// That, before the first pass.
    fn start(&self) -> Self::State;
    /// The first pass, which reads all of the source and leaves as many bytes
    /// in `between`.
    fn first(&self, step: &mut Step<Self::State>, bytes: usize);
    /// The parts of the work between the passes: each waits for AES once.
    const PARTS: usize;
    /// One of them.
    fn middle(&self, step: &mut Step<Self::State>, part: usize, bytes: usize);
    /// Where the second pass is, which goes from `between` to the destination.
    type Second;
    /// Before the first group.
    fn start_second(&self, step: &Step<Self::State>, bytes: usize) -> Self::Second;
    /// One group or a few; `false` when none was left.
    fn second(&self, step: &mut Step<Self::State>, second: &mut Self::Second, bytes: usize)
    -> bool;
}

/// Runs it over the stream.
#[inline(always)]
pub(super) fn run<V: Vector, M: TwoPass<V>>(mode: &M, mut sectors: Sectors<'_, '_>) {
    let bytes = sectors.bytes();
    let together = (BYTES >> bytes.trailing_zeros()).min(SECTORS);
    // Left as it is: zeros would cost more than a small sector.
    let mut between = MaybeUninit::<[Between; 2]>::uninit();
    let between: *mut Between = between.as_mut_ptr().cast();
    let mut steps = [
        Step::new(mode.start(), between),
        Step::new(mode.start(), between.wrapping_add(1)),
    ];
    let mut batch = sectors.empty_batch();
    let mut taken = 0;
    let mut used = [0; 2];
    let mut current = 0;
    loop {
        if taken == batch.len() {
            sectors.fill(&mut batch);
            taken = 0;
        }
        let [a, b] = &mut steps;
        let (step, before) = if current == 0 { (a, b) } else { (b, a) };
        step.len = together.min(batch.len() - taken);
        if step.len != 0 {
            for i in 0..step.len {
                step.sectors[i] = batch.sectors()[taken + i];
                step.tweaks.0[i] = batch.ivs()[taken + i];
            }
            taken += step.len;
            used[current] = used[current].max(step.len * bytes);
            before.ahead = match batch.sectors().get(taken) {
                Some(sector) => sector.src(),
                None => step.sectors[step.len - 1].src().wrapping_add(bytes),
            };
            mode.first(step, bytes);
        }
        let more = step.len != 0;
        // The second pass of the step before, and between its groups the work
        // that waits.
        let mut second = mode.start_second(before, bytes);
        let mut part = if more { 0 } else { M::PARTS };
        loop {
            if part < M::PARTS {
                mode.middle(step, part, bytes);
                part += 1;
            }
            if !mode.second(before, &mut second, bytes) && part == M::PARTS {
                break;
            }
        }
        if !more {
            break;
        }
        current ^= 1;
    }
    for (step, used) in steps.iter().zip(used) {
        // SAFETY: as many bytes of that place have been written.
        unsafe { wipe::<V>(step.between, used) };
    }
}
