//! LUKS2 becomes LUKS1.

use std::collections::BTreeMap;

use xtent_store::Store;

use super::places::{Move, settle};
use super::to_luks2::move_keyslot;
use super::{ALIGNMENT, copy};
use crate::af::STRIPES;
use crate::luks1::header::{
    DIGEST, Fields, HEADER, Header, SALT, SECTOR, SECTOR_LENGTH, SLOTS, Slot, area_length,
    sector_of_offset,
};
use crate::luks1::{edit, keyslot};
use crate::luks2::areas::gap;
use crate::luks2::binary::Which;
use crate::luks2::model::{Area, SlotKdf};
use crate::luks2::read::{Header as Luks2Header, OtherCopy, read_present};
use crate::luks2::validate::keyslots_area;
use crate::luks2::write;
use crate::{Device, Error, ErrorKind, Kdf, Priority};

/// How it goes.
pub(super) struct Plan {
    pub(super) warnings: Vec<String>,
    /// While it is LUKS2.
    moves: Vec<Move>,
    /// What LUKS1 will say after those.
    header: Header,
}

/// Whether and how `header` can become LUKS1, on a device of `size` bytes.
pub(super) fn plan(header: &Luks2Header, size: u64) -> Result<Plan, Error> {
    let volume = Volume::of(header)?;
    let room = keyslots_area(header.binary.size, header.metadata.config.keyslots_size);
    let mut areas: BTreeMap<u32, Area> = volume
        .slots
        .iter()
        .map(|(id, slot)| (*id, slot.area))
        .collect();
    let moves = settle(&areas, &cells(room, volume.step(), areas.len()), room).unwrap_or_default();
    for step in &moves {
        areas.insert(step.keyslot, step.to);
    }
    Ok(Plan {
        warnings: volume.warnings(header),
        moves,
        header: volume.luks1(&areas, size)?,
    })
}

/// Where LUKS1 has its keyslots, as far as LUKS2's header is not there. With
/// eight keyslots one has to wait behind the others until that is gone.
fn cells(room: Area, step: u64, keyslots: usize) -> Vec<Area> {
    let places = if keyslots < SLOTS { 1..8 } else { 1..9 };
    places
        .map(|number| Area {
            offset: ALIGNMENT + number * step,
            size: step,
        })
        .filter(|cell| cell.offset >= room.offset && cell.end() <= room.end())
        .collect()
}

/// What the two formats say alike.
struct Volume {
    slots: BTreeMap<u32, Entry>,
    cipher_name: String,
    cipher_mode: String,
    hash: String,
    key_bytes: u32,
    payload: u64,
    mk_iterations: u32,
    mk_digest: [u8; DIGEST],
    mk_salt: [u8; SALT],
    uuid: String,
}

struct Entry {
    area: Area,
    iterations: u32,
    salt: [u8; SALT],
}

fn unfit(what: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("LUKS1 cannot be made of this volume: {what}"))
}

impl Volume {
    /// cryptsetup's rules, each by name.
    fn of(header: &Luks2Header) -> Result<Self, Error> {
        let (segment, crypt) = header.crypt()?;
        let metadata = &header.metadata;
        let offset = segment.offset;
        if offset == 0 {
            return Err(Error::unsupported(
                "this is a detached header (its data is at byte 0 of another device), which is \
                 not converted here; `cryptsetup convert` does it",
            ));
        }
        if crypt.sector_size != 512 {
            return Err(unfit(format_args!(
                "its sectors have {} bytes, in LUKS1 they have 512",
                crypt.sector_size
            )));
        }
        if segment.size.is_some() || crypt.iv_tweak != 0 {
            return Err(unfit("its data segment has a fixed size or an IV offset"));
        }
        if offset / SECTOR > u64::from(u32::MAX) {
            return Err(unfit("its data begins beyond 2 TiB"));
        }
        if !metadata.tokens.is_empty() {
            return Err(unfit(format_args!(
                "it has {} tokens; remove them first",
                metadata.tokens.len()
            )));
        }
        if !metadata.config.flags.is_empty() {
            return Err(unfit(format_args!(
                "it has persistent flags ({}); remove them first",
                metadata.config.flags.join(", ")
            )));
        }
        let (digest_id, digest) = metadata.volume_digest()?;
        let Some(digest) = digest
            .pbkdf2
            .as_ref()
            .filter(|_| metadata.digests.len() == 1)
        else {
            return Err(unfit(
                "its keys have several digests, or one that is not pbkdf2 (an unbound keyslot has \
                 one of its own: kill it first)",
            ));
        };
        let (cipher_name, cipher_mode) = crypt
            .encryption
            .split_once('-')
            .ok_or_else(|| unfit("its cipher has no mode"))?;
        let mut slots = BTreeMap::new();
        let mut key_bytes = None;
        for (id, slot) in &metadata.keyslots {
            let refuse = |what: &dyn std::fmt::Display| unfit(format_args!("keyslot {id} {what}"));
            if *id > 7 {
                return Err(refuse(
                    &"is beyond 7, the last one that LUKS1 has; kill it first",
                ));
            }
            if metadata.digests_of_keyslot(*id).next() != Some(digest_id) {
                return Err(refuse(&"does not open the volume; kill it first"));
            }
            let luks2 = slot.luks2.as_ref().ok_or_else(|| {
                refuse(&format_args!("has type \"{}\"", slot.kind.escape_debug()))
            })?;
            let SlotKdf::Known {
                kdf: Kdf::Pbkdf2 { hash, iterations },
                salt,
            } = &luks2.kdf
            else {
                return Err(refuse(
                    &"does not use pbkdf2: give it a new derivation first \
                      (`xtent key change --pbkdf pbkdf2`)",
                ));
            };
            if *hash != digest.hash || luks2.af_hash != digest.hash {
                return Err(refuse(&format_args!(
                    "uses the hashes {hash} and {}, the volume key's digest {}; LUKS1 has one for all",
                    luks2.af_hash, digest.hash
                )));
            }
            if luks2.stripes != STRIPES {
                return Err(refuse(&format_args!(
                    "has {} stripes, LUKS1 has {STRIPES}",
                    luks2.stripes
                )));
            }
            if luks2.encryption != crypt.encryption || luks2.area_key_size != slot.key_size {
                return Err(refuse(&format_args!(
                    "is encrypted with {} ({} bits), the data with {} ({} bits); in LUKS1 both are the same",
                    luks2.encryption.escape_debug(),
                    u64::from(luks2.area_key_size) * 8,
                    crypt.encryption,
                    u64::from(slot.key_size) * 8
                )));
            }
            key_bytes.get_or_insert(slot.key_size);
            let salt = <[u8; SALT]>::try_from(&salt[..])
                .map_err(|_| refuse(&"has a salt that is not of 32 bytes"))?;
            slots.insert(
                *id,
                Entry {
                    area: slot.area,
                    iterations: *iterations,
                    salt,
                },
            );
        }
        let key_bytes = key_bytes.ok_or_else(|| unfit("no keyslot is in use"))?;
        keyslot::cipher(&crypt.encryption, key_bytes as usize)?;
        // PBKDF2's first 20 bytes are the same whatever the length.
        let mk_digest = *digest
            .digest
            .first_chunk::<DIGEST>()
            .ok_or_else(|| unfit("its digest has fewer than 20 bytes"))?;
        let mk_salt = <[u8; SALT]>::try_from(&digest.salt[..])
            .map_err(|_| unfit("its digest's salt has not 32 bytes"))?;
        Ok(Self {
            slots,
            cipher_name: cipher_name.into(),
            cipher_mode: cipher_mode.into(),
            hash: digest.hash.clone(),
            key_bytes,
            payload: offset,
            mk_iterations: digest.iterations,
            mk_digest,
            mk_salt,
            uuid: header.binary.uuid_text(),
        })
    }

    /// Bytes from one area to the next.
    fn step(&self) -> u64 {
        area_length(self.key_bytes).next_multiple_of(ALIGNMENT)
    }

    /// What gets lost.
    fn warnings(&self, header: &Luks2Header) -> Vec<String> {
        let mut warnings = Vec::new();
        for (what, text) in [
            ("label", header.binary.label_text()),
            ("subsystem", header.binary.subsystem_text()),
        ] {
            if !text.is_empty() {
                warnings.push(format!("LUKS1 has no {what}: \"{text}\" is lost"));
            }
        }
        for (id, slot) in &header.metadata.keyslots {
            if slot.priority != Priority::Normal {
                warnings.push(format!(
                    "LUKS1 has no priorities: keyslot {id} becomes one like the others"
                ));
            }
        }
        warnings
    }

    /// The LUKS1 header, with its keyslots in use at `areas` and the others
    /// in what is left, where LUKS1 usually has them if that is free.
    fn luks1(&self, areas: &BTreeMap<u32, Area>, device_size: u64) -> Result<Header, Error> {
        let size = self.step();
        // A header that lies apart from its data may end long before these would begin.
        let end = self.payload.min(device_size);
        let mut taken: Vec<Area> = areas
            .values()
            .map(|area| Area {
                offset: area.offset,
                size,
            })
            .collect();
        let room = Area {
            offset: ALIGNMENT,
            size: (end - end % ALIGNMENT).saturating_sub(ALIGNMENT),
        };
        let mut slots = [Slot::empty(0); SLOTS];
        for (id, slot) in (0_u32..).zip(&mut slots) {
            let area = match areas.get(&id) {
                Some(area) => *area,
                None => {
                    let free = (0..SLOTS as u64)
                        .map(|number| Area {
                            offset: ALIGNMENT + number * size,
                            size,
                        })
                        .find(|cell| {
                            cell.end() <= room.end()
                                && !taken.iter().any(|other| other.overlaps(*cell))
                        })
                        .or_else(|| gap(room, taken.clone(), size))
                        .ok_or_else(|| {
                            Error::new(
                                ErrorKind::Full,
                                format!(
                                    "there is no room for LUKS1's eight keyslots of {size} bytes \
                                     before byte {end}, where the {} {}",
                                    if end < self.payload { "device" } else { "data" },
                                    if end < self.payload { "ends" } else { "begin" },
                                ),
                            )
                        })?;
                    taken.push(free);
                    free
                }
            };
            let offset = u32::try_from(area.offset / SECTOR)
                .map_err(|_| unfit("its keyslots lie beyond 2 TiB"))?;
            *slot = match self.slots.get(&id) {
                Some(entry) => Slot {
                    active: true,
                    iterations: entry.iterations,
                    salt: entry.salt,
                    offset,
                },
                None => Slot::empty(offset),
            };
        }
        Header::make(Fields {
            cipher_name: self.cipher_name.clone(),
            cipher_mode: self.cipher_mode.clone(),
            hash: self.hash.clone(),
            payload_offset: u32::try_from(self.payload / SECTOR)
                .map_err(|_| unfit("its data begins beyond 2 TiB"))?,
            key_bytes: self.key_bytes,
            mk_digest: self.mk_digest,
            mk_salt: self.mk_salt,
            mk_iterations: self.mk_iterations,
            uuid: self.uuid.clone(),
            slots,
        })
    }
}

/// Under the exclusive lock.
pub(super) fn carry_out(device: &Device) -> Result<(), Error> {
    let store = &*device.store;
    let mut present = read_present(store)?;
    let plan = plan(&present, store.size())?;
    if present.other != OtherCopy::Same {
        present.write(store)?;
    }
    for step in &plan.moves {
        move_keyslot(store, &mut present, step.keyslot, step.to)?;
    }
    flip(store, &present, &plan.header)?;
    // The JSON, with every salt.
    write::zero(
        store,
        Area {
            offset: HEADER as u64,
            size: 2 * present.binary.size - HEADER as u64,
        },
    )?;
    store.flush()?;
    tidy(device, plan.header)
}

/// The primary copy with LUKS1's second sector in its padding, nothing of the
/// secondary copy, then LUKS1's first sector.
fn flip(store: &dyn Store, present: &Luks2Header, header: &Header) -> Result<(), Error> {
    let mut primary = present.binary.encode(Which::Primary, &present.text)?;
    primary[SECTOR_LENGTH..HEADER].copy_from_slice(&header.sectors()[SECTOR_LENGTH..]);
    present.binary.seal(&mut primary);
    present.write_copy(store, Which::Primary, &primary)?;
    // A LUKS2 reader that looks for it would take the volume for its own.
    write::zero(
        store,
        Area {
            offset: present.binary.size,
            size: present.binary.size,
        },
    )?;
    store.flush()?;
    store.write_at(&header.sectors()[..SECTOR_LENGTH], 0)?;
    store.flush()?;
    Ok(())
}

/// Now LUKS1: of eight keyslots the one that had to wait gets the first place.
fn tidy(device: &Device, mut header: Header) -> Result<(), Error> {
    let store = &*device.store;
    let length = area_length(header.key_bytes);
    let size = length.next_multiple_of(ALIGNMENT);
    let first = Area {
        offset: ALIGNMENT,
        size,
    };
    let area = |header: &Header, slot: usize| Area {
        offset: header.area(slot).start,
        size,
    };
    if (0..SLOTS).any(|slot| area(&header, slot).overlaps(first)) {
        return Ok(());
    }
    let behind = (0..SLOTS).find(|slot| header.area(*slot).start >= ALIGNMENT + 8 * size);
    let Some(slot) = behind else {
        return Ok(());
    };
    let left = area(&header, slot);
    copy(store, left.offset, first.offset, length)?;
    let moved = Slot {
        offset: u32::try_from(first.offset / SECTOR).unwrap_or(u32::MAX),
        ..*header.slot(slot)
    };
    header.set_slot(slot, moved);
    let sector = sector_of_offset(slot);
    edit::write_sectors(device, &header, sector..=sector)?;
    store.flush()?;
    write::wipe(store, left)
}
