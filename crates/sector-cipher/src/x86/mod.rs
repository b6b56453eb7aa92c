//! Back-ends for x86-64: AES-NI. One key schedule for all of them, and per mode
//! and vector width one kernel over a stream of sectors.
//!
//! Constant time by construction: key expansion and rounds are the CPU's AES
//! instructions, field arithmetic is shifts and carry-less products, and
//! branches and addresses depend only on lengths, key sizes and sector counts.
#![allow(unsafe_code)]

mod cbc;
mod schedule;
mod xts;

use crate::run::Sectors;
pub(crate) use schedule::Keys;

cpufeatures::new!(aes_ni, "aes", "avx", "pclmulqdq", "sse4.1");

/// Whether the CPU, and the operating system, let us use AES-NI with AVX.
pub(crate) fn has_aes_ni() -> bool {
    aes_ni::get()
}

/// Which kernels to use.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    AesNi,
}

/// XTS-AES over the stream.
pub(crate) fn xts<const ENCRYPT: bool>(level: Level, keys: &Keys, sectors: Sectors<'_, '_>) {
    // SAFETY: `Cipher` takes a back-end only if the CPU has its features.
    unsafe {
        match (level, keys.rounds()) {
            (Level::AesNi, 10) => xts::crypt::<10, ENCRYPT>(keys, sectors),
            (Level::AesNi, _) => xts::crypt::<14, ENCRYPT>(keys, sectors),
        }
    }
}

/// AES-CBC over the stream.
pub(crate) fn cbc<const ENCRYPT: bool>(keys: &Keys, sectors: Sectors<'_, '_>) {
    // SAFETY: as above; all levels include AES-NI.
    unsafe {
        match (keys.rounds(), ENCRYPT) {
            (10, true) => cbc::encrypt::<10>(keys, sectors),
            (12, true) => cbc::encrypt::<12>(keys, sectors),
            (_, true) => cbc::encrypt::<14>(keys, sectors),
            (10, false) => cbc::decrypt::<10>(keys, sectors),
            (12, false) => cbc::decrypt::<12>(keys, sectors),
            (_, false) => cbc::decrypt::<14>(keys, sectors),
        }
    }
}
