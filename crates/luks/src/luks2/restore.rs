//! Backups of a header with its keyslots, and putting them back.
//!
//! A backup holds the bytes from the start of the device to the end of the
//! keyslots area, as cryptsetup's does. Putting it back is safe against a cut
//! whenever there is room: key material that would overwrite what the device's
//! present header still uses goes to a free place first, the header switches
//! to it, and only then does the material get its own place. So at every
//! instant the old keys open the volume, or the backup's keys do. Where there
//! is no room, or the device's header has another shape, the material is
//! overwritten first and the header last: a cut in between can leave neither
//! set of keys working, and the restore must be run again; the backup file is
//! never touched.

use xtent_store::Store;

use super::binary::Which;
use super::model::Area;
use super::read::{Foreign, Header, OtherCopy, read};
use super::validate::keyslots_area;
use super::{areas, document};
use crate::{Error, ErrorKind};

/// A validated backup.
pub(crate) struct Plan {
    header: Header,
    /// All of it, both header copies good.
    bytes: Vec<u8>,
}

/// The header that is at the start of `store`, and what a backup of it holds.
pub(crate) fn backup(store: &dyn Store) -> Result<(Header, Vec<u8>), Error> {
    let header = read(store, Foreign::Refuse)?;
    let bytes = bytes_of(store, &header)?;
    Ok((header, bytes))
}

fn bytes_of(store: &dyn Store, header: &Header) -> Result<Vec<u8>, Error> {
    // At most 8 MiB and 128 MiB.
    let mut bytes = vec![0; usize::try_from(header.size()).unwrap_or(usize::MAX)];
    store.read_at(&mut bytes, 0)?;
    // Both copies of a backup are good, whatever those on the device are.
    if header.other != OtherCopy::Same {
        for which in [Which::Primary, Which::Secondary] {
            let copy = header.binary.encode(which, &header.text)?;
            let start = match which {
                Which::Primary => 0,
                Which::Secondary => copy.len(),
            };
            bytes[start..start + copy.len()].copy_from_slice(&copy);
        }
    }
    Ok(bytes)
}

/// Validates `backup` and compares it with what is on the device, which is
/// `None` where there is no LUKS2 header.
pub(crate) fn plan_restore(
    backup: &dyn Store,
    present: Option<&Header>,
    device_size: u64,
) -> Result<(Plan, Vec<String>), Error> {
    let header = read(backup, Foreign::Overwrite).map_err(|mut error| {
        error.message = format!("the backup is not usable: {}", error.message);
        error
    })?;
    let bytes = bytes_of(backup, &header)?;
    let mut warnings = Vec::new();
    if header.other != OtherCopy::Same {
        warnings.push("one of the backup's two header copies is bad, the other one is used".into());
    }
    for requirement in &header.metadata.config.requirements {
        let name = requirement.escape_debug();
        if !super::validate::is_online_reencryption(requirement) {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("the backup requires \"{name}\": it cannot be restored"),
            ));
        }
        warnings.push(format!(
            "the backup was made during a reencryption (\"{name}\"): if that went on since, the data will be destroyed"
        ));
    }
    if header.size() > device_size {
        return Err(Error::new(
            ErrorKind::TooShort,
            format!(
                "the backup has {} bytes, the device only {device_size}",
                header.size()
            ),
        ));
    }
    if let Some(present) = present {
        header.compare(present, &mut warnings)?;
    }
    Ok((Plan { header, bytes }, warnings))
}

impl Header {
    /// Refusals and warnings about replacing `present` by this.
    fn compare(&self, present: &Self, warnings: &mut Vec<String>) -> Result<(), Error> {
        warnings.push(
            "the device has a LUKS2 header: its keyslots will be replaced by those of the backup"
                .into(),
        );
        if self.binary.uuid != present.binary.uuid {
            warnings.push(format!(
                "the UUIDs differ: {} on the device, {} in the backup",
                present.binary.uuid_text(),
                self.binary.uuid_text()
            ));
        }
        let requirements = &present.metadata.config.requirements;
        for requirement in requirements {
            warnings.push(format!(
                "the device's header requires \"{}\": the data may be destroyed",
                requirement.escape_debug()
            ));
        }
        // While it is being reencrypted, a volume's geometry is on the move.
        if requirements
            .iter()
            .any(|requirement| requirement.contains("reencrypt"))
        {
            return Ok(());
        }
        let differ = |what: &str, there: u64, here: u64| {
            if there == here {
                return Ok(());
            }
            Err(Error::new(
                ErrorKind::Refused,
                format!("the {what} differs: {there} on the device, {here} in the backup"),
            ))
        };
        differ(
            "data offset",
            present.metadata.data_offset().unwrap_or(0),
            self.metadata.data_offset().unwrap_or(0),
        )?;
        differ("size of header and keyslots", present.size(), self.size())?;
        let sector_size = |header: &Self| {
            let segment = header.metadata.segments.get(&0)?;
            Some(u64::from(segment.crypt.as_ref()?.sector_size))
        };
        if let (Some(there), Some(here)) = (sector_size(present), sector_size(self)) {
            differ("sector size", there, here)?;
        }
        // An erased header does not say how long the key was.
        if let (Some(there), Some(here)) = (present.key_length(), self.key_length()) {
            differ("volume key's length in bytes", there as u64, here as u64)?;
        }
        Ok(())
    }
}

/// Whether the data begins where the header and its keyslots are: on another device, then.
pub(crate) fn is_detached(header: &Header) -> bool {
    let start = header.metadata.data_offset();
    start.is_some_and(|start| start < header.size())
}

impl Plan {
    /// The same of the backup's header.
    pub(crate) fn is_detached(&self) -> bool {
        is_detached(&self.header)
    }

    /// UUID of the backup.
    pub(crate) fn uuid(&self) -> String {
        self.header.binary.uuid_text()
    }

    /// Carries it out, under the exclusive lock. `present` is the device's
    /// LUKS2 header as it is now, if it has one.
    pub(crate) fn restore(&self, store: &dyn Store, present: Option<Header>) -> Result<(), Error> {
        let mut first = Which::Primary;
        if let Some(mut present) = present {
            self.write_material_beside(store, &mut present)?;
            first = match present.other {
                OtherCopy::Same => Which::Primary,
                OtherCopy::Stale | OtherCopy::Bad => present.chosen.other(),
            };
        } else {
            self.write_range(store, self.room())?;
            store.flush()?;
        }
        for which in [first, first.other()] {
            // At most 4 MiB.
            let size = usize::try_from(self.header.binary.size).unwrap_or(usize::MAX);
            let copy = match which {
                Which::Primary => &self.bytes[..size],
                Which::Secondary => &self.bytes[size..2 * size],
            };
            self.header.write_copy(store, which, copy)?;
        }
        // What the old header used, and what nobody uses.
        self.write_range(store, self.room())?;
        store.flush()?;
        Ok(())
    }

    fn room(&self) -> Area {
        keyslots_area(
            self.header.binary.size,
            self.header.metadata.config.keyslots_size,
        )
    }

    /// Puts the backup's key material in its place without a moment in which
    /// neither header has its own.
    fn write_material_beside(&self, store: &dyn Store, present: &mut Header) -> Result<(), Error> {
        let same_shape =
            present.binary.size == self.header.binary.size && present.size() == self.header.size();
        let used: Vec<Area> = present
            .metadata
            .keyslots
            .values()
            .map(|slot| slot.area)
            .collect();
        let mut in_the_way = Vec::new();
        for (id, slot) in &self.header.metadata.keyslots {
            if self.is_there(store, slot.area) {
                continue;
            }
            if used.iter().any(|area| area.overlaps(slot.area)) {
                in_the_way.push((*id, slot.area));
            } else {
                self.write_range(store, slot.area)?;
            }
        }
        store.flush()?;
        if in_the_way.is_empty() {
            return Ok(());
        }
        if same_shape && let Some(moved) = self.move_aside(store, &used, &in_the_way)? {
            // From here on the device has the backup's keys, elsewhere.
            let mut moved = Header {
                chosen: present.chosen,
                other: present.other,
                ..moved
            };
            moved.binary.seqid = moved.binary.seqid.max(present.binary.seqid);
            moved.write(store)?;
            *present = moved;
        }
        for (_, area) in in_the_way {
            self.write_range(store, area)?;
        }
        store.flush()?;
        Ok(())
    }

    /// The backup's header with the areas `in_the_way` elsewhere, and their
    /// contents written there; nothing if there is no room.
    fn move_aside(
        &self,
        store: &dyn Store,
        used: &[Area],
        in_the_way: &[(u32, Area)],
    ) -> Result<Option<Header>, Error> {
        let own = self.header.metadata.keyslots.values().map(|slot| slot.area);
        let mut taken: Vec<Area> = used.iter().copied().chain(own).collect();
        let mut text = self.header.text.clone();
        let mut moves = Vec::new();
        for (id, area) in in_the_way {
            let Some(place) = areas::gap(self.room(), taken.clone(), area.size) else {
                return Ok(None);
            };
            taken.push(place);
            moves.push((*area, place.offset));
            text = document::set(
                &text,
                &["keyslots", &id.to_string(), "area"],
                "offset",
                format!("\"{}\"", place.offset),
            )?;
        }
        let header = self.header.with_text(text)?;
        for (area, offset) in moves {
            store.write_at(self.slice(area), offset)?;
        }
        store.flush()?;
        Ok(Some(header))
    }

    /// Whether the device has the backup's bytes there already. What cannot be read is not there: to be
    /// written may be all that it needs.
    fn is_there(&self, store: &dyn Store, area: Area) -> bool {
        let expected = self.slice(area);
        let mut there = vec![0; expected.len()];
        store.read_at(&mut there, area.offset).is_ok() && there == expected
    }

    fn write_range(&self, store: &dyn Store, area: Area) -> Result<(), Error> {
        store.write_at(self.slice(area), area.offset)?;
        Ok(())
    }

    /// The backup's bytes there; areas were validated to lie inside.
    fn slice(&self, area: Area) -> &[u8] {
        let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
        &self.bytes[at(area.offset)..at(area.end())]
    }
}
