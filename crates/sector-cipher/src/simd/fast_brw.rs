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

use super::brw::{self, HashKey, SUBTREE, Source, Subtree, Subtrees, Sum};
use super::{AesKeys, Vector, aes};
use crate::run::{BATCH, BLOCK, Batch, Sectors};

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

/// Subtrees of a batch, at most.
const SUBTREES: usize = BATCH * 4096 / STRIDE;

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

/// What stands between the phases of a batch.
#[repr(C, align(64))]
struct Work {
    hashes: [u128; SUBTREES],
    joins: [u128; SUBTREES],
    /// Each sector's end as its last subtree sees it: behind two blocks of the
    /// sector the tweak, and nothing that joins.
    ends: [[u128; 4]; BATCH],
    /// The seed of counter mode.
    seeds: [u128; BATCH],
    /// What the second hash will be added to.
    rests: [u128; BATCH],
}

impl Work {
    const EMPTY: Self = Self {
        hashes: [0; SUBTREES],
        joins: [0; SUBTREES],
        ends: [[0; 4]; BATCH],
        seeds: [0; BATCH],
        rests: [0; BATCH],
    };

    #[inline(always)]
    fn put<V: Vector>(&mut self, first: usize, subtree: &Subtree<V>) {
        let hashes = self.hashes[first..first + V::BLOCKS].as_mut_ptr();
        let joins = self.joins[first..first + V::BLOCKS].as_mut_ptr();
        // SAFETY: as many blocks as the vector has.
        unsafe {
            subtree.hash.store(hashes.cast());
            subtree.join.store(joins.cast());
        }
    }
}

/// A subtree in a lane.
#[derive(Clone, Copy)]
struct Lane {
    src: *const u8,
    dst: *mut u8,
    /// Its first block's counter.
    counters: *const u8,
    end: *const u8,
    seed: *const u8,
    /// Of its sector.
    is_last: bool,
}

/// The subtrees from `first` on. Lanes behind the last subtree repeat it: they
/// read and write the same bytes.
#[inline(always)]
fn lanes<V: Vector>(batch: &Batch<'_>, work: &Work, per_sector: usize, first: usize) -> [Lane; 4] {
    let mut lanes = [Lane {
        src: core::ptr::null(),
        dst: core::ptr::null_mut(),
        counters: core::ptr::null(),
        end: core::ptr::null(),
        seed: core::ptr::null(),
        is_last: false,
    }; 4];
    for (i, lane) in lanes.iter_mut().enumerate().take(V::BLOCKS) {
        let subtree = (first + i).min(per_sector * batch.len() - 1);
        let (sector, index) = (
            subtree >> per_sector.trailing_zeros(),
            subtree & (per_sector - 1),
        );
        let offset = HEAD * BLOCK + index * STRIDE;
        let place = &batch.sectors()[sector];
        *lane = Lane {
            src: place.src().wrapping_add(offset),
            dst: place.dst().wrapping_add(offset),
            counters: COUNTERS.0[index * SUBTREE..].as_ptr().cast(),
            end: work.ends[sector].as_ptr().cast(),
            seed: (&raw const work.seeds[sector]).cast(),
            is_last: index + 1 == per_sector,
        };
    }
    lanes
}

/// Which lane vector `i` of eight belongs to, and at which byte of the subtree
/// it starts, and of a lane's four blocks.
#[inline(always)]
const fn place<V: Vector>(k: usize, i: usize) -> (usize, usize, usize) {
    let (quad, i) = (2 * k + i / 4, i % 4);
    let part = i % (4 / V::BLOCKS) * V::BYTES;
    (i / (4 / V::BLOCKS), 4 * BLOCK * quad + part, part)
}

/// Whether vector `i` of eight is at the end of a subtree, where the last
/// subtree of a sector has only two blocks.
const fn is_end(k: usize, i: usize) -> bool {
    k == 3 && i >= 4
}

/// The text as it is.
struct Plain<'a> {
    lanes: &'a [Lane; 4],
}

impl<V: Vector> Source<V> for Plain<'_> {
    #[inline(always)]
    fn next<const K: usize>(&mut self) -> [[V; 4]; 2] {
        let mut x = [V::zero(); 8];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, offset, part) = place::<V>(K, I);
            let lane = &self.lanes[lane];
            // SAFETY: inside the sector; the end is as long as any vector.
            x[I] = unsafe { load_text(lane, K, I) };
            if is_end(K, I) && lane.is_last {
                // SAFETY: as above.
                x[I] = x[I].xor(unsafe { V::load(lane.end.wrapping_add(part)) });
            }
            let _ = offset;
        });
        let [a, b, c, d, e, f, g, h] = x;
        [[a, b, c, d], [e, f, g, h]]
    }
}

/// Vector `i` of the text; zeros behind the sector's end.
///
/// # Safety
/// The lane's sector is readable.
#[inline(always)]
unsafe fn load_text<V: Vector>(lane: &Lane, k: usize, i: usize) -> V {
    let (_, offset, part) = place::<V>(k, i);
    let src = lane.src.wrapping_add(offset);
    // SAFETY: the caller's promise.
    unsafe {
        if !(is_end(k, i) && lane.is_last) {
            V::load(src)
        } else if part < HEAD * BLOCK {
            V::load_front(src)
        } else {
            V::zero()
        }
    }
}

/// The text through counter mode.
struct Counter<'a, const ROUNDS: usize> {
    keys: &'a AesKeys,
    lanes: &'a [Lane; 4],
}

impl<V: Vector, const ROUNDS: usize> Source<V> for Counter<'_, ROUNDS> {
    #[inline(always)]
    fn next<const K: usize>(&mut self) -> [[V; 4]; 2] {
        let keys = &self.keys.encrypt;
        let mut x = [V::zero(); 8];
        let mut seeds = [V::zero(); 8];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, offset, _) = place::<V>(K, I);
            let lane = &self.lanes[lane];
            // SAFETY: the counters of a subtree's 32 blocks, and a seed.
            unsafe {
                x[I] = V::load(lane.counters.wrapping_add(offset));
                seeds[I] = V::splat(lane.seed.cast::<u128>().read());
            }
        });
        V::aes_start_with(&mut x, keys, &seeds);
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
            V::aes_round::<8, true, ROUND>(&mut x, keys);
        });
        let mut text = [V::zero(); 8];
        unroll!(I in 0 1 2 3 4 5 6 7, {
            // SAFETY: inside the sector.
            text[I] = unsafe { load_text(&self.lanes[place::<V>(K, I).0], K, I) };
        });
        V::aes_finish::<8, true, ROUNDS>(&mut x, keys, &text);
        unroll!(I in 0 1 2 3 4 5 6 7, {
            let (lane, offset, part) = place::<V>(K, I);
            let lane = &self.lanes[lane];
            let dst = lane.dst.wrapping_add(offset);
            // SAFETY: inside the sector; the end is as long as any vector.
            unsafe {
                if !(is_end(K, I) && lane.is_last) {
                    x[I].store(dst);
                } else {
                    let end = V::load(lane.end.wrapping_add(part));
                    if part < HEAD * BLOCK {
                        x[I].store_front(dst);
                        x[I] = x[I].front().xor(end);
                    } else {
                        x[I] = end;
                    }
                }
            }
        });
        let [a, b, c, d, e, f, g, h] = x;
        [[a, b, c, d], [e, f, g, h]]
    }
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
        let mut hashes = [core::ptr::null(); 4];
        let mut joins = [core::ptr::null(); 4];
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

/// The hash of each sector of vector `i` of a batch.
#[inline(always)]
fn hash<V: Vector>(keys: &Keys, work: &Work, len: usize, per_sector: usize, i: usize) -> V {
    let mut first = [0; 4];
    for (lane, first) in first.iter_mut().enumerate() {
        *first = (i * V::BLOCKS + lane).min(len - 1) * per_sector;
    }
    brw::join(&keys.hash, per_sector, &SideBySide { work, first })
}

/// Block `block` of each sector of vector `i`.
#[inline(always)]
fn load_blocks<V: Vector>(batch: &Batch<'_>, block: usize, i: usize) -> V {
    let mut src = [core::ptr::null(); 4];
    for (lane, src) in src.iter_mut().enumerate().take(V::BLOCKS) {
        let sector = (i * V::BLOCKS + lane).min(batch.len() - 1);
        *src = batch.sectors()[sector].src().wrapping_add(block * BLOCK);
    }
    // SAFETY: inside the sectors.
    unsafe { V::gather(src) }
}

#[inline(always)]
fn store_blocks<V: Vector>(batch: &mut Batch<'_>, block: usize, i: usize, x: V) {
    let first = i * V::BLOCKS;
    for (lane, x) in x.blocks().into_iter().enumerate().take(V::BLOCKS) {
        if first + lane < batch.len() {
            batch.store(first + lane, block, x.to_le_bytes());
        }
    }
}

/// The products with a power of the key.
#[inline(always)]
fn times<V: Vector>(keys: &Keys, x: V, log: usize) -> V {
    Sum::product(x, keys.hash.power(log)).reduce()
}

/// Everything between the two hashes, for `N` vectors of sectors.
#[inline(always)]
fn middle<V: Vector, const N: usize, const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &Keys,
    work: &mut Work,
    batch: &mut Batch<'_>,
    per_sector: usize,
) {
    // The block that the first hash masks, and the other.
    let (first, second) = if ENCRYPT { (0, 1) } else { (1, 0) };
    let mut a = [V::zero(); N];
    let mut f = [V::zero(); N];
    for i in 0..N {
        let hash = hash(keys, work, batch.len(), per_sector, i);
        a[i] = load_blocks::<V>(batch, first, i).xor(times(keys, hash, first));
        f[i] = load_blocks::<V>(batch, second, i).xor(times(keys, a[i], 0));
    }
    let mut g = f;
    aes::encrypt::<V, N, ROUNDS>(&mut g, &keys.aes.encrypt);
    for i in 0..N {
        g[i] = g[i].xor(a[i]);
        // SAFETY: as many blocks as a batch has sectors are N vectors.
        unsafe { f[i].xor(g[i]).store(work.seeds[i * V::BLOCKS..].as_mut_ptr().cast()) };
    }
    let mut b = g;
    aes::encrypt::<V, N, ROUNDS>(&mut b, &keys.aes.encrypt);
    for i in 0..N {
        b[i] = b[i].xor(f[i]);
        // SAFETY: as above.
        unsafe { b[i].store(work.rests[i * V::BLOCKS..].as_mut_ptr().cast()) };
        store_blocks(batch, first, i, g[i].xor(times(keys, b[i], 0)));
    }
}

#[inline(always)]
fn finish<V: Vector, const ENCRYPT: bool>(
    keys: &Keys,
    work: &Work,
    batch: &mut Batch<'_>,
    per_sector: usize,
) {
    let second = usize::from(ENCRYPT);
    for i in 0..batch.len().div_ceil(V::BLOCKS) {
        let hash = hash(keys, work, batch.len(), per_sector, i);
        // SAFETY: as many blocks as a batch has sectors are whole vectors.
        let rest = unsafe { V::load(work.rests[i * V::BLOCKS..].as_ptr().cast()) };
        store_blocks(batch, second, i, rest.xor(times(keys, hash, second)));
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &Keys,
    mut sectors: Sectors<'_, '_>,
) {
    let per_sector = sectors.bytes() / STRIDE;
    let mut batch = sectors.empty_batch();
    let mut work = Work::EMPTY;
    loop {
        sectors.fill(&mut batch);
        if batch.len() == 0 {
            return;
        }
        for (end, iv) in work.ends.iter_mut().zip(batch.ivs()) {
            end[HEAD] = *iv;
        }
        let subtrees = per_sector * batch.len();
        for first in (0..subtrees).step_by(V::BLOCKS) {
            let lanes = lanes::<V>(&batch, &work, per_sector, first);
            let subtree = brw::subtree::<V>(&keys.hash, &mut Plain { lanes: &lanes });
            work.put(first, &subtree);
        }
        match V::BLOCKS {
            1 => middle::<V, 8, ROUNDS, ENCRYPT>(keys, &mut work, &mut batch, per_sector),
            2 => middle::<V, 4, ROUNDS, ENCRYPT>(keys, &mut work, &mut batch, per_sector),
            _ => middle::<V, 2, ROUNDS, ENCRYPT>(keys, &mut work, &mut batch, per_sector),
        }
        for first in (0..subtrees).step_by(V::BLOCKS) {
            let lanes = lanes::<V>(&batch, &work, per_sector, first);
            let mut source = Counter::<ROUNDS> {
                keys: &keys.aes,
                lanes: &lanes,
            };
            let subtree = brw::subtree::<V>(&keys.hash, &mut source);
            work.put(first, &subtree);
        }
        finish::<V, ENCRYPT>(keys, &work, &mut batch, per_sector);
    }
}
