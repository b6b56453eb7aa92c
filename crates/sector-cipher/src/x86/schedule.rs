//! The AES key schedule (FIPS 197, section 5.2) with `aeskeygenassist` and
//! `aesimc`, in place.

use core::arch::x86_64::*;

pub(super) use crate::simd::RoundKeys;

/// Round keys as vectors.
#[inline(always)]
pub(super) fn vectors(keys: &RoundKeys) -> &[__m128i; 15] {
    // SAFETY: as many bytes of plain data, aligned.
    unsafe { &*keys.at(0).cast() }
}

/// The same round keys, of which the compiler does not know that it has loaded
/// them before. Without this it loads all of them ahead of a loop and, having
/// too few registers, leaves copies of the key on the stack.
#[inline(always)]
pub(super) fn fresh(keys: &RoundKeys) -> &RoundKeys {
    let mut keys: *const RoundKeys = keys;
    // SAFETY: an empty piece of assembly, that hands the pointer through.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) keys, options(readonly, nostack, preserves_flags));
    }
    // SAFETY: it is the reference that came in.
    unsafe { &*keys }
}

/// A block as a vector.
#[inline(always)]
pub(super) fn vector(block: u128) -> __m128i {
    // SAFETY: sixteen bytes of plain data either way.
    unsafe { core::mem::transmute::<u128, __m128i>(block) }
}

/// Expands a key and returns the number of rounds.
#[target_feature(enable = "aes,avx")]
pub(super) fn expand(key: &[u8], round_keys: &mut RoundKeys) -> usize {
    let key_words = key.len() / 4;
    let rounds = key_words + 6;
    let words = round_keys.0.as_flattened_mut();
    for (word, bytes) in words.iter_mut().zip(key.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let mut constant: u32 = 1;
    for i in key_words..4 * (rounds + 1) {
        let mut word = words[i - 1];
        if i % key_words == 0 {
            word = substitute(word).rotate_right(8) ^ constant;
            // Times x in AES's field; depends on the position only.
            constant = (constant << 1) ^ (0x11b * (constant >> 7));
        } else if key_words == 8 && i % 8 == 4 {
            word = substitute(word);
        }
        words[i] = words[i - key_words] ^ word;
    }
    rounds
}

/// The S-box on each byte.
#[target_feature(enable = "aes,avx")]
fn substitute(word: u32) -> u32 {
    let word = _mm_set1_epi32(word.cast_signed());
    _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(word)).cast_unsigned()
}

/// Round keys for the equivalent inverse cipher (FIPS 197, section 5.3.5).
#[target_feature(enable = "aes,avx")]
pub(super) fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys, rounds: usize) {
    decrypt.0[0] = encrypt.0[rounds];
    for i in 1..rounds {
        let key = _mm_aesimc_si128(vectors(encrypt)[rounds - i]);
        // SAFETY: a round key is sixteen bytes.
        unsafe { _mm_storeu_si128((&raw mut decrypt.0[i]).cast(), key) };
    }
    decrypt.0[rounds] = encrypt.0[0];
}
