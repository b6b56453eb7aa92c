//! HCTR2: ePrint 2021/1441.

use crate::run::Sectors;

/// Its keys.
pub(crate) struct Hctr2 {}

impl Hctr2 {
    pub(super) fn new(_key: &[u8]) -> Self {
        Self {}
    }

    pub(super) fn crypt<const ENCRYPT: bool>(&self, _sectors: Sectors<'_, '_>) {
        unimplemented!()
    }
}
