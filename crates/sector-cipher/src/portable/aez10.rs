//! AEZ10: AEZ v5, figure 4.

use crate::run::Sectors;

/// Its keys.
pub(crate) struct Aez10 {}

impl Aez10 {
    pub(super) fn new(_key: &[u8]) -> Self {
        Self {}
    }

    pub(super) fn crypt<const ENCRYPT: bool>(&self, _sectors: Sectors<'_, '_>) {
        unimplemented!()
    }
}
