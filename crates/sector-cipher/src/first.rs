//! Where a run starts.

use crate::{RunError, SectorSize};

/// Place of a run's first sector on the disk.
///
/// It has to be said which way it is counted, because the two are the same only where
/// sectors have 512 bytes, and a wrong one that happens to be possible encrypts under the
/// wrong IV without an error.
///
/// ```
/// use sector_cipher::{First, SectorSize};
/// let size = SectorSize::new(4096)?;
/// assert_eq!(First::Index(5).units(size), First::Units512(40).units(size));
/// assert!(First::Units512(5).units(size).is_err());
/// # Ok::<(), sector_cipher::WrongSectorSize>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// Index of the sector, in sectors of the cipher's size: byte offset / sector size.
    Index(u64),
    /// Number of the sector in 512-byte units, whatever the sector size: byte offset / 512.
    /// So dm-crypt, LUKS headers and block devices count.
    Units512(u64),
}

impl First {
    /// The number in 512-byte units, as [`Run`](crate::Run) wants it.
    ///
    /// # Errors
    /// [`RunError::FirstSector`] for a number inside a sector, [`RunError::BeyondLast`]
    /// for an index whose number is 2^64 or more.
    pub const fn units(self, size: SectorSize) -> Result<u64, RunError> {
        let units = size.bytes() as u64 / 512;
        match self {
            Self::Index(first) => match first.checked_mul(units) {
                Some(number) => Ok(number),
                None => Err(RunError::BeyondLast { first }),
            },
            // A power of two: no division, which takes as long as some blocks do.
            Self::Units512(first) if first & (units - 1) == 0 => Ok(first),
            Self::Units512(first) => Err(RunError::FirstSector {
                first,
                sector_size: size.bytes(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_become_numbers() {
        let [small, large] = [512, 4096].map(|bytes| SectorSize::new(bytes).unwrap());
        assert_eq!(First::Index(7).units(small), Ok(7));
        assert_eq!(First::Index(7).units(large), Ok(56));
        assert_eq!(First::Units512(56).units(large), Ok(56));
        assert_eq!(
            First::Units512(57).units(large),
            Err(RunError::FirstSector {
                first: 57,
                sector_size: 4096
            })
        );
        let first = u64::MAX / 8 + 1;
        assert_eq!(
            First::Index(first).units(large),
            Err(RunError::BeyondLast { first })
        );
        assert_eq!(First::Index(first - 1).units(large), Ok(u64::MAX - 7));
    }
}
