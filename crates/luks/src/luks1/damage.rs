//! Damage to what no key depends on: the UUID, and keyslots that are not in
//! use. The volume opens all the same, since there is no second copy of the
//! header to take the field from. Nothing is written to such a header but its
//! repair.

use super::header::{HEADER, Header, SECTOR_LENGTH, SLOTS, Slot};
use super::{edit, read_locked};
use crate::{Device, Error};

/// What is wrong with a header that can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    /// The UUID is no text.
    pub(super) uuid: bool,
    /// What is wrong with a keyslot.
    pub(super) slots: [Option<SlotDamage>; SLOTS],
}

/// What is wrong with a keyslot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotDamage {
    /// Its flag says neither enabled nor disabled. If there is a salt and a
    /// cost, which a keyslot loses when it is disabled, it counts as enabled.
    Flag(u32),
    /// Nor has it 4000 stripes, as every keyslot has; but salt, cost and place of one in use.
    Both { flag: u32, stripes: u32 },
    /// Enabled, with a cost of nothing: no key can be in it.
    Empty,
    /// Not 4000 stripes, and not in use.
    Stripes(u32),
    /// Its area cannot be where it says, and it is not in use.
    Area,
}

impl SlotDamage {
    /// Whether the keyslot's area is somewhere else than the header says.
    pub(super) fn is_about_area(self) -> bool {
        self == Self::Area
    }
}

impl Header {
    /// What is damaged, in words.
    pub(crate) fn damage(&self) -> Vec<String> {
        let damage = self.damaged_parts();
        let uuid = damage.uuid.then(|| "the UUID is no text".to_owned());
        let slots = damage
            .slots
            .iter()
            .enumerate()
            .filter_map(|(number, slot)| {
                Some(match (*slot)? {
                    SlotDamage::Flag(flag) => format!(
                        "keyslot {number} is neither enabled nor disabled ({flag:#010x}); it counts \
                         as {}",
                        if self.slot(number).active {
                            "in use, as it has salt and cost"
                        } else {
                            "not in use, as it lacks salt or cost"
                        }
                    ),
                    SlotDamage::Both { flag, stripes } => format!(
                        "keyslot {number} is neither enabled nor disabled ({flag:#010x}), with \
                         {stripes} stripes; it counts as in use, as it has salt, cost and its place"
                    ),
                    SlotDamage::Empty => format!("keyslot {number} is enabled, but empty"),
                    SlotDamage::Stripes(stripes) => {
                        format!("keyslot {number}, not in use, has {stripes} stripes")
                    }
                    SlotDamage::Area => {
                        format!("keyslot {number}, not in use, has its area in an impossible place")
                    }
                })
            });
        uuid.into_iter().chain(slots).collect()
    }

    /// Refuses a damaged header, for everything that would write.
    pub(crate) fn sound(&self) -> Result<(), Error> {
        match &self.damage()[..] {
            [] => Ok(()),
            damage => Err(Error::corrupt(format!(
                "the LUKS1 header is damaged: {}; nothing is written to it before it was repaired \
                 (`xtent header repair`)",
                damage.join("; ")
            ))),
        }
    }

    /// The sectors of the same header without damage. Salt and cost of a
    /// keyslot stay, whatever was wrong with it: nothing is lost by a repair.
    fn repaired(&self) -> Result<Self, Error> {
        let mut header = self.clone();
        if self.damaged_parts().uuid {
            header.set_uuid(&crate::uuid::choose(None)?)?;
        }
        for (number, damage) in self.damaged_parts().slots.iter().enumerate() {
            let Some(damage) = *damage else { continue };
            let slot = *self.slot(number);
            let offset = if damage.is_about_area() {
                self.place_of(number)?
            } else {
                slot.offset
            };
            header.set_slot(number, Slot { offset, ..slot });
        }
        let header = Self::parse(header.sectors())?;
        header.sound()?;
        Ok(header)
    }

    /// Where a keyslot's area has to be, because the others are in their usual
    /// places.
    fn place_of(&self, number: usize) -> Result<u32, Error> {
        let others_are_usual = (0..SLOTS)
            .filter(|other| self.damaged_parts().slots[*other].is_none())
            .all(|other| self.is_in_usual_place(other));
        self.usual_offset(number)
            .filter(|_| others_are_usual)
            .ok_or_else(|| {
                Error::corrupt(format!(
                    "nothing tells where keyslot {number}'s area is, because the others are not \
                     where cryptsetup puts them: restore the header from a backup"
                ))
            })
    }
}

/// See [`Device::repair`]. Each of the two sectors is written whole or not at
/// all, and with one of them repaired the header can still be used.
pub(crate) fn repair(device: &Device) -> Result<bool, Error> {
    let _lock = device.lock.exclusive()?;
    let before = read_locked(device)?;
    if before.damage().is_empty() {
        return Ok(false);
    }
    let after = before.repaired()?;
    for sector in 0..HEADER / SECTOR_LENGTH {
        let range = sector * SECTOR_LENGTH..(sector + 1) * SECTOR_LENGTH;
        if before.sectors()[range.clone()] != after.sectors()[range] {
            edit::write_sectors(device, &after, sector..=sector)?;
            device.store.flush()?;
        }
    }
    Ok(true)
}
