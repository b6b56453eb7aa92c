//! XTS-AES (IEEE 1619-2007, clause 5) with 128-bit vectors: eight blocks of a
//! sector in flight. While a group of blocks is under way, the masks of the
//! next are worked out between its rounds, across sectors; and the tweaks of
//! the next eight sectors go through the rounds beside the first group of each
//! of these.

use super::schedule::{RoundKeys, fresh, vector, vectors};
use crate::run::{BATCH, BLOCK, Batch, Sectors};
use crate::simd::{AesKeys, unroll};
use core::arch::x86_64::*;
use core::mem;

/// Blocks in flight.
const LANES: usize = 8;

/// Bytes in flight. Every sector is a multiple of as many, four times or more.
const GROUP: usize = LANES * BLOCK;

/// # Safety
/// The CPU has the features, and the keys are set for `ROUNDS`.
#[target_feature(enable = "aes,avx,pclmulqdq,sse4.1")]
pub(super) unsafe fn crypt<const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &AesKeys,
    mut sectors: Sectors<'_, '_>,
) {
    let bytes = sectors.bytes();
    let mut batch = sectors.empty_batch();
    sectors.fill(&mut batch);
    if batch.len() == 0 {
        return;
    }
    let mut tweaks = encrypt_ivs::<ROUNDS>(&keys.iv, &batch);
    let mut masks = first_masks(tweaks[0]);
    let mut following = sectors.empty_batch();
    loop {
        if batch.len() == BATCH {
            sectors.fill(&mut following);
        }
        // Encrypted one with each sector of this batch, which is full then.
        let mut following_tweaks = load_ivs(&following);
        let with_tweaks = following.len() != 0;
        for (i, sector) in batch.sectors().iter().enumerate() {
            let last = bytes - GROUP;
            for offset in (0..last).step_by(GROUP) {
                // SAFETY: the group is inside the sector.
                unsafe {
                    let (src, dst) = (sector.src().add(offset), sector.dst().add(offset));
                    let tweak = &mut following_tweaks[i];
                    if offset == 0 && with_tweaks {
                        crypt_group::<ROUNDS, ENCRYPT, true, false>(
                            keys, src, dst, &mut masks, tweak,
                        );
                    } else {
                        crypt_group::<ROUNDS, ENCRYPT, false, false>(
                            keys, src, dst, &mut masks, tweak,
                        );
                    }
                }
            }
            let next = if i + 1 < BATCH {
                &mut tweaks[i + 1]
            } else {
                &mut following_tweaks[0]
            };
            // SAFETY: as above.
            unsafe {
                let (src, dst) = (sector.src().add(last), sector.dst().add(last));
                crypt_group::<ROUNDS, ENCRYPT, false, true>(keys, src, dst, &mut masks, next);
            }
        }
        if following.len() == 0 {
            return;
        }
        mem::swap(&mut batch, &mut following);
        following.clear();
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
    let key = vectors(fresh(key));
    let mut x = _mm_xor_si128(x, key[0]);
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
        x = _mm_aesenc_si128(x, key[ROUND]);
    });
    _mm_aesenclast_si128(x, key[ROUNDS])
}

/// AES on eight blocks side by side.
#[target_feature(enable = "aes,avx")]
#[inline]
fn encrypt_eight<const ROUNDS: usize>(keys: &RoundKeys, x: &mut [__m128i; LANES]) {
    let first = vectors(fresh(keys))[0];
    for x in x.iter_mut() {
        *x = _mm_xor_si128(*x, first);
    }
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
        round!("vaesenc", x, keys, ROUND);
    });
    round!("vaesenclast", x, keys, ROUNDS);
}

/// A round in which mask `I` is kept for the end of the group, added to the
/// last round key, and replaced by the one for the next group of the sector:
/// times x^8, one byte up, and the byte that falls out is reduced.
macro_rules! round_and_advance {
    ($instruction:literal, $x:expr, $keys:expr, $round:expr, $rounds:expr, $last:expr, $mask:expr) => {
        round!(
            $instruction, $x, $keys, $round,
            "vpsrldq {carry}, {mask}, 15",
            "vpclmulqdq {carry}, {carry}, {reduction}, 0x00",
            "vpxor {last}, {mask}, xmmword ptr [{key} + {last_key}]",
            "vpslldq {mask}, {mask}, 1\nvpxor {mask}, {mask}, {carry}",
            mask = inout(xmm_reg) $mask,
            last = out(xmm_reg) $last,
            carry = out(xmm_reg) _,
            reduction = in(xmm_reg) reduction(),
            last_key = const 16 * ($rounds),
        )
    };
}

/// The same with the mask for the first group of the next sector: its tweak
/// times x^`I`. See `times_power`.
macro_rules! round_and_spread {
    (
        $instruction:literal, $x:expr, $keys:expr, $round:expr, $rounds:expr, $last:expr, $mask:expr,
        $tweak:expr, $i:expr
    ) => {
        round!(
            $instruction, $x, $keys, $round,
            "vpxor {last}, {mask}, xmmword ptr [{key} + {last_key}]\nvpsrlq {carry}, {tweak}, {right}",
            "vpslldq {mask}, {carry}, 8\nvpclmulqdq {carry}, {carry}, {reduction}, 0x01",
            "vpxor {mask}, {mask}, {carry}",
            "vpsllq {carry}, {tweak}, {left}\nvpxor {mask}, {mask}, {carry}",
            mask = inout(xmm_reg) $mask,
            last = out(xmm_reg) $last,
            carry = out(xmm_reg) _,
            tweak = in(xmm_reg) $tweak,
            reduction = in(xmm_reg) reduction(),
            last_key = const 16 * ($rounds),
            left = const $i,
            right = const 64 - $i,
        )
    };
}

/// One group of blocks. Its masks are there; it leaves those of the next group
/// of its sector; or, with `LAST`, those of the first group of the sector with
/// tweak `tweak`. With `FIRST` it encrypts `tweak`, beside its blocks.
///
/// # Safety
/// `src` can be read and `dst` written for eight blocks.
#[target_feature(enable = "aes,avx,pclmulqdq,sse4.1")]
#[inline]
unsafe fn crypt_group<
    const ROUNDS: usize,
    const ENCRYPT: bool,
    const FIRST: bool,
    const LAST: bool,
>(
    keys: &AesKeys,
    src: *const u8,
    dst: *mut u8,
    masks: &mut [__m128i; LANES],
    tweak: &mut __m128i,
) {
    let data = if ENCRYPT {
        &keys.encrypt
    } else {
        &keys.decrypt
    };
    let first = vectors(fresh(data))[0];
    let mut x = [_mm_setzero_si128(); LANES];
    for i in 0..LANES {
        // SAFETY: block i of the group.
        let block = unsafe { _mm_loadu_si128(src.add(i * BLOCK).cast()) };
        x[i] = _mm_xor_si128(_mm_xor_si128(masks[i], first), block);
    }
    if FIRST {
        *tweak = _mm_xor_si128(*tweak, vectors(fresh(&keys.iv))[0]);
    }
    let mut last = [_mm_setzero_si128(); LANES];
    // With the first eight rounds go the masks.
    macro_rules! rounds {
        ($instruction:literal) => {{
            unroll!(ROUND in 1 2 3 4 5 6 7 8, {
                const I: usize = ROUND - 1;
                if LAST {
                    round_and_spread!(
                        $instruction, x, data, ROUND, ROUNDS, last[I], masks[I], *tweak, I
                    );
                } else {
                    round_and_advance!($instruction, x, data, ROUND, ROUNDS, last[I], masks[I]);
                }
                if FIRST {
                    round_of_one!("vaesenc", *tweak, &keys.iv, ROUND);
                }
            });
            unroll!(ROUND in 9 10 11 12 13, if ROUND < ROUNDS {
                round!($instruction, x, data, ROUND);
                if FIRST {
                    round_of_one!("vaesenc", *tweak, &keys.iv, ROUND);
                }
            });
        }};
    }
    if ENCRYPT {
        rounds!("vaesenc");
    } else {
        rounds!("vaesdec");
    }
    for i in 0..LANES {
        let block = if ENCRYPT {
            _mm_aesenclast_si128(x[i], last[i])
        } else {
            _mm_aesdeclast_si128(x[i], last[i])
        };
        // SAFETY: as above, and the destination may be written.
        unsafe { _mm_storeu_si128(dst.add(i * BLOCK).cast(), block) };
    }
    if FIRST {
        round_of_one!("vaesenclast", *tweak, &keys.iv, ROUNDS);
    }
}

/// The polynomial that x^128 reduces to: x^7 + x^2 + x + 1.
#[target_feature(enable = "avx")]
#[inline]
fn reduction() -> __m128i {
    _mm_set_epi64x(0, 0x87)
}

/// The masks of a sector's first group: its tweak times 1, x, ... x^7.
#[target_feature(enable = "avx,pclmulqdq")]
#[inline]
fn first_masks(tweak: __m128i) -> [__m128i; LANES] {
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
