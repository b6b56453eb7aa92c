//! Raw tweaks and lengths, for published test vectors. **Not for disks**: whoever picks the
//! tweak of a sector can pick the same for two.
//!
//! With the feature `hazmat` only. All of it goes through the same kernels as runs of
//! sectors do, a sector at a time.
//!
//! ```
//! use sector_cipher::{Cipher, SectorCount, SectorSize, hazmat};
//!
//! // IEEE 1619-2007, annex B, vector 1: a data unit of 32 bytes.
//! let size = SectorSize::new(512)?;
//! let spec = "aes-xts-plain64".parse()?;
//! let cipher = Cipher::new(spec, size, SectorCount::Units512, &[0; 32], None)?;
//! let mut unit = [0; 32];
//! hazmat::encrypt_unit(&cipher, [0; 16], &mut unit)?;
//! assert_eq!(unit[..4], [0x91, 0x7c, 0xf6, 0x9e]);
//! hazmat::decrypt_unit(&cipher, [0; 16], &mut unit)?;
//! assert_eq!(unit, [0; 32]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{Backend, Cipher, Mode, Ports};
use core::fmt;
use core::mem::swap;

/// Bytes in an AES block.
const BLOCK: usize = 16;
/// Bytes of the largest sector.
const MOST: usize = 4096;

/// A data unit that the cipher cannot take: see [`encrypt_unit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrongUnit {
    /// Bytes given.
    pub len: usize,
    /// Bytes of the shortest unit that the cipher takes.
    pub least: usize,
    /// Bytes of the longest one, the cipher's sector size.
    pub most: usize,
}

impl fmt::Display for WrongUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, least, most } = self;
        if least == most {
            write!(
                f,
                "a data unit of {len} bytes given, the cipher takes {most}"
            )
        } else {
            write!(
                f,
                "a data unit of {len} bytes given, the cipher takes {least} to {most}"
            )
        }
    }
}

impl core::error::Error for WrongUnit {}

/// Encrypts one data unit in place, under the sixteen bytes that stand in the IV's place:
/// XTS's tweak before its encryption, the IV of CBC (before its encryption under ESSIV), the
/// tweak of a wide-block cipher, or of HCTR2 and Adiantum, whose tweaks have 32 bytes, the
/// first sixteen, with zeros behind them.
///
/// Under XTS a unit has 16 bytes to the sector size, and what is left behind the last whole
/// block takes ciphertext from the block before (IEEE 1619-2007, clause 5.3.2); under the
/// other ciphers it is one sector.
///
/// # Errors
/// [`WrongUnit`] for other lengths; nothing has been changed then.
pub fn encrypt_unit(cipher: &Cipher, tweak: [u8; 16], unit: &mut [u8]) -> Result<(), WrongUnit> {
    crypt(cipher, tweak, unit, true)
}

/// Decrypts one data unit in place: see [`encrypt_unit`].
///
/// # Errors
/// As there.
pub fn decrypt_unit(cipher: &Cipher, tweak: [u8; 16], unit: &mut [u8]) -> Result<(), WrongUnit> {
    crypt(cipher, tweak, unit, false)
}

/// Sets [`crate::Ports`] for all back-ends and the whole process, whatever the CPU: for tests that
/// have to see all ways. Nothing but speed depends on it.
pub fn set_ports(shifts: bool, three_products: bool, long_integers: bool) {
    // The CPU is not looked at any more afterwards.
    crate::arch::set_ports(shifts, three_products, long_integers);
}

/// What [`Backend::ports`] would be if this CPU had not been measured before, by timing it now:
/// to compare. `None` if the back-end has one way, or the CPU lacks it.
pub fn timed_ports(backend: Backend) -> Option<Ports> {
    backend
        .is_supported()
        .then(|| crate::arch::timed_ports(backend))
        .flatten()
}

fn crypt(
    cipher: &Cipher,
    tweak: [u8; 16],
    unit: &mut [u8],
    encrypt: bool,
) -> Result<(), WrongUnit> {
    let most = cipher.sector_size().bytes();
    let xts = cipher.spec().mode() == Mode::AesXts;
    let least = if xts { BLOCK } else { most };
    let len = unit.len();
    if !(least..=most).contains(&len) {
        return Err(WrongUnit { len, least, most });
    }
    let tweak = u128::from_le_bytes(tweak);
    // Blocks of XTS do not depend on each other: zeros go along behind them.
    let mut sector = zeroize::Zeroizing::new([0; MOST]);
    let sector = &mut sector[..most];
    let rest = len % BLOCK;
    let whole = len - rest;
    if rest == 0 {
        sector[..len].copy_from_slice(unit);
        cipher.crypt_one(tweak, sector, encrypt);
        unit.copy_from_slice(&sector[..len]);
        return Ok(());
    }
    // The place of the last whole block, and the one behind it, whose mask the stolen
    // ciphertext has; decryption takes them the other way round. Both are in the sector, which
    // is no shorter than the unit.
    let (mut before, mut behind) = (whole - BLOCK, whole);
    if !encrypt {
        swap(&mut before, &mut behind);
    }
    sector[..whole - BLOCK].copy_from_slice(&unit[..whole - BLOCK]);
    sector[before..before + BLOCK].copy_from_slice(&unit[whole - BLOCK..whole]);
    cipher.crypt_one(tweak, sector, encrypt);
    unit[..whole - BLOCK].copy_from_slice(&sector[..whole - BLOCK]);
    let mut stolen = [0; BLOCK];
    stolen.copy_from_slice(&sector[before..before + BLOCK]);
    // The rest goes through the cipher with the end of the block before, whose start takes
    // the rest's place.
    sector.fill(0);
    let place = &mut sector[behind..behind + BLOCK];
    place[..rest].copy_from_slice(&unit[whole..]);
    place[rest..].copy_from_slice(&stolen[rest..]);
    cipher.crypt_one(tweak, sector, encrypt);
    unit[whole..].copy_from_slice(&stolen[..rest]);
    unit[whole - BLOCK..whole].copy_from_slice(&sector[behind..behind + BLOCK]);
    Ok(())
}

#[cfg(test)]
mod tests;
