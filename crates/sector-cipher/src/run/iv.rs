//! IVs: what a sector's number becomes, and where it is written.

use super::BATCH;
use crate::here::from_fn;
use crate::{IvMode, SectorCount, SectorSize};

/// The sector for [`IvRule::of_tweak`]: every bit of its number is set, in whichever order
/// the bytes are.
#[cfg(any(test, feature = "hazmat"))]
pub(crate) const ALL_ONES: u64 = u64::MAX;

/// How the number of a sector becomes its IV.
#[derive(Clone, Copy)]
pub(crate) struct IvRule {
    pub(super) size: SectorSize,
    pub(super) log_bytes: u32,
    /// Sectors of 512 bytes in one sector.
    pub(super) units: u64,
    /// From 512-byte units to what the IV counts.
    pub(super) shift: u32,
    /// The bits of the number in the first eight bytes of the IV.
    little: u64,
    /// The bits of the byte-swapped number in its last eight bytes.
    big: u64,
    /// What the IV counts from a sector to those behind it.
    pub(super) steps: [u128; BATCH],
    /// The bits of the count in the IV, and of the count with all sixteen bytes
    /// reversed.
    pub(super) masks: [u128; 2],
}

impl IvRule {
    pub(crate) fn new(mode: IvMode, size: SectorSize, count: SectorCount) -> Self {
        let units = size.bytes() as u64 / 512;
        let shift = match count {
            SectorCount::Units512 => 0,
            SectorCount::Large => units.trailing_zeros(),
        };
        let (little, big) = match mode {
            IvMode::Plain => (0xffff_ffff, 0),
            IvMode::Plain64 | IvMode::EssivSha256 => (u64::MAX, 0),
            IvMode::Plain64Be => (0, u64::MAX),
        };
        let step = u128::from(units >> shift);
        // Behind the last sector comes sector 0.
        let counted = u64::MAX >> shift;
        Self {
            steps: from_fn(|i| step * i as u128),
            masks: [
                u128::from(little & counted),
                u128::from(big & counted.swap_bytes()) << 64,
            ],
            size,
            log_bytes: size.bytes().trailing_zeros(),
            units,
            shift,
            little,
            big,
        }
    }

    /// The rule that gives sector [`ALL_ONES`] any IV at all.
    #[cfg(any(test, feature = "hazmat"))]
    #[allow(clippy::cast_possible_truncation, reason = "halves are wanted")]
    pub(crate) fn of_tweak(tweak: u128, size: SectorSize) -> Self {
        let (little, big) = (tweak as u64, (tweak >> 64) as u64);
        Self {
            little,
            big,
            masks: [u128::from(little), u128::from(big) << 64],
            ..Self::new(IvMode::Plain64, size, SectorCount::Units512)
        }
    }

    /// The IV, or the tweak before its encryption, of the sector whose first
    /// 512 bytes have number `sector`.
    #[inline(always)]
    pub(super) fn iv(&self, sector: u64) -> u128 {
        let number = sector >> self.shift;
        u128::from(number & self.little) | u128::from(number.swap_bytes() & self.big) << 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(mode: IvMode, bytes: u32, count: SectorCount) -> IvRule {
        IvRule::new(mode, SectorSize::new(bytes).unwrap(), count)
    }

    #[test]
    fn ivs_as_dm_crypt() {
        let plain = rule(IvMode::Plain, 512, SectorCount::Units512);
        assert_eq!(plain.iv(0xffff_ffff), 0xffff_ffff);
        assert_eq!(plain.iv(0x1_0000_0000), 0);
        assert_eq!(plain.iv(0x5_0000_0007), 7);
        let plain64 = rule(IvMode::Plain64, 512, SectorCount::Units512);
        assert_eq!(plain64.iv(u64::MAX), u128::from(u64::MAX));
        let be = rule(IvMode::Plain64Be, 512, SectorCount::Units512);
        assert_eq!(
            be.iv(0x0102_0304_0506_0708).to_le_bytes(),
            [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
        );
        let large = rule(IvMode::Plain64, 4096, SectorCount::Large);
        assert_eq!(large.iv(8 * 5), 5);
        let units = rule(IvMode::Plain64, 4096, SectorCount::Units512);
        assert_eq!(units.iv(8 * 5), 40);
        // dm-crypt shifts first and truncates then.
        let large = rule(IvMode::Plain, 2048, SectorCount::Large);
        assert_eq!(large.iv(4 << 32), 0);
        assert_eq!(large.iv(1 << 33), 1 << 31);
    }
}
