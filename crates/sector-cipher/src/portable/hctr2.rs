//! HCTR2: ePrint 2021/1441; a sector's tweak has 32 bytes.

use super::aes::Aes;
use super::counter::xctr;
use super::field::dot;
use crate::run::{BLOCK, Batch, Sectors};

/// HCTR2: an AES key, and what comes from it.
pub(crate) struct Hctr2 {
    aes: Aes,
    /// The key of the hash.
    h: u128,
    l: u128,
}

impl Hctr2 {
    /// `key` is an AES key.
    pub(super) fn new(key: &[u8]) -> Self {
        let aes = Aes::new(key);
        let (h, l) = (aes.encrypt_one(0), aes.encrypt_one(1));
        Self { aes, h, l }
    }

    pub(super) fn crypt(&self, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
        let blocks = sectors.bytes() / BLOCK;
        let mut batch = sectors.empty_batch();
        loop {
            sectors.fill(&mut batch);
            if batch.len() == 0 {
                return;
            }
            for sector in 0..batch.len() {
                // The upper half is zero.
                let mut tweak = [0; 2 * BLOCK];
                tweak[..BLOCK].copy_from_slice(&batch.ivs()[sector].to_le_bytes());
                let hash_of_tweak = self.hash(&tweak);
                self.crypt_message(hash_of_tweak, &mut batch, sector, blocks, encrypt);
            }
        }
    }

    /// The hash of a tweak of any length, as far as it goes ahead of a message of
    /// whole blocks.
    fn hash(&self, tweak: &[u8]) -> u128 {
        // Twice the tweak's bits, and two because the message is whole blocks.
        let length = 2 * (8 * tweak.len() as u128) + 2;
        tweak
            .chunks(BLOCK)
            .fold(dot(length, self.h), |hash, chunk| {
                let mut block = [0; BLOCK];
                block[..chunk.len()].copy_from_slice(chunk);
                dot(hash ^ u128::from_le_bytes(block), self.h)
            })
    }

    /// Sector `sector` of the batch, which has `blocks` blocks.
    fn crypt_message(
        &self,
        hash_of_tweak: u128,
        batch: &mut Batch<'_>,
        sector: usize,
        blocks: usize,
        encrypt: bool,
    ) {
        let mut hash = hash_of_tweak;
        for i in 1..blocks {
            hash = dot(hash ^ u128::from_le_bytes(batch.load(sector, i)), self.h);
        }
        let before = u128::from_le_bytes(batch.load(sector, 0)) ^ hash;
        let after = if encrypt {
            self.aes.encrypt_one(before)
        } else {
            self.aes.decrypt_one(before)
        };
        let start = before ^ after ^ self.l;
        let mut hash = hash_of_tweak;
        xctr(&self.aes, batch, sector, 1..blocks, start, |block| {
            hash = dot(hash ^ block, self.h);
        });
        batch.store(sector, 0, (after ^ hash).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::vectors::{designers, kernel, unhex, vectors};
    use serde_json::Value;
    use std::vec::Vec;

    /// Checks those of whole blocks, and returns how many they are.
    fn check(vectors: &[Value]) -> usize {
        let mut run = 0;
        for vector in vectors {
            let plain = unhex(&vector["pt"]);
            if !plain.len().is_multiple_of(BLOCK) {
                continue;
            }
            run += 1;
            let keys = Hctr2::new(&unhex(&vector["key"]));
            let hash = keys.hash(&unhex(&vector["tweak"]));
            let mut data = plain.clone();
            let blocks = data.len() / BLOCK;
            keys.crypt_message(hash, &mut Batch::of_one(&mut data), 0, blocks, true);
            assert_eq!(data, unhex(&vector["ct"]), "key {}", vector["key"]);
            keys.crypt_message(hash, &mut Batch::of_one(&mut data), 0, blocks, false);
            assert_eq!(data, plain, "key {}", vector["key"]);
        }
        run
    }

    /// Tweaks that no sector number gives.
    #[test]
    fn whole_tweaks() {
        assert_eq!(check(&vectors("aes-hctr2-plain64")), 8);
    }

    #[test]
    fn designers_vectors() {
        assert_eq!(check(&designers("aes-hctr2-plain64")), 300);
    }

    /// The kernel's, whose tweaks have 32 bytes.
    #[test]
    #[ignore = "the kernel's vectors, in its source: make kernel-test"]
    fn kernel_vectors() {
        assert!(check(&kernel("aes_hctr2_tv_template", 14)) >= 8);
    }

    /// Tweaks of any length, as the crate `hctr2-rs` has them.
    #[test]
    fn other_tweaks_as_another_implementation() {
        let key: Vec<u8> = (1..).step_by(7).take(32).collect();
        let bytes: Vec<u8> = (0..=255)
            .cycle()
            .take(600)
            .map(|i: u8| i.wrapping_mul(31))
            .collect();
        let (keys, other) = (Hctr2::new(&key), hctr2_rs::Hctr2_256::new(&key));
        for tweak_len in 0..=49 {
            for blocks in [1, 2, 3, 8, 9, 32] {
                let (tweak, plain) = (&bytes[..tweak_len], &bytes[tweak_len..][..blocks * BLOCK]);
                let mut expected = plain.to_vec();
                other.encrypt(plain, tweak, &mut expected).unwrap();
                let mut data = plain.to_vec();
                let hash = keys.hash(tweak);
                keys.crypt_message(hash, &mut Batch::of_one(&mut data), 0, blocks, true);
                assert_eq!(data, expected, "{tweak_len} {blocks}");
            }
        }
    }
}
