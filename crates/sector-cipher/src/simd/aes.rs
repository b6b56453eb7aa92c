//! The AES key schedule's place, and AES on vectors side by side.

use super::Vector;
use crate::here::ZipHere;

/// Round keys of one direction; those behind the last round are unused.
#[repr(C, align(64))]
pub(crate) struct RoundKeys(pub(crate) [[u32; 4]; 15]);

impl RoundKeys {
    pub(crate) const ZERO: Self = Self([[0; 4]; 15]);

    /// Where round key `round` is, aligned: its sixteen bytes may be read, and those of the
    /// keys behind it.
    #[inline(always)]
    pub(crate) fn at(&self, round: usize) -> *const u8 {
        self.0[round..].as_ptr().cast()
    }
}

/// Round keys twice: as they are, and in every lane of the widest vector, because
/// a load that has to fill the lanes takes the place of other operations.
#[repr(C, align(64))]
pub(crate) struct WideKeys {
    pub(crate) narrow: RoundKeys,
    wide: [[[u32; 4]; 4]; 15],
}

impl WideKeys {
    pub(crate) const ZERO: Self = Self {
        narrow: RoundKeys::ZERO,
        wide: [[[0; 4]; 4]; 15],
    };

    /// Makes the copies of what is in `narrow`.
    pub(crate) fn widen(&mut self) {
        for (wide, key) in self.wide.iter_mut().zip_here(&self.narrow.0) {
            *wide = [*key; 4];
        }
    }

    /// Where the copies of round key `round` are, aligned: their 64 bytes may be read, and
    /// those behind them.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn at(&self, round: usize) -> *const u8 {
        self.wide[round..].as_ptr().cast()
    }
}

/// The same value, of which the compiler does not know that it has loaded it
/// before. Without this it loads all round keys ahead of a loop and, having too
/// few registers, leaves copies of the key on the stack.
#[inline(always)]
pub(crate) fn fresh<T>(value: &T) -> &T {
    let mut place: *const T = value;
    // SAFETY: an empty piece of assembly, that hands the pointer through.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) place, options(readonly, nostack, preserves_flags));
    }
    // SAFETY: it is the reference that came in.
    unsafe { &*place }
}

/// Expands a key of 16, 24 or 32 bytes with the S-box on each byte of a word,
/// and returns the number of rounds.
#[inline(always)]
pub(crate) fn expand(
    key: &[u8],
    round_keys: &mut RoundKeys,
    substitute: impl Fn(u32) -> u32,
) -> usize {
    let key_words = key.len() / 4;
    let rounds = key_words + 6;
    let words = round_keys.0.as_flattened_mut();
    for (word, bytes) in words.iter_mut().zip_here(key.chunks_exact(4)) {
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

/// AES keys of a mode: the data key for both directions, and a second key, for
/// tweaks or IVs, where the mode has one.
#[repr(C)]
pub(crate) struct AesKeys {
    pub(crate) encrypt: RoundKeys,
    pub(crate) decrypt: RoundKeys,
    pub(crate) iv: RoundKeys,
    rounds: usize,
    /// Zero without a key for IVs.
    iv_rounds: usize,
}

impl AesKeys {
    /// Holds no key yet.
    pub(crate) const UNSET: Self = Self {
        encrypt: RoundKeys::ZERO,
        decrypt: RoundKeys::ZERO,
        iv: RoundKeys::ZERO,
        rounds: 0,
        iv_rounds: 0,
    };

    /// Sets the data key and the key for IVs, each of 16, 24 or 32 bytes.
    #[inline(always)]
    pub(crate) fn set<V: Vector>(&mut self, data: &[u8], iv: Option<&[u8]>) {
        self.rounds = V::expand(data, &mut self.encrypt);
        V::invert(&self.encrypt, &mut self.decrypt, self.rounds);
        if let Some(iv) = iv {
            self.iv_rounds = V::expand(iv, &mut self.iv);
        }
    }

    /// Rounds under the data key: 10, 12 or 14.
    #[inline(always)]
    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// Whether there is a key for IVs.
    #[inline(always)]
    pub(crate) fn encrypts_ivs(&self) -> bool {
        self.iv_rounds != 0
    }
}

/// AES on `N` vectors side by side. Eight keep every CPU's AES units busy.
#[inline(always)]
pub(super) fn encrypt<V: Vector, const N: usize, const ROUNDS: usize>(
    x: &mut [V; N],
    keys: &RoundKeys,
) {
    V::aes_start(x, keys);
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
        V::aes_round::<N, true, ROUND>(x, keys);
    });
    V::aes_finish::<N, true, ROUNDS>(x, keys, &[V::zero(); N]);
}

/// The inverse, with the round keys of decryption.
#[inline(always)]
pub(super) fn decrypt<V: Vector, const N: usize, const ROUNDS: usize>(
    x: &mut [V; N],
    keys: &RoundKeys,
) {
    V::aes_start(x, keys);
    unroll!(ROUND in 1 2 3 4 5 6 7 8 9 10 11 12 13, if ROUND < ROUNDS {
        V::aes_round::<N, false, ROUND>(x, keys);
    });
    V::aes_finish::<N, false, ROUNDS>(x, keys, &[V::zero(); N]);
}
