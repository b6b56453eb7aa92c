//! AES-CBC. Decryption takes eight blocks of a sector at a time; encryption,
//! serial inside a sector, takes eight sectors side by side.

use super::schedule::{RoundKeys, fresh, vectors};
use super::xts::{encrypt_ivs, load_ivs};
use crate::run::{BATCH, BLOCK, Batch, Sectors};
use crate::simd::{AesKeys, unroll};
use core::arch::x86_64::*;

/// Blocks in flight. Every sector is a multiple of as many blocks.
const LANES: usize = 8;

/// IVs of a batch, encrypted if the mode wants it.
#[target_feature(enable = "aes,avx")]
#[inline]
fn ivs(keys: &AesKeys, batch: &Batch<'_>) -> [__m128i; BATCH] {
    if keys.encrypts_ivs() {
        // The ESSIV key is a SHA-256 digest: always AES-256.
        encrypt_ivs::<14>(&keys.iv, batch)
    } else {
        load_ivs(batch)
    }
}

/// # Safety
/// The CPU has the features, and the keys are set for `ROUNDS`.
#[target_feature(enable = "aes,avx,pclmulqdq,sse4.1")]
pub(super) unsafe fn encrypt<const ROUNDS: usize>(keys: &AesKeys, mut sectors: Sectors<'_, '_>) {
    let bytes = sectors.bytes();
    let mut batch = sectors.empty_batch();
    loop {
        sectors.fill(&mut batch);
        if batch.len() == 0 {
            return;
        }
        // Places without a sector go along: the time is that of one block's
        // latency, however many there are.
        let mut x = ivs(keys, &batch);
        for offset in (0..bytes).step_by(BLOCK) {
            let key = vectors(fresh(&keys.encrypt));
            for (x, sector) in x.iter_mut().zip(batch.sectors()) {
                // SAFETY: the block is inside the sector.
                let block = unsafe { _mm_loadu_si128(sector.src().add(offset).cast()) };
                *x = _mm_xor_si128(*x, block);
            }
            for x in &mut x {
                *x = _mm_xor_si128(*x, key[0]);
            }
            unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
                round!("vaesenc", x, &keys.encrypt, ROUND);
            });
            round!("vaesenclast", x, &keys.encrypt, ROUNDS);
            for (x, sector) in x.iter().zip(batch.sectors()) {
                // SAFETY: as above, and the destination may be written.
                unsafe { _mm_storeu_si128(sector.dst().add(offset).cast(), *x) };
            }
        }
    }
}

/// # Safety
/// The CPU has the features, and the keys are set for `ROUNDS`.
#[target_feature(enable = "aes,avx,pclmulqdq,sse4.1")]
pub(super) unsafe fn decrypt<const ROUNDS: usize>(keys: &AesKeys, mut sectors: Sectors<'_, '_>) {
    let bytes = sectors.bytes();
    let mut batch = sectors.empty_batch();
    loop {
        sectors.fill(&mut batch);
        if batch.len() == 0 {
            return;
        }
        for (sector, iv) in batch.sectors().iter().zip(ivs(keys, &batch)) {
            let mut previous = iv;
            for offset in (0..bytes).step_by(LANES * BLOCK) {
                let key = vectors(fresh(&keys.decrypt));
                let src = sector.src().wrapping_add(offset);
                let dst = sector.dst().wrapping_add(offset);
                let mut x = [_mm_setzero_si128(); LANES];
                // The last key and the block before, added in the last round.
                let mut last = x;
                for i in 0..LANES {
                    // SAFETY: block i of the group is inside the sector.
                    let block = unsafe { _mm_loadu_si128(src.add(i * BLOCK).cast()) };
                    x[i] = _mm_xor_si128(block, key[0]);
                    last[i] = _mm_xor_si128(previous, key[ROUNDS]);
                    previous = block;
                }
                unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
                    round!("vaesdec", x, &keys.decrypt, ROUND);
                });
                for i in 0..LANES {
                    let block = _mm_aesdeclast_si128(x[i], last[i]);
                    // SAFETY: as above, and the destination may be written.
                    unsafe { _mm_storeu_si128(dst.add(i * BLOCK).cast(), block) };
                }
            }
        }
    }
}
