//! The phases that some sectors go through together.

use super::super::brw::{self, HEAD, SUBTREE, Subtrees, Tree};
use super::super::{Cpu, Vector, aes, counter};
use super::blocks::Blocks;
use super::lanes::Lanes;
use super::{Keys, LANES, MOST, STRIDE, SUBTREES};
use crate::arch::settled;
use crate::here::{MapHere, from_fn};
use crate::run::{BLOCK, RunEnd, Sector, Sectors};
use core::mem::MaybeUninit;
use core::ptr;

/// Some sectors on their way through all phases: a hash of each, what follows from it
/// for their first blocks, counter mode with the second hash, and the first blocks
/// again. The next ones have their first hash beside the counter mode.
pub(super) struct Pass<'k> {
    keys: &'k Keys,
    /// Behind the last stands the same, up to a vector's end.
    sectors: [MaybeUninit<Sector>; SUBTREES],
    pub(super) len: usize,
    /// Of the run that the last of them is from.
    end: RunEnd,
    /// How many there may be.
    most: usize,
    /// Logarithm of the number of subtrees in a sector.
    log: u32,
    tweaks: Blocks,
    /// Hashes of the subtrees, but for their last blocks.
    hashes: Blocks,
    /// The seeds of counter mode.
    seeds: Blocks,
    /// The first two blocks, when only the second hash is missing.
    heads: [Blocks; HEAD],
}

/// The subtrees of some sectors side by side.
struct SideBySide<V> {
    /// Each sector's hashes, but for the subtrees' last blocks.
    hashes: [*const u8; 4],
    /// Each sector's text.
    text: [*const u8; 4],
    tweaks: V,
    /// How many subtrees each sector has.
    count: usize,
}

impl<V: Vector> SideBySide<V> {
    #[inline(always)]
    fn gather(places: &[*const u8; 4], offset: usize) -> V {
        // SAFETY: all of them are there, as `Pass::hash` has made it.
        unsafe {
            V::gather(places.map_here(
                #[inline(always)]
                |place| place.wrapping_add(offset),
            ))
        }
    }
}

impl<V: Vector> Subtrees<V> for SideBySide<V> {
    #[inline(always)]
    fn hash(&self, index: usize) -> V {
        let last = if index + 1 == self.count {
            self.tweaks
        } else {
            Self::gather(&self.text, (index + 1) * STRIDE)
        };
        Self::gather(&self.hashes, index * BLOCK).xor(last)
    }

    #[inline(always)]
    fn join(&self, index: usize) -> V {
        Self::gather(&self.text, (index + 1) * STRIDE + BLOCK)
    }
}

impl<'k> Pass<'k> {
    pub(super) fn none(keys: &'k Keys, log: u32, most: usize) -> Self {
        Self {
            keys,
            sectors: [const { MaybeUninit::uninit() }; SUBTREES],
            len: 0,
            end: RunEnd::NONE,
            most,
            log,
            tweaks: Blocks::NONE,
            hashes: Blocks::NONE,
            seeds: Blocks::NONE,
            heads: [Blocks::NONE; HEAD],
        }
    }

    /// Takes the next sectors, `false` if there are none.
    pub(super) fn fill(&mut self, sectors: &mut Sectors<'_, '_>) -> bool {
        let most = self.most;
        let tweaks = self.tweaks.room(most.next_multiple_of(LANES));
        self.len = sectors.take_new(&mut self.sectors[..most], &mut tweaks[..most]);
        self.end = sectors.end();
        if self.len == 0 {
            return false;
        }
        for i in self.len..self.len.next_multiple_of(LANES) {
            self.sectors[i] = self.sectors[self.len - 1];
            tweaks[i] = tweaks[self.len - 1];
        }
        true
    }

    /// Sector `index`.
    ///
    /// # Safety
    /// There is one, or a vector's lane behind the last.
    #[inline(always)]
    unsafe fn sector(&self, index: usize) -> Sector {
        debug_assert!(index < self.len.next_multiple_of(LANES));
        // SAFETY: `fill` has written as many.
        unsafe { self.sectors[index % SUBTREES].assume_init() }
    }

    /// How many subtrees all sectors have.
    #[inline(always)]
    fn subtrees(&self) -> usize {
        self.len << self.log
    }

    /// The subtrees from `first` on. Lanes behind the last sector repeat it: they
    /// read and write the same bytes.
    #[inline(always)]
    fn lanes<V: Vector, const COUNT: bool>(&self, first: usize) -> Lanes<V> {
        let mut lanes = Lanes::none();
        for i in 0..V::BLOCKS {
            let subtree = first + i;
            let sector = (subtree >> self.log) % SUBTREES;
            let index = subtree % (1 << self.log) % MOST;
            // SAFETY: a lane of a vector with subtrees.
            let place = unsafe { self.sector(sector) };
            lanes.src[i] = settled(place.src().wrapping_add(index * STRIDE));
            if COUNT {
                lanes.dst[i] =
                    settled(place.dst().wrapping_add(index * STRIDE).cast_const()).cast_mut();
                lanes.first[i] = index * SUBTREE;
                // SAFETY: a block that the phase before has written.
                let seed = unsafe { self.seeds.at(sector).cast::<u128>().read() };
                let number = counter::FROM_THIRD.splat(index * SUBTREE + 1);
                lanes.starts[i] = V::splat(seed).xor(number);
            }
        }
        if COUNT {
            V::aes_before(&mut lanes.starts, &self.keys.aes.narrow);
        } else {
            lanes.later = self.end.ahead(lanes.src[0]);
        }
        lanes
    }

    /// The hashes of all subtrees from `start` on.
    pub(super) fn first_hash<V: Vector>(&mut self, cpu: Cpu<V>, start: usize) {
        cpu.call(
            #[inline(always)]
            || {
                let key = &self.keys.hash;
                let mut tree = Tree::new();
                let mut before = start;
                for first in (start..self.subtrees()).step_by(V::BLOCKS) {
                    let lanes = self.lanes::<V, false>(first);
                    // SAFETY: the sectors are there.
                    unsafe {
                        tree.quarter::<0>(key, &lanes.load::<0>());
                        tree.quarter::<1>(key, &lanes.load::<1>());
                        // Of the subtrees before; the first time, of nothing.
                        self.hashes.set(before, tree.hash);
                        tree.quarter::<2>(key, &lanes.load::<2>());
                        tree.quarter::<3>(key, &lanes.load::<3>());
                    }
                    before = first;
                }
                tree.finish(key);
                self.hashes.set(before, tree.hash);
            },
        );
    }

    /// Counter mode, and the hashes of what comes out; beside that the first hashes
    /// of the sectors of `ahead`.
    pub(super) fn counter_and_hashes<V: Vector>(&mut self, cpu: Cpu<V>, ahead: &mut Self) {
        cpu.call(
            #[inline(always)]
            move || {
                let keys = self.keys;
                let mut tree = Tree::new();
                let mut ahead_tree = Tree::new();
                let mut x = [V::zero(); 8];
                let mut before = 0;
                macro_rules! count {
                    ($first:expr, $beside:literal) => {
                        let lanes = self.lanes::<V, true>($first);
                        let next = if $beside {
                            ahead.lanes::<V, false>($first)
                        } else {
                            Lanes::none()
                        };
                        // SAFETY: the sectors are there.
                        unsafe {
                            macro_rules! quarter {
                                ($k:literal, $before:literal) => {
                                    lanes.count::<$k, $before, $beside>(
                                        keys,
                                        &mut tree,
                                        &mut x,
                                        &next,
                                        &mut ahead_tree,
                                    );
                                };
                            }
                            quarter!(0, 3);
                            quarter!(1, 0);
                            if $beside {
                                ahead.hashes.set(before, ahead_tree.hash);
                            }
                            quarter!(2, 1);
                            // Of the subtrees before; the first time, of nothing.
                            self.hashes.set(before, tree.hash);
                            quarter!(3, 2);
                        }
                        before = $first;
                    };
                }
                let both = self.subtrees().min(ahead.subtrees());
                for first in (0..both).step_by(V::BLOCKS) {
                    count!(first, true);
                }
                if both != 0 {
                    ahead_tree.finish(&keys.hash);
                    ahead.hashes.set(before, ahead_tree.hash);
                }
                let both = both.next_multiple_of(V::BLOCKS);
                for first in (both..self.subtrees()).step_by(V::BLOCKS) {
                    count!(first, false);
                }
                tree.quarter::<3>(&keys.hash, &x);
                tree.finish(&keys.hash);
                self.hashes.set(before, tree.hash);
                if both < ahead.subtrees() {
                    ahead.first_hash(cpu, both);
                }
            },
        );
    }

    /// The sectors from `first` on, as many as there are lanes: where block
    /// `block` is. Lanes behind the last sector repeat it.
    #[inline(always)]
    fn blocks<V: Vector>(&self, first: usize, block: usize) -> ([*const u8; 4], [*mut u8; 4]) {
        let mut src = [ptr::null(); 4];
        let mut dst = [ptr::null_mut(); 4];
        for i in 0..V::BLOCKS {
            // SAFETY: a lane of a vector with sectors.
            let sector = unsafe { self.sector(first + i) };
            src[i] = sector.src().wrapping_add(block * BLOCK);
            dst[i] = sector.dst().wrapping_add(block * BLOCK);
        }
        (src, dst)
    }

    /// Replaces the subtrees' hashes by those of the sectors: of the source's, or
    /// of the destination's if `second`.
    pub(super) fn join<V: Vector>(&mut self, cpu: Cpu<V>, second: bool) {
        cpu.call(
            #[inline(always)]
            || {
                for first in (0..self.len).step_by(V::BLOCKS) {
                    // SAFETY: they have been written, in whole vectors.
                    let tweaks = unsafe { self.tweaks.get::<V>(first) };
                    let hash = if self.log == 0 {
                        // SAFETY: as above.
                        unsafe { self.hashes.get::<V>(first) }.xor(tweaks)
                    } else {
                        let (src, dst) = self.blocks::<V>(first, 0);
                        let mut subtrees = SideBySide {
                            hashes: [ptr::null(); 4],
                            text: src,
                            tweaks,
                            count: 1 << self.log,
                        };
                        for (i, hashes) in subtrees.hashes.iter_mut().take(V::BLOCKS).enumerate() {
                            let sector = (first + i).min(self.len - 1);
                            *hashes = self.hashes.at(sector << self.log);
                        }
                        if second {
                            subtrees.text = dst.map_here(<*mut u8>::cast_const);
                        }
                        brw::join(&self.keys.hash, 1 << self.log, &subtrees)
                    };
                    // No sector that follows has its subtrees' hashes there.
                    self.hashes.set(first, hash);
                }
            },
        );
    }

    /// The first two blocks of the sectors from `first` on.
    #[inline(always)]
    fn heads<V: Vector>(&self, first: usize) -> [V; HEAD] {
        let (src, _) = self.blocks::<V>(first, 0);
        let mut x = [V::zero(); 4];
        for i in 0..V::BLOCKS {
            for part in 0..HEAD.div_ceil(V::BLOCKS) {
                let place = src[i].wrapping_add(part * V::BYTES);
                // SAFETY: inside the sector.
                x[i * (4 / V::BLOCKS) + part] = unsafe { V::load_front(place) };
            }
        }
        let [first, second, ..] = V::transpose(x);
        [first, second]
    }

    /// Everything between the two hashes, `N` vectors of sectors at a time.
    pub(super) fn middle<V: Vector, const N: usize>(&mut self, cpu: Cpu<V>, encrypt: bool) {
        cpu.call(
            #[inline(always)]
            || {
                // The block that the first hash masks, and the other.
                let (first, second) = if encrypt { (0, 1) } else { (1, 0) };
                let aes = &self.keys.aes.narrow;
                for start in (0..self.len).step_by(N * V::BLOCKS) {
                    // What is behind the last vector repeats it.
                    let last = (self.len - 1) / V::BLOCKS * V::BLOCKS;
                    let sectors: [usize; N] = from_fn(
                        #[inline(always)]
                        |i| (start + i * V::BLOCKS).min(last),
                    );
                    let mut a = [V::zero(); N];
                    let mut f = [V::zero(); N];
                    unroll!(I in 0 1 2 3 4 5 6 7, if I < N {
                        // SAFETY: they have been written, in whole vectors.
                        let hash = unsafe { self.hashes.get::<V>(sectors[I]) };
                        let heads = self.heads::<V>(sectors[I]);
                        a[I] = heads[first].xor(self.keys.times(hash, first));
                        f[I] = heads[second].xor(self.keys.times(a[I], 0));
                    });
                    let mut g = f;
                    aes::encrypt(&mut g, aes);
                    unroll!(I in 0 1 2 3 4 5 6 7, if I < N {
                        g[I] = g[I].xor(a[I]);
                        self.seeds.set(sectors[I], f[I].xor(g[I]));
                    });
                    let mut b = g;
                    aes::encrypt(&mut b, aes);
                    unroll!(I in 0 1 2 3 4 5 6 7, if I < N {
                        b[I] = b[I].xor(f[I]);
                        self.heads[first].set(sectors[I], g[I].xor(self.keys.times(b[I], 0)));
                        self.heads[second].set(sectors[I], b[I]);
                    });
                }
            },
        );
    }

    /// Masks a block with the second hash, and writes both.
    pub(super) fn finish<V: Vector>(&mut self, cpu: Cpu<V>, encrypt: bool) {
        cpu.call(
            #[inline(always)]
            || {
                let second = usize::from(encrypt);
                for first in (0..self.len).step_by(V::BLOCKS) {
                    // SAFETY: they have been written, in whole vectors, and the sectors
                    // are there.
                    unsafe {
                        let mask = self.keys.times(self.hashes.get::<V>(first), second);
                        let other = self.heads[1 - second].get::<V>(first);
                        other.scatter(self.blocks::<V>(first, 1 - second).1);
                        let masked = self.heads[second].get::<V>(first).xor(mask);
                        masked.scatter(self.blocks::<V>(first, second).1);
                    }
                }
            },
        );
    }

    /// Overwrites what `len` sectors have left, but for their tweaks: a hash of
    /// data that somebody knows tells them the hash's key.
    #[inline(always)]
    pub(super) fn wipe<V: Vector>(&mut self, len: usize) {
        self.hashes.wipe::<V>(len << self.log);
        self.seeds.wipe::<V>(len);
        for blocks in &mut self.heads {
            blocks.wipe::<V>(len);
        }
    }
}
