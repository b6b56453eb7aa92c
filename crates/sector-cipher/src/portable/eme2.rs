//! EME2-AES: IEEE 1619.2-2010 (EME*, Halevi, ePrint 2004/125). Two layers of
//! AES with a mask of everything between them. Whole blocks only: a sector has
//! no partial one.

use super::aes::Aes;
use super::whole;
use crate::run::{BLOCK, Sectors};
use crate::shared::double;

/// Blocks that one mask serves; the next has a mask of its own.
const MASKED_TOGETHER: usize = 128;

/// The keys of EME2.
pub(crate) struct Eme2 {
    aes: Aes,
    /// The standard's `K_AD`, which masks the tweak.
    tweak_mask: u128,
    /// The standard's `K_ECB`, which masks the first block.
    first_mask: u128,
}

impl Eme2 {
    /// `key` is `K_AD`, `K_ECB` and the AES key.
    pub(super) fn new(key: &[u8]) -> Self {
        let block = |bytes: &[u8]| {
            let mut block = [0; BLOCK];
            block.copy_from_slice(bytes);
            u128::from_le_bytes(block)
        };
        Self {
            aes: Aes::new(&key[2 * BLOCK..]),
            tweak_mask: block(&key[..BLOCK]),
            first_mask: block(&key[BLOCK..2 * BLOCK]),
        }
    }

    pub(super) fn crypt(&self, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
        whole::for_each(sectors, |tweak, blocks| {
            let tweak = self.hash(&tweak.to_le_bytes());
            self.crypt_blocks(tweak, blocks, encrypt);
        });
    }

    /// The standard's `T*`, of a tweak of any length.
    fn hash(&self, tweak: &[u8]) -> u128 {
        if tweak.is_empty() {
            return self.aes.encrypt_one(self.tweak_mask);
        }
        let (mut sum, mut mask) = (0, self.tweak_mask);
        for chunk in tweak.chunks(BLOCK) {
            mask = double(mask);
            let mut block = [0; BLOCK];
            block[..chunk.len()].copy_from_slice(chunk);
            if chunk.len() < BLOCK {
                block[chunk.len()] = 0x80;
                mask = double(mask);
            }
            sum ^= self.aes.encrypt_one(u128::from_le_bytes(block) ^ mask) ^ mask;
        }
        sum
    }

    fn one(&self, block: u128, encrypt: bool) -> u128 {
        if encrypt {
            self.aes.encrypt_one(block)
        } else {
            self.aes.decrypt_one(block)
        }
    }

    /// Adds `K_ECB`, times x for each block before.
    fn add_masks(&self, blocks: &mut [u128]) {
        let mut mask = self.first_mask;
        for block in blocks {
            *block ^= mask;
            mask = double(mask);
        }
    }

    /// Whole blocks. Decryption differs in the direction of AES alone.
    fn crypt_blocks(&self, tweak: u128, blocks: &mut [u128], encrypt: bool) {
        self.add_masks(blocks);
        whole::each(&self.aes, blocks, encrypt);

        // `MP`, `MC`, `M1`.
        let before = blocks.iter().fold(tweak, |sum, block| sum ^ block);
        let after = self.one(before, encrypt);
        let first = before ^ after;
        let mut mask = first;
        for (i, block) in blocks.iter_mut().enumerate().skip(1) {
            if i.is_multiple_of(MASKED_TOGETHER) {
                let before = *block ^ first;
                let after = self.one(before, encrypt);
                mask = before ^ after;
                *block = after ^ first;
            } else {
                mask = double(mask);
                *block ^= mask;
            }
        }
        blocks[0] = blocks[1..].iter().fold(after ^ tweak, |sum, b| sum ^ b);

        whole::each(&self.aes, blocks, encrypt);
        self.add_masks(blocks);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::vectors::{published, unhex, vectors};
    use serde_json::Value;
    use std::vec::Vec;

    fn blocks(text: &Value) -> Vec<u128> {
        let bytes = unhex(text);
        let blocks = bytes.chunks_exact(BLOCK);
        blocks
            .map(|block| u128::from_le_bytes(block.try_into().unwrap()))
            .collect()
    }

    /// Checks those of whole blocks, and returns how many they are.
    fn check(vectors: &[Value]) -> usize {
        let mut run = 0;
        for vector in vectors {
            let partial = vector["pt"].as_str().unwrap().len() % (2 * BLOCK) != 0;
            if partial {
                continue;
            }
            run += 1;
            let keys = Eme2::new(&unhex(&vector["key"]));
            let (plain, encrypted) = (blocks(&vector["pt"]), blocks(&vector["ct"]));
            let tweak = keys.hash(&unhex(&vector["tweak"]));
            let mut data = plain.clone();
            keys.crypt_blocks(tweak, &mut data, true);
            assert_eq!(data, encrypted, "key {}", vector["key"]);
            keys.crypt_blocks(tweak, &mut data, false);
            assert_eq!(data, plain, "key {}", vector["key"]);
        }
        run
    }

    /// Up to one block more than are masked together.
    #[test]
    fn vectors_of_whole_blocks() {
        assert_eq!(check(&vectors("capi:eme2(aes)-plain64")), 8);
    }

    /// IEEE 1619.2-2010's and B. Gladman's, with tweaks of any length.
    #[test]
    #[ignore = "published vectors: XTENT_PUBLISHED_VECTORS=FILE, --ignored published"]
    fn published_vectors() {
        assert_eq!(check(&published("EME2")), 65);
    }
}
