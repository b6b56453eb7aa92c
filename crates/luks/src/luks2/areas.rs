//! Room for key material in the keyslots area.

use super::model::Area;
use super::read::Header;
use super::validate::{AREA_ALIGNMENT, keyslots_area};
use crate::{Error, ErrorKind};

/// Bytes of area for a key of `key_size` bytes, as cryptsetup has it.
pub(crate) fn area_size(key_size: usize) -> u64 {
    (key_size as u64 * u64::from(crate::af::STRIPES)).next_multiple_of(AREA_ALIGNMENT)
}

impl Header {
    /// The first gap of `size` bytes that no keyslot of any type uses.
    pub(crate) fn find_gap(&self, size: u64) -> Result<Area, Error> {
        let room = keyslots_area(self.binary.size, self.metadata.config.keyslots_size);
        let taken = self.metadata.keyslots.values().map(|keyslot| keyslot.area);
        gap(room, taken.collect(), size).ok_or_else(|| {
            Error::new(
                ErrorKind::Full,
                format!(
                    "no gap of {size} bytes in the keyslots area of {} bytes: remove a keyslot first",
                    room.size
                ),
            )
        })
    }
}

/// The first gap of `size` bytes in `room` beside what is `taken`.
pub(crate) fn gap(room: Area, mut taken: Vec<Area>, size: u64) -> Option<Area> {
    taken.sort_by_key(|area| area.offset);
    let mut offset = room.offset.next_multiple_of(AREA_ALIGNMENT);
    for area in taken {
        if offset.checked_add(size)? <= area.offset {
            break;
        }
        // Areas of types that are not known need not be aligned.
        offset = offset.max(area.end().checked_next_multiple_of(AREA_ALIGNMENT)?);
    }
    let found = Area { offset, size };
    (offset.checked_add(size)? <= room.end()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_those_of_cryptsetup() {
        assert_eq!(area_size(64), 258_048);
        assert_eq!(area_size(32), 131_072);
        assert_eq!(area_size(16), 65_536);
    }

    proptest! {
        #[test]
        fn gaps_are_free_aligned_and_the_first(
            lengths in proptest::collection::vec((0_u64..4, 1_u64..9000), 0..12),
            size in 1_u64..5,
        ) {
            let room = Area { offset: 0x8000, size: 64 * 1024 };
            let mut at = room.offset;
            let mut taken = Vec::new();
            for (gap, length) in lengths {
                let area = Area { offset: at + gap * 4096, size: length };
                if area.end() > room.end() { break; }
                at = area.end();
                taken.push(area);
            }
            taken.reverse();
            let size = size * 4096;
            let fits = |offset: u64| {
                let area = Area { offset, size };
                area.end() <= room.end() && !taken.iter().any(|other| other.overlaps(area))
            };
            let expected = (room.offset..room.end()).step_by(4096).find(|offset| fits(*offset));
            prop_assert_eq!(gap(room, taken.clone(), size).map(|area| area.offset), expected);
        }
    }
}
