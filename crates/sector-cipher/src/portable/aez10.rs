//! AEZ10: AEZ-core with a full AES call on a masked block in place of every
//! one of its ciphers (AEZ v5, figure 4 and its caption; the masks by Hoang,
//! Krovetz, Rogaway, EUROCRYPT 2015, whose rows begin at -1).
//!
//! Nobody has published vectors for it. This follows the papers as far as they
//! can be read, and is checked against a reference implementation of our own
//! only; keys of 32 bytes are an extension.

use super::aes::Aes;
use super::whole;
use crate::here::ZipHere;
use crate::run::{BATCH, Sectors};
use crate::shared::double;

/// A pair of blocks.
type Pair = [u128; 2];

/// Its keys: I and J are the encryptions of 0 and 1. AEZ's field is big
/// endian, so that they stand here as big-endian integers.
pub(crate) struct Aez10 {
    aes: Aes,
    i: u128,
    j: u128,
}

impl Aez10 {
    pub(super) fn new(key: &[u8]) -> Self {
        let aes = Aes::new(key);
        let encryption = |number: u128| aes.encrypt_one(number.swap_bytes()).swap_bytes();
        let (i, j) = (encryption(0), encryption(1));
        Self { aes, i, j }
    }

    pub(super) fn crypt(&self, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
        whole::for_each(sectors, |tweak, blocks| {
            let (pairs, _) = blocks.as_chunks_mut();
            self.crypt_pairs(tweak, pairs, encrypt);
        });
    }

    /// The mask of a row, from -1 on, and a column.
    fn mask(&self, row: i32, column: u32) -> u128 {
        let row = times(row.abs_diff(-1), self.i);
        (row ^ times(column, self.j)).swap_bytes()
    }

    /// AES in a row and a column.
    fn cipher(&self, row: i32, column: u32, block: u128) -> u128 {
        self.aes.encrypt_one(block ^ self.mask(row, column))
    }

    /// Encrypts a block for each pair, eight side by side, and adds them.
    fn add(
        &self,
        pairs: &mut [Pair],
        block: impl Fn(u32, &Pair) -> u128,
        add: impl Fn(&mut Pair, u128),
    ) {
        let mut column = 0;
        for pairs in pairs.chunks_mut(BATCH) {
            let mut blocks = [0; BATCH];
            for (place, pair) in blocks.iter_mut().zip_here(&*pairs) {
                column += 1;
                *place = block(column, pair);
            }
            whole::each(&self.aes, &mut blocks, true);
            for (pair, block) in pairs.iter_mut().zip_here(blocks) {
                add(pair, block);
            }
        }
    }

    /// A sector. Decryption swaps columns 1 and 2 of the last pair.
    fn crypt_pairs(&self, tweak: u128, pairs: &mut [Pair], encrypt: bool) {
        let Some(([last_left, last_right], pairs)) = pairs.split_last_mut() else {
            return;
        };
        let (before, behind) = if encrypt { (1, 2) } else { (2, 1) };
        // AEZ-hash of the tag's length, zero, and the tweak.
        let delta = self.cipher(3, 1, 0) ^ self.cipher(4, 1, tweak);

        // In each pair, the left block becomes W and the right one X.
        self.add(pairs, |i, p| p[1] ^ self.mask(1, i), |p, e| p[0] ^= e);
        self.add(pairs, |_, p| p[0] ^ self.mask(0, 0), |p, e| p[1] ^= e);
        let x = pairs.iter().fold(0, |sum, pair| sum ^ pair[1]);

        let s_x = *last_left ^ delta ^ x ^ self.cipher(0, before, *last_right);
        let s_y = *last_right ^ self.cipher(-1, before, s_x);
        let s = s_x ^ s_y;

        // Y and Z.
        let add_to_both = |pair: &mut Pair, e| *pair = [pair[0] ^ e, pair[1] ^ e];
        self.add(pairs, |i, _| s ^ self.mask(2, i), add_to_both);
        let y = pairs.iter().fold(0, |sum, pair| sum ^ pair[0]);
        // The result's right block, and the left one, which change places.
        self.add(pairs, |_, p| p[1] ^ self.mask(0, 0), |p, e| p[0] ^= e);
        self.add(pairs, |i, p| p[0] ^ self.mask(1, i), |p, e| p[1] ^= e);
        for pair in pairs {
            pair.swap(0, 1);
        }

        *last_right = s_x ^ self.cipher(-1, behind, s_y);
        *last_left = s_y ^ delta ^ y ^ self.cipher(0, behind, *last_right);
    }
}

/// The multiple of a block by the polynomial whose coefficients are the bits
/// of a number.
fn times(number: u32, block: u128) -> u128 {
    (0..u32::BITS - number.leading_zeros())
        .rev()
        .fold(0, |multiple, bit| {
            double(multiple) ^ (block * u128::from(number >> bit & 1))
        })
}
