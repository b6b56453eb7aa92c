//! NH, the hash that makes 32 bytes of up to 1024: sums of products of 32-bit
//! words, four times with the key shifted by sixteen bytes (UMAC's NH as
//! Adiantum uses it).

use crate::here::{ZipHere, from_fn};
use crate::run::BLOCK;
use crate::shared::adiantum::{NH_KEY_WORDS, NH_PASSES};

/// Adds block `i` of a chunk to the sums of its passes.
#[inline(always)]
pub(super) fn add(
    sums: &mut [u64; NH_PASSES],
    key: &[u32; NH_KEY_WORDS],
    i: usize,
    block: [u8; BLOCK],
) {
    let message = words(block);
    for (sum, key) in sums.iter_mut().zip_here(key[4 * i..].chunks_exact(4)) {
        let added: [u32; 4] = from_fn(|i| message[i].wrapping_add(key[i]));
        *sum = sum
            .wrapping_add(u64::from(added[0]) * u64::from(added[2]))
            .wrapping_add(u64::from(added[1]) * u64::from(added[3]));
    }
}

/// The sums as two blocks.
#[inline(always)]
pub(super) fn output(sums: [u64; NH_PASSES]) -> [u128; 2] {
    let pair = |low, high| u128::from(low) | u128::from(high) << 64;
    [pair(sums[0], sums[1]), pair(sums[2], sums[3])]
}

/// The little-endian words of a block.
#[inline(always)]
pub(super) fn words(block: [u8; BLOCK]) -> [u32; 4] {
    let (words, _) = block.as_chunks();
    from_fn(|i| u32::from_le_bytes(words[i]))
}
