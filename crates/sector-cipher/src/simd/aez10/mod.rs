//! AEZ10 (AEZ v5, figure 4) over a stream of sectors. There are no published
//! vectors for it: see the portable implementation, which says what it follows.
//!
//! The blocks of a sector are pairs; left and right ones go to vectors apart.
//! The last pair goes through the rounds with the others, as the last lane of
//! the last vector, where it has masks and inputs of its own: this gives the
//! encryptions of its right block and of the tweak in the first pass, and those
//! that make the last pair of the result in the second. Only one block a
//! sector is left to encrypt between the passes.
//!
//! What takes pairs apart and puts them together goes between the rounds of AES, one vector
//! of each at a time: on AMD's Zen 4 shuffles in a row take the turns of rounds.

mod group;
mod pass;

use super::{AesKeys, Vector, aes, two_pass};
use crate::here::ZipHere;
use crate::run::{BLOCK, Sectors};
use crate::shared::double;
use pass::Kernel;

/// Pairs of the largest sector.
const PAIRS: usize = 4096 / (2 * BLOCK);

/// Its keys. I and J are the encryptions of 0 and 1, and (r, c) the mask of a
/// row and a column, (r + 1) I + c J.
#[repr(C, align(64))]
pub(crate) struct Keys {
    /// (1, 1), (1, 2), ...
    masks: [u128; PAIRS],
    /// The last four of a sector, the last one replaced by (0, 1) or (0, 2);
    /// for sectors of 512, 1024, 2048 and 4096 bytes.
    last_masks: [[[u128; 4]; 2]; 4],
    /// (-1, 1) and (-1, 2).
    of_sums: [u128; 2],
    /// (0, 0).
    constant: u128,
    /// (4, 1).
    of_tweak: u128,
    /// The share of the tag's length, zero, in AEZ-hash.
    hash: u128,
    aes: AesKeys,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        masks: [0; PAIRS],
        last_masks: [[[0; 4]; 2]; 4],
        of_sums: [0; 2],
        constant: 0,
        of_tweak: 0,
        hash: 0,
        aes: AesKeys::UNSET,
    };

    /// Sets the key.
    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        self.aes.set::<V>(key, None);
        let encryption = |block: u128| {
            let mut x = [V::splat(block)];
            aes::encrypt(&mut x, &self.aes.encrypt);
            x[0].blocks()[0]
        };
        // The field is big endian.
        let i = encryption(0).swap_bytes();
        let j = encryption(1_u128.swap_bytes()).swap_bytes();
        let (i2, j2) = (double(i), double(j));
        let (i4, i5) = (double(i2), double(i2) ^ i);
        self.hash = encryption((i4 ^ j).swap_bytes());
        self.constant = i.swap_bytes();
        self.of_tweak = (i5 ^ j).swap_bytes();
        self.of_sums = [j.swap_bytes(), j2.swap_bytes()];

        // Multiples of J: n is twice n / 2, plus n mod 2.
        self.masks[0] = j;
        for n in 2..=PAIRS {
            let odd = if n % 2 == 1 { j } else { 0 };
            self.masks[n - 1] = double(self.masks[n / 2 - 1]) ^ odd;
        }
        for mask in &mut self.masks {
            *mask = (*mask ^ i2).swap_bytes();
        }
        for (log, last) in self.last_masks.iter_mut().enumerate() {
            let end = 16 << log;
            for (last, column) in last.iter_mut().zip_here([j, j2]) {
                last.copy_from_slice(&self.masks[end - 4..end]);
                last[3] = (i ^ column).swap_bytes();
            }
        }
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector>(keys: &Keys, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
    let log = (sectors.bytes() / 512).trailing_zeros() as usize;
    let behind = V::BLOCKS.wrapping_neg() & 3;
    let last_masks = |column: usize| {
        let masks = &keys.last_masks[log][column][behind..][..V::BLOCKS];
        // SAFETY: as many bytes as a vector has.
        unsafe { V::load(masks.as_ptr().cast()) }
    };
    // Decryption swaps columns 1 and 2 of the last pair.
    let (before, after) = if encrypt { (0, 1) } else { (1, 0) };
    let kernel = Kernel::<V> {
        keys,
        constant: V::splat(keys.constant),
        last_lane: V::from_fn(|i| if i + 1 == V::BLOCKS { u128::MAX } else { 0 }),
        last_masks: [last_masks(before), last_masks(after)],
        of_sums: [keys.of_sums[before], keys.of_sums[after]],
    };
    two_pass::run::<V, _>(&kernel, sectors);
}
