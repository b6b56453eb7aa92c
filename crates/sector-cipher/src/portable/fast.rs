//! FAST: ePrint 2017/849.

use crate::run::Sectors;

/// The hash of FAST.
pub(super) enum Hash {
    Brw,
    Horner,
}

/// Its keys.
pub(crate) struct Fast {}

impl Fast {
    pub(super) fn new(_key: &[u8], _hash: Hash) -> Self {
        Self {}
    }

    pub(super) fn crypt<const ENCRYPT: bool>(&self, _sectors: Sectors<'_, '_>) {
        unimplemented!()
    }
}
