//! HCTR2: ePrint 2021/1441, with tweaks of 32 bytes.

use super::aes::Aes;
use super::counter::xctr;
use super::field::dot;
use crate::run::{BLOCK, Sectors};

/// HCTR2: an AES key, and what comes from it.
pub(crate) struct Hctr2 {
    aes: Aes,
    /// The key of the hash.
    h: u128,
    l: u128,
}

/// The first block of the hash's input: twice the tweak's bits, and two
/// because the message is whole blocks.
const LENGTH: u128 = 2 * 256 + 2;

impl Hctr2 {
    /// `key` is an AES key.
    pub(super) fn new(key: &[u8]) -> Self {
        let aes = Aes::new(key);
        let (h, l) = (aes.encrypt_one(0), aes.encrypt_one(1));
        Self { aes, h, l }
    }

    pub(super) fn crypt<const ENCRYPT: bool>(&self, mut sectors: Sectors<'_, '_>) {
        let blocks = sectors.bytes() / BLOCK;
        let mut batch = sectors.empty_batch();
        loop {
            sectors.fill(&mut batch);
            if batch.len() == 0 {
                return;
            }
            for sector in 0..batch.len() {
                // The tweak's upper half is zero.
                let hash_of_tweak = [LENGTH, batch.ivs()[sector], 0]
                    .into_iter()
                    .fold(0, |hash, block| dot(hash ^ block, self.h));
                let mut hash = hash_of_tweak;
                for i in 1..blocks {
                    hash = dot(hash ^ u128::from_le_bytes(batch.load(sector, i)), self.h);
                }
                let before = u128::from_le_bytes(batch.load(sector, 0)) ^ hash;
                let after = if ENCRYPT {
                    self.aes.encrypt_one(before)
                } else {
                    self.aes.decrypt_one(before)
                };
                let start = before ^ after ^ self.l;
                let mut hash = hash_of_tweak;
                xctr(&self.aes, &mut batch, sector, 1..blocks, start, |block| {
                    hash = dot(hash ^ block, self.h);
                });
                batch.store(sector, 0, (after ^ hash).to_le_bytes());
            }
        }
    }
}
