//! Hctr2 over a stream of sectors.

use super::{AesKeys, Vector};
use crate::run::Sectors;

/// Its keys.
pub(crate) struct Keys {
    aes: AesKeys,
}

impl Keys {
    pub(super) const UNSET: Self = Self {
        aes: AesKeys::UNSET,
    };

    /// Rounds of AES.
    pub(super) fn rounds(&self) -> usize {
        self.aes.rounds()
    }

    #[inline(always)]
    pub(super) fn set<V: Vector>(&mut self, key: &[u8]) {
        self.aes.set::<V>(key, None);
    }
}

#[inline(always)]
pub(super) fn crypt<V: Vector, const ROUNDS: usize, const ENCRYPT: bool>(
    _keys: &Keys,
    _sectors: Sectors<'_, '_>,
) {
    unimplemented!()
}
