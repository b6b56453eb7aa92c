//! The AES key schedule (FIPS 197, section 5.2) with `aese` and `aesimc`, in
//! place.

use crate::simd::{self, RoundKeys};
use core::arch::aarch64::*;

/// Expands a key.
#[target_feature(enable = "neon,aes")]
pub(super) fn expand(key: &[u8], round_keys: &mut RoundKeys) {
    simd::expand(key, round_keys, |word| {
        // The rows of four equal columns are the same however shifted, and a
        // round key of zeros adds nothing: what is left is the S-box.
        let columns = vreinterpretq_u8_u32(vdupq_n_u32(word));
        vgetq_lane_u32::<0>(vreinterpretq_u32_u8(vaeseq_u8(columns, vdupq_n_u8(0))))
    });
}

/// Round keys for the equivalent inverse cipher (FIPS 197, section 5.3.5).
#[target_feature(enable = "neon,aes")]
pub(super) fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys) {
    encrypt.invert(decrypt, |key, inverse| {
        // SAFETY: a round key is sixteen bytes.
        unsafe {
            let key = vaesimcq_u8(vld1q_u8(key.as_ptr().cast()));
            vst1q_u8(inverse.as_mut_ptr().cast(), key);
        }
    });
}
