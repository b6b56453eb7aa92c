//! Counter mode, as the hash-counter-hash ciphers have it: over part of a
//! sector, handing out what goes in and what comes out.

use super::aes::Aes;
use crate::here::ZipHere;
use crate::run::{BATCH, Batch};
use aes_soft::ParBlocks;
use core::ops::Range;

/// Adds the keystream to the blocks in `range` of a sector. The i-th of them,
/// from 0 on, gets the encryption of `counter(i)`; `output` sees what it has
/// become.
pub(super) fn counter_mode(
    aes: &Aes,
    batch: &mut Batch<'_>,
    sector: usize,
    range: Range<usize>,
    counter: impl Fn(u32) -> u128,
    mut output: impl FnMut(u128),
) {
    let mut counters = (0_u32..).map(counter);
    for start in range.clone().step_by(BATCH) {
        let mut keystream = ParBlocks::default();
        for (block, counter) in keystream.iter_mut().zip_here(&mut counters) {
            *block = counter.to_le_bytes().into();
        }
        aes.encrypt(&mut keystream);
        for (i, mask) in (start..range.end).zip_here(keystream) {
            let block = batch.load(sector, i);
            let block = u128::from_le_bytes(block) ^ u128::from_le_bytes(mask.into());
            batch.store(sector, i, block.to_le_bytes());
            output(block);
        }
    }
}

/// XCTR, the counter mode of HCTR2 and FAST: the counters are `start` and, from
/// one on, the number of the block, added without carries.
pub(super) fn xctr(
    aes: &Aes,
    batch: &mut Batch<'_>,
    sector: usize,
    range: Range<usize>,
    start: u128,
    output: impl FnMut(u128),
) {
    let counter = |i| start ^ u128::from(i + 1);
    counter_mode(aes, batch, sector, range, counter, output);
}
