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
//! that comes once in a sector is done for the sectors of a batch side by side.

use super::brw::{self, HashKey, STEPS, SUBTREE, Subtree, Subtrees, Sum, Tree};
use super::{AesKeys, Vector, aes, wipe};
use crate::run::{BATCH, BLOCK, Batch, Sector, Sectors};
use core::ptr;

/// Its keys.
#[repr(C)]
pub(crate) struct Keys {
    aes: AesKeys,
    hash: HashKey,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        aes: AesKeys::UNSET,
        hash: HashKey::UNSET,
    };

    /// Rounds of AES.
    pub(super) fn rounds(&self) -> usize {
        self.aes.rounds()
    }

    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        self.aes.set::<V>(key, None);
        let mut tau = [V::zero()];
        match self.rounds() {
            10 => aes::encrypt::<V, 1, 10>(&mut tau, &self.aes.encrypt),
            _ => aes::encrypt::<V, 1, 14>(&mut tau, &self.aes.encrypt),
        }
        self.hash.set(tau[0]);
    }
}

/// Blocks ahead of what is hashed.
const HEAD: usize = 2;

/// Bytes from one subtree to the next.
const STRIDE: usize = SUBTREE * BLOCK;

/// Subtrees that go through the phases together: those of a batch of the
/// largest sectors. Of smaller ones there are more batches, because what comes
/// once in a sector takes long and wants company. They stay in the first-level
/// cache, since each is read twice.
const SUBTREES: usize = BATCH * 4096 / STRIDE;

/// Batches that go through the phases together, at most.
const BATCHES: usize = SUBTREES / BATCH;

/// The counters 1 to 256 as blocks.
#[repr(C, align(64))]
struct Counters([u128; 256]);

static COUNTERS: Counters = {
    let mut counters = [0; 256];
    let mut i = 0;
    while i < 256 {
        counters[i] = i as u128 + 1;
        i += 1;
    }
    Counters(counters)
};

/// What stands between the phases.
#[repr(C, align(64))]
struct Work {
    hashes: [u128; SUBTREES],
    joins: [u128; SUBTREES],
    /// Behind a sector's last two blocks its hash has the tweak, and there is
    /// nothing that joins.
    ends: [Four; SUBTREES],
    /// The seed of counter mode.
    seeds: [u128; SUBTREES],
    /// What the second hash will be added to.
    rests: [u128; SUBTREES],
}

impl Work {
    const EMPTY: Self = Self {
        hashes: [0; SUBTREES],
        joins: [0; SUBTREES],
        ends: [Four([0; 4]); SUBTREES],
        seeds: [0; SUBTREES],
        rests: [0; SUBTREES],
    };

    /// Overwrites what `len` sectors with `subtrees` subtrees have left there,
    /// but for their tweaks: a hash of data that somebody knows tells them the
    /// hash's key.
    #[inline(always)]
    fn wipe<V: Vector>(&mut self, len: usize, subtrees: usize) {
        // Lanes behind the last one have been written to as well.
        let sectors = if len <= BATCH { BATCH } else { SUBTREES };
        let subtrees = subtrees.next_multiple_of(V::BLOCKS);
        for (place, blocks) in [
            (&mut self.hashes, subtrees),
            (&mut self.joins, subtrees),
            (&mut self.seeds, sectors),
            (&mut self.rests, sectors),
        ] {
            let place = &mut place[..blocks];
            // SAFETY: whole vectors of blocks.
            unsafe { wipe::<V>(place.as_mut_ptr().cast(), blocks * BLOCK) };
        }
    }
}

/// Puts what there is of the subtrees from `first` on in its place. Not a
/// method of all the work, into which lanes have pointers.
#[inline(always)]
fn put<V: Vector>(
    hashes: &mut [u128; SUBTREES],
    joins: &mut [u128; SUBTREES],
    first: usize,
    subtree: &Subtree<V>,
) {
    let hashes = hashes[first..first + V::BLOCKS].as_mut_ptr();
    let joins = joins[first..first + V::BLOCKS].as_mut_ptr();
    // SAFETY: as many blocks as the vector has.
    unsafe {
        subtree.hash.store(hashes.cast());
        subtree.join.store(joins.cast());
    }
}

/// Four blocks, as long as any vector.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Four([u128; 4]);

/// A subtree in a lane.
#[derive(Clone, Copy)]
struct Lane {
    src: *const u8,
    dst: *mut u8,
    /// Where its last four blocks come from and go to.
    end_src: *const u8,
    end_dst: *mut u8,
    /// What the hash takes of those blocks, and what it adds to them.
    keep: *const u8,
    add: *const u8,
    /// Its first block's counter.
    counters: *const u8,
    seed: *const u8,
}

/// All four blocks of the end inside a sector, and two of its last subtree's.
static KEEP: [Four; 2] = [Four([u128::MAX; 4]), Four([u128::MAX, u128::MAX, 0, 0])];

/// What is added inside a sector.
static NOTHING: Four = Four([0; 4]);

/// Where the ends of sectors stand while they are worked on, so that all
/// subtrees look alike to the loops over them.
struct Ends([Four; 4]);

impl Ends {
    const EMPTY: Self = Self([Four([0; 4]); 4]);
}

/// Where a subtree's last four blocks start.
const END: usize = STRIDE - 4 * BLOCK;

/// The subtrees from `first` on. Lanes behind the last subtree repeat it: they
/// read and write the same bytes.
#[inline(always)]
fn lanes<V: Vector>(pass: &Pass<'_, '_>, ends: &mut Ends, first: usize) -> [Lane; 4] {
    let mut lanes = [Lane {
        src: ptr::null(),
        dst: ptr::null_mut(),
        end_src: ptr::null(),
        end_dst: ptr::null_mut(),
        keep: ptr::null(),
        add: ptr::null(),
        counters: ptr::null(),
        seed: ptr::null(),
    }; 4];
    let ends: *mut Ends = ends;
    for (i, lane) in lanes.iter_mut().enumerate().take(V::BLOCKS) {
        let subtree = (first + i).min(pass.subtrees() - 1);
        let (sector, index) = (subtree >> pass.log, subtree & ((1 << pass.log) - 1));
        let offset = HEAD * BLOCK + index * STRIDE;
        let place = pass.sector(sector);
        let (src, dst) = (
            place.src().wrapping_add(offset),
            place.dst().wrapping_add(offset),
        );
        let mut new = Lane {
            src,
            dst,
            end_src: src.wrapping_add(END),
            end_dst: dst.wrapping_add(END),
            keep: (&raw const KEEP[0]).cast(),
            add: (&raw const NOTHING).cast(),
            counters: COUNTERS.0[index * SUBTREE..].as_ptr().cast(),
            seed: (&raw const pass.work.seeds[sector]).cast(),
        };
        if index + 1 == 1 << pass.log {
            // SAFETY: the lane's place.
            let text = unsafe { (&raw mut (*ends).0[i]).cast::<u8>() };
            // In whole vectors, because a load gets nothing from several
            // stores before it without waiting for them.
            for part in (0..HEAD * BLOCK).step_by(V::BYTES) {
                // SAFETY: the last two blocks of a sector, and their place.
                unsafe {
                    V::load_front(new.end_src.wrapping_add(part)).store(text.wrapping_add(part));
                }
            }
            new.end_src = text;
            new.end_dst = text;
            new.keep = (&raw const KEEP[1]).cast();
            new.add = (&raw const pass.work.ends[sector]).cast();
        }
        *lane = new;
    }
    lanes
}

/// Writes the ends of sectors where they belong.
#[inline(always)]
fn put_ends<V: Vector>(lanes: &[Lane; 4]) {
    for lane in lanes.iter().take(V::BLOCKS) {
        let end = lane.dst.wrapping_add(END);
        if lane.end_dst != end {
            // SAFETY: the last two blocks of a sector.
            unsafe { ptr::copy_nonoverlapping(lane.end_dst, end, HEAD * BLOCK) };
        }
    }
}

/// Which lane vector `i` of quarter `k` belongs to, at which byte of the
/// subtree it starts, and at which of the lane's four blocks.
#[inline(always)]
const fn place<V: Vector>(k: usize, i: usize) -> (usize, usize, usize) {
    let (quad, i) = (2 * k + i / 4, i % 4);
    let part = i % (4 / V::BLOCKS) * V::BYTES;
    (i / (4 / V::BLOCKS), 4 * BLOCK * quad + part, part)
}

/// Whether vector `i` of quarter `k` is at the end of a subtree.
const fn is_end(k: usize, i: usize) -> bool {
    k == 3 && i >= 4
}

/// Vector `I` of quarter `K` of the text.
///
/// # Safety
/// The sectors are readable.
#[inline(always)]
unsafe fn load<V: Vector, const K: usize, const I: usize>(lanes: &[Lane; 4]) -> V {
    let (lane, offset, part) = place::<V>(K, I);
    // SAFETY: the caller's promise.
    unsafe {
        if is_end(K, I) {
            V::load(lanes[lane].end_src.wrapping_add(part))
        } else {
            V::load(lanes[lane].src.wrapping_add(offset))
        }
    }
}

/// The same as the hash sees it.
#[inline(always)]
fn hashed<V: Vector, const K: usize, const I: usize>(lanes: &[Lane; 4], x: V) -> V {
    let (lane, _, part) = place::<V>(K, I);
    if !is_end(K, I) {
        return x;
    }
    // SAFETY: as long as any vector, from any part of it on.
    unsafe {
        let keep = lanes[lane].keep.wrapping_add(part);
        let add = lanes[lane].add.wrapping_add(part);
        x.and(V::load(keep)).xor(V::load(add))
    }
}

/// Quarter `K` of the text as the hash sees it.
#[inline(always)]
fn plain<V: Vector, const K: usize>(lanes: &[Lane; 4]) -> [V; 8] {
    let mut x = [V::zero(); 8];
    unroll!(I in 0 1 2 3 4 5 6 7, {
        // SAFETY: inside the sector.
        x[I] = hashed::<V, K, I>(lanes, unsafe { load::<V, K, I>(lanes) });
    });
    x
}

/// Eight vectors through counter mode, from block 8 `K` of the subtrees on;
/// between the rounds the hash of the eight before them, `x`, which these
/// replace. `BEFORE` is their place.
#[inline(always)]
fn counter<V: Vector, const K: usize, const BEFORE: usize, const ROUNDS: usize>(
    keys: &Keys,
    lanes: &[Lane; 4],
    tree: &mut Tree<V>,
    x: &mut [V; 8],
) {
    let aes = &keys.aes.encrypt;
    let mut y = [V::zero(); 8];
    let mut seeds = [V::zero(); 8];
    unroll!(I in 0 1 2 3 4 5 6 7, {
        let (lane, offset, _) = place::<V>(K, I);
        let lane = &lanes[lane];
        // SAFETY: the counters of a subtree's 32 blocks, and a seed.
        unsafe {
            y[I] = V::load(lane.counters.wrapping_add(offset));
            seeds[I] = V::splat(lane.seed.cast::<u128>().read());
        }
    });
    V::aes_start_with(&mut y, aes, &seeds);
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
        V::aes_round::<8, true, ROUND>(&mut y, aes);
        if ROUND <= STEPS {
            tree.step::<BEFORE, { ROUND - 1 }>(&keys.hash, x);
            tree.pin::<{ ROUND - 1 }>();
        }
    });
    let mut text = [V::zero(); 8];
    // SAFETY: inside the sectors.
    unroll!(I in 0 1 2 3 4 5 6 7, text[I] = unsafe { load::<V, K, I>(lanes) });
    V::aes_finish::<8, true, ROUNDS>(&mut y, aes, &text);
    unroll!(I in 0 1 2 3 4 5 6 7, {
        let (lane, offset, part) = place::<V>(K, I);
        let lane = &lanes[lane];
        // SAFETY: inside the sector.
        unsafe {
            y[I].store(if is_end(K, I) {
                lane.end_dst.wrapping_add(part)
            } else {
                lane.dst.wrapping_add(offset)
            });
        }
        x[I] = hashed::<V, K, I>(lanes, y[I]);
    });
}

/// The subtrees of consecutive sectors, side by side.
struct SideBySide<'a> {
    work: &'a Work,
    /// Their first subtrees.
    first: [usize; 4],
}

impl<V: Vector> Subtrees<V> for SideBySide<'_> {
    #[inline(always)]
    fn get(&self, index: usize) -> Subtree<V> {
        let mut hashes = [ptr::null(); 4];
        let mut joins = [ptr::null(); 4];
        for (i, first) in self.first.into_iter().enumerate().take(V::BLOCKS) {
            hashes[i] = (&raw const self.work.hashes[first + index]).cast();
            joins[i] = (&raw const self.work.joins[first + index]).cast();
        }
        // SAFETY: blocks.
        unsafe {
            Subtree {
                hash: V::gather(hashes),
                join: V::gather(joins),
            }
        }
    }
}

/// Some sectors on their way through all phases.
struct Pass<'k, 'b> {
    keys: &'k Keys,
    /// All but the last one are full.
    batches: [Batch<'b>; BATCHES],
    /// Sectors in all batches.
    len: usize,
    work: Work,
    /// Of the subtrees in a sector.
    log: u32,
}

impl Pass<'_, '_> {
    #[inline(always)]
    fn subtrees(&self) -> usize {
        self.len << self.log
    }

    #[inline(always)]
    fn sector(&self, index: usize) -> &Sector {
        &self.batches[index / BATCH].sectors()[index % BATCH]
    }

    /// The hash of each sector of vector `i`, from its subtrees'.
    #[inline(always)]
    fn hash<V: Vector>(&self, i: usize) -> V {
        let mut first = [0; 4];
        for (lane, first) in first.iter_mut().enumerate() {
            *first = (i * V::BLOCKS + lane).min(self.len - 1) << self.log;
        }
        let subtrees = SideBySide {
            work: &self.work,
            first,
        };
        brw::join(&self.keys.hash, 1 << self.log, &subtrees)
    }

    /// Block `block` of each sector of vector `i`.
    #[inline(always)]
    fn load<V: Vector>(&self, block: usize, i: usize) -> V {
        let mut src = [ptr::null(); 4];
        for (lane, src) in src.iter_mut().enumerate().take(V::BLOCKS) {
            let sector = (i * V::BLOCKS + lane).min(self.len - 1);
            *src = self.sector(sector).src().wrapping_add(block * BLOCK);
        }
        // SAFETY: inside the sectors.
        unsafe { V::gather(src) }
    }

    /// Writes it; lanes behind the last sector repeat that one.
    #[inline(always)]
    fn store<V: Vector>(&mut self, block: usize, i: usize, x: V) {
        let mut dst = [ptr::null_mut(); 4];
        for (lane, dst) in dst.iter_mut().enumerate().take(V::BLOCKS) {
            let sector = (i * V::BLOCKS + lane).min(self.len - 1);
            *dst = self.sector(sector).dst().wrapping_add(block * BLOCK);
        }
        // SAFETY: inside the sectors.
        unsafe { x.scatter(dst) };
    }

    /// The products with the key to the power of 2^`log`.
    #[inline(always)]
    fn times<V: Vector>(&self, x: V, log: usize) -> V {
        Sum::product(x, self.keys.hash.power(log)).reduce()
    }

    /// The hashes of all subtrees.
    #[inline(always)]
    fn first_hash<V: Vector>(&mut self) {
        let key = &self.keys.hash;
        let mut ends = Ends::EMPTY;
        let mut tree = Tree::new();
        let mut before = 0;
        for first in (0..self.subtrees()).step_by(V::BLOCKS) {
            let lanes = lanes::<V>(self, &mut ends, first);
            tree.quarter::<0>(key, &plain::<V, 0>(&lanes));
            tree.quarter::<1>(key, &plain::<V, 1>(&lanes));
            // Of the subtrees before; the first time, of nothing.
            let Work { hashes, joins, .. } = &mut self.work;
            put(hashes, joins, before, &tree.subtree);
            tree.quarter::<2>(key, &plain::<V, 2>(&lanes));
            tree.quarter::<3>(key, &plain::<V, 3>(&lanes));
            before = first;
        }
        tree.finish(key);
        let Work { hashes, joins, .. } = &mut self.work;
        put(hashes, joins, before, &tree.subtree);
    }

    /// Counter mode, and the hashes of what comes out.
    #[inline(always)]
    fn counter_and_second_hash<V: Vector, const ROUNDS: usize>(&mut self) {
        let keys = self.keys;
        let mut ends = Ends::EMPTY;
        let mut tree = Tree::new();
        let mut x = [V::zero(); 8];
        let mut before = 0;
        for first in (0..self.subtrees()).step_by(V::BLOCKS) {
            let lanes = lanes::<V>(self, &mut ends, first);
            counter::<V, 0, 3, ROUNDS>(keys, &lanes, &mut tree, &mut x);
            counter::<V, 1, 0, ROUNDS>(keys, &lanes, &mut tree, &mut x);
            counter::<V, 2, 1, ROUNDS>(keys, &lanes, &mut tree, &mut x);
            // Of the subtrees before; the first time, of nothing.
            let Work { hashes, joins, .. } = &mut self.work;
            put(hashes, joins, before, &tree.subtree);
            counter::<V, 3, 2, ROUNDS>(keys, &lanes, &mut tree, &mut x);
            put_ends::<V>(&lanes);
            before = first;
        }
        tree.quarter::<3>(&keys.hash, &x);
        tree.finish(&keys.hash);
        let Work { hashes, joins, .. } = &mut self.work;
        put(hashes, joins, before, &tree.subtree);
    }

    /// Everything between the two hashes, `N` vectors of sectors at a time.
    #[inline(always)]
    fn middle<V: Vector, const N: usize, const ROUNDS: usize, const ENCRYPT: bool>(&mut self) {
        // The block that the first hash masks, and the other.
        let (first, second) = if ENCRYPT { (0, 1) } else { (1, 0) };
        let aes = &self.keys.aes.encrypt;
        for start in (0..self.len.div_ceil(V::BLOCKS)).step_by(N) {
            let mut a = [V::zero(); N];
            let mut f = [V::zero(); N];
            for i in 0..N {
                let hash = self.hash(start + i);
                a[i] = self
                    .load::<V>(first, start + i)
                    .xor(self.times(hash, first));
                f[i] = self.load::<V>(second, start + i).xor(self.times(a[i], 0));
            }
            let mut g = f;
            aes::encrypt::<V, N, ROUNDS>(&mut g, aes);
            for i in 0..N {
                g[i] = g[i].xor(a[i]);
                let seeds = self.work.seeds[(start + i) * V::BLOCKS..][..V::BLOCKS].as_mut_ptr();
                // SAFETY: a vector's blocks.
                unsafe { f[i].xor(g[i]).store(seeds.cast()) };
            }
            let mut b = g;
            aes::encrypt::<V, N, ROUNDS>(&mut b, aes);
            for i in 0..N {
                b[i] = b[i].xor(f[i]);
                let rests = self.work.rests[(start + i) * V::BLOCKS..][..V::BLOCKS].as_mut_ptr();
                // SAFETY: a vector's blocks.
                unsafe { b[i].store(rests.cast()) };
                self.store(first, start + i, g[i].xor(self.times(b[i], 0)));
            }
        }
    }

    /// The block that the second hash masks.
    #[inline(always)]
    fn finish<V: Vector, const ENCRYPT: bool>(&mut self) {
        let second = usize::from(ENCRYPT);
        for i in 0..self.len.div_ceil(V::BLOCKS) {
            let hash = self.hash(i);
            // SAFETY: whole vectors are as many blocks as a batch has sectors.
            let rest = unsafe { V::load(self.work.rests[i * V::BLOCKS..].as_ptr().cast()) };
            self.store(second, i, rest.xor(self.times(hash, second)));
        }
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &Keys,
    mut sectors: Sectors<'_, '_>,
) {
    let log = (sectors.bytes() / STRIDE).trailing_zeros();
    let mut pass = Pass {
        keys,
        batches: core::array::from_fn(|_| sectors.empty_batch()),
        len: 0,
        work: Work::EMPTY,
        log,
    };
    // Sectors of the largest pass.
    let mut most = 0;
    loop {
        pass.len = 0;
        for batch in &mut pass.batches[..BATCHES >> log] {
            sectors.fill(batch);
            let ends = &mut pass.work.ends[pass.len..];
            for (end, iv) in ends.iter_mut().zip(&batch.ivs()[..batch.len()]) {
                end.0[HEAD] = *iv;
            }
            pass.len += batch.len();
            if batch.len() < BATCH {
                break;
            }
        }
        if pass.len == 0 {
            pass.work.wipe::<V>(most, most << log);
            return;
        }
        most = most.max(pass.len);
        pass.first_hash::<V>();
        match V::BLOCKS {
            2 if pass.len <= BATCH => pass.middle::<V, 4, ROUNDS, ENCRYPT>(),
            4 if pass.len <= BATCH => pass.middle::<V, 2, ROUNDS, ENCRYPT>(),
            _ => pass.middle::<V, 8, ROUNDS, ENCRYPT>(),
        }
        pass.counter_and_second_hash::<V, ROUNDS>();
        pass.finish::<V, ENCRYPT>();
    }
}
