//! XCB-AES: IEEE 1619.2-2010. Broken: see [`crate::Mode::Xcb`].

use super::aes::Aes;
use super::counter::counter_mode;
use super::field::{dot, double_polyval};
use crate::here::ZipHere;
use crate::run::{BLOCK, Sectors};
use zeroize::Zeroizing;

/// XCB-AES: three AES keys and the hash's, all from one.
pub(crate) struct Xcb {
    /// For the last block on its way into the middle.
    into: Aes,
    /// For its way out again, in the inverse direction.
    out: Aes,
    counter: Aes,
    /// The key of the hash, for `dot`.
    h: u128,
}

/// The lengths in the hashes' last blocks include a block of zeros.
fn lengths(tweak_bytes: usize, bytes: usize) -> u128 {
    ((tweak_bytes as u128 * 8) << 64) | (bytes as u128 * 8)
}

impl Xcb {
    /// `key` is an AES key.
    pub(super) fn new(key: &[u8]) -> Self {
        let aes = Aes::new(key);
        let derived = |first: u128| {
            let mut bytes = Zeroizing::new([0; 32]);
            for (block, number) in bytes.chunks_exact_mut(BLOCK).zip_here(first..) {
                let encrypted = aes.encrypt_one(number.swap_bytes());
                block.copy_from_slice(&encrypted.to_le_bytes());
            }
            Aes::new(&bytes[..key.len()])
        };
        Self {
            into: derived(1),
            out: derived(3),
            counter: derived(5),
            // GHASH is POLYVAL with the bytes of all blocks reversed and the
            // key doubled (RFC 8452, appendix A).
            h: double_polyval(aes.encrypt_one(0).swap_bytes()),
        }
    }

    pub(super) fn crypt(&self, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
        let blocks = sectors.bytes() / BLOCK;
        let last = blocks - 1;
        let inner = lengths(2 * BLOCK, sectors.bytes() - BLOCK);
        let outer = lengths(2 * BLOCK, sectors.bytes());
        // What the hashes' input starts and ends with: the first hash is over
        // plaintext, the second over ciphertext.
        let ends = |tweak| {
            let first = ([0, tweak], [0, outer]);
            let second = ([tweak, 0], [inner, outer]);
            if encrypt {
                (first, second)
            } else {
                (second, first)
            }
        };
        let add = |hash, block: u128| dot(hash ^ block, self.h);
        let mut batch = sectors.empty_batch();
        loop {
            sectors.fill(&mut batch);
            if batch.len() == 0 {
                return;
            }
            for sector in 0..batch.len() {
                let (before, after) = ends(batch.ivs()[sector].swap_bytes());
                let mut hash = before.0.into_iter().fold(0, add);
                for i in 0..last {
                    hash = add(hash, u128::from_be_bytes(batch.load(sector, i)));
                }
                let hash = before.1.into_iter().fold(hash, add).swap_bytes();
                let block = u128::from_le_bytes(batch.load(sector, last));
                let middle = hash
                    ^ if encrypt {
                        self.into.encrypt_one(block)
                    } else {
                        self.out.encrypt_one(block)
                    };
                // The last 32 bits count, big endian, and wrap.
                let counter = |i: u32| {
                    let start = middle.swap_bytes();
                    #[allow(clippy::cast_possible_truncation, reason = "the last word")]
                    let word = (start as u32).wrapping_add(i);
                    (start >> 32 << 32 | u128::from(word)).swap_bytes()
                };
                let mut hash = after.0.into_iter().fold(0, add);
                counter_mode(
                    &self.counter,
                    &mut batch,
                    sector,
                    0..last,
                    counter,
                    |block| {
                        hash = add(hash, block.swap_bytes());
                    },
                );
                let hash = after.1.into_iter().fold(hash, add).swap_bytes();
                let block = middle ^ hash;
                let block = if encrypt {
                    self.out.decrypt_one(block)
                } else {
                    self.into.decrypt_one(block)
                };
                batch.store(sector, last, block.to_le_bytes());
            }
        }
    }
}
