//! New LUKS1 headers, laid out as `cryptsetup luksFormat --type luks1` does.

use xtent_secret::SecretBytes;

use super::edit::{overwrite_randomly, write_sectors};
use super::header::{DIGEST, Fields, Header, SALT, SECTOR, SLOTS, Slot, area_length};
use super::keyslot;
use crate::kdf::hash::Hash;
use crate::{Device, Error, ErrorKind, FormatOptions, Kdf, KdfLimits, VolumeKey, luks2};

/// Keyslot areas begin at multiples of this.
const AREA_ALIGNMENT: u64 = 4096;
/// Data begins at a multiple of this, unless told otherwise.
const DATA_ALIGNMENT: u64 = 1 << 20;

/// See [`Device::format`].
pub(crate) fn format(
    device: &Device,
    options: &FormatOptions,
    passphrase: &SecretBytes,
    key: Option<&SecretBytes>,
) -> Result<(), Error> {
    let layout = Layout::new(options)?;
    let needed = if options.detached {
        layout.end_of_areas
    } else {
        layout.payload + SECTOR
    };
    let too_short = || {
        Error::new(
            ErrorKind::TooShort,
            format!(
                "the device has {} bytes; LUKS1 with this key needs at least {needed}",
                device.store.size()
            ),
        )
    };
    if device.store.size() < needed {
        return Err(too_short());
    }

    let hash = options.hash.to_ascii_lowercase();
    let key = VolumeKey::of(options, key)?;
    let kdf = keyslot::settle(&options.kdf, &hash, options.key_length)?;
    let sealed = keyslot::seal(&options.encryption, &hash, &key, passphrase, &kdf)?;
    let mut slots = layout.offsets.map(Slot::empty);
    slots[0] = Slot {
        active: true,
        iterations: sealed.iterations,
        salt: sealed.salt,
        offset: layout.offsets[0],
    };
    let header = make_header(options, &layout, hash, &kdf, &key, slots)?;

    let _lock = device.lock.exclusive()?;
    if device.store.size() < needed {
        return Err(too_short());
    }
    // The old signature goes first: whatever is interrupted from here on is
    // no LUKS device, never half of one.
    write_zeros(device, 0, layout.offset_in_bytes(0))?;
    luks2::wipe_copies(&*device.store, 0..u64::MAX)?;
    device.store.flush()?;
    for number in 0..SLOTS {
        // To the next area, so that nothing old remains in the gaps.
        let start = layout.offset_in_bytes(number);
        overwrite_randomly(device, start, start + layout.area_length)?;
        write_zeros(device, start + layout.area_length, start + layout.area_step)?;
    }
    if !options.detached {
        write_zeros(
            device,
            layout.end_of_areas,
            layout.payload.min(layout.end_of_areas + DATA_ALIGNMENT),
        )?;
    }
    device
        .store
        .write_at(&sealed.area, layout.offset_in_bytes(0))?;
    device.store.flush()?;
    write_sectors(device, &header, 0..=1)?;
    device.store.flush()?;
    Ok(())
}

/// Where everything goes.
struct Layout {
    /// Start of each keyslot's area, in sectors.
    offsets: [u32; SLOTS],
    area_length: u64,
    /// From one area to the next.
    area_step: u64,
    end_of_areas: u64,
    /// First byte of data.
    payload: u64,
    cipher_name: String,
    cipher_mode: String,
}

impl Layout {
    fn new(options: &FormatOptions) -> Result<Self, Error> {
        if options.sector_size != 512 {
            return Err(Error::options(format!(
                "LUKS1 has sectors of 512 bytes, not {}; other sizes need LUKS2",
                options.sector_size
            )));
        }
        if options.label.is_some() || options.subsystem.is_some() {
            return Err(Error::options(
                "LUKS1 has neither label nor subsystem; they need LUKS2",
            ));
        }
        if options.metadata_size.is_some() || options.keyslots_size.is_some() {
            return Err(Error::options(
                "LUKS1's header has one size; others need LUKS2",
            ));
        }
        keyslot::cipher(&options.encryption, options.key_length)?;
        Hash::from_name(&options.hash)?;
        let (cipher_name, cipher_mode) = options
            .encryption
            .split_once('-')
            .ok_or_else(|| Error::options("a cipher name without a mode"))?;
        let key_bytes = u32::try_from(options.key_length)
            .map_err(|_| Error::options("a key that long does not fit LUKS1"))?;

        let area_length = area_length(key_bytes);
        let area_step = area_length.next_multiple_of(AREA_ALIGNMENT);
        let end_of_areas = AREA_ALIGNMENT + area_step * SLOTS as u64;
        let payload = match (options.data_offset, options.detached) {
            (Some(offset), _) => offset,
            (None, true) => 0,
            (None, false) => end_of_areas.next_multiple_of(DATA_ALIGNMENT),
        };
        if !payload.is_multiple_of(SECTOR) || payload / SECTOR > u64::from(u32::MAX) {
            return Err(Error::options(format!(
                "data offset {payload}: LUKS1 wants a multiple of 512 below 2 TiB"
            )));
        }
        if payload < end_of_areas && (payload != 0 || !options.detached) {
            return Err(Error::options(format!(
                "data offset {payload} lies inside LUKS1's header and keyslot areas, which take {end_of_areas} bytes"
            )));
        }
        let offset_of = |number: usize| {
            u32::try_from((AREA_ALIGNMENT + area_step * number as u64) / SECTOR)
                .map_err(|_| Error::options("a key that long does not fit LUKS1"))
        };
        let mut offsets = [0; SLOTS];
        for (number, offset) in offsets.iter_mut().enumerate() {
            *offset = offset_of(number)?;
        }
        Ok(Self {
            offsets,
            area_length,
            area_step,
            end_of_areas,
            payload,
            cipher_name: cipher_name.into(),
            cipher_mode: cipher_mode.into(),
        })
    }

    fn offset_in_bytes(&self, number: usize) -> u64 {
        u64::from(self.offsets[number]) * SECTOR
    }
}

fn make_header(
    options: &FormatOptions,
    layout: &Layout,
    hash: String,
    kdf: &Kdf,
    key: &SecretBytes,
    slots: [Slot; SLOTS],
) -> Result<Header, Error> {
    let mk_iterations = keyslot::digest_iterations(&options.kdf, kdf);
    let mut mk_salt = [0; SALT];
    xtent_secret::fill_random(&mut mk_salt)?;
    let digest = Kdf::Pbkdf2 {
        hash: hash.clone(),
        iterations: mk_iterations,
    }
    .derive(key, &mk_salt, DIGEST, &KdfLimits { longest: None })?;
    let mut mk_digest = [0; DIGEST];
    mk_digest.copy_from_slice(&digest);
    let uuid = crate::uuid::choose(options.uuid.as_deref())?;
    Header::make(Fields {
        cipher_name: layout.cipher_name.clone(),
        cipher_mode: layout.cipher_mode.clone(),
        hash,
        payload_offset: u32::try_from(layout.payload / SECTOR)
            .map_err(|_| Error::options("data offset too large"))?,
        key_bytes: u32::try_from(options.key_length).map_err(|_| Error::options("key too long"))?,
        mk_digest,
        mk_salt,
        mk_iterations,
        uuid,
        slots,
    })
}

fn write_zeros(device: &Device, start: u64, end: u64) -> Result<(), Error> {
    let zeros = vec![0; 1 << 16];
    let mut at = start;
    while at < end {
        let length = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(zeros.len());
        device.store.write_at(&zeros[..length], at)?;
        at += length as u64;
    }
    Ok(())
}
