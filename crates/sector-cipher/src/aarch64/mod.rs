//! The back-end for 64-bit ARM with the cryptographic extension: AES and
//! carry-less products on NEON vectors of one block. The kernels are those of
//! `simd`.
//!
//! Constant time as there. The architecture promises it for these instructions
//! while the bit `PSTATE.DIT` is set, which is left to the program.
#![allow(unsafe_code)]

mod neon;
mod schedule;

use crate::Backend;
use crate::run::Sectors;
use crate::simd;
use neon::Neon;

// `FEAT_AES` and `FEAT_PMULL`: Rust's feature stands for both.
cpufeatures::new!(armv8, "aes");

/// Whether the CPU has AES instructions and products of 64-bit polynomials.
pub(crate) fn has_armv8() -> bool {
    armv8::get()
}

/// Which kernels to use.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Armv8,
}

impl Level {
    /// The kernels of a back-end, if it is one of these.
    pub(crate) fn of(backend: Backend) -> Option<Self> {
        match backend {
            Backend::Armv8 => Some(Self::Armv8),
            _ => None,
        }
    }
}

/// Sets the key of a mode.
///
/// # Safety
/// The CPU has the back-end.
pub(crate) unsafe fn set_keys(
    keys: &mut simd::Keys,
    key: &[u8],
    bytes: usize,
    essiv: Option<&[u8; 32]>,
) {
    // SAFETY: the caller's promise.
    unsafe { keys.set::<Neon>(key, bytes, essiv) };
}

/// Runs the kernel of a mode.
///
/// # Safety
/// The CPU has the back-end, and the keys are set.
pub(crate) unsafe fn crypt<const ENCRYPT: bool>(
    level: Level,
    keys: &simd::Keys,
    sectors: Sectors<'_, '_>,
) {
    match level {
        // SAFETY: the caller's promise.
        Level::Armv8 => unsafe { simd::crypt::<Neon, ENCRYPT>(keys, sectors) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vector_tests::check;

    #[test]
    fn vectors_agree_with_integers() {
        if has_armv8() {
            // SAFETY: asked before.
            unsafe { check::<Neon>() };
        }
    }
}
