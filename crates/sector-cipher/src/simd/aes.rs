//! The AES key schedule's place, and AES on vectors side by side.

use super::Vector;
use crate::here::ZipHere;

/// Round keys of one direction. The last is number 14 whatever the key's length, so that the
/// last ten rounds are the same code for all: shorter keys begin with a later number. What is before it is unused.
#[repr(C, align(64))]
pub(crate) struct RoundKeys {
    keys: [[u32; 4]; 15],
    /// The number of the first: 4, 2 or 0 for keys of 16, 24 or 32 bytes.
    first: usize,
}

impl RoundKeys {
    /// The number of the last.
    pub(crate) const LAST: usize = 14;
    /// Where the last ten rounds begin: with this key in the place of the first.
    pub(crate) const LAST_TEN: usize = Self::LAST - 10;

    pub(crate) const ZERO: Self = Self {
        keys: [[0; 4]; 15],
        first: Self::LAST_TEN,
    };

    /// Where round key `number` is, aligned: its sixteen bytes may be read, and those of the
    /// keys behind it.
    #[inline(always)]
    pub(crate) fn at(&self, number: usize) -> *const u8 {
        self.keys[number..].as_ptr().cast()
    }

    /// The number of the first.
    #[inline(always)]
    pub(crate) fn first(&self) -> usize {
        // Which is how the compiler knows that there is such a key.
        self.first & 0b110
    }

    /// Sets the keys of the inverse cipher from these (FIPS 197, section 5.3.5): the other way
    /// round, all but the first and the last through `columns`, which reads one and writes another.
    #[inline(always)]
    pub(crate) fn invert(&self, inverse: &mut Self, columns: impl Fn(&[u32; 4], &mut [u32; 4])) {
        inverse.first = self.first;
        inverse.keys[self.first] = self.keys[Self::LAST];
        for number in self.first + 1..Self::LAST {
            columns(
                &self.keys[Self::LAST + self.first - number],
                &mut inverse.keys[number],
            );
        }
        inverse.keys[Self::LAST] = self.keys[self.first];
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
        for (wide, key) in self.wide.iter_mut().zip_here(&self.narrow.keys) {
            *wide = [*key; 4];
        }
    }

    /// Where the copies of round key `number` are, aligned: their 64 bytes may be read, and
    /// those behind them.
    #[inline(always)]
    pub(crate) fn at(&self, number: usize) -> *const u8 {
        self.wide[number..].as_ptr().cast()
    }

    /// The number of the first.
    #[inline(always)]
    pub(crate) fn first(&self) -> usize {
        self.narrow.first()
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

/// Expands a key of 16, 24 or 32 bytes with the S-box on each byte of a word.
#[inline(always)]
pub(crate) fn expand(key: &[u8], round_keys: &mut RoundKeys, substitute: impl Fn(u32) -> u32) {
    let key_words = key.len() / 4;
    round_keys.first = 8 - key_words;
    let words = round_keys.keys[round_keys.first..].as_flattened_mut();
    for (word, bytes) in words.iter_mut().zip_here(key.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let mut constant: u32 = 1;
    for i in key_words..words.len() {
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
}

/// AES keys of a mode: the data key for both directions, and a second key, for
/// tweaks or IVs, where the mode has one.
#[repr(C)]
pub(crate) struct AesKeys {
    pub(crate) encrypt: RoundKeys,
    pub(crate) decrypt: RoundKeys,
    pub(crate) iv: RoundKeys,
    encrypts_ivs: bool,
}

impl AesKeys {
    /// Holds no key yet.
    pub(crate) const UNSET: Self = Self {
        encrypt: RoundKeys::ZERO,
        decrypt: RoundKeys::ZERO,
        iv: RoundKeys::ZERO,
        encrypts_ivs: false,
    };

    /// Sets the data key and the key for IVs, each of 16, 24 or 32 bytes.
    #[inline(always)]
    pub(crate) fn set<V: Vector>(&mut self, data: &[u8], iv: Option<&[u8]>) {
        V::expand(data, &mut self.encrypt);
        V::invert(&self.encrypt, &mut self.decrypt);
        if let Some(iv) = iv {
            V::expand(iv, &mut self.iv);
            self.encrypts_ivs = true;
        }
    }

    /// Whether there is a key for IVs.
    #[inline(always)]
    pub(crate) fn encrypts_ivs(&self) -> bool {
        self.encrypts_ivs
    }
}

/// AES on `N` vectors side by side. Eight keep every CPU's AES units busy.
#[inline(always)]
pub(super) fn encrypt<V: Vector, const N: usize>(x: &mut [V; N], keys: &RoundKeys) {
    V::aes_start::<N, true>(x, keys);
    unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
        V::aes_round::<N, true, ROUND>(x, keys);
    });
    V::aes_finish::<N, true>(x, keys, &[V::zero(); N]);
}

/// The inverse, with the round keys of decryption.
#[inline(always)]
pub(super) fn decrypt<V: Vector, const N: usize>(x: &mut [V; N], keys: &RoundKeys) {
    V::aes_start::<N, false>(x, keys);
    unroll!(ROUND in 5 6 7 8 9 10 11 12 13, {
        V::aes_round::<N, false, ROUND>(x, keys);
    });
    V::aes_finish::<N, false>(x, keys, &[V::zero(); N]);
}
