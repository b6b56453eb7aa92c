//! XTS-AES (IEEE 1619-2007, clause 5) with 128-bit vectors: eight blocks of a
//! sector in flight. The tweaks of the next eight sectors are encrypted, also
//! eight at a time, while the sectors before them are under way.

use super::schedule::{Keys, RoundKeys, fresh, vector};
use crate::run::{BATCH, BLOCK, Batch, Sector, Sectors};
use core::arch::x86_64::*;
use core::mem;

/// Blocks in flight. Every sector is a multiple of as many blocks.
const LANES: usize = 8;

/// # Safety
/// The CPU has the features, and the keys are set for `ROUNDS`.
#[target_feature(enable = "aes,avx,pclmulqdq,sse4.1")]
pub(super) unsafe fn crypt<const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &Keys,
    mut sectors: Sectors<'_, '_>,
) {
    let data = if ENCRYPT {
        &keys.encrypt
    } else {
        &keys.decrypt
    };
    let bytes = sectors.bytes();
    let mut batch = sectors.empty_batch();
    sectors.fill(&mut batch);
    let mut tweaks = encrypt_ivs::<ROUNDS>(&keys.iv, &batch);
    let mut following = sectors.empty_batch();
    while batch.len() != 0 {
        sectors.fill(&mut following);
        let following_tweaks = encrypt_ivs::<ROUNDS>(&keys.iv, &following);
        for (sector, tweak) in batch.sectors().iter().zip(tweaks) {
            // SAFETY: a sector of the stream, with its size.
            unsafe { crypt_sector::<ROUNDS, ENCRYPT>(data, sector, bytes, tweak) };
        }
        mem::swap(&mut batch, &mut following);
        tweaks = following_tweaks;
    }
}

/// The IVs of a batch as they are.
#[target_feature(enable = "avx")]
#[inline]
pub(super) fn load_ivs(batch: &Batch<'_>) -> [__m128i; BATCH] {
    batch.ivs().map(vector)
}

/// The IVs of a batch, encrypted.
#[target_feature(enable = "aes,avx")]
#[inline]
pub(super) fn encrypt_ivs<const ROUNDS: usize>(
    key: &RoundKeys,
    batch: &Batch<'_>,
) -> [__m128i; BATCH] {
    let mut x = load_ivs(batch);
    match batch.len() {
        0 => {}
        1 => x[0] = encrypt_one::<ROUNDS>(key, x[0]),
        _ => encrypt_eight::<ROUNDS>(key, &mut x),
    }
    x
}

/// AES on one block.
#[target_feature(enable = "aes,avx")]
#[inline]
fn encrypt_one<const ROUNDS: usize>(key: &RoundKeys, x: __m128i) -> __m128i {
    let key = fresh(key).vectors();
    let mut x = _mm_xor_si128(x, key[0]);
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
        x = _mm_aesenc_si128(x, key[ROUND]);
    });
    _mm_aesenclast_si128(x, key[ROUNDS])
}

/// AES on eight blocks side by side.
#[target_feature(enable = "aes,avx")]
#[inline]
fn encrypt_eight<const ROUNDS: usize>(key: &RoundKeys, x: &mut [__m128i; LANES]) {
    let key = fresh(key).vectors();
    for x in x.iter_mut() {
        *x = _mm_xor_si128(*x, key[0]);
    }
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
        round!("vaesenc", x, &key[ROUND]);
    });
    round!("vaesenclast", x, &key[ROUNDS]);
}

/// # Safety
/// `sector` has `bytes` bytes to read and to write, a multiple of 128.
#[target_feature(enable = "aes,avx,pclmulqdq,sse4.1")]
#[inline]
unsafe fn crypt_sector<const ROUNDS: usize, const ENCRYPT: bool>(
    key: &RoundKeys,
    sector: &Sector,
    bytes: usize,
    tweak: __m128i,
) {
    let mut masks = spread(tweak);
    let mut offset = 0;
    while offset < bytes {
        let key = fresh(key).vectors();
        let src = sector.src().wrapping_add(offset);
        let dst = sector.dst().wrapping_add(offset);
        let mut x = [_mm_setzero_si128(); LANES];
        for i in 0..LANES {
            // SAFETY: block i of the group is inside the sector.
            let block = unsafe { _mm_loadu_si128(src.add(i * BLOCK).cast()) };
            x[i] = _mm_xor_si128(_mm_xor_si128(masks[i], key[0]), block);
        }
        let mut last = [_mm_setzero_si128(); LANES];
        unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
            if ENCRYPT {
                round!("vaesenc", x, &key[ROUND]);
            } else {
                round!("vaesdec", x, &key[ROUND]);
            }
            if ROUND <= LANES {
                let i = ROUND - 1;
                last[i] = _mm_xor_si128(masks[i], key[ROUNDS]);
                masks[i] = times_x8(masks[i]);
            }
        });
        for i in 0..LANES {
            let block = if ENCRYPT {
                _mm_aesenclast_si128(x[i], last[i])
            } else {
                _mm_aesdeclast_si128(x[i], last[i])
            };
            // SAFETY: as above, and the destination may be written.
            unsafe { _mm_storeu_si128(dst.add(i * BLOCK).cast(), block) };
        }
        offset += LANES * BLOCK;
    }
}

/// The polynomial that x^128 reduces to: x^7 + x^2 + x + 1.
#[target_feature(enable = "avx")]
#[inline]
fn reduction() -> __m128i {
    _mm_set_epi64x(0, 0x87)
}

/// Times x^8: one byte up, and the byte that falls out is reduced.
#[target_feature(enable = "avx,pclmulqdq")]
#[inline]
fn times_x8(mask: __m128i) -> __m128i {
    let carry = _mm_srli_si128::<15>(mask);
    let carry = _mm_clmulepi64_si128::<0x00>(carry, reduction());
    _mm_xor_si128(_mm_slli_si128::<1>(mask), carry)
}

/// The tweak times 1, x, ... x^7.
#[target_feature(enable = "avx,pclmulqdq")]
#[inline]
fn spread(tweak: __m128i) -> [__m128i; LANES] {
    [
        tweak,
        times_power::<1, 63>(tweak),
        times_power::<2, 62>(tweak),
        times_power::<3, 61>(tweak),
        times_power::<4, 60>(tweak),
        times_power::<5, 59>(tweak),
        times_power::<6, 58>(tweak),
        times_power::<7, 57>(tweak),
    ]
}

/// Times x^`N`; `REST` is 64 - `N`.
#[target_feature(enable = "avx,pclmulqdq")]
#[inline]
fn times_power<const N: i32, const REST: i32>(tweak: __m128i) -> __m128i {
    let out = _mm_srli_epi64::<REST>(tweak);
    let carry = _mm_clmulepi64_si128::<0x01>(out, reduction());
    let across = _mm_slli_si128::<8>(out);
    _mm_xor_si128(_mm_xor_si128(_mm_slli_epi64::<N>(tweak), across), carry)
}
