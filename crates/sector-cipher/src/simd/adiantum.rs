//! Adiantum over a stream of sectors.

use super::{AesKeys, Vector};
use crate::run::Sectors;

/// Its keys.
pub(crate) struct Keys {
    aes: AesKeys,
    chacha_rounds: usize,
}

impl Keys {
    pub(super) const fn unset(chacha_rounds: usize) -> Self {
        Self {
            aes: AesKeys::UNSET,
            chacha_rounds,
        }
    }

    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, _key: &[u8]) {}
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ENCRYPT: bool>(_keys: &Keys, _sectors: Sectors<'_, '_>) {
    unimplemented!()
}
