//! The AES key schedule (FIPS 197, section 5.2) with `aeskeygenassist` and
//! `aesimc`, in place.

use crate::simd;
use core::arch::x86_64::*;

pub(super) use crate::simd::{RoundKeys, fresh};

/// A block as a vector.
#[inline(always)]
pub(super) fn vector(block: u128) -> __m128i {
    // SAFETY: sixteen bytes of plain data either way.
    unsafe { core::mem::transmute::<u128, __m128i>(block) }
}

/// Expands a key.
#[target_feature(enable = "aes,avx")]
pub(super) fn expand(key: &[u8], round_keys: &mut RoundKeys) {
    simd::expand(key, round_keys, |word| {
        let word = _mm_set1_epi32(word.cast_signed());
        _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(word)).cast_unsigned()
    });
}

/// Round keys for the equivalent inverse cipher (FIPS 197, section 5.3.5).
#[target_feature(enable = "aes,avx")]
pub(super) fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys) {
    encrypt.invert(decrypt, |key, inverse| {
        // SAFETY: a round key is sixteen bytes.
        unsafe {
            let key = _mm_aesimc_si128(_mm_loadu_si128(key.as_ptr().cast()));
            _mm_storeu_si128(inverse.as_mut_ptr().cast(), key);
        }
    });
}
