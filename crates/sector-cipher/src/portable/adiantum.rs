//! Adiantum: ToSC 2018(4).

use crate::run::Sectors;

/// Its keys.
pub(crate) struct Adiantum {}

impl Adiantum {
    pub(super) fn new(_key: &[u8], _rounds: usize) -> Self {
        Self {}
    }

    pub(super) fn crypt<const ENCRYPT: bool>(&self, _sectors: Sectors<'_, '_>) {
        unimplemented!()
    }
}
