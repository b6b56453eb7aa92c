//! What a hash-counter-hash mode does with all of a sector: counter mode and
//! both hashes.

use super::Scheme;
use crate::here::{MapHere, ZipHere};
use crate::run::{Ahead, BLOCK, Sector};
use crate::simd::Vector;
use crate::simd::field::{Pair, Products};

/// A vector of blocks as the hash takes them.
#[inline(always)]
fn element<S: Scheme, V: Vector>(blocks: V) -> V {
    if S::REVERSED {
        blocks.reverse_bytes()
    } else {
        blocks
    }
}

/// Adds two vectors of the sector to a hash.
///
/// # Safety
/// They are readable at `src`.
#[inline(always)]
unsafe fn add<S: Scheme, V: Vector>(hash: &mut Products<V>, src: *const u8, powers: Pair<V>) {
    // SAFETY: the caller's promise.
    unsafe {
        if S::REVERSED {
            let blocks = [V::load(src), V::load(src.add(V::BYTES))];
            hash.add_two(blocks.map_here(element::<S, V>), powers);
        } else {
            hash.add_two_at(src, powers);
        }
    }
}

/// Where it is, `N` vectors at a time.
pub(super) struct Pass<'k, S, V, const N: usize> {
    scheme: &'k S,
    /// Where counter mode starts.
    start: V,
    /// What counter mode has written and the hash not yet taken in.
    blocks: [V; N],
    /// Whether there is any.
    written: bool,
    /// The hash of what came before it.
    after: Products<V>,
    /// The hash of a sector that counter mode has not come to.
    before: Products<V>,
}

impl<'k, S: Scheme, V: Vector, const N: usize> Pass<'k, S, V, N> {
    /// Bytes taken at a time.
    pub(super) const STEP: usize = N * V::BYTES;

    #[inline(always)]
    pub(super) fn new(scheme: &'k S) -> Self {
        Self {
            scheme,
            start: V::zero(),
            blocks: [V::zero(); N],
            written: false,
            after: Products::zero(),
            before: Products::zero(),
        }
    }

    /// Before a sector's first step.
    #[inline(always)]
    pub(super) fn start(&mut self, start: V) {
        self.start = self.scheme.start(start);
    }

    /// The first hash, after a sector's last step.
    #[inline(always)]
    pub(super) fn take_before(&mut self) -> Products<V> {
        core::mem::replace(&mut self.before, Products::zero())
    }

    /// The second hash of a sector, after the next one's first step.
    #[inline(always)]
    pub(super) fn take_after(&mut self) -> Products<V> {
        core::mem::replace(&mut self.after, Products::zero())
    }

    /// The same where no sector follows.
    #[inline(always)]
    pub(super) fn finish(&mut self, bytes: usize) -> Products<V> {
        if self.written {
            for i in (0..N).step_by(2) {
                // SAFETY: inside the table.
                unsafe {
                    let powers = self.scheme.powers().at(bytes - Self::STEP, i * V::BYTES);
                    self.after
                        .add_two([self.blocks[i], self.blocks[i + 1]], powers);
                }
            }
            self.written = false;
        }
        self.take_after()
    }

    /// One step of counter mode, and of the hashes: of what the step before has
    /// written and, if `HASH`, of the sector ahead. Both are at the offset
    /// `behind`, so that they need the same powers; the sector ahead starts with
    /// its last step. If `HASH`, it also asks for the bytes `later`.
    ///
    /// # Safety
    /// The sectors are there, and the offsets are inside.
    #[inline(always)]
    pub(super) unsafe fn step<const HASH: bool>(
        &mut self,
        sector: Sector,
        ahead: *const u8,
        later: Ahead,
        offset: usize,
        behind: usize,
    ) {
        let keys = self.scheme.counter_keys();
        let mut x = self.scheme.counters(self.start, offset / BLOCK);
        // Pairs of vectors to be hashed.
        let pairs = if HASH { N } else { N / 2 };
        // SAFETY: the caller's promise.
        unsafe {
            let mut powers = self.scheme.powers().at(behind, 0);
            unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
                V::aes_round::<N, true, ROUND>(&mut x, keys);
                if HASH {
                    later.ask(ROUND - 5, Self::STEP);
                }
                // They go evenly between the rounds.
                let due = |rounds: usize| (rounds * pairs).div_ceil(9);
                for i in due(ROUND - 5)..due(ROUND - 4) {
                    let second = HASH && i % 2 == 1;
                    let i = if HASH { i & !1 } else { 2 * i };
                    if second {
                        add::<S, V>(&mut self.before, ahead.add(behind + i * V::BYTES), powers);
                        self.before.order(&mut x);
                    } else {
                        powers = self.scheme.powers().at(behind, i * V::BYTES);
                        self.after.add_two([self.blocks[i], self.blocks[i + 1]], powers);
                        self.after.order(&mut x);
                    }
                }
            });
            let (src, dst) = (sector.src().add(offset), sector.dst().add(offset));
            let x = V::aes_finish_between::<N, true>(x, keys, src, dst);
            for (x, block) in x.iter().zip_here(&mut self.blocks) {
                *block = element::<S, V>(*x);
            }
            self.written = true;
        }
    }

    /// The first hash of a sector of `bytes` bytes, alone.
    ///
    /// # Safety
    /// The sector is readable at `src`.
    #[inline(always)]
    pub(super) unsafe fn hash(&self, src: *const u8, bytes: usize) -> Products<V> {
        let mut hash = Products::zero();
        let mut offset = 0;
        while offset < bytes {
            for i in (0..N).step_by(2) {
                // SAFETY: the caller's promise.
                unsafe {
                    let powers = self.scheme.powers().at(offset, i * V::BYTES);
                    add::<S, V>(&mut hash, src.add(offset + i * V::BYTES), powers);
                }
            }
            offset += Self::STEP;
        }
        hash
    }
}
