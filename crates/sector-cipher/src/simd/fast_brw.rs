//! FAST with the BRW hash (ePrint 2017/849, the fixed-length setting) over a
//! stream of sectors.
//!
//! A sector is two blocks P1 and P2, and the rest P3. A hash of P3 and the
//! tweak masks P1; a two-round Feistel network with AES turns both blocks into
//! the seed of the counter mode that encrypts P3; a hash of what comes out, and
//! the tweak, masks the second block. Decryption is the same with the two
//! blocks, and the two hashes, in exchanged roles.
//!
//! Lanes hash subtrees, of one sector or of several (see [`brw`]); everything
//! that comes once in a sector is done for several sectors side by side. Counter
//! mode runs over the first two blocks too, which are written in the end.

use super::brw::{self, HEAD, HashKey, STEPS, SUBTREE, Subtrees, Sum, Tree};
use super::{Vector, WideKeys, aes, apart, counter, wipe};
use crate::run::{BLOCK, Batch, Sector, Sectors, settled};
use core::mem::MaybeUninit;
use core::ptr;

/// Its keys.
#[repr(C)]
pub(crate) struct Keys {
    aes: WideKeys,
    rounds: usize,
    hash: HashKey,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        aes: WideKeys::ZERO,
        rounds: 0,
        hash: HashKey::UNSET,
    };

    /// Rounds of AES.
    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }

    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        self.rounds = V::expand(key, &mut self.aes.narrow);
        self.aes.widen();
        let mut tau = [V::zero()];
        match self.rounds {
            10 => aes::encrypt::<V, 1, 10>(&mut tau, &self.aes.narrow),
            _ => aes::encrypt::<V, 1, 14>(&mut tau, &self.aes.narrow),
        }
        self.hash.set(tau[0]);
    }
}

/// Bytes that a lane takes.
const STRIDE: usize = SUBTREE * BLOCK;

/// Subtrees that go through the phases together, and so sectors, at most: about as many
/// as stay in the first-level cache, since each is read twice.
const SUBTREES: usize = 32;

/// Lanes of the widest vector.
const LANES: usize = 4;

/// Subtrees of the largest sector.
const MOST: usize = 4096 / STRIDE;

/// A block for each subtree, or for each sector. They are written in whole
/// vectors before they are read.
#[repr(C, align(64))]
struct Blocks(MaybeUninit<[u128; SUBTREES]>);

impl Blocks {
    const NONE: Self = Self(MaybeUninit::uninit());

    /// Where block `index` is.
    #[inline(always)]
    fn at(&self, index: usize) -> *const u8 {
        debug_assert!(index < SUBTREES);
        self.0.as_ptr().cast::<u128>().wrapping_add(index).cast()
    }

    /// Those from `index` on, a multiple of the vector's lanes.
    ///
    /// # Safety
    /// They have been written.
    #[inline(always)]
    unsafe fn get<V: Vector>(&self, index: usize) -> V {
        // SAFETY: whole vectors of blocks, and the caller's promise.
        unsafe { V::load(self.at(index)) }
    }

    /// Replaces those from `index` on, a multiple of the vector's lanes.
    #[inline(always)]
    fn set<V: Vector>(&mut self, index: usize, blocks: V) {
        debug_assert!(index < SUBTREES);
        let place = self.0.as_mut_ptr().cast::<u128>().wrapping_add(index);
        // SAFETY: whole vectors of blocks.
        unsafe { blocks.store(place.cast()) };
    }

    /// Replaces some, from `index` on; behind the last stands the same, up to
    /// a vector's end.
    #[inline(always)]
    fn set_all(&mut self, index: usize, blocks: &[u128]) {
        let end = (index + blocks.len()).next_multiple_of(LANES);
        debug_assert!(end <= SUBTREES);
        for i in index..end {
            let block = blocks[(i - index).min(blocks.len() - 1)];
            // SAFETY: inside the place.
            unsafe { self.0.as_mut_ptr().cast::<u128>().add(i).write(block) };
        }
    }

    /// Overwrites the vectors of the first `count`.
    #[inline(always)]
    fn wipe<V: Vector>(&mut self, count: usize) {
        let bytes = count.next_multiple_of(V::BLOCKS) * BLOCK;
        // SAFETY: whole vectors of blocks.
        unsafe { wipe::<V>(self.0.as_mut_ptr().cast(), bytes) };
    }
}

/// Some sectors on their way through all phases: a hash of each, what follows from it
/// for their first blocks, counter mode with the second hash, and the first blocks
/// again. The next ones have their first hash beside the counter mode.
struct Pass<'k> {
    keys: &'k Keys,
    /// Behind the last stands the same, up to a vector's end.
    sectors: [Sector; SUBTREES],
    len: usize,
    /// How many there may be.
    most: usize,
    /// Of the subtrees in a sector.
    log: u32,
    tweaks: Blocks,
    /// Of the subtrees, but for their last blocks.
    hashes: Blocks,
    /// The seeds of counter mode.
    seeds: Blocks,
    /// The first two blocks, when only the second hash is missing.
    heads: [Blocks; HEAD],
}

/// What all lanes take.
struct Lanes<V> {
    src: [*const u8; 4],
    dst: [*mut u8; 4],
    /// The numbers of their first blocks in their sectors.
    first: [usize; 4],
    /// What their counters start with, up to AES's first round: the seed, and
    /// the number of the first block that is counted.
    starts: [V; 4],
}

/// Which lane vector `i` of quarter `k` belongs to, and at which of its blocks
/// it starts.
#[inline(always)]
const fn place<V: Vector>(k: usize, i: usize) -> (usize, usize) {
    let (quad, i) = (2 * k + i / 4, i % 4);
    let part = i % (4 / V::BLOCKS) * V::BLOCKS;
    (i / (4 / V::BLOCKS), 4 * quad + part)
}

impl<V: Vector> Lanes<V> {
    #[inline(always)]
    fn none() -> Self {
        Self {
            src: [ptr::null(); 4],
            dst: [ptr::null_mut(); 4],
            first: [0; 4],
            starts: [V::zero(); 4],
        }
    }

    /// Quarter `K` of the text.
    ///
    /// # Safety
    /// The sectors are there.
    #[inline(always)]
    unsafe fn load<const K: usize>(&self) -> [V; 8] {
        let mut x = [V::zero(); 8];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, block) = place::<V>(K, I);
            // SAFETY: inside the lane.
            x[I] = unsafe { V::load(self.src[lane].wrapping_add(block * BLOCK)) };
        });
        x
    }

    /// Quarter `K` through counter mode; between the rounds the hash of the
    /// quarter before, `BEFORE`, whose text is `x`: this one's takes its place. If
    /// `AHEAD`, the first hash of quarter `K` of `ahead` as well.
    ///
    /// # Safety
    /// The sectors and the seeds are there.
    #[inline(always)]
    unsafe fn count<const K: usize, const BEFORE: usize, const ROUNDS: usize, const AHEAD: bool>(
        &self,
        keys: &Keys,
        tree: &mut Tree<V>,
        x: &mut [V; 8],
        ahead: &Self,
        ahead_tree: &mut Tree<V>,
    ) {
        let aes = &keys.aes;
        let mut y = [V::zero(); 8];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, block) = place::<V>(K, I);
            let start = self.starts[lane];
            y[I] = if block == 0 {
                // The number before a lane's is no sum of the two parts.
                let first = self.first[lane];
                let number = V::splat(counter::FROM_THIRD.one(first + 1));
                start.xor3(number, counter::FROM_THIRD.from(first))
            } else {
                start.xor(counter::FROM_THIRD.from(block))
            };
        });
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
            V::wide_round::<8, true, ROUND>(&mut y, aes);
            // The steps go evenly between the rounds.
            unroll!(STEP in 0 1 2 3 4 5 6 7, if ROUND == 1 + STEP * (ROUNDS - 2) / (STEPS - 1) {
                tree.step::<BEFORE, STEP>(&keys.hash, x);
                tree.pin::<STEP>();
                if AHEAD {
                    let mut text = [V::zero(); 8];
                    if STEP == 1 || STEP == 5 {
                        // SAFETY: the caller's promise.
                        text = unsafe { ahead.load::<K>() };
                    }
                    ahead_tree.step::<K, STEP>(&keys.hash, &text);
                    ahead_tree.pin::<STEP>();
                }
            });
        });
        let mut text = [ptr::null(); 8];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, block) = place::<V>(K, I);
            text[I] = self.src[lane].wrapping_add(block * BLOCK);
        });
        // SAFETY: inside the lanes.
        unsafe { V::wide_finish_loading::<8, true, ROUNDS>(&mut y, aes, &text) };
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, block) = place::<V>(K, I);
            // SAFETY: inside the lane.
            unsafe { y[I].store(self.dst[lane].wrapping_add(block * BLOCK)) };
        });
        *x = y;
    }
}

/// The subtrees of some sectors side by side.
struct SideBySide<V> {
    /// Each sector's hashes, but for the subtrees' last blocks.
    hashes: [*const u8; 4],
    /// Its text.
    text: [*const u8; 4],
    tweaks: V,
    /// Of each sector's subtrees.
    count: usize,
}

impl<V: Vector> SideBySide<V> {
    #[inline(always)]
    fn gather(places: &[*const u8; 4], offset: usize) -> V {
        // SAFETY: all of them are there, as `Pass::hash` has made it.
        unsafe {
            V::gather(places.map(
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
    fn none(keys: &'k Keys, log: u32, most: usize) -> Self {
        Self {
            keys,
            sectors: [Sector::NONE; SUBTREES],
            len: 0,
            most,
            log,
            tweaks: Blocks::NONE,
            hashes: Blocks::NONE,
            seeds: Blocks::NONE,
            heads: [Blocks::NONE; HEAD],
        }
    }

    /// Takes the next sectors, `false` if there are none. `taken` are those of the
    /// batch that passes have had.
    fn fill<'a>(
        &mut self,
        sectors: &mut Sectors<'a, '_>,
        batch: &mut Batch<'a>,
        taken: &mut usize,
    ) -> bool {
        self.len = 0;
        loop {
            if *taken == batch.len() {
                sectors.fill(batch);
                *taken = 0;
            }
            let end = batch.len().min(*taken + self.most - self.len);
            let some = *taken..end;
            if some.is_empty() {
                break;
            }
            self.sectors[self.len..][..some.len()].copy_from_slice(&batch.sectors()[some.clone()]);
            self.tweaks.set_all(self.len, &batch.ivs()[some.clone()]);
            self.len += some.len();
            *taken = end;
        }
        if self.len == 0 {
            return false;
        }
        for i in self.len..self.len.next_multiple_of(LANES) {
            self.sectors[i] = self.sectors[self.len - 1];
        }
        true
    }

    /// Of the subtrees in all sectors.
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
            let place = &self.sectors[sector];
            lanes.src[i] = settled(place.src().wrapping_add(index * STRIDE));
            if COUNT {
                lanes.dst[i] =
                    settled(place.dst().wrapping_add(index * STRIDE).cast_const()).cast_mut();
                lanes.first[i] = index * SUBTREE;
                // SAFETY: a block that the phase before has written.
                let seed = unsafe { self.seeds.at(sector).cast::<u128>().read() };
                let number = counter::FROM_THIRD.one(index * SUBTREE + 1);
                lanes.starts[i] = V::splat(seed).xor(V::splat(number));
            }
        }
        if COUNT {
            V::wide_start_with(&mut lanes.starts, &self.keys.aes, &[V::zero(); 4]);
        }
        lanes
    }

    /// The hashes of all subtrees from `start` on.
    fn first_hash<V: Vector>(&mut self, start: usize) {
        apart::<V, _>(
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
    fn counter_and_hashes<V: Vector, const ROUNDS: usize>(&mut self, ahead: &mut Self) {
        apart::<V, _>(
            #[inline(always)]
            || {
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
                                    lanes.count::<$k, $before, ROUNDS, $beside>(
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
                    ahead.first_hash::<V>(both);
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
            let sector = &self.sectors[(first + i) % SUBTREES];
            src[i] = sector.src().wrapping_add(block * BLOCK);
            dst[i] = sector.dst().wrapping_add(block * BLOCK);
        }
        (src, dst)
    }

    /// Replaces the subtrees' hashes by those of the sectors: of the source's, or
    /// of the destination's if `second`.
    fn join<V: Vector>(&mut self, second: bool) {
        apart::<V, _>(
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
                            subtrees.text = dst.map(<*mut u8>::cast_const);
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

    /// The products with the key to the power of 2^`log`.
    #[inline(always)]
    fn times<V: Vector>(&self, x: V, log: usize) -> V {
        Sum::product(x, self.keys.hash.power(log)).reduce()
    }

    /// Everything between the two hashes, `N` vectors of sectors at a time.
    fn middle<V: Vector, const N: usize, const ROUNDS: usize>(&mut self, encrypt: bool) {
        apart::<V, _>(
            #[inline(always)]
            || {
                // The block that the first hash masks, and the other.
                let (first, second) = if encrypt { (0, 1) } else { (1, 0) };
                let aes = &self.keys.aes.narrow;
                for start in (0..self.len).step_by(N * V::BLOCKS) {
                    // What is behind the last vector repeats it.
                    let last = (self.len - 1) / V::BLOCKS * V::BLOCKS;
                    let sectors: [usize; N] = core::array::from_fn(
                        #[inline(always)]
                        |i| (start + i * V::BLOCKS).min(last),
                    );
                    let mut a = [V::zero(); N];
                    let mut f = [V::zero(); N];
                    unroll!(I in 0 1 2 3 4 5 6 7, if I < N {
                        // SAFETY: they have been written, in whole vectors.
                        let hash = unsafe { self.hashes.get::<V>(sectors[I]) };
                        let heads = self.heads::<V>(sectors[I]);
                        a[I] = heads[first].xor(self.times(hash, first));
                        f[I] = heads[second].xor(self.times(a[I], 0));
                    });
                    let mut g = f;
                    aes::encrypt::<V, N, ROUNDS>(&mut g, aes);
                    unroll!(I in 0 1 2 3 4 5 6 7, if I < N {
                        g[I] = g[I].xor(a[I]);
                        self.seeds.set(sectors[I], f[I].xor(g[I]));
                    });
                    let mut b = g;
                    aes::encrypt::<V, N, ROUNDS>(&mut b, aes);
                    unroll!(I in 0 1 2 3 4 5 6 7, if I < N {
                        b[I] = b[I].xor(f[I]);
                        self.heads[first].set(sectors[I], g[I].xor(self.times(b[I], 0)));
                        self.heads[second].set(sectors[I], b[I]);
                    });
                }
            },
        );
    }

    /// Masks a block with the second hash, and writes both.
    fn finish<V: Vector>(&mut self, encrypt: bool) {
        apart::<V, _>(
            #[inline(always)]
            || {
                let second = usize::from(encrypt);
                for first in (0..self.len).step_by(V::BLOCKS) {
                    // SAFETY: they have been written, in whole vectors, and the sectors
                    // are there.
                    unsafe {
                        let mask = self.times(self.hashes.get::<V>(first), second);
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
    fn wipe<V: Vector>(&mut self, len: usize) {
        self.hashes.wipe::<V>(len << self.log);
        self.seeds.wipe::<V>(len);
        for blocks in &mut self.heads {
            blocks.wipe::<V>(len);
        }
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &Keys,
    mut sectors: Sectors<'_, '_>,
) {
    let log = (sectors.bytes() / STRIDE).trailing_zeros();
    // A short run in two halves, so that there is something ahead.
    let together = sectors
        .left()
        .map_or(SUBTREES, |left| (left << log).div_ceil(2))
        .clamp(2 * LANES, SUBTREES)
        >> log;
    let mut passes = [
        Pass::none(keys, log, together),
        Pass::none(keys, log, together),
    ];
    // Sectors of the largest pass.
    let mut most = [0; 2];
    let [mut pass, mut ahead] = passes.each_mut();
    let [mut pass_most, mut ahead_most] = most.each_mut();
    let mut batch = sectors.empty_batch();
    let mut taken = 0;
    if !pass.fill(&mut sectors, &mut batch, &mut taken) {
        return;
    }
    pass.first_hash::<V>(0);
    loop {
        *pass_most = pass.len.max(*pass_most);
        pass.join::<V>(false);
        match pass.len.div_ceil(V::BLOCKS) {
            1 => pass.middle::<V, 1, ROUNDS>(ENCRYPT),
            2 => pass.middle::<V, 2, ROUNDS>(ENCRYPT),
            3 | 4 => pass.middle::<V, 4, ROUNDS>(ENCRYPT),
            _ => pass.middle::<V, 8, ROUNDS>(ENCRYPT),
        }
        let more = ahead.fill(&mut sectors, &mut batch, &mut taken);
        pass.counter_and_hashes::<V, ROUNDS>(ahead);
        pass.join::<V>(true);
        pass.finish::<V>(ENCRYPT);
        if !more {
            break;
        }
        core::mem::swap(&mut pass, &mut ahead);
        core::mem::swap(&mut pass_most, &mut ahead_most);
    }
    for (pass, most) in passes.iter_mut().zip(most) {
        pass.wipe::<V>(most);
    }
}
