//! AES for the portable back-end: one block, or eight side by side.

use crate::here::ZipHere;
use crate::run::BATCH;
use aes_soft::{
    Aes128, Aes192, Aes256, Block, BlockDecrypt, BlockEncrypt, NewBlockCipher, ParBlocks,
};

// Without the feature `force-soft` the types would hold vectors, aligned to 16
// bytes, for the CPU's instructions.
const _: () = assert!(
    align_of::<Aes128>() <= align_of::<u64>(),
    "the portable back-end needs `aes` with its feature `force-soft`"
);

/// AES with its key schedule for both directions.
pub(super) enum Aes {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

impl Aes {
    /// `key` has 16, 24 or 32 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        if let Ok(key) = <&[u8; 16]>::try_from(key) {
            Self::Aes128(Aes128::new(key.into()))
        } else if let Ok(key) = <&[u8; 24]>::try_from(key) {
            Self::Aes192(Aes192::new(key.into()))
        } else if let Ok(key) = <&[u8; 32]>::try_from(key) {
            Self::Aes256(Aes256::new(key.into()))
        } else {
            unreachable!("key lengths are checked before")
        }
    }

    pub(super) fn encrypt(&self, blocks: &mut ParBlocks) {
        match self {
            Self::Aes128(aes) => aes.encrypt_par_blocks(blocks),
            Self::Aes192(aes) => aes.encrypt_par_blocks(blocks),
            Self::Aes256(aes) => aes.encrypt_par_blocks(blocks),
        }
    }

    pub(super) fn decrypt(&self, blocks: &mut ParBlocks) {
        match self {
            Self::Aes128(aes) => aes.decrypt_par_blocks(blocks),
            Self::Aes192(aes) => aes.decrypt_par_blocks(blocks),
            Self::Aes256(aes) => aes.decrypt_par_blocks(blocks),
        }
    }

    /// One block, at half the price of eight.
    pub(super) fn encrypt_one(&self, block: u128) -> u128 {
        let mut block: Block = block.to_le_bytes().into();
        match self {
            Self::Aes128(aes) => aes.encrypt_block(&mut block),
            Self::Aes192(aes) => aes.encrypt_block(&mut block),
            Self::Aes256(aes) => aes.encrypt_block(&mut block),
        }
        u128::from_le_bytes(block.into())
    }

    /// The inverse of [`Self::encrypt_one`].
    pub(super) fn decrypt_one(&self, block: u128) -> u128 {
        let mut block: Block = block.to_le_bytes().into();
        match self {
            Self::Aes128(aes) => aes.decrypt_block(&mut block),
            Self::Aes192(aes) => aes.decrypt_block(&mut block),
            Self::Aes256(aes) => aes.decrypt_block(&mut block),
        }
        u128::from_le_bytes(block.into())
    }

    /// Encrypts the IVs of a batch. A lone one has a call of its own, which
    /// costs half of a full one.
    pub(super) fn encrypt_ivs(&self, ivs: &mut [u128; BATCH], used: usize) {
        if used == 1 {
            ivs[0] = self.encrypt_one(ivs[0]);
            return;
        }
        let mut blocks = ParBlocks::default();
        for (block, iv) in blocks.iter_mut().zip_here(&*ivs) {
            *block = iv.to_le_bytes().into();
        }
        self.encrypt(&mut blocks);
        for (block, iv) in blocks.into_iter().zip_here(ivs) {
            *iv = u128::from_le_bytes(block.into());
        }
    }
}
