//! XTS-AES with 512-bit vectors (VAES, AVX-512): 32 blocks, so eight vectors,
//! in flight. While a group of blocks is under way, the masks of the next are
//! worked out between its rounds; and the tweaks of the next eight sectors go
//! through the rounds together with one group, in two more vectors.

use super::schedule::{RoundKeys, fresh, vector, vectors};
use crate::run::{BATCH, Batch, Sectors};
use crate::simd::{AesKeys, unroll};
use core::arch::x86_64::*;
use core::mem;

/// Vectors in flight.
const LANES: usize = 8;

/// Bytes in a vector.
const VECTOR: usize = 64;

/// Bytes in flight. Every sector is a multiple of as many.
const GROUP: usize = LANES * VECTOR;

/// `round_on` with 512-bit vectors, with or without other work.
macro_rules! round512 {
    ($instruction:literal, $x:expr, $key:expr, $round:expr) => {
        round512!($instruction, $x, $key, $round, "", "", "", "",)
    };
    ($($rest:tt)*) => {
        round_on!("vbroadcasti32x4", zmm_reg, __m512i, $($rest)*)
    };
}

/// A round in which `$next` becomes `$mask` times x^(8 `$bytes`): so many bytes
/// up, and what falls out is reduced.
macro_rules! round512_times_bytes {
    ($instruction:literal, $x:expr, $key:expr, $round:expr, $next:expr, $mask:expr, $bytes:expr) => {{
        let _carry: __m512i;
        round512!(
            $instruction, $x, $key, $round,
            "vpsrldq {carry}, {mask}, {right}",
            "vpclmulqdq {carry}, {carry}, {reduction}, 0x00",
            "vpslldq {next}, {mask}, {left}",
            "vpxorq {next}, {next}, {carry}",
            mask = in(zmm_reg) $mask,
            next = out(zmm_reg) $next,
            carry = out(zmm_reg) _carry,
            reduction = in(zmm_reg) reduction(),
            left = const $bytes,
            right = const 16 - $bytes,
        )
    }};
}

/// A round in which `$next` becomes the tweak, which is in each block, times
/// four powers of x from `$power` on. See `times_powers`.
macro_rules! round512_times_powers {
    ($instruction:literal, $x:expr, $key:expr, $round:expr, $next:expr, $tweak:expr, $power:expr) => {{
        let (left, right) = powers($power);
        let (_carry, _across): (__m512i, __m512i);
        round512!(
            $instruction, $x, $key, $round,
            "vpsrlvq {carry}, {tweak}, {right}\nvpsllvq {next}, {tweak}, {left}",
            "vpslldq {across}, {carry}, 8",
            "vpclmulqdq {carry}, {carry}, {reduction}, 0x01",
            "vpternlogq {next}, {across}, {carry}, 0x96",
            tweak = in(zmm_reg) $tweak,
            next = out(zmm_reg) $next,
            carry = out(zmm_reg) _carry,
            across = out(zmm_reg) _across,
            reduction = in(zmm_reg) reduction(),
            left = in(zmm_reg) left,
            right = in(zmm_reg) right,
        )
    }};
}

/// One AES round on two vectors.
macro_rules! round512_of_two {
    ($instruction:literal, $x:expr, $key:expr, $round:expr) => {{
        let key: *const RoundKeys = $key;
        let _round_key: __m512i;
        // SAFETY: computes on registers and reads one round key.
        unsafe {
            core::arch::asm!(
                "vbroadcasti32x4 {k}, xmmword ptr [{key} + {offset}]",
                concat!($instruction, " {x0}, {x0}, {k}"),
                concat!($instruction, " {x1}, {x1}, {k}"),
                x0 = inout(zmm_reg) $x[0],
                x1 = inout(zmm_reg) $x[1],
                k = out(zmm_reg) _round_key,
                key = in(reg) key,
                offset = const 16 * ($round),
                options(readonly, nostack, preserves_flags),
            );
        }
    }};
}

/// Tweaks of a batch, for vector loads.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Tweaks([u128; BATCH]);

/// # Safety
/// The CPU has the features, and the keys are set for `ROUNDS`.
#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
pub(super) unsafe fn crypt<const ROUNDS: usize, const ENCRYPT: bool>(
    keys: &AesKeys,
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
    if batch.len() == 0 {
        return;
    }
    let mut tweaks = encrypt_ivs::<ROUNDS>(&keys.iv, &batch);
    let mut masks = first_masks(tweaks.0[0]);
    let mut following = sectors.empty_batch();
    loop {
        if batch.len() == BATCH {
            sectors.fill(&mut following);
        }
        let mut work = Work {
            data,
            iv: &keys.iv,
            masks,
            following: Tweaks(*following.ivs()),
        };
        let mut with_tweaks = following.len() != 0;
        for (i, sector) in batch.sectors().iter().enumerate() {
            let mut offset = 0;
            while offset < bytes {
                let src = sector.src().wrapping_add(offset);
                let dst = sector.dst().wrapping_add(offset);
                offset += GROUP;
                // SAFETY: the group is inside the sector.
                unsafe {
                    if offset < bytes {
                        if with_tweaks {
                            work.group::<ROUNDS, ENCRYPT, true, false>(src, dst, 0);
                        } else {
                            work.group::<ROUNDS, ENCRYPT, false, false>(src, dst, 0);
                        }
                    } else if with_tweaks {
                        work.group::<ROUNDS, ENCRYPT, true, true>(src, dst, tweaks.0[1]);
                    } else {
                        let next = if i + 1 < BATCH {
                            tweaks.0[i + 1]
                        } else {
                            work.following.0[0]
                        };
                        work.group::<ROUNDS, ENCRYPT, false, true>(src, dst, next);
                    }
                }
                with_tweaks = false;
            }
        }
        if following.len() == 0 {
            return;
        }
        masks = work.masks;
        tweaks = work.following;
        mem::swap(&mut batch, &mut following);
        following.clear();
    }
}

/// The IVs of a batch, encrypted.
#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
#[inline]
fn encrypt_ivs<const ROUNDS: usize>(key: &RoundKeys, batch: &Batch<'_>) -> Tweaks {
    let mut tweaks = Tweaks(*batch.ivs());
    let first = broadcast(&vectors(fresh(key))[0]);
    let mut x = load_tweaks(&tweaks).map(|x| _mm512_xor_si512(x, first));
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
        round512_of_two!("vaesenc", x, key, ROUND);
    });
    round512_of_two!("vaesenclast", x, key, ROUNDS);
    store_tweaks(&mut tweaks, x);
    tweaks
}

/// What lives from group to group.
struct Work<'k> {
    data: &'k RoundKeys,
    iv: &'k RoundKeys,
    masks: [__m512i; LANES],
    /// IVs of the next batch, encrypted by the first group with tweaks.
    following: Tweaks,
}

impl Work<'_> {
    /// One group of blocks. Its masks are there; it leaves those of the next
    /// group of its sector, or, at the end of a sector, those of the first
    /// group of the sector with tweak `next`.
    ///
    /// # Safety
    /// `src` can be read and `dst` written for `GROUP` bytes.
    #[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
    #[inline]
    unsafe fn group<
        const ROUNDS: usize,
        const ENCRYPT: bool,
        const WITH_TWEAKS: bool,
        const LAST: bool,
    >(
        &mut self,
        src: *const u8,
        dst: *mut u8,
        next: u128,
    ) {
        let key = vectors(fresh(self.data));
        let masks = self.masks;
        let first = broadcast(&key[0]);
        let mut x = [_mm512_setzero_si512(); LANES];
        for i in 0..LANES {
            // SAFETY: vector i of the group.
            let blocks = unsafe { _mm512_loadu_si512(src.add(i * VECTOR).cast()) };
            x[i] = xor3(masks[i], first, blocks);
        }
        let mut tweaks = [_mm512_setzero_si512(); 2];
        if WITH_TWEAKS {
            let first = broadcast(&vectors(fresh(self.iv))[0]);
            tweaks = load_tweaks(&self.following).map(|x| _mm512_xor_si512(x, first));
        }
        let next = spread_source(next);
        let mut next_masks = [_mm512_setzero_si512(); LANES];
        // With the first eight rounds go the masks.
        macro_rules! rounds {
            ($instruction:literal) => {{
                unroll!(ROUND in 1 2 3 4 5 6 7 8, {
                    const I: usize = ROUND - 1;
                    if !LAST {
                        round512_times_bytes!(
                            $instruction, x, self.data, ROUND, next_masks[I], masks[I], 4
                        );
                    } else if I < 2 {
                        round512_times_powers!(
                            $instruction, x, self.data, ROUND, next_masks[I], next, 4 * I as i64
                        );
                    } else {
                        round512_times_bytes!(
                            $instruction, x, self.data, ROUND, next_masks[I], next_masks[I % 2], I / 2
                        );
                    }
                    if WITH_TWEAKS {
                        round512_of_two!("vaesenc", tweaks, self.iv, ROUND);
                    }
                });
                unroll!(ROUND in 9 10 11 12 13, if ROUND < ROUNDS {
                    round512!($instruction, x, self.data, ROUND);
                    if WITH_TWEAKS {
                        round512_of_two!("vaesenc", tweaks, self.iv, ROUND);
                    }
                });
            }};
        }
        if ENCRYPT {
            rounds!("vaesenc");
        } else {
            rounds!("vaesdec");
        }
        let last = broadcast(&key[ROUNDS]);
        for i in 0..LANES {
            let mask = _mm512_xor_si512(masks[i], last);
            let blocks = if ENCRYPT {
                _mm512_aesenclast_epi128(x[i], mask)
            } else {
                _mm512_aesdeclast_epi128(x[i], mask)
            };
            // SAFETY: as above, and the destination may be written.
            unsafe { _mm512_storeu_si512(dst.add(i * VECTOR).cast(), blocks) };
        }
        self.masks = next_masks;
        if WITH_TWEAKS {
            round512_of_two!("vaesenclast", tweaks, self.iv, ROUNDS);
            store_tweaks(&mut self.following, tweaks);
        }
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load_tweaks(tweaks: &Tweaks) -> [__m512i; 2] {
    let base: *const Tweaks = tweaks;
    // SAFETY: 128 bytes, aligned.
    unsafe {
        [
            _mm512_load_si512(base.cast()),
            _mm512_load_si512(base.cast::<__m512i>().add(1)),
        ]
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store_tweaks(tweaks: &mut Tweaks, x: [__m512i; 2]) {
    let base: *mut Tweaks = tweaks;
    // SAFETY: 128 bytes, aligned.
    unsafe {
        _mm512_store_si512(base.cast(), x[0]);
        _mm512_store_si512(base.cast::<__m512i>().add(1), x[1]);
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn broadcast(block: &__m128i) -> __m512i {
    _mm512_broadcast_i32x4(*block)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}

/// The polynomial that x^128 reduces to, x^7 + x^2 + x + 1, in each block.
#[target_feature(enable = "avx512f")]
#[inline]
fn reduction() -> __m512i {
    broadcast(&_mm_set_epi64x(0, 0x87))
}

/// Each block times x^(8 `BYTES`); `REST` is 16 - `BYTES`. At most 7 bytes.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
#[inline]
fn times_bytes<const BYTES: i32, const REST: i32>(masks: __m512i) -> __m512i {
    let carry = _mm512_bsrli_epi128::<REST>(masks);
    let carry = _mm512_clmulepi64_epi128::<0x00>(carry, reduction());
    _mm512_xor_si512(_mm512_bslli_epi128::<BYTES>(masks), carry)
}

/// A tweak in each block.
#[target_feature(enable = "avx512f")]
#[inline]
fn spread_source(tweak: u128) -> __m512i {
    broadcast(&vector(tweak))
}

/// The shift counts for a block times four powers of x from `power` on: to the
/// left, and of what falls out to the right (by 64 is by all: zero).
#[target_feature(enable = "avx512f")]
#[inline]
fn powers(power: i64) -> (__m512i, __m512i) {
    let [p0, p1, p2, p3] = [power, power + 1, power + 2, power + 3];
    let left = _mm512_set_epi64(p3, p3, p2, p2, p1, p1, p0, p0);
    (left, _mm512_sub_epi64(_mm512_set1_epi64(64), left))
}

/// A tweak, which is in each block, times the powers of x from `power` on.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
#[inline]
fn times_powers(tweak: __m512i, power: i64) -> __m512i {
    let (left, right) = powers(power);
    let out = _mm512_srlv_epi64(tweak, right);
    let carry = _mm512_clmulepi64_epi128::<0x01>(out, reduction());
    let across = _mm512_bslli_epi128::<8>(out);
    xor3(_mm512_sllv_epi64(tweak, left), across, carry)
}

/// Vector `I` of a sector's first masks; those before it are in `masks`.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
#[inline]
fn spread<const I: usize>(tweak: __m512i, masks: &[__m512i; LANES]) -> __m512i {
    match I {
        0 => times_powers(tweak, 0),
        1 => times_powers(tweak, 4),
        2 => times_bytes::<1, 15>(masks[0]),
        3 => times_bytes::<1, 15>(masks[1]),
        4 => times_bytes::<2, 14>(masks[0]),
        5 => times_bytes::<2, 14>(masks[1]),
        6 => times_bytes::<3, 13>(masks[0]),
        _ => times_bytes::<3, 13>(masks[1]),
    }
}

/// The masks of a sector's first group.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
#[inline]
fn first_masks(tweak: u128) -> [__m512i; LANES] {
    let tweak = spread_source(tweak);
    let mut masks = [_mm512_setzero_si512(); LANES];
    unroll!(I in 0 1 2 3 4 5 6 7, masks[I] = spread::<I>(tweak, &masks));
    masks
}
