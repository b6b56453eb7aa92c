//! Adiantum over a stream of sectors.
//!
//! The AES calls and the subkeys of a batch of sectors are made together, then
//! the keystream, in which several small sectors share the vectors. The second
//! hashes of the batch and the first ones of the next are made between the
//! rounds of ChaCha.

mod chacha;
mod hash;
mod nh;

use super::aes::{decrypt, encrypt};
use super::{AesKeys, Vector, wipe};
use crate::here::{MapHere, ZipHere, from_fn};
use crate::run::{BATCH, BLOCK, Batch, Sectors};
use crate::shared::adiantum::{Derived, NONCE, hash_tweak, key_words};
use crate::shared::chacha::{CHACHA_BLOCK, CONSTANTS};
use crate::shared::poly1305::Point;
use hash::Walk;

/// Steps of hashing for the ChaCha blocks that are made at once.
const STEPS: usize = 16 / hash::VECTORS;

/// The keys of Adiantum.
pub(crate) struct Keys {
    aes: AesKeys,
    nh: nh::Key,
    stream: [u32; 8],
    tweak: Point,
    message: Point,
    rounds: usize,
}

impl Keys {
    pub(super) const fn unset(chacha_rounds: usize) -> Self {
        Self {
            aes: AesKeys::UNSET,
            nh: nh::Key::ZERO,
            stream: [0; 8],
            tweak: Point::ZERO,
            message: Point::ZERO,
            rounds: chacha_rounds,
        }
    }

    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        self.stream = key_words(key);
        let derived = Derived::new(&self.stream, self.rounds);
        self.aes.set::<V>(derived.aes(), None);
        self.nh.set(|i| derived.nh(i));
        self.tweak = derived.tweak();
        self.message = derived.message();
    }
}

/// A batch and what is known of its sectors.
struct State<'a> {
    batch: Batch<'a>,
    first_hashes: [u128; BATCH],
    tweak_hashes: [u128; BATCH],
    /// P_M, or C_M in decryption; then what AES makes of it.
    middle: [u128; BATCH],
    subkeys: [[u128; 2]; BATCH],
}

impl<'a> State<'a> {
    #[inline(always)]
    fn new(batch: Batch<'a>) -> Self {
        Self {
            batch,
            first_hashes: [0; BATCH],
            tweak_hashes: [0; BATCH],
            middle: [0; BATCH],
            subkeys: [[0; 2]; BATCH],
        }
    }

    /// Where the sectors come from.
    #[inline(always)]
    fn sources(&self) -> [*const u8; BATCH] {
        let mut sources = [core::ptr::null(); BATCH];
        for (place, sector) in sources.iter_mut().zip_here(self.batch.sectors()) {
            *place = sector.src();
        }
        sources
    }

    /// Where they go.
    #[inline(always)]
    fn dests(&self) -> [*const u8; BATCH] {
        let mut dests = [core::ptr::null(); BATCH];
        for (place, sector) in dests.iter_mut().zip_here(self.batch.sectors()) {
            *place = sector.dst().cast_const();
        }
        dests
    }

    /// From the first hashes to the subkeys.
    #[inline(always)]
    fn prepare<V: Vector>(&mut self, keys: &Keys, bytes: usize, encrypt: bool) {
        let last = bytes - BLOCK;
        for (i, sector) in self.batch.sectors().iter().enumerate() {
            let tweak = [self.batch.ivs()[i], 0];
            self.tweak_hashes[i] = hash_tweak(&keys.tweak, last / BLOCK, tweak);
            // SAFETY: the sector is readable.
            let right = unsafe { sector.src().add(last).cast::<u128>().read_unaligned() };
            self.middle[i] = u128::from_le(right)
                .wrapping_add(self.tweak_hashes[i])
                .wrapping_add(self.first_hashes[i]);
        }
        let before = self.middle;
        match V::BLOCKS {
            1 => aes::<V, 8>(&keys.aes, &mut self.middle, encrypt),
            2 => aes::<V, 4>(&keys.aes, &mut self.middle, encrypt),
            _ => aes::<V, 2>(&keys.aes, &mut self.middle, encrypt),
        }
        let nonces = if encrypt { &self.middle } else { &before };
        subkeys::<V>(keys, nonces, self.batch.len(), &mut self.subkeys);
    }

    /// Writes the last blocks.
    #[inline(always)]
    fn finish(&self, hashes: &[u128; BATCH], bytes: usize) {
        for (i, sector) in self.batch.sectors().iter().enumerate() {
            let right = self.middle[i]
                .wrapping_sub(self.tweak_hashes[i])
                .wrapping_sub(hashes[i]);
            // SAFETY: the sector is writable.
            unsafe {
                let place = sector.dst().add(bytes - BLOCK).cast::<u128>();
                place.write_unaligned(right.to_le());
            }
        }
    }

    /// Overwrites everything that comes from the key.
    #[inline(always)]
    fn wipe<V: Vector>(&mut self) {
        forget::<V>(&mut self.first_hashes);
        forget::<V>(&mut self.tweak_hashes);
        forget::<V>(&mut self.middle);
        forget::<V>(self.subkeys.as_flattened_mut());
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector>(keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    let bytes = sectors.bytes();
    let mut states = [
        State::new(sectors.empty_batch()),
        State::new(sectors.empty_batch()),
    ];
    let [now, next] = &mut states;
    let (mut now, mut next) = (now, next);
    sectors.fill(&mut now.batch);
    if now.batch.len() != 0 {
        let sources = now.sources();
        // SAFETY: the sectors are readable.
        now.first_hashes = unsafe { hash::at_once::<V>(keys, &sources[..now.batch.len()], bytes) };
    }
    let mut hashes = [0; BATCH];
    while now.batch.len() != 0 {
        now.prepare::<V>(keys, bytes, encrypt);
        sectors.fill(&mut next.batch);
        hashes = add_stream::<V>(keys, now, next, bytes);
        now.finish(&hashes, bytes);
        core::mem::swap(&mut now, &mut next);
    }
    now.wipe::<V>();
    next.wipe::<V>();
    forget::<V>(&mut hashes);
}

/// Overwrites blocks, as many as a batch has, or more, in whole vectors: one by one it would take
/// a tenth of the time of a sector alone.
#[inline(always)]
fn forget<V: Vector>(blocks: &mut [u128]) {
    // SAFETY: they are writable; a batch is whole vectors.
    unsafe { wipe::<V>(blocks.as_mut_ptr().cast(), size_of_val(blocks)) };
}

/// AES on the middle blocks of a batch, in `N` vectors.
#[inline(always)]
fn aes<V: Vector, const N: usize>(keys: &AesKeys, blocks: &mut [u128; BATCH], forward: bool) {
    let mut x = [V::zero(); N];
    for (x, blocks) in x.iter_mut().zip_here(blocks.chunks_exact(V::BLOCKS)) {
        // SAFETY: as many blocks as the vector has.
        *x = unsafe { V::load(blocks.as_ptr().cast()) };
    }
    if forward {
        encrypt::<V, N>(&mut x, &keys.encrypt);
    } else {
        decrypt::<V, N>(&mut x, &keys.decrypt);
    }
    for (x, blocks) in x.into_iter().zip_here(blocks.chunks_exact_mut(V::BLOCKS)) {
        // SAFETY: as above.
        unsafe { x.store(blocks.as_mut_ptr().cast()) };
    }
}

/// HChaCha: the subkeys of the first `len` sectors, in lanes side by side.
#[inline(always)]
fn subkeys<V: Vector>(
    keys: &Keys,
    nonces: &[u128; BATCH],
    len: usize,
    subkeys: &mut [[u128; 2]; BATCH],
) {
    let rows = [
        row(&CONSTANTS),
        row(&keys.stream[..4]),
        row(&keys.stream[4..]),
    ];
    for first in (0..len).step_by(4 * V::BLOCKS) {
        let mut x = [V::zero(); 16];
        for (i, row) in rows.into_iter().enumerate() {
            x[4 * i..4 * i + 4].copy_from_slice(&chacha::words(V::splat(row)));
        }
        let mut vectors = [V::zero(); 4];
        for (i, vector) in vectors.iter_mut().enumerate() {
            let place = |lane: usize| &raw const nonces[(first + 4 * lane + i) % BATCH];
            // SAFETY: a nonce has as many bytes as a lane.
            *vector = unsafe { V::gather([0, 1, 2, 3].map_here(|lane| place(lane).cast())) };
        }
        x[12..].copy_from_slice(&chacha::transpose(vectors));
        for _ in 0..keys.rounds / 2 {
            chacha::columns(&mut x);
            chacha::diagonals(&mut x);
        }
        let low = chacha::transpose([x[0], x[1], x[2], x[3]]);
        let high = chacha::transpose([x[12], x[13], x[14], x[15]]);
        for i in 0..4 {
            let (low, high) = (low[i].blocks(), high[i].blocks());
            for lane in 0..V::BLOCKS {
                if let Some(subkey) = subkeys.get_mut(first + 4 * lane + i) {
                    *subkey = [low[lane], high[lane]];
                }
            }
        }
    }
}

/// Adds the keystream to the sectors of the batch `now`. In their last blocks it
/// leaves something that must be overwritten. Between the rounds it hashes what
/// has come out, and the sectors of the batch `next`. Returns the second hashes
/// of the former and leaves the first hashes of the latter there.
#[inline(always)]
fn add_stream<V: Vector>(
    keys: &Keys,
    now: &State<'_>,
    next: &mut State<'_>,
    bytes: usize,
) -> [u128; BATCH] {
    let (batch, subkeys) = (&now.batch, &now.subkeys);
    let mut second = Walk::new(now.dests(), 0, bytes);
    let mut first = Walk::new(next.sources(), next.batch.len(), bytes);
    let (mut second_sums, mut first_sums) = ([V::zero(); 4], [V::zero(); 4]);
    let mut hashes = [0; BATCH];

    // ChaCha blocks of a sector: a power of two.
    let per_sector = bytes / CHACHA_BLOCK;
    let (log, mask) = (per_sector.trailing_zeros(), per_sector - 1);
    let sectors = batch.sectors();
    let constants = V::splat(row(&CONSTANTS));
    let nonce = u128::from(NONCE[0]) << 64 | u128::from(NONCE[1]) << 96;
    // Blocks 4 l + i in lane l, where these are not in the sector after.
    let mut numbers = [V::zero(); 4];
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = V::from_fn(|lane| (((4 * lane) & mask) | i) as u128 | nonce);
    }
    for start in (0..sectors.len() << log).step_by(4 * V::BLOCKS) {
        // The sector of each lane; behind the last one it is taken once more.
        let in_lane: [usize; 4] =
            from_fn(|lane| ((start + 4 * lane) >> log).min(sectors.len() - 1));
        // SAFETY: the subkeys are readable.
        let (low, high) = unsafe {
            (
                V::gather(in_lane.map_here(|i| (&raw const subkeys[i][0]).cast())),
                V::gather(in_lane.map_here(|i| (&raw const subkeys[i][1]).cast())),
            )
        };
        let first_number = V::splat((start & mask) as u128);
        let mut numbers = numbers;
        for number in &mut numbers {
            *number = number.add32(first_number);
        }
        let mut x = [V::zero(); 16];
        for (i, row) in [constants, low, high].into_iter().enumerate() {
            x[4 * i..4 * i + 4].copy_from_slice(&chacha::words(row));
        }
        x[12..].copy_from_slice(&chacha::transpose(numbers));
        let mut due = 0;
        for _ in 0..keys.rounds / 2 {
            chacha::columns(&mut x);
            chacha::diagonals(&mut x);
            // As many steps in all as these blocks need.
            due += STEPS;
            while due >= keys.rounds / 2 {
                due -= keys.rounds / 2;
                // SAFETY: the sectors are readable, where they are written to as well.
                unsafe {
                    second.step(keys, &mut second_sums, &mut hashes);
                    first.step(keys, &mut first_sums, &mut next.first_hashes);
                }
            }
        }
        // From now on it is one round of the loop behind.
        second.len = sectors.len();

        // Rows of blocks 4 l + i, in lane l.
        let rows = [
            chacha::transpose([x[0], x[1], x[2], x[3]]),
            chacha::transpose([x[4], x[5], x[6], x[7]]),
            chacha::transpose([x[8], x[9], x[10], x[11]]),
            chacha::transpose([x[12], x[13], x[14], x[15]]),
        ];
        for i in 0..4 {
            let blocks = V::transpose_lanes([
                rows[0][i].add32(constants),
                rows[1][i].add32(low),
                rows[2][i].add32(high),
                rows[3][i].add32(numbers[i]),
            ]);
            for (j, keystream) in blocks.into_iter().enumerate() {
                let lane = j * V::BYTES / CHACHA_BLOCK;
                // The last lanes may have no sector.
                if start + 4 * lane >= sectors.len() << log {
                    continue;
                }
                let sector = &sectors[in_lane[lane]];
                let offset =
                    CHACHA_BLOCK * (((start + 4 * lane) & mask) + i) + j * V::BYTES % CHACHA_BLOCK;
                // SAFETY: inside the sector.
                unsafe {
                    V::load(sector.src().add(offset))
                        .xor(keystream)
                        .store(sector.dst().add(offset));
                }
            }
        }
    }
    while !second.is_done() {
        // SAFETY: as above.
        unsafe { second.step(keys, &mut second_sums, &mut hashes) };
    }
    while !first.is_done() {
        // SAFETY: as above.
        unsafe { first.step(keys, &mut first_sums, &mut next.first_hashes) };
    }
    hashes
}

/// Four words side by side.
#[inline(always)]
fn row(words: &[u32]) -> u128 {
    words
        .iter()
        .rev()
        .fold(0, |row, &word| row << 32 | u128::from(word))
}
