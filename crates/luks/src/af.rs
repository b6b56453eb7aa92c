//! The anti-forensic splitter (LUKS1 specification, section 2.4).

use crate::Error;
use xtent_secret::SecretBytes;

/// Stripes that both formats use.
pub const STRIPES: u32 = 4000;

/// Spreads `key` over `stripes` times its length.
pub fn split(_key: &[u8], _stripes: u32, _hash: &str) -> Result<SecretBytes, Error> {
    todo!()
}

/// Gathers the key of `key_length` bytes from split material.
pub fn merge(
    _material: &[u8],
    _key_length: usize,
    _stripes: u32,
    _hash: &str,
) -> Result<SecretBytes, Error> {
    todo!()
}
