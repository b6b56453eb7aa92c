//! Adiantum over a stream of sectors.
//!
//! Of a batch of sectors the first hashes are made together, then the AES
//! calls, the subkeys and the keystream, in which several small sectors share
//! the vectors, and then the second hashes.

mod chacha;
mod nh;

use super::aes::{decrypt, encrypt};
use super::{AesKeys, Vector};
use crate::portable::adiantum::nh as portable_nh;
use crate::portable::adiantum::poly1305::{Point, Sum};
use crate::portable::adiantum::{CHACHA_BLOCK, CONSTANTS, Derived, NONCE, hash_tweak, key_words};
use crate::run::{BATCH, BLOCK, Batch, Sectors};
use nh::Piece;

/// Its keys.
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

/// What is known of the sectors of a batch.
#[derive(Clone, Copy)]
struct State {
    tweak_hashes: [u128; BATCH],
    /// P_M, or C_M in decryption; then what AES makes of it.
    middle: [u128; BATCH],
    subkeys: [[u128; 2]; BATCH],
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ENCRYPT: bool>(keys: &Keys, mut sectors: Sectors<'_, '_>) {
    let bytes = sectors.bytes();
    let last = bytes - BLOCK;
    let mut batch = sectors.empty_batch();
    let mut state = State {
        tweak_hashes: [0; BATCH],
        middle: [0; BATCH],
        subkeys: [[0; 2]; BATCH],
    };
    loop {
        sectors.fill(&mut batch);
        let len = batch.len();
        if len == 0 {
            break;
        }
        let mut sources = [core::ptr::null(); BATCH];
        let mut dests = sources;
        for (i, sector) in batch.sectors().iter().enumerate() {
            sources[i] = sector.src();
            dests[i] = sector.dst().cast_const();
        }

        // SAFETY: the sectors are readable.
        let hashes = unsafe { hash::<V>(keys, &sources[..len], bytes) };
        for i in 0..len {
            state.tweak_hashes[i] = hash_tweak(&keys.tweak, last / BLOCK, [batch.ivs()[i], 0]);
            // SAFETY: as above.
            let right = unsafe { sources[i].add(last).cast::<u128>().read_unaligned() };
            state.middle[i] = u128::from_le(right)
                .wrapping_add(state.tweak_hashes[i])
                .wrapping_add(hashes[i]);
        }
        let before = state.middle;
        match V::BLOCKS {
            1 => aes::<V, 8, ENCRYPT>(&keys.aes, &mut state.middle),
            2 => aes::<V, 4, ENCRYPT>(&keys.aes, &mut state.middle),
            _ => aes::<V, 2, ENCRYPT>(&keys.aes, &mut state.middle),
        }
        let nonces = if ENCRYPT { &state.middle } else { &before };
        subkeys::<V>(keys, nonces, len, &mut state.subkeys);
        add_stream::<V>(&batch, &state.subkeys, keys.rounds, bytes);

        // SAFETY: the sectors are readable where they are written to, too.
        let hashes = unsafe { hash::<V>(keys, &dests[..len], bytes) };
        for (i, sector) in batch.sectors().iter().enumerate() {
            let right = state.middle[i]
                .wrapping_sub(state.tweak_hashes[i])
                .wrapping_sub(hashes[i]);
            // SAFETY: the sector is writable.
            unsafe {
                let place = sector.dst().add(last).cast::<u128>();
                place.write_unaligned(right.to_le());
            }
        }
    }
    // SAFETY: a flat value; all bytes zero are one.
    unsafe { zeroize::zeroize_flat_type(&raw mut state) };
}

/// AES on the middle blocks of a batch, in `N` vectors.
#[inline(always)]
fn aes<V: Vector, const N: usize, const ENCRYPT: bool>(keys: &AesKeys, blocks: &mut [u128; BATCH]) {
    let mut x = [V::zero(); N];
    for (x, blocks) in x.iter_mut().zip(blocks.chunks_exact(V::BLOCKS)) {
        // SAFETY: as many blocks as the vector has.
        *x = unsafe { V::load(blocks.as_ptr().cast()) };
    }
    if ENCRYPT {
        encrypt::<V, N, 14>(&mut x, &keys.encrypt);
    } else {
        decrypt::<V, N, 14>(&mut x, &keys.decrypt);
    }
    for (x, blocks) in x.into_iter().zip(blocks.chunks_exact_mut(V::BLOCKS)) {
        // SAFETY: as above.
        unsafe { x.store(blocks.as_mut_ptr().cast()) };
    }
}

/// The hashes of all but the last block of sectors of `bytes` bytes.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn hash<V: Vector>(keys: &Keys, sectors: &[*const u8], bytes: usize) -> [u128; BATCH] {
    const CHUNK: usize = portable_nh::CHUNK * BLOCK;
    /// Pieces side by side.
    const N: usize = 4;
    let ones = V::splat(u128::MAX);
    let end = V::from_fn(|i| if i + 1 < V::BLOCKS { u128::MAX } else { 0 });
    let len = bytes.min(CHUNK);
    let per_sector = bytes / len;
    let pieces = sectors.len() * per_sector;
    let mut hashes = [0; BATCH];
    let mut sum = Sum::ZERO;
    for first in (0..pieces).step_by(N) {
        let mut some = [Piece {
            start: sectors[0],
            end: ones,
        }; N];
        for (i, piece) in some.iter_mut().enumerate() {
            // Behind the last piece it is taken once more.
            let i = (first + i).min(pieces - 1);
            let chunk = i % per_sector;
            piece.start = sectors[i / per_sector].wrapping_add(chunk * CHUNK);
            if chunk + 1 == per_sector {
                piece.end = end;
            }
        }
        // SAFETY: the caller's promise.
        let outputs = unsafe { nh::hash::<V, N>(&keys.nh, &some, len) };
        for (i, output) in outputs.into_iter().enumerate().take(pieces - first) {
            let [low, high] = output;
            sum = sum.absorb(&keys.message, low).absorb(&keys.message, high);
            if (first + i + 1) % per_sector == 0 {
                hashes[(first + i) / per_sector] = sum.low();
                sum = Sum::ZERO;
            }
        }
    }
    hashes
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
            *vector = unsafe { V::gather([0, 1, 2, 3].map(|lane| place(lane).cast())) };
        }
        x[12..].copy_from_slice(&chacha::transpose(vectors));
        chacha::permute(&mut x, keys.rounds);
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

/// Adds the keystream to the sectors of a batch. In their last blocks it leaves
/// something that must be overwritten.
#[inline(always)]
fn add_stream<V: Vector>(
    batch: &Batch<'_>,
    subkeys: &[[u128; 2]; BATCH],
    rounds: usize,
    bytes: usize,
) {
    // ChaCha blocks of a sector, and at once.
    let per_sector = bytes / CHACHA_BLOCK;
    let at_once = 4 * V::BLOCKS;
    let sectors = batch.sectors();
    let constants = V::splat(row(&CONSTANTS));
    let nonce = u128::from(NONCE[0]) << 64 | u128::from(NONCE[1]) << 96;
    // Blocks 4 l + i in lane l, where these are not in the sector after.
    let mut numbers = [V::zero(); 4];
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = V::from_fn(|lane| (4 * lane % per_sector + i) as u128 | nonce);
    }
    for first in (0..per_sector * sectors.len()).step_by(at_once) {
        // The sector of each lane; behind the last one it is taken once more.
        let in_lane: [usize; 4] =
            core::array::from_fn(|lane| ((first + 4 * lane) / per_sector).min(sectors.len() - 1));
        // SAFETY: the subkeys are readable.
        let (low, high) = unsafe {
            (
                V::gather(in_lane.map(|i| (&raw const subkeys[i][0]).cast())),
                V::gather(in_lane.map(|i| (&raw const subkeys[i][1]).cast())),
            )
        };
        let first_number = V::splat((first % per_sector) as u128);
        let mut numbers = numbers;
        for number in &mut numbers {
            *number = number.add32(first_number);
        }
        let mut x = [V::zero(); 16];
        for (i, row) in [constants, low, high].into_iter().enumerate() {
            x[4 * i..4 * i + 4].copy_from_slice(&chacha::words(row));
        }
        x[12..].copy_from_slice(&chacha::transpose(numbers));
        chacha::permute(&mut x, rounds);

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
                let number = first + 4 * (j * V::BYTES / CHACHA_BLOCK) + i;
                let Some(sector) = sectors.get(number / per_sector) else {
                    continue;
                };
                let offset = number % per_sector * CHACHA_BLOCK + j * V::BYTES % CHACHA_BLOCK;
                // SAFETY: inside the sector.
                unsafe {
                    V::load(sector.src().add(offset))
                        .xor(keystream)
                        .store(sector.dst().add(offset));
                }
            }
        }
    }
}

/// Four words side by side.
#[inline(always)]
fn row(words: &[u32]) -> u128 {
    words
        .iter()
        .rev()
        .fold(0, |row, &word| row << 32 | u128::from(word))
}
