//! NH in vectors.
//!
//! A product needs words 0 and 2, or 1 and 3, of a block plus key in the lower
//! words of two halves. Block and key are brought there once, the key when it
//! is set, and the four passes over a block are then additions and products.

use super::super::{Lanes, Vector};
use crate::here::ZipHere;
use crate::run::BLOCK;
use crate::shared::adiantum::{NH_CHUNK as CHUNK, NH_PASSES as PASSES};

/// The key: words 0 and 1 of each block in the lower words of two halves, and
/// apart from them words 2 and 3. Each pass has a copy that begins where the
/// pass does, so that vectors of the key do not straddle cache lines.
#[repr(align(64))]
pub(super) struct Key([[[[u32; 4]; CHUNK]; PASSES]; 2]);

impl Key {
    /// Holds no key yet.
    pub(super) const ZERO: Self = Self([[[[0; 4]; CHUNK]; PASSES]; 2]);

    pub(super) fn set(&mut self, word: impl Fn(usize) -> u32) {
        for (half, passes) in self.0.iter_mut().enumerate() {
            for (pass, blocks) in passes.iter_mut().enumerate() {
                for (i, place) in blocks.iter_mut().enumerate() {
                    let at = 4 * (i + pass) + 2 * half;
                    *place = [word(at), word(at), word(at + 1), word(at + 1)];
                }
            }
        }
    }

    /// The vectors of the two halves at `at` bytes into a chunk.
    ///
    /// # Safety
    /// A vector from there is inside the chunk.
    #[inline(always)]
    unsafe fn load<V: Vector>(&self, pass: usize, at: usize) -> (V, V) {
        let place = |half: usize| self.0[half][pass].as_ptr().cast::<u8>().wrapping_add(at);
        // SAFETY: the caller's promise.
        unsafe { (V::load(place(0)), V::load(place(1))) }
    }
}

/// A chunk of a sector, or less at its end.
#[derive(Clone, Copy)]
pub(super) struct Piece<V> {
    pub(super) start: *const u8,
    /// What of the last vector counts: lanes of ones and of zeros.
    pub(super) end: V,
}

/// Hashes `N` pieces of `len` bytes side by side, up to a chunk each.
///
/// # Safety
/// They are readable, and `len` is a multiple of the vector.
#[inline(always)]
pub(super) unsafe fn hash<V: Vector, const N: usize>(
    key: &Key,
    pieces: &[Piece<V>; N],
    len: usize,
) -> [[u128; 2]; N] {
    debug_assert!(len <= CHUNK * BLOCK);
    let mut sums = [[V::zero(); PASSES]; N];
    let last = len - V::BYTES;
    for at in (0..last).step_by(V::BYTES) {
        // SAFETY: `at` is below `len`, a vector from its end or more.
        unsafe { step::<V, N, false>(key, pieces, at, &mut sums) };
    }
    // SAFETY: as above.
    unsafe { step::<V, N, true>(key, pieces, last, &mut sums) };
    let mut outputs = [[0; 2]; N];
    for (place, sums) in outputs.iter_mut().zip_here(sums) {
        *place = output(sums);
    }
    outputs
}

/// The hash of a chunk from the sums of its passes.
#[inline(always)]
pub(super) fn output<V: Vector>([a, b, c, d]: [V; PASSES]) -> [u128; 2] {
    let low = a.low_halves(b).add64(a.high_halves(b)).fold_add64();
    let high = c.low_halves(d).add64(c.high_halves(d)).fold_add64();
    [low.blocks()[0], high.blocks()[0]]
}

/// One vector of each piece, at `at`; the last one of a sector only as far as
/// it counts.
///
/// # Safety
/// It is readable, and inside the first chunk.
#[inline(always)]
pub(super) unsafe fn step<V: Vector, const N: usize, const LAST: bool>(
    key: &Key,
    pieces: &[Piece<V>; N],
    at: usize,
    sums: &mut [[V; PASSES]; N],
) {
    let mut messages = [(V::zero(), V::zero()); N];
    for (message, piece) in messages.iter_mut().zip_here(pieces) {
        // SAFETY: the caller's promise.
        let block = unsafe { V::load(piece.start.add(at)) };
        *message = (block.shuffle32::<0x50>(), block.shuffle32::<0xfa>());
    }
    for pass in 0..PASSES {
        // SAFETY: the caller's promise.
        let (low, high) = unsafe { key.load::<V>(pass, at) };
        for ((message, piece), sums) in messages.iter().zip_here(pieces).zip_here(sums.iter_mut()) {
            let mut a = message.0.add32(low);
            if LAST {
                // Pinned, or the compiler makes one of both kinds of steps, with a mask.
                a = a.and(piece.end).pin();
            }
            let product = a.mul32(message.1.add32(high));
            sums[pass] = sums[pass].add64(product);
        }
    }
}
