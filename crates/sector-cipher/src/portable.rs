//! The portable back-end: RustCrypto's fixsliced AES, which has no table
//! look-ups and no branches on data, so that its time does not depend on
//! secrets. It encrypts several blocks side by side in machine words; blocks of
//! one sector, tweaks of several sectors and, for the serial CBC encryption,
//! several sectors fill these places.
//!
//! It is software on every CPU: `aes` 0.7 has that as a Cargo feature, while
//! later releases use the CPU's AES instructions whenever they find them. So
//! this is a true second implementation beside every hardware back-end.

use crate::run::{BATCH, BLOCK, Batch, Sectors};
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
enum Aes {
    Aes128(Aes128),
    Aes192(Aes192),
    Aes256(Aes256),
}

impl Aes {
    /// `key` has 16, 24 or 32 bytes.
    fn new(key: &[u8]) -> Self {
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

    fn encrypt(&self, blocks: &mut ParBlocks) {
        match self {
            Self::Aes128(aes) => aes.encrypt_par_blocks(blocks),
            Self::Aes192(aes) => aes.encrypt_par_blocks(blocks),
            Self::Aes256(aes) => aes.encrypt_par_blocks(blocks),
        }
    }

    fn decrypt(&self, blocks: &mut ParBlocks) {
        match self {
            Self::Aes128(aes) => aes.decrypt_par_blocks(blocks),
            Self::Aes192(aes) => aes.decrypt_par_blocks(blocks),
            Self::Aes256(aes) => aes.decrypt_par_blocks(blocks),
        }
    }

    /// Encrypts the IVs of a batch. A lone one has a call of its own, which
    /// costs half of a full one.
    fn encrypt_ivs(&self, ivs: &mut [u128; BATCH], used: usize) {
        if used == 1 {
            let mut block: Block = ivs[0].to_le_bytes().into();
            match self {
                Self::Aes128(aes) => aes.encrypt_block(&mut block),
                Self::Aes192(aes) => aes.encrypt_block(&mut block),
                Self::Aes256(aes) => aes.encrypt_block(&mut block),
            }
            ivs[0] = u128::from_le_bytes(block.into());
            return;
        }
        let mut blocks = ParBlocks::default();
        for (block, iv) in blocks.iter_mut().zip(&*ivs) {
            *block = iv.to_le_bytes().into();
        }
        self.encrypt(&mut blocks);
        for (block, iv) in blocks.into_iter().zip(ivs) {
            *iv = u128::from_le_bytes(block.into());
        }
    }
}

/// XTS-AES: IEEE 1619-2007, clause 5.
pub(crate) struct Xts {
    data: Aes,
    tweak: Aes,
}

impl Xts {
    /// `key` is two AES keys of equal length, the data key first.
    pub(crate) fn new(key: &[u8]) -> Self {
        let (data, tweak) = key.split_at(key.len() / 2);
        Self {
            data: Aes::new(data),
            tweak: Aes::new(tweak),
        }
    }

    pub(crate) fn crypt<const ENCRYPT: bool>(&self, mut sectors: Sectors<'_, '_>) {
        let blocks_per_sector = sectors.bytes() / BLOCK;
        let mut batch = sectors.empty_batch();
        loop {
            sectors.fill(&mut batch);
            if batch.len() == 0 {
                return;
            }
            let mut tweaks = *batch.ivs();
            self.tweak.encrypt_ivs(&mut tweaks, batch.len());
            for (sector, &first) in tweaks.iter().enumerate().take(batch.len()) {
                let mut tweak = first;
                for start in (0..blocks_per_sector).step_by(BATCH) {
                    let masks: [u128; BATCH] = core::array::from_fn(|_| {
                        let mask = tweak;
                        tweak = double(tweak);
                        mask
                    });
                    let mut blocks = ParBlocks::default();
                    for (i, block) in blocks.iter_mut().enumerate() {
                        *block = xor(batch.load(sector, start + i), masks[i]).into();
                    }
                    if ENCRYPT {
                        self.data.encrypt(&mut blocks);
                    } else {
                        self.data.decrypt(&mut blocks);
                    }
                    for (i, block) in blocks.into_iter().enumerate() {
                        batch.store(sector, start + i, xor(block.into(), masks[i]));
                    }
                }
            }
        }
    }
}

/// AES in CBC mode, its IV in the clear or encrypted (ESSIV).
pub(crate) struct Cbc {
    data: Aes,
    essiv: Option<Aes>,
}

impl Cbc {
    /// `key` has 16, 24 or 32 bytes, `essiv` is the key for the IVs.
    pub(crate) fn new(key: &[u8], essiv: Option<&[u8; 32]>) -> Self {
        Self {
            data: Aes::new(key),
            essiv: essiv.map(|key| Aes::new(key)),
        }
    }

    fn ivs(&self, batch: &Batch<'_>) -> [u128; BATCH] {
        let mut ivs = *batch.ivs();
        if let Some(essiv) = &self.essiv {
            essiv.encrypt_ivs(&mut ivs, batch.len());
        }
        ivs
    }

    /// Serial inside a sector: the places are filled with several sectors.
    pub(crate) fn encrypt(&self, mut sectors: Sectors<'_, '_>) {
        let blocks_per_sector = sectors.bytes() / BLOCK;
        let mut batch = sectors.empty_batch();
        loop {
            sectors.fill(&mut batch);
            if batch.len() == 0 {
                return;
            }
            let mut chain = ParBlocks::default();
            for (block, iv) in chain.iter_mut().zip(self.ivs(&batch)) {
                *block = iv.to_le_bytes().into();
            }
            for i in 0..blocks_per_sector {
                for sector in 0..batch.len() {
                    let previous = u128::from_le_bytes(chain[sector].into());
                    chain[sector] = xor(batch.load(sector, i), previous).into();
                }
                self.data.encrypt(&mut chain);
                for sector in 0..batch.len() {
                    batch.store(sector, i, chain[sector].into());
                }
            }
        }
    }

    pub(crate) fn decrypt(&self, mut sectors: Sectors<'_, '_>) {
        let blocks_per_sector = sectors.bytes() / BLOCK;
        let mut batch = sectors.empty_batch();
        loop {
            sectors.fill(&mut batch);
            if batch.len() == 0 {
                return;
            }
            let ivs = self.ivs(&batch);
            for (sector, &iv) in ivs.iter().enumerate().take(batch.len()) {
                let mut previous = iv;
                for start in (0..blocks_per_sector).step_by(BATCH) {
                    let mut blocks = ParBlocks::default();
                    let masks: [u128; BATCH] = core::array::from_fn(|i| {
                        let mask = previous;
                        let block = batch.load(sector, start + i);
                        previous = u128::from_le_bytes(block);
                        blocks[i] = block.into();
                        mask
                    });
                    self.data.decrypt(&mut blocks);
                    for (i, block) in blocks.into_iter().enumerate() {
                        batch.store(sector, start + i, xor(block.into(), masks[i]));
                    }
                }
            }
        }
    }
}

/// Times x in XTS's GF(2^128), without a branch on the carry.
fn double(tweak: u128) -> u128 {
    (tweak << 1) ^ ((tweak >> 127) * 0x87)
}

fn xor(block: [u8; BLOCK], mask: u128) -> [u8; BLOCK] {
    (u128::from_le_bytes(block) ^ mask).to_le_bytes()
}
