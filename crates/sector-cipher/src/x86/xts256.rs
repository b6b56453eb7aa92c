//! XTS-AES with 256-bit vectors (VAES, AVX2): 16 blocks, so eight vectors, in
//! flight. Otherwise as with 128-bit vectors: see `xts`.

use super::schedule::{RoundKeys, fresh, vectors};
use super::xts::{encrypt_ivs, load_ivs};
use crate::run::{BATCH, Sectors};
use crate::simd::{AesKeys, unroll};
use core::arch::x86_64::*;
use core::mem;

/// Vectors in flight.
const LANES: usize = 8;

/// Bytes in a vector.
const VECTOR: usize = 32;

/// Bytes in flight. Every sector is a multiple of as many, two times or more.
const GROUP: usize = LANES * VECTOR;

/// # Safety
/// The CPU has the features, and the keys are set for `ROUNDS`.
#[target_feature(enable = "aes,avx2,vaes,pclmulqdq,vpclmulqdq,sse4.1")]
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

/// [`round_on`] with 256-bit vectors, with or without other work.
macro_rules! round256 {
    ($instruction:literal, $x:expr, $key:expr, $round:expr) => {
        round256!($instruction, $x, $key, $round, "", "", "", "",)
    };
    ($($rest:tt)*) => {
        round_on!("vbroadcasti128", ymm_reg, __m256i, $($rest)*)
    };
}

/// A round in which mask `I` is kept for the end of the group, added to the
/// last round key, and replaced by the one for the next group of the sector:
/// times x^16, two bytes up, and those that fall out are reduced.
macro_rules! round_and_advance {
    ($instruction:literal, $x:expr, $keys:expr, $round:expr, $last_key:expr, $last:expr, $mask:expr) => {{
        let _carry: __m256i;
        round256!(
            $instruction, $x, $keys, $round,
            "vpsrldq {carry}, {mask}, 14",
            "vpclmulqdq {carry}, {carry}, {reduction}, 0x00",
            "vpxor {last}, {mask}, {last_key}",
            "vpslldq {mask}, {mask}, 2\nvpxor {mask}, {mask}, {carry}",
            mask = inout(ymm_reg) $mask,
            last = out(ymm_reg) $last,
            carry = out(ymm_reg) _carry,
            reduction = in(ymm_reg) reduction(),
            last_key = in(ymm_reg) $last_key,
        )
    }};
}

/// The same with the mask for the first group of the next sector: its tweak
/// times x^(2 `I`). See `times_power`.
macro_rules! round_and_spread {
    (
        $instruction:literal, $x:expr, $keys:expr, $round:expr, $last_key:expr, $last:expr, $mask:expr,
        $tweak:expr, $i:expr
    ) => {{
        let _carry: __m256i;
        round256!(
            $instruction, $x, $keys, $round,
            "vpxor {last}, {mask}, {last_key}\nvpsrlq {carry}, {tweak}, {right}",
            "vpslldq {mask}, {carry}, 8\nvpclmulqdq {carry}, {carry}, {reduction}, 0x01",
            "vpxor {mask}, {mask}, {carry}",
            "vpsllq {carry}, {tweak}, {left}\nvpxor {mask}, {mask}, {carry}",
            mask = inout(ymm_reg) $mask,
            last = out(ymm_reg) $last,
            carry = out(ymm_reg) _carry,
            tweak = in(ymm_reg) $tweak,
            reduction = in(ymm_reg) reduction(),
            last_key = in(ymm_reg) $last_key,
            left = const 2 * $i,
            right = const 64 - 2 * $i,
        )
    }};
}

/// One group of blocks. Its masks are there; it leaves those of the next group
/// of its sector; or, with `LAST`, those of the first group of the sector with
/// tweak `tweak`. With `FIRST` it encrypts `tweak`, beside its blocks.
///
/// # Safety
/// `src` can be read and `dst` written for `GROUP` bytes.
#[target_feature(enable = "aes,avx2,vaes,pclmulqdq,vpclmulqdq,sse4.1")]
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
    masks: &mut [__m256i; LANES],
    tweak: &mut __m128i,
) {
    let data = if ENCRYPT {
        &keys.encrypt
    } else {
        &keys.decrypt
    };
    let key = vectors(fresh(data));
    let first = _mm256_broadcastsi128_si256(key[0]);
    let last_key = _mm256_broadcastsi128_si256(key[ROUNDS]);
    let mut x = [_mm256_setzero_si256(); LANES];
    for i in 0..LANES {
        // SAFETY: vector i of the group.
        let blocks = unsafe { _mm256_loadu_si256(src.add(i * VECTOR).cast()) };
        x[i] = _mm256_xor_si256(_mm256_xor_si256(masks[i], first), blocks);
    }
    if FIRST {
        *tweak = _mm_xor_si128(*tweak, vectors(fresh(&keys.iv))[0]);
    }
    let next = if LAST {
        two_masks(*tweak)
    } else {
        _mm256_setzero_si256()
    };
    let mut last = [_mm256_setzero_si256(); LANES];
    // With the first eight rounds go the masks.
    macro_rules! rounds {
        ($instruction:literal) => {{
            unroll!(ROUND in 1 2 3 4 5 6 7 8, {
                const I: usize = ROUND - 1;
                if LAST {
                    round_and_spread!(
                        $instruction, x, data, ROUND, last_key, last[I], masks[I], next, I
                    );
                } else {
                    round_and_advance!($instruction, x, data, ROUND, last_key, last[I], masks[I]);
                }
                if FIRST {
                    round_of_one!("vaesenc", *tweak, &keys.iv, ROUND);
                }
            });
            unroll!(ROUND in 9 10 11 12 13, if ROUND < ROUNDS {
                round256!($instruction, x, data, ROUND);
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
        let blocks = if ENCRYPT {
            _mm256_aesenclast_epi128(x[i], last[i])
        } else {
            _mm256_aesdeclast_epi128(x[i], last[i])
        };
        // SAFETY: as above, and the destination may be written.
        unsafe { _mm256_storeu_si256(dst.add(i * VECTOR).cast(), blocks) };
    }
    if FIRST {
        round_of_one!("vaesenclast", *tweak, &keys.iv, ROUNDS);
    }
}

/// The polynomial that x^128 reduces to, x^7 + x^2 + x + 1, in each block.
#[target_feature(enable = "avx2")]
#[inline]
fn reduction() -> __m256i {
    _mm256_set_epi64x(0, 0x87, 0, 0x87)
}

/// The tweak, and the tweak times x.
#[target_feature(enable = "avx2,vpclmulqdq")]
#[inline]
fn two_masks(tweak: __m128i) -> __m256i {
    let tweak = _mm256_broadcastsi128_si256(tweak);
    let out = _mm256_srlv_epi64(tweak, _mm256_set_epi64x(63, 63, 64, 64));
    let left = _mm256_sllv_epi64(tweak, _mm256_set_epi64x(1, 1, 0, 0));
    reduce(left, out)
}

/// What was shifted to the left in each half, with what fell out of it.
#[target_feature(enable = "avx2,vpclmulqdq")]
#[inline]
fn reduce(left: __m256i, out: __m256i) -> __m256i {
    let carry = _mm256_clmulepi64_epi128::<0x01>(out, reduction());
    let across = _mm256_bslli_epi128::<8>(out);
    _mm256_xor_si256(_mm256_xor_si256(left, across), carry)
}

/// The masks of a sector's first group: its tweak times 1, x, ... x^15.
#[target_feature(enable = "avx2,vpclmulqdq")]
#[inline]
fn first_masks(tweak: __m128i) -> [__m256i; LANES] {
    let two = two_masks(tweak);
    [
        two,
        times_power::<2, 62>(two),
        times_power::<4, 60>(two),
        times_power::<6, 58>(two),
        times_power::<8, 56>(two),
        times_power::<10, 54>(two),
        times_power::<12, 52>(two),
        times_power::<14, 50>(two),
    ]
}

/// Each block times x^`N`; `REST` is 64 - `N`.
#[target_feature(enable = "avx2,vpclmulqdq")]
#[inline]
fn times_power<const N: i32, const REST: i32>(two: __m256i) -> __m256i {
    reduce(_mm256_slli_epi64::<N>(two), _mm256_srli_epi64::<REST>(two))
}
