//! The AES key schedule (FIPS 197, section 5.2) with `aeskeygenassist` and
//! `aesimc`, in place.

use core::arch::x86_64::*;

/// Round keys of one direction; those behind the last round are unused.
#[repr(C, align(64))]
pub(crate) union RoundKeys {
    words: [u32; 60],
    vectors: [__m128i; 15],
}

impl RoundKeys {
    const ZERO: Self = Self { words: [0; 60] };

    /// Round keys as vectors.
    #[inline(always)]
    pub(super) fn vectors(&self) -> &[__m128i; 15] {
        // SAFETY: both views of the union are 240 bytes of plain data.
        unsafe { &self.vectors }
    }

    fn vectors_mut(&mut self) -> &mut [__m128i; 15] {
        // SAFETY: as above.
        unsafe { &mut self.vectors }
    }

    fn words_mut(&mut self) -> &mut [u32; 60] {
        // SAFETY: as above.
        unsafe { &mut self.words }
    }
}

/// What the kernels need: the data key for both directions, and the key for
/// tweaks or IVs where the mode has one.
#[repr(C)]
pub(crate) struct Keys {
    pub(super) encrypt: RoundKeys,
    pub(super) decrypt: RoundKeys,
    pub(super) iv: RoundKeys,
    rounds: usize,
    /// Zero without a key for IVs.
    iv_rounds: usize,
}

impl Keys {
    /// Holds no key yet.
    pub(crate) const UNSET: Self = Self {
        encrypt: RoundKeys::ZERO,
        decrypt: RoundKeys::ZERO,
        iv: RoundKeys::ZERO,
        rounds: 0,
        iv_rounds: 0,
    };

    /// Sets the data key and the key for IVs, each of 16, 24 or 32 bytes.
    ///
    /// # Safety
    /// The CPU has AES-NI with AVX.
    #[target_feature(enable = "aes,avx")]
    pub(crate) unsafe fn set(&mut self, data: &[u8], iv: Option<&[u8]>) {
        self.rounds = expand(data, &mut self.encrypt);
        invert(&self.encrypt, &mut self.decrypt, self.rounds);
        if let Some(iv) = iv {
            self.iv_rounds = expand(iv, &mut self.iv);
        }
    }

    /// Rounds under the data key: 10, 12 or 14.
    #[inline(always)]
    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }

    /// Whether there is a key for IVs.
    #[inline(always)]
    pub(super) fn encrypts_ivs(&self) -> bool {
        self.iv_rounds != 0
    }
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
fn expand(key: &[u8], round_keys: &mut RoundKeys) -> usize {
    let key_words = key.len() / 4;
    let rounds = key_words + 6;
    let words = round_keys.words_mut();
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
fn invert(encrypt: &RoundKeys, decrypt: &mut RoundKeys, rounds: usize) {
    let (encrypt, decrypt) = (encrypt.vectors(), decrypt.vectors_mut());
    decrypt[0] = encrypt[rounds];
    for i in 1..rounds {
        decrypt[i] = _mm_aesimc_si128(encrypt[rounds - i]);
    }
    decrypt[rounds] = encrypt[0];
}
