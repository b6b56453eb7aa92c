//! Changes to an existing header, each safe to interrupt at any instant.
//!
//! A keyslot comes to life in two steps with a flush between: key material,
//! salt and iterations while it is still disabled, then its flag, which lies
//! in one sector. It dies in two steps as well: its key material is overwritten,
//! of which the anti-forensic split makes every sector needed, then its flag,
//! iterations and salt in the header. So a keyslot that a dump shows as disabled
//! has left nothing behind, even when the power failed in between; one that was
//! still to be disabled then opens no more, and can be killed by its number.

use std::ops::RangeInclusive;

use xtent_secret::SecretBytes;

use super::header::{HEADER, Header, SECTOR_LENGTH, SLOTS, Slot, sector_of_flag, sectors_of_slot};
use super::keyslot::{self, NewKeyslot, slot_number};
use super::{read, read_locked, snapshot};
use crate::luks2::model::Area;
use crate::luks2::write;
use crate::{ChangeOptions, Changes, Device, Error, ErrorKind, KdfChoice, KdfLimits, Unlocked};

/// See [`Device::add_key`].
pub(crate) fn add_key(
    device: &Device,
    unlocked: &Unlocked,
    new: &SecretBytes,
    keyslot: Option<u32>,
    kdf: &KdfChoice,
) -> Result<u32, Error> {
    let before = read(device)?;
    before.sound()?;
    // Fail before the key derivation, not after it.
    free_slot(&before, keyslot)?;
    if !keyslot::is_volume_key(&before, &unlocked.key, &KdfLimits { longest: None })? {
        return Err(Error::new(
            ErrorKind::Changed,
            "the volume key is not that of this header; the header was replaced, unlock it again",
        ));
    }
    let sealed = seal(&before, &unlocked.key, new, kdf)?;

    let _lock = device.lock.exclusive()?;
    let mut header = reread(device, &before)?;
    let number = free_slot(&header, keyslot)?;
    activate(device, &mut header, number, &sealed)?;
    Ok(to_keyslot(number))
}

/// See [`Device::change_key`].
pub(crate) fn change_key(
    device: &Device,
    old: &SecretBytes,
    keyslot: Option<u32>,
    new: &SecretBytes,
    kdf: &KdfChoice,
    options: ChangeOptions,
    limits: &KdfLimits,
) -> Result<u32, Error> {
    let mut before = snapshot(device)?;
    before.header.sound()?;
    let refuse_full = |header: &Header| {
        if free_slot(header, None).is_err() && !options.allow_unsafe_in_place {
            return Err(Error::new(
                ErrorKind::Full,
                "all eight keyslots are in use, so the new key can only overwrite the old one: \
                 if that is interrupted, neither opens. Kill a keyslot first, or make a header \
                 backup and insist with --unsafe-in-place",
            ));
        }
        Ok(())
    };
    refuse_full(&before.header)?;
    let unlocked = before.unlock(old, keyslot, limits)?;
    let before = before.header;
    let sealed = seal(&before, &unlocked.key, new, kdf)?;

    let _lock = device.lock.exclusive()?;
    let mut header = reread(device, &before)?;
    let old_keyslot = unlocked.of_keyslot()?;
    let old_number = slot_number(old_keyslot)?;
    if header.slot(old_number) != before.slot(old_number) {
        return Err(changed());
    }
    refuse_full(&header)?;
    match free_slot(&header, None) {
        Ok(number) => {
            activate(device, &mut header, number, &sealed)?;
            destroy(device, &mut header, old_number).map_err(|mut error| {
                error.message = format!(
                    "the new key is in keyslot {number}, but the old one in keyslot {old_number} \
                     could not be removed, kill that keyslot: {}",
                    error.message
                );
                error
            })?;
            Ok(to_keyslot(number))
        }
        Err(_) => {
            overwrite(device, &mut header, old_number, &sealed)?;
            Ok(old_keyslot)
        }
    }
}

/// See [`Device::kill_slot`].
pub(crate) fn kill_slot(device: &Device, keyslot: u32, even_last: bool) -> Result<(), Error> {
    let number = slot_number(keyslot)?;
    let _lock = device.lock.exclusive()?;
    kill(device, read_locked(device)?, number, even_last)
}

/// See [`Device::remove_key`].
pub(crate) fn remove_key(
    device: &Device,
    unlocked: &Unlocked,
    even_last: bool,
) -> Result<(), Error> {
    let number = slot_number(unlocked.of_keyslot()?)?;
    let _lock = device.lock.exclusive()?;
    let header = read_locked(device)?;
    if header.slot(number).active && header.slot(number).salt[..] != unlocked.salt {
        return Err(changed());
    }
    kill(device, header, number, even_last)
}

/// Under the caller's lock.
fn kill(device: &Device, mut header: Header, number: usize, even_last: bool) -> Result<(), Error> {
    header.sound()?;
    let keyslot = to_keyslot(number);
    if !header.slot(number).active {
        return Err(Error::new(
            ErrorKind::Keyslot,
            format!("keyslot {keyslot} is not in use"),
        ));
    }
    if header.keyslots() == [keyslot] && !even_last {
        return Err(Error::new(
            ErrorKind::LastKeyslot,
            format!(
                "keyslot {keyslot} is the last one: without it the data is lost for good. \
                 Add another key first, or insist"
            ),
        ));
    }
    destroy(device, &mut header, number)
}

/// See [`Device::erase`].
pub(crate) fn erase(device: &Device) -> Result<(), Error> {
    let _lock = device.lock.exclusive()?;
    let mut header = read_locked(device)?;
    header.sound()?;
    // All that can be, whatever cannot. Those of disabled keyslots too: they may hold
    // what is left of a write that was interrupted.
    let mut wiped = Ok(());
    for number in 0..SLOTS {
        wiped = wiped.and(wipe_area(device, &header, number));
        let offset = header.slot(number).offset;
        header.set_slot(number, Slot::empty(offset));
    }
    wiped = wiped.and(device.store.flush().map_err(Error::from));
    write_sectors(device, &header, 0..=1)?;
    device.store.flush()?;
    wiped
}

/// See [`Device::configure`]. The UUID lies in the first sector, which is
/// written whole or not at all.
pub(crate) fn configure(device: &Device, changes: &Changes) -> Result<(), Error> {
    let refused = [
        ("label", changes.label.is_some()),
        ("subsystem", changes.subsystem.is_some()),
        ("priorities of keyslots", changes.priority.is_some()),
        (
            "flags",
            !changes.set_flags.is_empty() || !changes.clear_flags.is_empty(),
        ),
    ];
    if let Some((what, _)) = refused.into_iter().find(|(_, wanted)| *wanted) {
        return Err(Error::options(format!(
            "LUKS1 has no {what}, only a UUID; that needs LUKS2"
        )));
    }
    let Some(uuid) = &changes.uuid else {
        return Ok(());
    };
    let uuid = crate::uuid::choose(Some(uuid))?;
    let _lock = device.lock.exclusive()?;
    let mut header = read_locked(device)?;
    header.set_uuid(&uuid)?;
    // A damaged UUID is mended by this; nothing else is.
    header.sound()?;
    write_sectors(device, &header, 0..=0)?;
    device.store.flush()?;
    Ok(())
}

/// Writes a backup, `image`, back: keyslot areas first, the header last, so
/// that the restored header never promises keys that are not there yet. The
/// keys of the header that was there are gone with the first write; whatever
/// an interrupted restore leaves, restoring again completes it.
pub(crate) fn restore(device: &Device, image: &[u8]) -> Result<(), Error> {
    let header = Header::parse_backup(image)?;
    let _lock = device.lock.exclusive()?;
    let store = &device.store;
    if store.size() < header.header_size() {
        return Err(Error::new(
            ErrorKind::TooShort,
            format!(
                "the device has {} bytes, the backup needs {}",
                store.size(),
                header.header_size()
            ),
        ));
    }
    let end = usize::try_from(header.header_size()).unwrap_or(image.len());
    store.write_at(&image[HEADER..end], HEADER as u64)?;
    // Up to the data, which a restore never touches.
    crate::luks2::wipe_copies(&**store, header.header_size()..header.payload_offset())?;
    store.flush()?;
    write_sectors(device, &header, 0..=1)?;
    store.flush()?;
    Ok(())
}

/// Derives and encrypts for the header's cipher and hash.
fn seal(
    header: &Header,
    key: &SecretBytes,
    passphrase: &SecretBytes,
    kdf: &KdfChoice,
) -> Result<NewKeyslot, Error> {
    let kdf = keyslot::settle(kdf, &header.hash, header.key_length())?;
    keyslot::seal(&header.encryption(), &header.hash, key, passphrase, &kdf)
}

/// The header as it is now, if it still is one of the same volume.
fn reread(device: &Device, before: &Header) -> Result<Header, Error> {
    let header = read_locked(device)?;
    header.sound()?;
    if header.same_volume(before) {
        Ok(header)
    } else {
        Err(changed())
    }
}

fn changed() -> Error {
    Error::new(
        ErrorKind::Changed,
        "another program changed the header meanwhile; nothing was written, try again",
    )
}

/// `keyslot` if it is free, or the first one that is.
fn free_slot(header: &Header, keyslot: Option<u32>) -> Result<usize, Error> {
    match keyslot {
        Some(keyslot) => {
            let number = slot_number(keyslot)?;
            if header.slot(number).active {
                return Err(Error::new(
                    ErrorKind::Keyslot,
                    format!("keyslot {keyslot} is in use; kill it first, or choose another"),
                ));
            }
            Ok(number)
        }
        None => (0..SLOTS)
            .find(|&number| !header.slot(number).active)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Full,
                    "all eight keyslots are in use; kill one first",
                )
            }),
    }
}

/// Brings a free keyslot to life.
fn activate(
    device: &Device,
    header: &mut Header,
    number: usize,
    sealed: &NewKeyslot,
) -> Result<(), Error> {
    let slot = Slot {
        active: false,
        iterations: sealed.iterations,
        salt: sealed.salt,
        offset: header.slot(number).offset,
    };
    device
        .store
        .write_at(&sealed.area, header.area(number).start)?;
    header.set_slot(number, slot);
    write_sectors(device, header, sectors_of_slot(number))?;
    device.store.flush()?;
    header.set_slot(
        number,
        Slot {
            active: true,
            ..slot
        },
    );
    let sector = sector_of_flag(number);
    write_sectors(device, header, sector..=sector)?;
    device.store.flush()?;
    Ok(())
}

/// Wipes what a keyslot held and disables it, that also where wiping fails.
fn destroy(device: &Device, header: &mut Header, number: usize) -> Result<(), Error> {
    let wiped =
        wipe_area(device, header, number).and_then(|()| device.store.flush().map_err(Error::from));
    let offset = header.slot(number).offset;
    header.set_slot(number, Slot::empty(offset));
    write_sectors(device, header, sectors_of_slot(number))?;
    device.store.flush()?;
    wiped
}

/// Replaces an active keyslot's contents. Interrupted, its key is lost.
fn overwrite(
    device: &Device,
    header: &mut Header,
    number: usize,
    sealed: &NewKeyslot,
) -> Result<(), Error> {
    header.set_slot(
        number,
        Slot {
            active: true,
            iterations: sealed.iterations,
            salt: sealed.salt,
            offset: header.slot(number).offset,
        },
    );
    device
        .store
        .write_at(&sealed.area, header.area(number).start)?;
    write_sectors(device, header, sectors_of_slot(number))?;
    device.store.flush()?;
    Ok(())
}

/// Writes some of the header's two sectors, each on its own: the other one is
/// not touched.
pub(crate) fn write_sectors(
    device: &Device,
    header: &Header,
    sectors: RangeInclusive<usize>,
) -> Result<(), Error> {
    for sector in sectors {
        let bytes = &header.sectors()[sector * SECTOR_LENGTH..][..SECTOR_LENGTH];
        device
            .store
            .write_at(bytes, (sector * SECTOR_LENGTH) as u64)?;
    }
    Ok(())
}

/// Overwrites a keyslot's area with random bytes.
fn wipe_area(device: &Device, header: &Header, number: usize) -> Result<(), Error> {
    let area = header.area(number);
    overwrite_randomly(device, area.start, area.end)
}

/// Overwrites a range with random bytes; after an error the rest of it all the same.
pub(super) fn overwrite_randomly(device: &Device, start: u64, end: u64) -> Result<(), Error> {
    let area = Area {
        offset: start,
        size: end.saturating_sub(start),
    };
    write::wipe(&*device.store, area)
}

fn to_keyslot(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
