//! LUKS1 becomes LUKS2.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use xtent_store::Store;

use super::places::settle;
use super::{ALIGNMENT, LUKS2_HEADER, UNDER_WAY, copy};
use crate::af::STRIPES;
use crate::luks1::header::{
    HEADER, Header, SECTOR_LENGTH, SLOTS, Slot, area_length, sector_of_offset,
};
use crate::luks1::{edit, keyslot};
use crate::luks2::areas::gap;
use crate::luks2::binary::{BINARY_SIZE, Binary, Checksum, Which, padded};
use crate::luks2::model::{Area, Metadata};
use crate::luks2::read::{Header as Luks2Header, read_present};
use crate::luks2::validate::MAX_KEYSLOTS_SIZE;
use crate::luks2::{document, write};
use crate::{Device, Error, ErrorKind};

/// Bytes of one copy of the header.
const COPY: u64 = LUKS2_HEADER / 2;

/// How key material gets out of the new header's way.
pub(super) enum Route {
    /// One keyslot at a time; often none.
    Steps(Vec<Step>),
    /// All at once, through a time without a header.
    AtOnce,
}

impl Route {
    pub(super) fn needs_backup(&self) -> bool {
        matches!(self, Self::AtOnce)
    }
}

/// A keyslot in use gets another area.
pub(super) struct Step {
    slot: usize,
    /// In bytes.
    to: u64,
    /// The unused keyslot that had it, and gets the other in return.
    from_slot: Option<usize>,
}

/// Whether and how `header` can become LUKS2.
pub(super) fn plan(store: &dyn Store, header: &Header) -> Result<Route, Error> {
    refuse_unfit(store, header)?;
    let end = end_of_room(store, header);
    let size = step_size(header);
    let mut after = header.clone();
    let mut steps = Vec::new();
    while let Some(slot) = in_the_way(&after) {
        let Some(step) = find_place(&after, slot, end) else {
            let needed = LUKS2_HEADER + size * SLOTS as u64;
            if needed > end {
                return Err(too_narrow(end, needed));
            }
            check(&text(&moved_at_once(header), end)?)?;
            return Ok(Route::AtOnce);
        };
        step.apply(&mut after);
        steps.push(step);
    }
    check(&text(&after, end)?)?;
    Ok(Route::Steps(steps))
}

/// Fails on what no LUKS2 reader would accept.
fn check(text: &str) -> Result<(), Error> {
    Metadata::parse(&document::parse(text)?)?.validate(COPY)
}

fn too_narrow(end: u64, needed: u64) -> Error {
    Error::new(
        ErrorKind::Full,
        format!(
            "the data begins at byte {end}, but LUKS2's header with these keyslots takes {needed}: \
             kill a keyslot, or copy the data to a new volume"
        ),
    )
}

fn refuse_unfit(store: &dyn Store, header: &Header) -> Result<(), Error> {
    if header.payload_offset() == 0 {
        return Err(Error::unsupported(
            "this is a detached header (its data is at byte 0 of another device), which is \
             not converted here; `cryptsetup convert` does it",
        ));
    }
    if header.keyslots().is_empty() {
        return Err(Error::unsupported(
            "no keyslot is in use: the header was erased, there is nothing to convert",
        ));
    }
    keyslot::cipher(&header.encryption(), header.key_length())?;
    for slot in (0..SLOTS).filter(|slot| header.slot(*slot).active) {
        let start = header.area(slot).start;
        if !start.is_multiple_of(ALIGNMENT) {
            return Err(Error::unsupported(format!(
                "the area of keyslot {slot} begins at byte {start}, which is no multiple of \
                 {ALIGNMENT} as LUKS2 wants it"
            )));
        }
    }
    let behind = header.header_size().next_multiple_of(ALIGNMENT);
    let mut magic = [0; 8];
    if behind + 8 <= store.size() {
        store.read_at(&mut magic, behind)?;
    }
    if magic == *b"LUKSMETA" {
        return Err(Error::unsupported(
            "there is LUKSMETA data behind the keyslots, which the conversion would overwrite: \
             remove it with luksmeta first",
        ));
    }
    if end_of_room(store, header) < LUKS2_HEADER + step_size(header) {
        return Err(too_narrow(
            end_of_room(store, header),
            LUKS2_HEADER + step_size(header),
        ));
    }
    Ok(())
}

/// First byte that is not header: where the data begins.
fn end_of_room(store: &dyn Store, header: &Header) -> u64 {
    let end = header.payload_offset().min(store.size());
    end - end % ALIGNMENT
}

/// Bytes from one area to the next.
fn step_size(header: &Header) -> u64 {
    area_length(header.key_bytes).next_multiple_of(ALIGNMENT)
}

fn area(header: &Header, slot: usize) -> Area {
    Area {
        offset: header.area(slot).start,
        size: step_size(header),
    }
}

/// A keyslot in use whose material lies where LUKS2's header goes.
fn in_the_way(header: &Header) -> Option<usize> {
    (0..SLOTS).find(|&slot| header.slot(slot).active && header.area(slot).start < LUKS2_HEADER)
}

/// Another place for a keyslot's material that one sector can announce.
fn find_place(header: &Header, slot: usize, end: u64) -> Option<Step> {
    let room = Area {
        offset: LUKS2_HEADER,
        size: end.checked_sub(LUKS2_HEADER)?,
    };
    let taken = (0..SLOTS).map(|slot| area(header, slot)).collect();
    if let Some(place) = gap(room, taken, step_size(header)) {
        return Some(Step {
            slot,
            to: place.offset,
            from_slot: None,
        });
    }
    (0..SLOTS)
        .find(|&other| {
            let place = area(header, other);
            !header.slot(other).active
                && place.offset >= LUKS2_HEADER
                && place.offset.is_multiple_of(ALIGNMENT)
                && place.end() <= end
                && sector_of_offset(other) == sector_of_offset(slot)
        })
        .map(|other| Step {
            slot,
            to: header.area(other).start,
            from_slot: Some(other),
        })
}

impl Step {
    /// Tells the header, in memory; returns the place that was left.
    fn apply(&self, header: &mut Header) -> Area {
        let left = area(header, self.slot);
        let old = *header.slot(self.slot);
        let sectors = |bytes: u64| u32::try_from(bytes / SECTOR_LENGTH as u64).unwrap_or(u32::MAX);
        header.set_slot(
            self.slot,
            Slot {
                offset: sectors(self.to),
                ..old
            },
        );
        if let Some(other) = self.from_slot {
            let unused = *header.slot(other);
            header.set_slot(
                other,
                Slot {
                    offset: old.offset,
                    ..unused
                },
            );
        }
        left
    }
}

/// Under the exclusive lock; `header` was just read.
pub(super) fn carry_out(device: &Device, mut header: Header) -> Result<(), Error> {
    let store = &*device.store;
    match plan(store, &header)? {
        Route::Steps(steps) => {
            for step in steps {
                let from = header.area(step.slot);
                copy(store, from.start, step.to, from.end - from.start)?;
                let left = step.apply(&mut header);
                let sector = sector_of_offset(step.slot);
                edit::write_sectors(device, &header, sector..=sector)?;
                store.flush()?;
                write::wipe(store, left)?;
            }
            flip(store, &header)?;
            tidy(store)
        }
        Route::AtOnce => {
            flip(store, &move_at_once(store, &header)?)?;
            // Both copies as they should be, without LUKS1's sector.
            read_present(store)?.write(store)
        }
    }
}

/// The header with every keyslot in cryptsetup's place for it.
fn moved_at_once(header: &Header) -> Header {
    let mut moved = header.clone();
    for slot in (0..SLOTS).filter(|slot| header.slot(*slot).active) {
        let step = Step {
            slot,
            to: LUKS2_HEADER + step_size(header) * slot as u64,
            from_slot: None,
        };
        step.apply(&mut moved);
    }
    moved
}

/// Moves them there. The device is neither LUKS1 nor LUKS2 from the first
/// write on.
fn move_at_once(store: &dyn Store, header: &Header) -> Result<Header, Error> {
    let moved = moved_at_once(header);
    let length = usize::try_from(area_length(header.key_bytes)).unwrap_or(usize::MAX);
    let mut materials = Vec::new();
    for slot in (0..SLOTS).filter(|slot| header.slot(*slot).active) {
        let material = write::read_area(store, area(header, slot), length)?;
        materials.push((moved.area(slot).start, material));
    }
    let mut first = header.sectors()[..SECTOR_LENGTH].to_vec();
    first[6..8].copy_from_slice(&UNDER_WAY.to_be_bytes());
    store.write_at(&first, 0)?;
    store.flush()?;
    for (to, material) in materials {
        store.write_at(&material, to)?;
    }
    store.flush()?;
    Ok(moved)
}

/// LUKS2's two copies, of which only the first sector is missing until the end.
fn flip(store: &dyn Store, header: &Header) -> Result<(), Error> {
    let text = text(header, end_of_room(store, header))?;
    let binary = Binary {
        size: COPY,
        seqid: 1,
        label: [0; _],
        subsystem: [0; _],
        uuid: padded(header.uuid()).ok_or_else(|| Error::corrupt("the UUID is too long"))?,
        checksum: Checksum::Sha256,
    };
    check(&text)?;
    let secondary = binary.encode(Which::Secondary, &text)?;
    let mut primary = binary.encode(Which::Primary, &text)?;
    primary[SECTOR_LENGTH..HEADER].copy_from_slice(&header.sectors()[SECTOR_LENGTH..]);
    binary.seal(&mut primary);
    store.write_at(&secondary, COPY)?;
    store.write_at(&primary[HEADER..], HEADER as u64)?;
    // Where everything moved at once it says something else there.
    store.write_at(&primary[SECTOR_LENGTH..HEADER], SECTOR_LENGTH as u64)?;
    store.flush()?;
    store.write_at(&primary[..SECTOR_LENGTH], 0)?;
    store.flush()?;
    Ok(())
}

/// Now LUKS2: padding without LUKS1's sector, and keyslots where cryptsetup
/// would have put them.
fn tidy(store: &dyn Store) -> Result<(), Error> {
    let mut header = read_present(store)?;
    header.write(store)?;
    let room = Area {
        offset: LUKS2_HEADER,
        size: header.metadata.config.keyslots_size,
    };
    let areas: BTreeMap<u32, Area> = header
        .metadata
        .keyslots
        .iter()
        .map(|(id, keyslot)| (*id, keyslot.area))
        .collect();
    let size = areas.values().map(|area| area.size).max().unwrap_or(0);
    let cells: Vec<Area> = (0..SLOTS as u64)
        .map(|number| Area {
            offset: LUKS2_HEADER + number * size,
            size,
        })
        .filter(|cell| cell.end() <= room.end())
        .collect();
    // Too narrow: they stay where they are.
    for step in settle(&areas, &cells, room).unwrap_or_default() {
        move_keyslot(store, &mut header, step.keyslot, step.to)?;
    }
    Ok(())
}

/// Moves the material of a LUKS2 keyslot by an ordinary update of the header.
pub(super) fn move_keyslot(
    store: &dyn Store,
    header: &mut Luks2Header,
    keyslot: u32,
    to: Area,
) -> Result<(), Error> {
    let slot = &header.metadata.keyslots[&keyslot];
    let left = slot.area;
    let length = slot.material_size()? as u64;
    let id = keyslot.to_string();
    let path = ["keyslots", id.as_str(), "area"];
    let mut text = document::set(&header.text, &path, "offset", format!("\"{}\"", to.offset))?;
    text = document::set(&text, &path, "size", format!("\"{}\"", to.size))?;
    let mut moved = header.with_text(text)?;
    copy(store, left.offset, to.offset, length)?;
    moved.write(store)?;
    *header = moved;
    write::wipe(store, left)
}

/// The metadata of the LUKS2 header that says what `header` says.
fn text(header: &Header, end: u64) -> Result<String, Error> {
    let base64 = |bytes: &[u8]| STANDARD.encode(bytes);
    let encryption = header.encryption();
    let mut keyslots = serde_json::Map::new();
    for slot in (0..SLOTS).filter(|slot| header.slot(*slot).active) {
        let entry = header.slot(slot);
        let area = area(header, slot);
        keyslots.insert(
            slot.to_string(),
            json!({
                "type": "luks2",
                "key_size": header.key_bytes,
                "af": { "type": "luks1", "stripes": STRIPES, "hash": header.hash },
                "area": {
                    "type": "raw",
                    "offset": area.offset.to_string(),
                    "size": area.size.to_string(),
                    "encryption": encryption,
                    "key_size": header.key_bytes,
                },
                "kdf": {
                    "type": "pbkdf2",
                    "hash": header.hash,
                    "iterations": entry.iterations,
                    "salt": base64(&entry.salt),
                },
            }),
        );
    }
    let names: Vec<String> = keyslots.keys().cloned().collect();
    let document = json!({
        "keyslots": keyslots,
        "tokens": {},
        "segments": { "0": {
            "type": "crypt",
            "offset": header.payload_offset().to_string(),
            "size": "dynamic",
            "iv_tweak": "0",
            "encryption": encryption,
            "sector_size": 512,
        }},
        "digests": { "0": {
            "type": "pbkdf2",
            "keyslots": names,
            "segments": ["0"],
            "hash": header.hash,
            "iterations": header.mk_iterations,
            "salt": base64(&header.mk_salt),
            "digest": base64(&header.mk_digest),
        }},
        "config": {
            "json_size": (COPY - BINARY_SIZE as u64).to_string(),
            "keyslots_size": (end - LUKS2_HEADER).min(MAX_KEYSLOTS_SIZE).to_string(),
        },
    });
    Ok(document.to_string())
}
