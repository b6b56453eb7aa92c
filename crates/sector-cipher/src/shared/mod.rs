//! Facts and arithmetic that the portable back-end and the vectors' kernels have in common,
//! so that neither takes them from the other: doubling in GF(2^128), and of Adiantum the key
//! derivation with its ChaCha, the constants, and Poly1305, which hashes a few blocks of
//! a sector only. A fault in here would be in all back-ends alike, and they would agree:
//! what finds it are published vectors, and `tests/independent.rs`, other crates.

pub(crate) mod adiantum;
pub(crate) mod chacha;
pub(crate) mod poly1305;

/// The product with x in XTS's GF(2^128), without a branch on the carry.
pub(crate) fn double(block: u128) -> u128 {
    (block << 1) ^ ((block >> 127) * 0x87)
}
