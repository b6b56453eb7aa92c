//! The AES limit: how fast the AES unit alone turns blocks over with the
//! vectors of a back-end, that is independent AES rounds on registers and
//! nothing else. Shared with `bench/ciphers`.

#[cfg(target_arch = "aarch64")]
use core::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;
use sector_cipher::Backend;
use std::hint::black_box;

/// Vectors in flight: more than latency times throughput.
const CHAINS: usize = 12;
const REPEATS: usize = 20_000;

/// Encrypts so many blocks of `rounds` rounds that the clock can tell, and
/// returns their bytes. `None` if the back-end has no AES unit.
pub(crate) fn work(backend: Backend, rounds: usize) -> Option<usize> {
    if !backend.is_supported() {
        return None;
    }
    let vector = match backend {
        #[cfg(target_arch = "x86_64")]
        Backend::AesNi => {
            // SAFETY: the CPU has the back-end's features.
            unsafe { aes_ni(rounds) };
            16
        }
        #[cfg(target_arch = "x86_64")]
        Backend::Vaes256 => {
            // SAFETY: the CPU has the back-end's features.
            unsafe { vaes256(rounds) };
            32
        }
        #[cfg(target_arch = "x86_64")]
        Backend::Vaes512 => {
            // SAFETY: the CPU has the back-end's features.
            unsafe { vaes512(rounds) };
            64
        }
        #[cfg(target_arch = "aarch64")]
        Backend::Armv8 => {
            // SAFETY: the CPU has the back-end's features.
            unsafe { armv8(rounds) };
            16
        }
        _ => return None,
    };
    Some(REPEATS * CHAINS * vector)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,vaes")]
fn vaes256(rounds: usize) {
    let key = black_box(_mm256_set1_epi8(0x63));
    let mut x = [_mm256_setzero_si256(); CHAINS];
    for _ in 0..REPEATS * rounds {
        for x in &mut x {
            *x = _mm256_aesenc_epi128(*x, key);
        }
    }
    black_box(x);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,vaes")]
fn vaes512(rounds: usize) {
    let key = black_box(_mm512_set1_epi8(0x63));
    let mut x = [_mm512_setzero_si512(); CHAINS];
    for _ in 0..REPEATS * rounds {
        for x in &mut x {
            *x = _mm512_aesenc_epi128(*x, key);
        }
    }
    black_box(x);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "aes,avx")]
fn aes_ni(rounds: usize) {
    let key = black_box(_mm_set1_epi8(0x63));
    let mut x = [_mm_setzero_si128(); CHAINS];
    for _ in 0..REPEATS * rounds {
        for x in &mut x {
            *x = _mm_aesenc_si128(*x, key);
        }
    }
    black_box(x);
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "aes")]
fn armv8(rounds: usize) {
    let key = black_box(vdupq_n_u8(0x63));
    let mut x = [vdupq_n_u8(0); CHAINS];
    for _ in 0..REPEATS * rounds {
        for x in &mut x {
            *x = vaesmcq_u8(vaeseq_u8(*x, key));
        }
    }
    black_box(x);
}
