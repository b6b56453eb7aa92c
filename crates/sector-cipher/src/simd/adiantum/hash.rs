//! The hash of sectors without their last blocks: NH, and Poly1305 over what it
//! gives. Either all of a batch at once, or some vectors at a time between the rounds
//! of ChaCha, whose dependent steps leave most of the CPU idle.

use super::super::Vector;
use super::Keys;
use super::nh::{self, Piece};
use crate::run::{BATCH, BLOCK};
use crate::shared::adiantum::{NH_CHUNK as CHUNK_BLOCKS, NH_PASSES as PASSES};
use crate::shared::poly1305::Sum;

/// Bytes that NH hashes to one output.
const CHUNK: usize = CHUNK_BLOCKS * BLOCK;

/// Vectors that a step of a [`Walk`] hashes.
pub(super) const VECTORS: usize = 2;

/// What of a sector's last vector counts: all but the last lane.
#[inline(always)]
fn end<V: Vector>() -> V {
    V::from_fn(|i| if i + 1 < V::BLOCKS { u128::MAX } else { 0 })
}

/// The hashes of sectors of `bytes` bytes, up to [`BATCH`].
///
/// # Safety
/// They are readable.
#[inline(always)]
pub(super) unsafe fn at_once<V: Vector>(
    keys: &Keys,
    sectors: &[*const u8],
    bytes: usize,
) -> [u128; BATCH] {
    // SAFETY: the caller's promise.
    unsafe {
        // Sums of more pieces would not stay in sixteen registers.
        if const { V::BLOCKS == 4 } {
            side_by_side::<V, 4>(keys, sectors, bytes)
        } else {
            side_by_side::<V, 1>(keys, sectors, bytes)
        }
    }
}

/// [`at_once`], with `N` chunks side by side.
///
/// # Safety
/// The sectors are readable.
#[inline(always)]
unsafe fn side_by_side<V: Vector, const N: usize>(
    keys: &Keys,
    sectors: &[*const u8],
    bytes: usize,
) -> [u128; BATCH] {
    let ones = V::splat(u128::MAX);
    let end = end();
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

/// A walk through the sectors of a batch, some vectors at a time.
pub(super) struct Walk {
    sectors: [*const u8; BATCH],
    /// Where it ends, in sectors.
    pub(super) len: usize,
    bytes: usize,
    sector: usize,
    offset: usize,
    sum: Sum,
}

/// The sums of NH on a walk. Apart from it, to stay in registers.
pub(super) type Sums<V> = [V; PASSES];

impl Walk {
    /// From the start of the first of `len` sectors of `bytes` bytes.
    #[inline(always)]
    pub(super) fn new(sectors: [*const u8; BATCH], len: usize, bytes: usize) -> Self {
        Self {
            sectors,
            len,
            bytes,
            sector: 0,
            offset: 0,
            sum: Sum::ZERO,
        }
    }

    /// Whether there is nothing left up to `len`.
    #[inline(always)]
    pub(super) fn is_done(&self) -> bool {
        self.sector == self.len
    }

    /// Hashes the next [`VECTORS`] vectors, if there are any. At the end of a sector its hash
    /// is put among `hashes`.
    ///
    /// # Safety
    /// The sectors are readable.
    #[inline(always)]
    pub(super) unsafe fn step<V: Vector>(
        &mut self,
        keys: &Keys,
        sums: &mut Sums<V>,
        hashes: &mut [u128; BATCH],
    ) {
        if self.is_done() {
            return;
        }
        let at = self.offset % CHUNK;
        let chunk = self.sectors[self.sector].wrapping_add(self.offset - at);
        self.offset += VECTORS * V::BYTES;
        let mut piece = [Piece {
            start: chunk,
            end: V::zero(),
        }];
        let mut all = [*sums];
        for i in 0..VECTORS - 1 {
            // SAFETY: the caller's promise; a sector has a multiple of as many.
            unsafe { nh::step::<V, 1, false>(&keys.nh, &piece, at + i * V::BYTES, &mut all) };
        }
        let at = at + (VECTORS - 1) * V::BYTES;
        if self.offset == self.bytes {
            piece[0].end = end();
            // SAFETY: as above.
            unsafe { nh::step::<V, 1, true>(&keys.nh, &piece, at, &mut all) };
        } else {
            // SAFETY: as above.
            unsafe { nh::step::<V, 1, false>(&keys.nh, &piece, at, &mut all) };
        }
        [*sums] = all;
        if self.offset == self.bytes || self.offset.is_multiple_of(CHUNK) {
            let [low, high] = nh::output(*sums);
            self.sum = self
                .sum
                .absorb(&keys.message, low)
                .absorb(&keys.message, high);
            *sums = [V::zero(); PASSES];
        }
        if self.offset == self.bytes {
            hashes[self.sector] = self.sum.low();
            self.sum = Sum::ZERO;
            self.sector += 1;
            self.offset = 0;
        }
    }
}
