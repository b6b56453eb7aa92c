//! Names, key lengths, sector sizes: what a cipher is asked for.

use core::fmt;
use core::str::FromStr;

/// A cipher, mode and IV generator by dm-crypt's name, such as
/// `aes-xts-plain64`. Parse one with [`core::str::FromStr`]; `Display` gives
/// dm-crypt's name back. The names that begin with `capi:` are this crate's
/// own, in dm-crypt's form: no kernel has these ciphers, FAST aside once this
/// project's module `xtent_fast` is loaded.
///
/// `aes-xts-` goes with `plain`, `plain64` and `plain64be`; `aes-cbc-` with
/// these and `essiv:sha256`; the wide-block ciphers with `plain64`. There is no
/// value for other combinations of [`Mode`] and [`IvMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherSpec {
    mode: Mode,
    iv: IvMode,
}

/// Block cipher and mode. The AES of every mode has the key length that the
/// key leaves for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// XTS-AES (IEEE 1619): `aes-xts-…`. Keys of 32 (AES-128) or 64 bytes (AES-256).
    AesXts,
    /// AES in CBC mode: `aes-cbc-…`. Keys of 16, 24 or 32 bytes. For old containers.
    AesCbc,
    /// FAST with the BRW hash (Chakraborty et al., ePrint 2017/849, `Fx`):
    /// `capi:fast(aes)-…`. Wide-block. Keys of 16 or 32 bytes; the paper has
    /// AES-128 only.
    FastBrw,
    /// FAST with the Horner hash: `capi:fast_horner(aes)-…`. Otherwise the same.
    FastHorner,
    /// HCTR2 (ePrint 2021/1441): `aes-hctr2-…`. Wide-block. Keys of 16 or 32
    /// bytes; a tweak of 32 bytes.
    Hctr2,
    /// Adiantum (`ToSC` 2018(4)) with XChaCha12: `xchacha12,aes-adiantum-…`.
    /// Wide-block, for CPUs without AES instructions. Keys of 32 bytes; a tweak
    /// of 32 bytes.
    Adiantum12,
    /// Adiantum with XChaCha20: `xchacha20,aes-adiantum-…`.
    Adiantum20,
    /// EME2 (IEEE 1619.2-2010): `capi:eme2(aes)-…`. Wide-block. Keys of 48
    /// (AES-128) or 64 bytes (AES-256).
    Eme2,
    /// AEZ-core with full AES calls (AEZ v5, figure 4, "AEZ10"):
    /// `capi:aez10(aes)-…`. Wide-block. Keys of 16 or 32 bytes; the paper has
    /// AES-128 only, and there are no published vectors.
    Aez10,
    /// XCB (IEEE 1619.2-2010): `capi:xcb(aes)-…`. Keys of 16 or 32 bytes.
    /// **Broken**: two queries reveal all but one block of a sector (ePrint
    /// 2024/1554). To open what exists and to measure; see [`Mode::is_broken`].
    Xcb,
}

/// How the sector number becomes the IV: sixteen bytes, or the first sixteen
/// of a longer tweak, whose rest is zero.
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
#[non_exhaustive]
pub struct UnknownCipher;

impl Mode {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::AesXts,
        Self::AesCbc,
        Self::FastBrw,
        Self::FastHorner,
        Self::Hctr2,
        Self::Adiantum12,
        Self::Adiantum20,
        Self::Eme2,
        Self::Aez10,
        Self::Xcb,
    ];

    /// dm-crypt's name, up to the hyphen before the IV generator.
    const fn name(self) -> &'static str {
        match self {
            Self::AesXts => "aes-xts",
            Self::AesCbc => "aes-cbc",
            Self::FastBrw => "capi:fast(aes)",
            Self::FastHorner => "capi:fast_horner(aes)",
            Self::Hctr2 => "aes-hctr2",
            Self::Adiantum12 => "xchacha12,aes-adiantum",
            Self::Adiantum20 => "xchacha20,aes-adiantum",
            Self::Eme2 => "capi:eme2(aes)",
            Self::Aez10 => "capi:aez10(aes)",
            Self::Xcb => "capi:xcb(aes)",
        }
    }

    /// The name it goes by among people, without its parameters: `XTS`, `HCTR2`.
    pub const fn title(self) -> &'static str {
        match self {
            Self::AesXts => "XTS",
            Self::AesCbc => "CBC",
            Self::FastBrw => "FAST-BRW",
            Self::FastHorner => "FAST-Horner",
            Self::Hctr2 => "HCTR2",
            Self::Adiantum12 => "Adiantum12",
            Self::Adiantum20 => "Adiantum20",
            Self::Eme2 => "EME2",
            Self::Aez10 => "AEZ10",
            Self::Xcb => "XCB",
        }
    }

    /// Bits of the AES key that encrypts the data, of a key of `key_len` bytes. `None` for
    /// Adiantum, which encrypts with `XChaCha`, and for a length that the mode does not take.
    pub const fn aes_bits(self, key_len: usize) -> Option<usize> {
        match (self, key_len) {
            (Self::AesXts, 32 | 64) => Some(key_len * 4),
            // The other 32 bytes are two keys of the mode.
            (Self::Eme2, 48 | 64) => Some((key_len - 32) * 8),
            (Self::AesXts | Self::Eme2 | Self::Adiantum12 | Self::Adiantum20, _) => None,
            (Self::AesCbc, 24) | (_, 16 | 32) => Some(key_len * 8),
            _ => None,
        }
    }

    /// Whether a sector is one block to it: every bit of the ciphertext depends
    /// on every bit of the sector.
    pub const fn is_wide_block(self) -> bool {
        !matches!(self, Self::AesXts | Self::AesCbc)
    }

    /// Whether an attack on it is known that nobody who makes a new volume
    /// should accept.
    pub const fn is_broken(self) -> bool {
        matches!(self, Self::Xcb)
    }

    /// Whether it goes with this way to make IVs.
    const fn takes(self, iv: IvMode) -> bool {
        match self {
            Self::AesXts => !matches!(iv, IvMode::EssivSha256),
            Self::AesCbc => true,
            _ => matches!(iv, IvMode::Plain64),
        }
    }
}

impl IvMode {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Plain,
        Self::Plain64,
        Self::Plain64Be,
        Self::EssivSha256,
    ];

    /// dm-crypt's name.
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Plain64 => "plain64",
            Self::Plain64Be => "plain64be",
            Self::EssivSha256 => "essiv:sha256",
        }
    }
}

impl FromStr for CipherSpec {
    type Err = UnknownCipher;
    fn from_str(name: &str) -> Result<Self, UnknownCipher> {
        CipherSpec::all()
            .find(|spec| {
                name.strip_prefix(spec.mode.name())
                    .and_then(|rest| rest.strip_prefix('-'))
                    == Some(spec.iv.name())
            })
            .ok_or(UnknownCipher)
    }
}

impl fmt::Display for CipherSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.mode.name(), self.iv.name())
    }
}

impl fmt::Display for UnknownCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no such cipher: there are")?;
        for (number, spec) in CipherSpec::all().enumerate() {
            write!(f, "{}{spec}", if number == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownCipher {}

impl CipherSpec {
    /// A mode with a way to make IVs.
    ///
    /// # Errors
    /// [`UnknownCipher`] for a combination that there is not, such as XTS with ESSIV.
    pub const fn new(mode: Mode, iv: IvMode) -> Result<Self, UnknownCipher> {
        if mode.takes(iv) {
            Ok(Self { mode, iv })
        } else {
            Err(UnknownCipher)
        }
    }

    /// Block cipher and mode.
    pub const fn mode(self) -> Mode {
        self.mode
    }

    /// How a sector number becomes an IV or tweak.
    pub const fn iv(self) -> IvMode {
        self.iv
    }

    /// Every combination that there is.
    pub fn all() -> impl Iterator<Item = Self> {
        Mode::ALL.iter().flat_map(|&mode| {
            let ivs = IvMode::ALL.iter().copied();
            ivs.filter(move |&iv| mode.takes(iv))
                .map(move |iv| Self { mode, iv })
        })
    }

    /// The key lengths in bytes that this cipher takes, ascending. XTS keys
    /// are two AES keys of equal length, so 48 bytes (AES-192, which IEEE 1619
    /// does not define) are not among them. Never empty.
    pub const fn key_lengths(&self) -> &'static [usize] {
        match self.mode {
            Mode::AesXts => &[32, 64],
            Mode::AesCbc => &[16, 24, 32],
            Mode::Eme2 => &[48, 64],
            Mode::Adiantum12 | Mode::Adiantum20 => &[32],
            Mode::FastBrw | Mode::FastHorner | Mode::Hctr2 | Mode::Aez10 | Mode::Xcb => &[16, 32],
        }
    }
}

/// Bytes in a sector: 512, 1024, 2048 or 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SectorSize(u16);

/// A number of bytes that is no sector size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrongSectorSize {
    /// Bytes given.
    pub given: u32,
}

impl fmt::Display for WrongSectorSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sectors of {} bytes given, there are sectors of 512, 1024, 2048 and 4096 bytes",
            self.given
        )
    }
}

impl core::error::Error for WrongSectorSize {}

impl SectorSize {
    /// All of them, ascending.
    pub const ALL: &'static [Self] = &[Self(512), Self(1024), Self(2048), Self(4096)];

    /// The sector size of `bytes`.
    ///
    /// # Errors
    /// [`WrongSectorSize`] if it is none of the four.
    pub const fn new(bytes: u32) -> Result<Self, WrongSectorSize> {
        match bytes {
            512 => Ok(Self(512)),
            1024 => Ok(Self(1024)),
            2048 => Ok(Self(2048)),
            4096 => Ok(Self(4096)),
            given => Err(WrongSectorSize { given }),
        }
    }
    /// How many bytes a sector has.
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
        write!(f, "a key of {} bytes given, the cipher takes ", self.given)?;
        let (last, others) = self.takes.split_last().unwrap_or((&0, &[]));
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

    /// The table of ciphers that users read.
    const README: &str = include_str!("../README.md");

    #[test]
    fn every_name_is_a_documented_one_and_round_trips() {
        let documented = README
            .split_once("\n## Ciphers\n")
            .and_then(|(_, rest)| rest.split_once("\n\nThe names that begin"))
            .map(|(table, _)| table)
            .unwrap();
        for spec in CipherSpec::all() {
            let name = spec.to_string();
            assert_eq!(name.parse(), Ok(spec));
            assert_eq!(CipherSpec::new(spec.mode(), spec.iv()), Ok(spec));
            assert!(documented.contains(&std::format!("`{name}`")), "{name}");
        }
        let rows = documented.lines().filter(|line| line.starts_with("| `"));
        let names = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
        assert_eq!(names.count(), CipherSpec::all().count());
    }

    #[test]
    fn each_key_length_has_its_aes() {
        for spec in CipherSpec::all() {
            let mode = spec.mode();
            for len in 0..=130 {
                let takes = spec.key_lengths().contains(&len);
                let is_adiantum = matches!(mode, Mode::Adiantum12 | Mode::Adiantum20);
                match mode.aes_bits(len) {
                    Some(bits) => assert!(takes && matches!(bits, 128 | 192 | 256), "{spec} {len}"),
                    None => assert!(!takes || is_adiantum, "{spec} {len}"),
                }
            }
        }
        assert_eq!(Mode::AesXts.aes_bits(64), Some(256));
        assert_eq!(Mode::Eme2.aes_bits(48), Some(128));
        assert_eq!(Mode::AesCbc.aes_bits(24), Some(192));
    }

    #[test]
    fn there_is_nothing_but_what_has_a_name() {
        let mut count = 0;
        for &mode in Mode::ALL {
            for &iv in IvMode::ALL {
                match CipherSpec::new(mode, iv) {
                    Ok(spec) => {
                        assert_eq!(spec.to_string().parse(), Ok(spec));
                        assert!(!spec.key_lengths().is_empty());
                        count += 1;
                    }
                    Err(UnknownCipher) => assert!(!mode.takes(iv)),
                }
            }
        }
        assert_eq!(count, CipherSpec::all().count());
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
            "aes-hctr2-plain",
            "aes-adiantum-plain64",
            "capi:fast-plain64",
            "capi:fast(aes)-plain64be",
            "capi:fast(aes)plain64",
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
            assert_eq!(size.is_ok(), matches!(bytes, 512 | 1024 | 2048 | 4096));
            match size {
                Ok(size) => assert_eq!(size.bytes(), bytes as usize),
                Err(error) => assert_eq!(error.given, bytes),
            }
        }
    }
}
