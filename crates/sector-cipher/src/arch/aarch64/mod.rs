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
use crate::row::Row;
use crate::simd::row;
use neon::Neon;

// `FEAT_AES` and `FEAT_PMULL`: Rust's feature stands for both.
cpufeatures::new!(armv8, "aes");

/// Whether the CPU has AES instructions and products of 64-bit polynomials.
fn has_armv8() -> bool {
    armv8::get()
}

/// The back-ends, slowest first.
pub(crate) static ROWS: [Row; 2] = [Row::PORTABLE, row::<Neon, Neon>(Backend::Armv8)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vector_tests::check;

    #[test]
    fn vectors_agree_with_integers() {
        check::<Neon>();
    }
}
