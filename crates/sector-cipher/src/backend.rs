//! Which implementations there are, and which of them this CPU can run.

use core::fmt;
use core::str::FromStr;

use crate::Ports;
use crate::arch::ports_of;
use crate::row::{Detected, detected};

/// An implementation of the ciphers for one kind of CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Constant-time Rust for any CPU, on RustCrypto's `aes`: `portable`.
    Portable,
    /// x86-64 AES-NI and PCLMULQDQ with AVX: `aes-ni`.
    AesNi,
    /// x86-64 VAES and VPCLMULQDQ with AVX2: `vaes256`.
    Vaes256,
    /// x86-64 VAES and VPCLMULQDQ with AVX-512 (F, BW, VL, VBMI): `vaes512`.
    Vaes512,
    /// 64-bit ARM with AES and PMULL (the cryptographic extension): `armv8`.
    Armv8,
}

/// A name that no back-end has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownBackend;

impl Backend {
    /// All of them, whatever this CPU has; those of an architecture slowest first.
    pub const ALL: &'static [Backend] = &[
        Backend::Portable,
        Backend::AesNi,
        Backend::Vaes256,
        Backend::Vaes512,
        Backend::Armv8,
    ];

    /// The back-ends this CPU has, slowest first; never empty.
    pub fn available() -> &'static [Backend] {
        detected()
    }

    /// The fastest one this CPU has.
    pub fn best() -> Backend {
        Self::available()
            .last()
            .copied()
            .unwrap_or(Backend::Portable)
    }

    /// Its name on command lines and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Portable => "portable",
            Backend::AesNi => "aes-ni",
            Backend::Vaes256 => "vaes256",
            Backend::Vaes512 => "vaes512",
            Backend::Armv8 => "armv8",
        }
    }

    /// What it does in the way that suits this CPU's ports; `None` if it has one way only, or
    /// the CPU cannot run it.
    pub fn ports(self) -> Option<Ports> {
        self.is_supported().then(|| ports_of(self)).flatten()
    }

    /// Whether this CPU can run it.
    pub fn is_supported(self) -> bool {
        Detected::of(self).is_some()
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;
    /// Knows every name, whether or not this CPU has the back-end: see
    /// [`Backend::is_supported`].
    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        Backend::ALL
            .iter()
            .copied()
            .find(|backend| backend.name() == name)
            .ok_or(UnknownBackend)
    }
}

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown cipher back-end: known are")?;
        for (i, backend) in Backend::ALL.iter().enumerate() {
            let separator = match i {
                0 => " ",
                _ if i + 1 == Backend::ALL.len() => " and ",
                _ => ", ",
            };
            write!(f, "{separator}{backend}")?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownBackend {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn names_round_trip() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(*backend));
        }
        assert_eq!("AES-NI".parse::<Backend>(), Err(UnknownBackend));
        assert_eq!("".parse::<Backend>(), Err(UnknownBackend));
    }

    #[test]
    fn portable_is_always_there_and_best_is_last() {
        let available = Backend::available();
        assert_eq!(available[0], Backend::Portable);
        assert_eq!(*available.last().unwrap(), Backend::best());
        for backend in Backend::ALL {
            assert_eq!(available.contains(backend), backend.is_supported());
        }
    }
}
