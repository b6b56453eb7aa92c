//! AES-CBC, for old containers.

use super::aes::Aes;
use super::xor;
use crate::here::{ZipHere, from_fn};
use crate::run::{BATCH, BLOCK, Batch, Sectors};
use aes_soft::ParBlocks;

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

    pub(super) fn crypt(&self, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
        if encrypt {
            self.encrypt(sectors);
        } else {
            self.decrypt(sectors);
        }
    }

    /// Serial inside a sector: the places are filled with several sectors.
    fn encrypt(&self, sectors: &mut Sectors<'_, '_>) {
        let blocks_per_sector = sectors.bytes() / BLOCK;
        let mut batch = sectors.empty_batch();
        loop {
            sectors.fill(&mut batch);
            if batch.len() == 0 {
                return;
            }
            let mut chain = ParBlocks::default();
            for (block, iv) in chain.iter_mut().zip_here(self.ivs(&batch)) {
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

    fn decrypt(&self, sectors: &mut Sectors<'_, '_>) {
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
                    let masks: [u128; BATCH] = from_fn(|i| {
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
