//! EME2-AES: IEEE 1619.2-2010.

use crate::run::Sectors;

/// Its keys.
pub(crate) struct Eme2 {}

impl Eme2 {
    pub(super) fn new(_key: &[u8]) -> Self {
        Self {}
    }

    pub(super) fn crypt<const ENCRYPT: bool>(&self, _sectors: Sectors<'_, '_>) {
        unimplemented!()
    }
}
