//! LUKS1 (On-Disk Format Specification 1.2.3): a header of two sectors, eight
//! keyslots, no second copy.
//!
//! Without a second copy, crash safety comes from the order of single-sector
//! writes: a disk writes 512 bytes whole or not at all. Key material and salt
//! of an unused keyslot go to disk first, then its flag, in one sector.

use crate::pin::Covered;
use crate::{Device, Error, ErrorKind, KdfLimits, Segment, Unlocked, null};
use xtent_secret::SecretBytes;

mod damage;
mod dump;
pub(crate) mod edit;
mod format;
pub(crate) mod header;
pub(crate) mod keyslot;
#[cfg(test)]
mod tests;

pub(crate) use damage::repair;
pub use dump::{Dump, Keyslot};
pub(crate) use edit::{add_key, change_key, configure, erase, kill_slot, remove_key, restore};
pub(crate) use format::format;
pub(crate) use header::Header;

use header::{HEADER, SECTOR, SLOTS};
use keyslot::Snapshot;

/// Reads and validates the header.
pub(crate) fn read(device: &Device) -> Result<Header, Error> {
    let _lock = device.lock.shared()?;
    read_locked(device)
}

/// See [`Device::unlock`].
pub(crate) fn unlock(
    device: &Device,
    passphrase: &SecretBytes,
    keyslot: Option<u32>,
    limits: &KdfLimits,
) -> Result<Unlocked, Error> {
    snapshot(device)?.unlock(passphrase, keyslot, limits)
}

/// See [`Device::unlock_with_volume_key`].
pub(crate) fn is_volume_key(
    device: &Device,
    key: &SecretBytes,
    limits: &KdfLimits,
) -> Result<bool, Error> {
    let header = read(device)?;
    Ok(header.key_length() == key.len() && keyslot::is_volume_key(&header, key, limits)?)
}

impl Header {
    /// The header at the start of a backup file.
    pub(crate) fn parse_backup(image: &[u8]) -> Result<Self, Error> {
        let header = image.first_chunk::<HEADER>().ok_or_else(|| {
            Error::new(
                ErrorKind::NotLuks,
                "too short for a backup of a LUKS header",
            )
        })?;
        let header = Self::parse(header)?;
        if (image.len() as u64) < header.header_size() {
            return Err(Error::new(
                ErrorKind::TooShort,
                format!(
                    "the backup has {} bytes, but its header and keyslot areas take {}; it is incomplete",
                    image.len(),
                    header.header_size()
                ),
            ));
        }
        Ok(header)
    }

    /// What cryptsetup's `luksHeaderBackup` stores, of `image`, the first
    /// [`Header::header_size`] bytes of the device: without whatever older
    /// signatures the padding between header and keyslots may hold.
    pub(crate) fn clean_backup(&self, image: &mut [u8]) {
        let first_area = self.first_area();
        let end = usize::try_from(first_area)
            .unwrap_or(usize::MAX)
            .min(image.len());
        if let Some(padding) = image.get_mut(HEADER..end) {
            padding.fill(0);
        }
    }

    /// What a pin of the volume covers.
    pub(crate) fn covered(&self) -> Covered {
        Covered {
            cipher: self.encryption(),
            sector: 512,
            offset: self.payload_offset(),
            size: None,
            tweak: 0,
            hash: self.hash.clone(),
            iterations: self.mk_iterations,
            salt: self.mk_salt.to_vec(),
            digest: self.mk_digest.to_vec(),
        }
    }

    /// The data segment on a device of `data_size` bytes: all that follows
    /// the payload offset.
    pub(crate) fn segment(&self, data_size: u64) -> Result<Segment, Error> {
        null::refuse(&self.encryption(), "the data and the keyslots")?;
        let offset = self.payload_offset();
        let length = data_size.saturating_sub(offset) / SECTOR * SECTOR;
        if length == 0 {
            return Err(Error::new(
                ErrorKind::TooShort,
                format!(
                    "the data begins at byte {offset}, but the device has {data_size} bytes; \
                     it was truncated, or its data is on another device"
                ),
            ));
        }
        Ok(Segment {
            encryption: self.encryption(),
            sector_size: 512,
            offset,
            length,
            iv_tweak: 0,
        })
    }
}

/// The header, while a lock is held.
pub(crate) fn read_locked(device: &Device) -> Result<Header, Error> {
    let store = &device.store;
    if store.size() < HEADER as u64 {
        return Err(Error::new(
            ErrorKind::NotLuks,
            format!("no LUKS header in {} bytes", store.size()),
        ));
    }
    let mut sectors = [0; HEADER];
    store.read_at(&mut sectors, 0)?;
    let header = Header::parse(&sectors)?;
    if store.size() < header.header_size() {
        return Err(Error::new(
            ErrorKind::TooShort,
            format!(
                "the device has {} bytes, but LUKS1's header and keyslot areas take {}; it was truncated",
                store.size(),
                header.header_size()
            ),
        ));
    }
    device.expect(|| crate::Header::luks1(header.clone()))?;
    Ok(header)
}

/// The header and the key material of its active keyslots.
fn snapshot(device: &Device) -> Result<Snapshot, Error> {
    let _lock = device.lock.shared()?;
    let header = read_locked(device)?;
    // Before reading what a header with an unknown cipher may make large.
    keyslot::cipher(&header.encryption(), header.key_length())?;
    let mut areas = [const { None }; SLOTS];
    for (number, area) in areas.iter_mut().enumerate() {
        if header.slot(number).active {
            let place = header.area(number);
            let length = usize::try_from(place.end - place.start)
                .map_err(|_| Error::corrupt("a keyslot area larger than memory"))?;
            let mut bytes = vec![0; length];
            let read = device.store.read_at(&mut bytes, place.start);
            *area = Some(read.map(|()| bytes).map_err(Error::from));
        }
    }
    Ok(Snapshot { header, areas })
}
