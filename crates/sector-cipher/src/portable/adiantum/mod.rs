//! Adiantum (Crowley and Biggers, `ToSC` 2018(4)) with XChaCha12 or XChaCha20.
//!
//! A CPU without AES instructions has nothing else, so that this is written
//! for speed too: ChaCha on blocks side by side, and one AES call per sector.

mod nh;

use super::aes::Aes;
use super::xor;
use crate::here::{MapHere, ZipHere, from_fn};
use crate::run::{BATCH, BLOCK, Batch, Sectors};
use crate::shared::adiantum::{
    Derived, NH_CHUNK, NH_KEY_WORDS, NH_PASSES, NONCE, hash_tweak, key_words,
};
use crate::shared::chacha;
use crate::shared::poly1305::{Point, Sum};
use aes_soft::ParBlocks;

/// The keys of Adiantum.
pub(crate) struct Adiantum {
    stream: [u32; 8],
    rounds: usize,
    aes: Aes,
    tweak: Point,
    message: Point,
    nh: [u32; NH_KEY_WORDS],
}

/// Messages that are encrypted together: the sectors of a batch.
trait Messages {
    fn load(&self, message: usize, block: usize) -> [u8; BLOCK];
    fn store(&mut self, message: usize, block: usize, bytes: [u8; BLOCK]);
}

impl Messages for Batch<'_> {
    #[inline(always)]
    fn load(&self, message: usize, block: usize) -> [u8; BLOCK] {
        Batch::load(self, message, block)
    }
    #[inline(always)]
    fn store(&mut self, message: usize, block: usize, bytes: [u8; BLOCK]) {
        Batch::store(self, message, block, bytes);
    }
}

impl Adiantum {
    /// `key` has 32 bytes.
    pub(super) fn new(key: &[u8], rounds: usize) -> Self {
        let stream = key_words(key);
        let derived = Derived::new(&stream, rounds);
        Self {
            stream,
            rounds,
            aes: Aes::new(derived.aes()),
            tweak: derived.tweak(),
            message: derived.message(),
            nh: from_fn(|i| derived.nh(i)),
        }
    }

    pub(super) fn crypt(&self, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
        let blocks = sectors.bytes() / BLOCK;
        let mut batch = sectors.empty_batch();
        loop {
            sectors.fill(&mut batch);
            let len = batch.len();
            if len == 0 {
                return;
            }
            let tweaks = batch.ivs().map_here(|iv| [iv, 0]);
            self.crypt_some(&mut batch, &tweaks[..len], blocks, encrypt);
        }
    }

    /// Messages of `blocks` blocks, one for each tweak, up to [`BATCH`].
    fn crypt_some<M: Messages>(
        &self,
        messages: &mut M,
        tweaks: &[[u128; 2]],
        blocks: usize,
        encrypt: bool,
    ) {
        let last = blocks - 1;
        // P_M, or C_M in decryption, and what AES makes of it.
        let mut tweak_hashes = [0; BATCH];
        let mut middle = [0; BATCH];
        for (i, &tweak) in tweaks.iter().enumerate() {
            tweak_hashes[i] = hash_tweak(&self.tweak, last, tweak);
            middle[i] = u128::from_le_bytes(messages.load(i, last))
                .wrapping_add(tweak_hashes[i])
                .wrapping_add(self.hash(messages, i, last));
        }
        let mut other = middle;
        self.aes_on(&mut other, tweaks.len(), encrypt);
        let nonces = if encrypt { &other } else { &middle };
        for i in 0..tweaks.len() {
            let hash = self.add_stream(messages, i, last, nonces[i]);
            let right = other[i].wrapping_sub(tweak_hashes[i]).wrapping_sub(hash);
            messages.store(i, last, right.to_le_bytes());
        }
    }

    /// AES on the first `len` blocks.
    fn aes_on(&self, blocks: &mut [u128; BATCH], len: usize, encrypt: bool) {
        if len == 1 {
            blocks[0] = if encrypt {
                self.aes.encrypt_one(blocks[0])
            } else {
                self.aes.decrypt_one(blocks[0])
            };
            return;
        }
        let mut side_by_side = ParBlocks::default();
        for (place, block) in side_by_side.iter_mut().zip_here(&*blocks) {
            *place = block.to_le_bytes().into();
        }
        if encrypt {
            self.aes.encrypt(&mut side_by_side);
        } else {
            self.aes.decrypt(&mut side_by_side);
        }
        for (place, block) in side_by_side.into_iter().zip_here(blocks) {
            *block = u128::from_le_bytes(place.into());
        }
    }

    /// The hash of the first `blocks` blocks of a message.
    fn hash<M: Messages>(&self, messages: &M, message: usize, blocks: usize) -> u128 {
        let mut hash = Sum::ZERO;
        for start in (0..blocks).step_by(NH_CHUNK) {
            let mut sums = [0; NH_PASSES];
            for i in 0..NH_CHUNK.min(blocks - start) {
                nh::add(&mut sums, &self.nh, i, messages.load(message, start + i));
            }
            hash = self.absorb(hash, sums);
        }
        hash.low()
    }

    fn absorb(&self, hash: Sum, sums: [u64; NH_PASSES]) -> Sum {
        let [low, high] = nh::output(sums);
        hash.absorb(&self.message, low).absorb(&self.message, high)
    }

    /// Adds the keystream to the first `blocks` blocks of a message and returns
    /// the hash of what comes out.
    fn add_stream<M: Messages>(
        &self,
        messages: &mut M,
        message: usize,
        blocks: usize,
        nonce: u128,
    ) -> u128 {
        let nonces = [nh::words(nonce.to_le_bytes()); chacha::LANES];
        let key = chacha::subkeys(&self.stream, &nonces, self.rounds)[0];
        let mut hash = Sum::ZERO;
        let mut sums = [0; NH_PASSES];
        let mut block = 0;
        let mut counter = 0;
        while block < blocks {
            let stream = chacha::keystream(&key, NONCE, counter, self.rounds);
            let (masks, _) = stream.as_flattened().as_chunks::<4>();
            for mask in &masks[..masks.len().min(blocks - block)] {
                let mask = mask
                    .iter()
                    .rev()
                    .fold(0, |mask, &word| mask << 32 | u128::from(word));
                let out = xor(messages.load(message, block), mask);
                messages.store(message, block, out);
                nh::add(&mut sums, &self.nh, block % NH_CHUNK, out);
                block += 1;
            }
            counter += chacha::STEP;
            if block.is_multiple_of(NH_CHUNK) || block == blocks {
                hash = self.absorb(hash, sums);
                sums = [0; NH_PASSES];
            }
        }
        hash.low()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::vectors::{designers, kernel, unhex, vectors};
    use serde_json::Value;
    use std::vec::Vec;

    /// One message.
    struct One(Vec<u8>);

    impl Messages for One {
        fn load(&self, _: usize, block: usize) -> [u8; BLOCK] {
            self.0.as_chunks().0[block]
        }
        fn store(&mut self, _: usize, block: usize, bytes: [u8; BLOCK]) {
            self.0.as_chunks_mut().0[block] = bytes;
        }
    }

    /// Checks those of whole blocks with a tweak of 32 bytes, and returns how many they are.
    fn check(vectors: &[Value], rounds: usize) -> usize {
        let mut run = 0;
        for vector in vectors {
            let (plain, tweak) = (unhex(&vector["pt"]), unhex(&vector["tweak"]));
            // The tweak of a sector has 32 bytes.
            if !plain.len().is_multiple_of(BLOCK) || tweak.len() != 2 * BLOCK {
                continue;
            }
            run += 1;
            let keys = Adiantum::new(&unhex(&vector["key"]), rounds);
            let tweak = from_fn(|i| u128::from_le_bytes(tweak.as_chunks().0[i]));
            let blocks = plain.len() / BLOCK;
            let mut message = One(plain.clone());
            keys.crypt_some(&mut message, &[tweak], blocks, true);
            assert_eq!(message.0, unhex(&vector["ct"]), "key {}", vector["key"]);
            keys.crypt_some(&mut message, &[tweak], blocks, false);
            assert_eq!(message.0, plain, "key {}", vector["key"]);
        }
        run
    }

    /// Vectors with tweaks that no sector number gives.
    #[test]
    fn whole_tweaks() {
        assert_eq!(check(&vectors("xchacha12,aes-adiantum-plain64"), 12), 2);
        assert_eq!(check(&vectors("xchacha20,aes-adiantum-plain64"), 20), 2);
    }

    #[test]
    fn designers_vectors() {
        assert_eq!(check(&designers("xchacha12,aes-adiantum-plain64"), 12), 50);
        assert_eq!(check(&designers("xchacha20,aes-adiantum-plain64"), 20), 50);
    }

    /// The kernel's.
    #[test]
    #[ignore = "the kernel's vectors, in its source: make kernel-test"]
    fn kernel_vectors() {
        for (template, rounds) in [
            ("adiantum_xchacha12_aes_tv_template", 12),
            ("adiantum_xchacha20_aes_tv_template", 20),
        ] {
            assert!(check(&kernel(template, 6), rounds) >= 5);
        }
    }
}
