//! The portable back-end: RustCrypto's fixsliced AES, which has no table
//! look-ups and no branches on data, so that its time does not depend on
//! secrets. It encrypts several blocks side by side in machine words; blocks of
//! one sector, tweaks of several sectors and, for the serial CBC encryption,
//! several sectors fill these places.
//!
//! It is software on every CPU: `aes` 0.7 has that as a Cargo feature, while
//! later releases use the CPU's AES instructions whenever they find them. So
//! this is a true second implementation beside every hardware back-end, but for what
//! both have from `shared`.

mod adiantum;
mod aes;
mod aez10;
mod cbc;
mod counter;
mod eme2;
mod fast;
mod field;
mod hctr2;
mod whole;
mod xcb;
mod xts;

use crate::run::{BLOCK, Sectors};
use crate::{CipherSpec, Mode};

/// The key schedule of a mode.
#[allow(clippy::large_enum_variant, reason = "keys have no indirection")]
pub(crate) enum Keys {
    Xts(xts::Xts),
    Cbc(cbc::Cbc),
    Fast(fast::Fast),
    Hctr2(hctr2::Hctr2),
    Adiantum(adiantum::Adiantum),
    Eme2(eme2::Eme2),
    Aez10(aez10::Aez10),
    Xcb(xcb::Xcb),
}

impl Keys {
    /// The schedule for a key whose length has been checked; `essiv` is the
    /// key for the IVs.
    pub(crate) fn new(spec: CipherSpec, key: &[u8], essiv: Option<&[u8; 32]>) -> Self {
        match spec.mode() {
            Mode::AesXts => Self::Xts(xts::Xts::new(key)),
            Mode::AesCbc => Self::Cbc(cbc::Cbc::new(key, essiv)),
            Mode::FastBrw => Self::Fast(fast::Fast::new(key, fast::Hash::Brw)),
            Mode::FastHorner => Self::Fast(fast::Fast::new(key, fast::Hash::Horner)),
            Mode::Hctr2 => Self::Hctr2(hctr2::Hctr2::new(key)),
            Mode::Adiantum12 => Self::Adiantum(adiantum::Adiantum::new(key, 12)),
            Mode::Adiantum20 => Self::Adiantum(adiantum::Adiantum::new(key, 20)),
            Mode::Eme2 => Self::Eme2(eme2::Eme2::new(key)),
            Mode::Aez10 => Self::Aez10(aez10::Aez10::new(key)),
            Mode::Xcb => Self::Xcb(xcb::Xcb::new(key)),
        }
    }

    /// Encrypts or decrypts the stream.
    pub(crate) fn crypt(&self, sectors: &mut Sectors<'_, '_>, encrypt: bool) {
        match self {
            Self::Xts(keys) => keys.crypt(sectors, encrypt),
            Self::Cbc(keys) => keys.crypt(sectors, encrypt),
            Self::Fast(keys) => keys.crypt(sectors, encrypt),
            Self::Hctr2(keys) => keys.crypt(sectors, encrypt),
            Self::Adiantum(keys) => keys.crypt(sectors, encrypt),
            Self::Eme2(keys) => keys.crypt(sectors, encrypt),
            Self::Aez10(keys) => keys.crypt(sectors, encrypt),
            Self::Xcb(keys) => keys.crypt(sectors, encrypt),
        }
    }
}

fn xor(block: [u8; BLOCK], mask: u128) -> [u8; BLOCK] {
    (u128::from_le_bytes(block) ^ mask).to_le_bytes()
}
