//! Names, key lengths, sector sizes: what a cipher is asked for.

use core::fmt;
use core::str::FromStr;

/// A cipher, mode and IV generator by dm-crypt's name, such as
/// `aes-xts-plain64`. Parse one with [`core::str::FromStr`]; `Display` gives
/// dm-crypt's name back.
///
/// `aes-xts-` goes with `plain`, `plain64` and `plain64be`; `aes-cbc-` with
/// these and `essiv:sha256`. The combination of [`Mode::AesXts`] with
/// [`IvMode::EssivSha256`] can be written down but is refused: it takes no key
/// length at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherSpec {
    /// Block cipher and mode.
    pub mode: Mode,
    /// How a sector number becomes an IV or tweak.
    pub iv: IvMode,
}

/// Block cipher and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// XTS-AES (IEEE 1619): `aes-xts-…`. Keys of 32 (AES-128) or 64 bytes (AES-256).
    AesXts,
    /// AES in CBC mode: `aes-cbc-…`. Keys of 16, 24 or 32 bytes. For old containers.
    AesCbc,
}

/// How the sector number becomes the 16-byte IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IvMode {
    /// 32-bit little endian, wraps at 2^32: `plain`.
    Plain,
    /// 64-bit little endian: `plain64`.
    Plain64,
    /// 64-bit big endian in the last eight bytes: `plain64be`.
    Plain64Be,
    /// `plain64` encrypted under SHA-256 of the key: `essiv:sha256` (CBC only).
    EssivSha256,
}

/// A name that this crate does not know, or a combination it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCipher;

impl FromStr for CipherSpec {
    type Err = UnknownCipher;
    fn from_str(name: &str) -> Result<Self, UnknownCipher> {
        let (mode, iv) = if let Some(iv) = name.strip_prefix("aes-xts-") {
            (Mode::AesXts, iv)
        } else if let Some(iv) = name.strip_prefix("aes-cbc-") {
            (Mode::AesCbc, iv)
        } else {
            return Err(UnknownCipher);
        };
        let iv = match iv {
            "plain" => IvMode::Plain,
            "plain64" => IvMode::Plain64,
            "plain64be" => IvMode::Plain64Be,
            "essiv:sha256" if mode == Mode::AesCbc => IvMode::EssivSha256,
            _ => return Err(UnknownCipher),
        };
        Ok(Self { mode, iv })
    }
}

impl fmt::Display for CipherSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (self.mode, self.iv) {
            (Mode::AesXts, IvMode::Plain) => "aes-xts-plain",
            (Mode::AesXts, IvMode::Plain64) => "aes-xts-plain64",
            (Mode::AesXts, IvMode::Plain64Be) => "aes-xts-plain64be",
            (Mode::AesXts, IvMode::EssivSha256) => "aes-xts-essiv:sha256",
            (Mode::AesCbc, IvMode::Plain) => "aes-cbc-plain",
            (Mode::AesCbc, IvMode::Plain64) => "aes-cbc-plain64",
            (Mode::AesCbc, IvMode::Plain64Be) => "aes-cbc-plain64be",
            (Mode::AesCbc, IvMode::EssivSha256) => "aes-cbc-essiv:sha256",
        };
        f.pad(name)
    }
}

impl fmt::Display for UnknownCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "unknown cipher: known are aes-xts-plain, aes-xts-plain64, aes-xts-plain64be, \
             aes-cbc-essiv:sha256, aes-cbc-plain, aes-cbc-plain64 and aes-cbc-plain64be",
        )
    }
}

impl core::error::Error for UnknownCipher {}

impl CipherSpec {
    /// The key lengths in bytes that this cipher takes, ascending. XTS keys
    /// are two AES keys of equal length, so 48 bytes (AES-192, which IEEE 1619
    /// does not define) are not among them. Empty for a refused combination.
    pub fn key_lengths(&self) -> &'static [usize] {
        match (self.mode, self.iv) {
            (Mode::AesXts, IvMode::EssivSha256) => &[],
            (Mode::AesXts, _) => &[32, 64],
            (Mode::AesCbc, _) => &[16, 24, 32],
        }
    }
}

/// Bytes in a sector: 512, 1024, 2048 or 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SectorSize(u16);

impl SectorSize {
    /// The sector size of `bytes`, if it is one of the four.
    pub const fn new(bytes: u32) -> Option<Self> {
        match bytes {
            512 => Some(Self(512)),
            1024 => Some(Self(1024)),
            2048 => Some(Self(2048)),
            4096 => Some(Self(4096)),
            _ => None,
        }
    }
    /// Bytes.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }
}

/// What a sector number counts where sectors are larger than 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SectorCount {
    /// 512-byte units: the n-th 4096-byte sector has IV 8n (dm-crypt, LUKS2).
    #[default]
    Units512,
    /// Whole sectors: IV n (dm-crypt's `iv_large_sectors`).
    Large,
}

/// A key that the cipher cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKeyLength {
    /// Bytes given.
    pub given: usize,
    /// Bytes the cipher takes.
    pub takes: &'static [usize],
}

impl fmt::Display for WrongKeyLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((last, others)) = self.takes.split_last() else {
            return f.write_str("this combination of mode and IV is refused whatever the key");
        };
        write!(f, "a key of {} bytes given, the cipher takes ", self.given)?;
        for (i, bytes) in others.iter().enumerate() {
            let separator = if i + 1 == others.len() { " or " } else { ", " };
            write!(f, "{bytes}{separator}")?;
        }
        write!(f, "{last} bytes")
    }
}

impl core::error::Error for WrongKeyLength {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    const NAMES: [&str; 7] = [
        "aes-xts-plain",
        "aes-xts-plain64",
        "aes-xts-plain64be",
        "aes-cbc-essiv:sha256",
        "aes-cbc-plain",
        "aes-cbc-plain64",
        "aes-cbc-plain64be",
    ];

    #[test]
    fn names_round_trip() {
        for name in NAMES {
            let spec: CipherSpec = name.parse().unwrap();
            assert_eq!(spec.to_string(), name);
            assert!(!spec.key_lengths().is_empty());
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "aes",
            "aes-xts",
            "aes-xts-",
            "aes-xts-essiv:sha256",
            "aes-xts-plain65",
            "aes-xts-plain64 ",
            " aes-xts-plain64",
            "AES-XTS-PLAIN64",
            "aes-cbc-essiv",
            "aes-cbc-essiv:sha1",
            "aes-ecb-plain64",
            "serpent-xts-plain64",
            "aes-xts-plain64\0",
        ] {
            assert_eq!(name.parse::<CipherSpec>(), Err(UnknownCipher), "{name:?}");
        }
    }

    #[test]
    fn errors_say_what_is_taken() {
        let error = WrongKeyLength {
            given: 48,
            takes: &[32, 64],
        };
        assert_eq!(
            error.to_string(),
            "a key of 48 bytes given, the cipher takes 32 or 64 bytes"
        );
        let error = WrongKeyLength {
            given: 48,
            takes: &[16, 24, 32],
        };
        assert_eq!(
            error.to_string(),
            "a key of 48 bytes given, the cipher takes 16, 24 or 32 bytes"
        );
    }

    #[test]
    fn only_four_sector_sizes() {
        for bytes in 0..=70_000 {
            let size = SectorSize::new(bytes);
            assert_eq!(size.is_some(), matches!(bytes, 512 | 1024 | 2048 | 4096));
            if let Some(size) = size {
                assert_eq!(size.bytes(), bytes as usize);
            }
        }
    }
}
