//! XTS-AES: IEEE 1619-2007, clause 5.

use super::aes::Aes;
use super::xor;
use crate::here::from_fn;
use crate::run::{BATCH, BLOCK, Sectors};
use crate::shared::double;
use aes_soft::ParBlocks;

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

    pub(crate) fn crypt(&self, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
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
                    let masks: [u128; BATCH] = from_fn(|_| {
                        let mask = tweak;
                        tweak = double(tweak);
                        mask
                    });
                    let mut blocks = ParBlocks::default();
                    for (i, block) in blocks.iter_mut().enumerate() {
                        *block = xor(batch.load(sector, start + i), masks[i]).into();
                    }
                    if encrypt {
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
