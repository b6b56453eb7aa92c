//! The stream of sectors for modes that go over a sector twice, with a serial
//! piece of work between the passes that takes AES's latency several times.
//!
//! A few sectors go together, a *step*, through three *stages*: the first pass,
//! the work between for all of them in the lanes of vectors, and the second
//! pass. Three steps are on their way, one in each stage, so that the CPU finds
//! independent rounds while it waits for the work between.

use super::{Vector, ivs};
use crate::here::MapHere;
use crate::run::{Ahead, RunEnd, Sector, Sectors};
use core::mem::MaybeUninit;

/// Sectors of a step, at most.
pub(super) const SECTORS: usize = 4;

/// Bytes of a step, at most.
const BYTES: usize = 8192;

/// A block for each sector of a step.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct SectorBlocks(pub(super) [u128; SECTORS]);

impl SectorBlocks {
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
    end: RunEnd,
    pub(super) tweaks: SectorBlocks,
    between: *mut u8,
    /// What the mode keeps of it besides.
    pub(super) state: S,
}

impl<S> Step<S> {
    #[inline(always)]
    fn new(state: S, between: *mut Between) -> Self {
        Self {
            sectors: [Sector::NONE; SECTORS],
            len: 0,
            end: RunEnd::NONE,
            tweaks: SectorBlocks::ZERO,
            between: between.cast(),
            state,
        }
    }

    #[inline(always)]
    pub(super) fn sectors(&self) -> &[Sector] {
        &self.sectors[..self.len]
    }

    /// What will be worked on a little after the bytes at `src`, which are one of the sectors'.
    #[inline(always)]
    pub(super) fn ahead(&self, src: *const u8) -> Ahead {
        self.end.ahead(src)
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
    /// What a stage hands on to the next one.
    type Carried;
    /// That, before any.
    fn carried(&self) -> Self::Carried;
    /// The first pass over step 0, from the source to `between`, the work
    /// between the passes for step 1, and the second pass over step 2, from
    /// `between`, where it leaves zeros, to the destination. Each of them may
    /// have no sectors.
    fn stage(&self, steps: [&mut Step<Self::State>; 3], carried: &mut Self::Carried, bytes: usize);
}

/// Runs it over the stream.
#[inline(always)]
pub(super) fn run<V: Vector, M: TwoPass<V>>(mode: &M, sectors: &mut Sectors<'_, '_>) {
    let bytes = sectors.bytes();
    let together = (BYTES >> bytes.trailing_zeros()).min(SECTORS);
    // Left as it is: zeros would cost more than a small sector.
    let mut between = MaybeUninit::<[Between; 3]>::uninit();
    let between: *mut Between = between.as_mut_ptr().cast();
    let mut steps = [0, 1, 2].map_here(
        #[inline(always)]
        |i| Step::new(mode.start(), between.wrapping_add(i)),
    );
    let mut carried = mode.carried();
    let mut batch = sectors.empty_batch();
    let mut taken = 0;
    let mut current = 0;
    loop {
        if taken == batch.len() {
            ivs::fill::<V>(sectors, &mut batch);
            taken = 0;
        }
        let [a, b, c] = &mut steps;
        let steps = match current {
            0 => [a, c, b],
            1 => [b, a, c],
            _ => [c, b, a],
        };
        let step = &mut *steps[0];
        step.len = together.min(batch.len() - taken);
        step.end = batch.end();
        for i in 0..step.len {
            step.sectors[i] = batch.sector(taken + i);
            step.tweaks.0[i] = batch.ivs()[taken + i];
        }
        taken += step.len;
        if steps.iter().all(|step| step.len == 0) {
            break;
        }
        mode.stage(steps, &mut carried, bytes);
        current = (current + 1) % 3;
    }
    // SAFETY: an empty piece of assembly, that might read the zeros.
    unsafe {
        core::arch::asm!("/* {} */", in(reg) between, options(nostack, preserves_flags));
    }
}
