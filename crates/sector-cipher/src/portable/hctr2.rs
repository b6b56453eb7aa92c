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

    pub(super) fn crypt<const ENCRYPT: bool>(&self, mut sectors: Sectors<'_, '_>) {
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
                self.crypt_message::<ENCRYPT>(hash_of_tweak, &mut batch, sector, blocks);
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
    fn crypt_message<const ENCRYPT: bool>(
        &self,
        hash_of_tweak: u128,
        batch: &mut Batch<'_>,
        sector: usize,
        blocks: usize,
    ) {
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
    use crate::published::{unhex, vectors};

    /// The designers' vectors of whole blocks. They have tweaks that no sector
    /// number gives, and lie beside the workspace, or nowhere.
    #[test]
    fn published_vectors() {
        let Some(vectors) = vectors(&["HCTR2"]) else {
            return;
        };
        let mut run = 0;
        for vector in &vectors {
            let plain = unhex(&vector["pt"]);
            if !plain.len().is_multiple_of(BLOCK) {
                continue;
            }
            run += 1;
            let keys = Hctr2::new(&unhex(&vector["key"]));
            let hash = keys.hash(&unhex(&vector["tweak"]));
            let mut data = plain.clone();
            let blocks = data.len() / BLOCK;
            keys.crypt_message::<true>(hash, &mut Batch::of_one(&mut data), 0, blocks);
            assert_eq!(data, unhex(&vector["ct"]), "{}", vector["provenance"]);
            keys.crypt_message::<false>(hash, &mut Batch::of_one(&mut data), 0, blocks);
            assert_eq!(data, plain, "{}", vector["provenance"]);
        }
        assert_eq!(run, 120, "published.json has lost vectors of HCTR2");
    }
}
