//! AES-CBC. Decryption takes eight blocks of a sector at a time; encryption,
//! serial inside a sector, takes eight sectors side by side.

use super::schedule::{RoundKeys, fresh, vector, vectors};
use crate::run::{BATCH, BLOCK, Batch, Sectors};
use crate::simd::{AesKeys, unroll};
use core::arch::x86_64::*;

/// Blocks in flight. Every sector is a multiple of as many blocks.
const LANES: usize = 8;

/// One AES round on eight blocks side by side, with round key `$round` of
/// `$key`, loaded once. Assembly, because the compiler, seeing eight
/// independent chains, may put them one behind the other again.
macro_rules! round {
    ($instruction:literal, $x:expr, $key:expr, $round:expr) => {{
        let key: *const RoundKeys = $key;
        // SAFETY: computes on registers and reads one round key.
        unsafe {
            core::arch::asm!(
                "vmovdqa {k}, xmmword ptr [{key} + {offset}]",
                concat!($instruction, " {x0}, {x0}, {k}"),
                concat!($instruction, " {x1}, {x1}, {k}"),
                concat!($instruction, " {x2}, {x2}, {k}"),
                concat!($instruction, " {x3}, {x3}, {k}"),
                concat!($instruction, " {x4}, {x4}, {k}"),
                concat!($instruction, " {x5}, {x5}, {k}"),
                concat!($instruction, " {x6}, {x6}, {k}"),
                concat!($instruction, " {x7}, {x7}, {k}"),
                x0 = inout(xmm_reg) $x[0],
                x1 = inout(xmm_reg) $x[1],
                x2 = inout(xmm_reg) $x[2],
                x3 = inout(xmm_reg) $x[3],
                x4 = inout(xmm_reg) $x[4],
                x5 = inout(xmm_reg) $x[5],
                x6 = inout(xmm_reg) $x[6],
                x7 = inout(xmm_reg) $x[7],
                k = out(xmm_reg) _,
                key = in(reg) key,
                offset = const 16 * ($round),
                options(readonly, nostack, preserves_flags),
            );
        }
    }};
}

/// IVs of a batch, encrypted if the mode wants it.
#[target_feature(enable = "aes,avx")]
#[inline]
fn ivs(keys: &AesKeys, batch: &Batch<'_>) -> [__m128i; BATCH] {
    let mut x = batch.ivs().map(vector);
    if keys.encrypts_ivs() {
        let first = vectors(fresh(&keys.iv))[0];
        for x in &mut x {
            *x = _mm_xor_si128(*x, first);
        }
        // The ESSIV key is a SHA-256 digest: always AES-256.
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, round!("vaesenc", x, &keys.iv, ROUND));
        round!("vaesenclast", x, &keys.iv, 14);
    }
    x
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
