//! FAST for sectors: ePrint 2017/849, the fixed-length setting `Fx`, with
//! either of its hashes.

use super::aes::Aes;
use super::counter::xctr;
use super::field::multiply;
use crate::here::MapHere;
use crate::run::{BLOCK, Sectors};

/// The hash of FAST.
pub(super) enum Hash {
    Brw,
    Horner,
}

/// FAST: an AES key, and the hash's key that comes from it.
pub(crate) struct Fast {
    aes: Aes,
    hash: Hash,
    /// The hash's key to the powers 1, 2, 4, ... 128.
    powers: [u128; LEVELS],
}

/// A sector has at most 2^8 blocks.
const LEVELS: usize = 8;

impl Fast {
    /// `key` is an AES key.
    pub(super) fn new(key: &[u8], hash: Hash) -> Self {
        let aes = Aes::new(key);
        let mut power = aes.encrypt_one(0);
        let powers = [(); LEVELS].map_here(|()| {
            let present = power;
            power = multiply(power, power);
            present
        });
        Self { aes, hash, powers }
    }

    pub(super) fn crypt(&self, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
        let blocks = sectors.bytes() / BLOCK;
        let tau = self.powers[0];
        let mut batch = sectors.empty_batch();
        loop {
            sectors.fill(&mut batch);
            if batch.len() == 0 {
                return;
            }
            for sector in 0..batch.len() {
                let tweak = batch.ivs()[sector];
                let first = u128::from_le_bytes(batch.load(sector, 0));
                let second = u128::from_le_bytes(batch.load(sector, 1));
                let mut hash = Evaluation::new(self);
                for i in 2..blocks {
                    hash.add(u128::from_le_bytes(batch.load(sector, i)));
                }
                // The second hash is once more times tau, wherever it stands.
                let before = hash.finish(tweak);
                let (a1, f1, f2, b2);
                if encrypt {
                    a1 = first ^ before;
                    f1 = second ^ multiply(tau, a1);
                    f2 = a1 ^ self.aes.encrypt_one(f1);
                    b2 = f1 ^ self.aes.encrypt_one(f2);
                } else {
                    b2 = second ^ multiply(tau, before);
                    f2 = first ^ multiply(tau, b2);
                    f1 = b2 ^ self.aes.encrypt_one(f2);
                    a1 = f2 ^ self.aes.encrypt_one(f1);
                }
                let mut hash = Evaluation::new(self);
                xctr(&self.aes, &mut batch, sector, 2..blocks, f1 ^ f2, |block| {
                    hash.add(block);
                });
                let after = hash.finish(tweak);
                let (first, second) = if encrypt {
                    (f2 ^ multiply(tau, b2), b2 ^ multiply(tau, after))
                } else {
                    (a1 ^ after, f1 ^ multiply(tau, a1))
                };
                batch.store(sector, 0, first.to_le_bytes());
                batch.store(sector, 1, second.to_le_bytes());
            }
        }
    }
}

/// A hash under way, block by block.
struct Evaluation<'k> {
    keys: &'k Fast,
    /// Blocks so far.
    blocks: usize,
    /// Horner: what the blocks so far have given. BRW: the leaf under way.
    value: u128,
    /// BRW: at level v the tree of 2^v blocks that waits for what follows.
    trees: [u128; LEVELS],
}

impl<'k> Evaluation<'k> {
    fn new(keys: &'k Fast) -> Self {
        Self {
            keys,
            blocks: 0,
            value: match keys.hash {
                Hash::Brw => 0,
                // The leading coefficient.
                Hash::Horner => 1,
            },
            trees: [0; LEVELS],
        }
    }

    fn add(&mut self, block: u128) {
        let powers = &self.keys.powers;
        self.blocks += 1;
        self.value = match self.keys.hash {
            Hash::Horner => multiply(self.value, powers[0]) ^ block,
            Hash::Brw => match self.blocks.trailing_zeros() as usize {
                0 if self.blocks % 4 == 1 => block ^ powers[0],
                1 => multiply(self.value, block ^ powers[1]),
                0 => self.value ^ block,
                // The leaf, and all trees of lower levels, hang on this block.
                level => {
                    let waiting = self.trees[..level].iter_mut().map(core::mem::take);
                    let sum = waiting.fold(self.value, |sum, tree| sum ^ tree);
                    self.trees[level] = multiply(sum, block ^ powers[level]);
                    0
                }
            },
        };
    }

    /// The hash, the tweak being the last block. BRW: the number of blocks is
    /// three more than a multiple of four.
    fn finish(mut self, tweak: u128) -> u128 {
        self.add(tweak);
        let sum = self.trees.iter().fold(self.value, |sum, tree| sum ^ tree);
        multiply(sum, self.keys.powers[0])
    }
}
