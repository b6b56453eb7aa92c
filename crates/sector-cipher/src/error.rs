//! Why a cipher is not made, and why a run is refused.

use crate::{Backend, WrongKeyLength};
use core::fmt;

/// Why [`Cipher::new`](crate::Cipher::new) makes no cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewError {
    /// The cipher takes no key of this length.
    KeyLength(WrongKeyLength),
    /// This CPU lacks what the back-end needs.
    Backend(Backend),
}

impl From<WrongKeyLength> for NewError {
    fn from(error: WrongKeyLength) -> Self {
        Self::KeyLength(error)
    }
}

impl fmt::Display for NewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyLength(error) => error.fmt(f),
            Self::Backend(backend) => {
                write!(
                    f,
                    "this CPU cannot run the cipher back-end {backend}; it has"
                )?;
                for (i, backend) in Backend::available().iter().enumerate() {
                    write!(f, "{} {backend}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl core::error::Error for NewError {}

/// Why a run is refused. Nothing has been changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// The length is not one of whole sectors.
    Length {
        /// Bytes given.
        len: usize,
        /// Bytes in a sector.
        sector_size: usize,
    },
    /// The number of the first sector, which counts 512-byte units, is not at the start of
    /// a sector.
    FirstSector {
        /// The number given.
        first: u64,
        /// Bytes in a sector.
        sector_size: usize,
    },
    /// The run goes beyond the 512-byte unit with number 2^64 - 1, the last that there is.
    BeyondLast {
        /// Number of the first sector, or its index.
        first: u64,
    },
    /// Source and destination differ in length.
    Unequal {
        /// Bytes of the source.
        source: usize,
        /// Bytes of the destination.
        dest: usize,
    },
    /// The cipher does not take [memory that others see](crate::Foreign).
    Foreign,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Length { len, sector_size } => write!(
                f,
                "a run of {len} bytes is not whole sectors of {sector_size} bytes"
            ),
            Self::FirstSector { first, sector_size } => write!(
                f,
                "sector {first} (512-byte units) is not at the start of a sector of \
                 {sector_size} bytes: multiples of {} are",
                sector_size / 512
            ),
            Self::BeyondLast { first } => write!(
                f,
                "the run that begins with sector {first} goes beyond the last sector, 2^64 - 1"
            ),
            Self::Unequal { source, dest } => write!(
                f,
                "source and destination of a run must have the same length, not {source} and \
                 {dest} bytes"
            ),
            Self::Foreign => f.write_str(
                "this cipher needs more than one look at a byte: memory that others see has to be copied before",
            ),
        }
    }
}

impl core::error::Error for RunError {}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn errors_say_what_was_given_and_what_is_taken() {
        for (error, text) in [
            (
                RunError::Length {
                    len: 4095,
                    sector_size: 4096,
                },
                "a run of 4095 bytes is not whole sectors of 4096 bytes",
            ),
            (
                RunError::FirstSector {
                    first: 9,
                    sector_size: 4096,
                },
                "sector 9 (512-byte units) is not at the start of a sector of 4096 bytes: \
                 multiples of 8 are",
            ),
            (
                RunError::Unequal {
                    source: 512,
                    dest: 1024,
                },
                "source and destination of a run must have the same length, not 512 and 1024 bytes",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
        let error = NewError::Backend(Backend::Armv8).to_string();
        assert!(error.contains("armv8; it has portable"), "{error}");
    }
}
