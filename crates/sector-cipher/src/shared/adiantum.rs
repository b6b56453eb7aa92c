//! Adiantum's constants, what it derives from its key, and its hash of a tweak.

use super::chacha::{self, CHACHA_BLOCK};
use super::poly1305::{Point, Sum};
use crate::here::{ZipHere, from_fn};
use crate::run::BLOCK;
use zeroize::Zeroizing;

/// The last words of a sector's nonce; the others are the encrypted middle block.
pub(crate) const NONCE: [u32; 2] = [1, 0];

/// Blocks that NH hashes to one output.
pub(crate) const NH_CHUNK: usize = 1024 / BLOCK;
/// Passes of NH over a chunk, and 64-bit words of its output.
pub(crate) const NH_PASSES: usize = 4;
/// Words of NH's key.
pub(crate) const NH_KEY_WORDS: usize = 4 * (NH_CHUNK + NH_PASSES - 1);

/// What is derived from the key.
pub(crate) struct Derived(Zeroizing<[u8; 18 * CHACHA_BLOCK]>);

impl Derived {
    /// The start of the keystream for the nonce 1.
    #[inline(never)]
    pub(crate) fn new(key: &[u32; 8], rounds: usize) -> Self {
        let nonces = [[1, 0, 0, 0]; chacha::LANES];
        let subkey = Zeroizing::new(chacha::subkeys(key, &nonces, rounds)[0]);
        let mut bytes = Zeroizing::new([0; 18 * CHACHA_BLOCK]);
        let mut places = bytes.chunks_exact_mut(4);
        for first in (0..18).step_by(chacha::LANES) {
            let blocks = Zeroizing::new(chacha::keystream(&subkey, [0; 2], first, rounds));
            for (word, place) in blocks.as_flattened().iter().zip_here(&mut places) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        Self(bytes)
    }

    /// The key of AES-256.
    pub(crate) fn aes(&self) -> &[u8] {
        &self.0[..32]
    }

    /// The point of the tweak's hash.
    pub(crate) fn tweak(&self) -> Point {
        self.point(32)
    }

    /// The point of the message's hash.
    pub(crate) fn message(&self) -> Point {
        self.point(48)
    }

    fn point(&self, at: usize) -> Point {
        let (blocks, _) = self.0[at..].as_chunks();
        Point::new(u128::from_le_bytes(blocks[0]))
    }

    /// Word `i` of NH's key.
    pub(crate) fn nh(&self, i: usize) -> u32 {
        let (words, _) = self.0[64..].as_chunks();
        u32::from_le_bytes(words[i])
    }
}

/// A key as words.
pub(crate) fn key_words(key: &[u8]) -> [u32; 8] {
    let (words, _) = key.as_chunks();
    from_fn(|i| u32::from_le_bytes(words[i]))
}

/// The hash of a tweak of 32 bytes beside `blocks` blocks, all of a sector but the last.
#[inline(always)]
pub(crate) fn hash_tweak(point: &Point, blocks: usize, tweak: [u128; 2]) -> u128 {
    let bits = (8 * BLOCK * blocks) as u128;
    Sum::ZERO
        .absorb(point, bits)
        .absorb(point, tweak[0])
        .absorb(point, tweak[1])
        .low()
}
