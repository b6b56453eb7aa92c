//! Sectors as a whole: every block of a wide-block cipher's sector is read
//! before the first is written.

use super::aes::Aes;
use crate::here::ZipHere;
use crate::run::{BATCH, BLOCK, Sectors};
use aes_soft::ParBlocks;
use zeroize::Zeroize;

/// Blocks of the largest sector.
const BLOCKS: usize = 4096 / BLOCK;

/// Calls `crypt` with the tweak and the blocks, as little-endian integers, of
/// each sector, and puts back what it makes of them.
pub(super) fn for_each(sectors: &mut Sectors<'_, '_>, crypt: impl Fn(u128, &mut [u128])) {
    let mut buffer = [0; BLOCKS];
    let blocks = &mut buffer[..sectors.bytes() / BLOCK];
    let mut batch = sectors.empty_batch();
    loop {
        sectors.fill(&mut batch);
        if batch.len() == 0 {
            break;
        }
        for sector in 0..batch.len() {
            for (i, block) in blocks.iter_mut().enumerate() {
                *block = u128::from_le_bytes(batch.load(sector, i));
            }
            crypt(batch.ivs()[sector], blocks);
            for (i, block) in blocks.iter().enumerate() {
                batch.store(sector, i, block.to_le_bytes());
            }
        }
    }
    blocks.zeroize();
}

/// AES on each block.
pub(super) fn each(aes: &Aes, blocks: &mut [u128], encrypt: bool) {
    for blocks in blocks.chunks_mut(BATCH) {
        let mut side_by_side = ParBlocks::default();
        for (place, block) in side_by_side.iter_mut().zip_here(&*blocks) {
            *place = block.to_le_bytes().into();
        }
        if encrypt {
            aes.encrypt(&mut side_by_side);
        } else {
            aes.decrypt(&mut side_by_side);
        }
        for (place, block) in side_by_side.into_iter().zip_here(blocks) {
            *block = u128::from_le_bytes(place.into());
        }
    }
}
