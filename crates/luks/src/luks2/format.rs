//! Making a new volume.

use std::ops::Range;

use serde::Serialize;
use xtent_secret::SecretBytes;
use xtent_store::Store;

use super::binary::{BINARY_SIZE, Binary, COPY_SIZES, Checksum, LABEL_SIZE, Which, padded};
use super::digest::DigestJson;
use super::keyslot::{KeyslotJson, NewKeyslot, parse_encryption};
use super::model::{Area, Metadata, Pbkdf2Digest};
use super::read::{Foreign, Header, OtherCopy, read};
use super::validate::{AREA_ALIGNMENT, MAX_KEYSLOTS_SIZE, keyslots_area};
use super::{areas, document, write};
use crate::{Device, Error, ErrorKind, FormatOptions, VolumeKey};

/// Where the data begins, and the header ends: cryptsetup's default.
const DEFAULT_DATA_OFFSET: u64 = 16 << 20;

/// What the data's offset is a multiple of where the header's size was chosen: cryptsetup's
/// default.
const DATA_ALIGNMENT: u64 = 1 << 20;

/// See [`Device::format`].
///
/// First every old header is made invalid, while nothing else is touched:
/// until that is on the disk, the old volume is whole. Then comes the key
/// material, then the new header. So a cut leaves the old volume, the new
/// one, or none; and no old copy can come back later.
pub(crate) fn format(
    device: &Device,
    options: &FormatOptions,
    passphrase: &SecretBytes,
    key: Option<&SecretBytes>,
) -> Result<Header, Error> {
    parse_encryption(&options.encryption, options.key_length).map_err(|mut error| {
        error.kind = ErrorKind::Options;
        error
    })?;
    let layout = Layout::of(options, &*device.store)?;
    let text_fields = TextFields::of(options)?;
    let key = VolumeKey::of(options, key)?;
    let mut keyslot_kdf = options.kdf.clone();
    keyslot_kdf.hash.get_or_insert_with(|| options.hash.clone());
    let keyslot = NewKeyslot::new(&key, passphrase, &keyslot_kdf, &options.hash)?;
    let benchmark = options.kdf.force_iterations.is_none();
    let digest = Pbkdf2Digest::new(&key, &options.hash, benchmark)?;
    let area = Area {
        offset: layout.keyslots.offset,
        size: keyslot.area_size(),
    };
    let json = DocumentJson {
        keyslots: Numbered {
            zero: keyslot.json(area),
        },
        tokens: Empty {},
        segments: Numbered {
            zero: SegmentJson {
                kind: "crypt",
                offset: layout.data_offset.to_string(),
                size: "dynamic",
                iv_tweak: "0",
                encryption: options.encryption.clone(),
                sector_size: options.sector_size,
            },
        },
        digests: Numbered {
            zero: digest.json(0, &[0]),
        },
        config: ConfigJson {
            json_size: (layout.copy_size - BINARY_SIZE as u64).to_string(),
            keyslots_size: layout.keyslots.size.to_string(),
        },
    };
    let text = serde_json::to_string(&json)
        .map_err(|error| Error::options("cannot write LUKS2 metadata").caused_by(error))?;
    let metadata = Metadata::parse(&document::parse(&text)?)?;
    metadata.validate(layout.copy_size)?;
    let header = Header {
        binary: Binary {
            size: layout.copy_size,
            seqid: 1,
            label: text_fields.label,
            subsystem: text_fields.subsystem,
            uuid: text_fields.uuid,
            checksum: Checksum::Sha256,
        },
        text,
        metadata,
        chosen: Which::Primary,
        other: OtherCopy::Bad,
    };

    let store = &*device.store;
    let _lock = device.lock.exclusive()?;
    invalidate(store)?;
    // Leftovers of other things must not shine through.
    write::zero(
        store,
        Area {
            offset: 0,
            size: layout.keyslots.offset,
        },
    )?;
    write::wipe(store, layout.keyslots)?;
    store.write_at(&keyslot.material, area.offset)?;
    store.flush()?;
    for which in [Which::Primary, Which::Secondary] {
        let copy = header.binary.encode(which, &header.text)?;
        header.write_copy(store, which, &copy)?;
    }
    read(store, Foreign::Refuse)
}

/// Makes every LUKS header on the device invalid, of either version, and
/// every secondary copy wherever one may lie.
pub(crate) fn invalidate(store: &dyn Store) -> Result<(), Error> {
    store.write_at(&[0; BINARY_SIZE], 0)?;
    wipe_copies(store, 0..u64::MAX)?;
    store.flush()?;
    Ok(())
}

/// Makes the secondary header copies invalid at all the places in `range`
/// where one may lie: a recovery would bring them back.
pub(crate) fn wipe_copies(store: &dyn Store, range: Range<u64>) -> Result<(), Error> {
    for offset in COPY_SIZES {
        if offset + BINARY_SIZE as u64 > store.size() {
            break;
        }
        if !range.contains(&offset) {
            continue;
        }
        let mut magic = [0; 6];
        store.read_at(&mut magic, offset)?;
        if magic == *Which::Secondary.magic() {
            store.write_at(&[0; BINARY_SIZE], offset)?;
        }
    }
    Ok(())
}

/// The sizes that `options` ask for: of each copy of the metadata, and of the keyslots area
/// if they say.
fn sizes(options: &FormatOptions) -> Result<(u64, Option<u64>), Error> {
    let copy_size = options.metadata_size.unwrap_or(COPY_SIZES[0]);
    if !COPY_SIZES.contains(&copy_size) {
        let possible: Vec<String> = COPY_SIZES.map(|size| (size >> 10).to_string()).into();
        return Err(Error::options(format!(
            "LUKS2 metadata of {copy_size} bytes is not possible: {} KiB",
            possible.join(", ")
        )));
    }
    if let Some(size) = options.keyslots_size {
        if size == 0 || !size.is_multiple_of(AREA_ALIGNMENT) || size > MAX_KEYSLOTS_SIZE {
            return Err(Error::options(format!(
                "a keyslots area of {size} bytes is not possible: it has a multiple of {AREA_ALIGNMENT}, \
                 up to 128 MiB"
            )));
        }
        let needed = areas::area_size(options.key_length);
        if size < needed {
            return Err(Error::options(format!(
                "a keyslots area of {size} bytes has no room for a keyslot: one of a {}-bit key takes {needed}",
                options.key_length * 8
            )));
        }
    }
    Ok((copy_size, options.keyslots_size))
}

/// See [`FormatOptions::header_size`].
pub(crate) fn header_size(options: &FormatOptions) -> Result<u64, Error> {
    let (copy_size, keyslots_size) = sizes(options)?;
    Ok(keyslots_size.map_or(DEFAULT_DATA_OFFSET, |size| {
        keyslots_area(copy_size, size).end()
    }))
}

/// See [`FormatOptions::default_data_offset`].
pub(crate) fn default_data_offset(
    options: &FormatOptions,
    alignment: Option<u64>,
) -> Result<u64, Error> {
    let header = header_size(options)?;
    if options.detached {
        return Ok(0);
    }
    let default = options.keyslots_size.map_or(1, |_| DATA_ALIGNMENT);
    header
        .checked_next_multiple_of(alignment.unwrap_or(default))
        .ok_or_else(|| Error::options("the data would start beyond the end of any device"))
}

/// Where things go.
struct Layout {
    copy_size: u64,
    keyslots: Area,
    data_offset: u64,
}

impl Layout {
    fn of(options: &FormatOptions, store: &dyn Store) -> Result<Self, Error> {
        let sector_size = u64::from(options.sector_size);
        if sector_cipher::SectorSize::new(options.sector_size).is_err() {
            return Err(Error::options(format!(
                "sectors of {sector_size} bytes are not possible: 512, 1024, 2048 or 4096"
            )));
        }
        let (copy_size, keyslots_size) = sizes(options)?;
        let data_offset = match options.data_offset {
            Some(offset) => offset,
            None => default_data_offset(options, None)?,
        };
        if !data_offset.is_multiple_of(sector_size) {
            return Err(Error::options(format!(
                "the data offset of {data_offset} bytes is not a multiple of the sector size, {sector_size}"
            )));
        }
        if data_offset == 0 && !options.detached {
            return Err(Error::options(
                "a data offset of 0 needs the header on another device",
            ));
        }
        let keyslots = match keyslots_size {
            Some(size) => {
                let area = keyslots_area(copy_size, size);
                if data_offset != 0 && data_offset < area.end() {
                    return Err(Error::options(format!(
                        "the LUKS2 header takes {} bytes, there are {data_offset} before the data offset",
                        area.end()
                    )));
                }
                area
            }
            None => Self::keyslots(options, copy_size, data_offset, store)?,
        };
        let least = if options.detached {
            keyslots.end()
        } else {
            data_offset.saturating_add(sector_size)
        };
        if store.size() < least {
            return Err(Error::new(
                ErrorKind::TooShort,
                format!(
                    "the device has {} bytes, the new volume needs at least {least}",
                    store.size()
                ),
            ));
        }
        // A file's odd end is on no loop device either. A detached header's data
        // lies on another device, however far.
        let whole = store.size().saturating_sub(data_offset) / 512 * 512;
        if !options.detached && !whole.is_multiple_of(sector_size) {
            return Err(Error::options(format!(
                "the device has {} bytes, which leaves no whole number of sectors of {sector_size} bytes: \
                 choose a smaller sector size or another data offset",
                store.size()
            )));
        }
        Ok(Self {
            copy_size,
            keyslots,
            data_offset,
        })
    }

    /// The keyslots area where nobody says how large: all that there is.
    fn keyslots(
        options: &FormatOptions,
        copy_size: u64,
        data_offset: u64,
        store: &dyn Store,
    ) -> Result<Area, Error> {
        // The header ends where the data begins; on another device it has
        // cryptsetup's usual size, or less where that device is smaller.
        let end = match data_offset {
            0 => DEFAULT_DATA_OFFSET.min(store.size()),
            offset if options.detached => offset.min(DEFAULT_DATA_OFFSET).min(store.size()),
            offset => offset,
        };
        let room = end.saturating_sub(2 * copy_size);
        let size = (room - room % AREA_ALIGNMENT).min(MAX_KEYSLOTS_SIZE);
        let needed = areas::area_size(options.key_length);
        if size < needed {
            let what = format!(
                "the LUKS2 header needs at least {} bytes, there are {end}",
                2 * copy_size + needed
            );
            return Err(if end == data_offset {
                Error::options(format!("{what} before the data offset"))
            } else {
                Error::new(ErrorKind::TooShort, what)
            });
        }
        Ok(keyslots_area(copy_size, size))
    }
}

/// What goes into the binary header as text.
struct TextFields {
    label: [u8; LABEL_SIZE],
    subsystem: [u8; LABEL_SIZE],
    uuid: [u8; 40],
}

impl TextFields {
    fn of(options: &FormatOptions) -> Result<Self, Error> {
        let label = |what: &str, text: &Option<String>| {
            padded(text.as_deref().unwrap_or_default()).ok_or_else(|| {
                Error::options(format!("the {what} has more than 47 bytes, or a NUL"))
            })
        };
        let uuid = crate::uuid::choose(options.uuid.as_deref())?;
        Ok(Self {
            label: label("label", &options.label)?,
            subsystem: label("subsystem", &options.subsystem)?,
            uuid: padded(&uuid).ok_or_else(|| Error::options("the UUID is too long"))?,
        })
    }
}

/// The document of a new volume, members in cryptsetup's order.
#[derive(Serialize)]
struct DocumentJson {
    keyslots: Numbered<KeyslotJson>,
    tokens: Empty,
    segments: Numbered<SegmentJson>,
    digests: Numbered<DigestJson>,
    config: ConfigJson,
}

#[derive(Serialize)]
struct Numbered<T> {
    #[serde(rename = "0")]
    zero: T,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct SegmentJson {
    #[serde(rename = "type")]
    kind: &'static str,
    offset: String,
    size: &'static str,
    iv_tweak: &'static str,
    encryption: String,
    sector_size: u32,
}

#[derive(Serialize)]
struct ConfigJson {
    json_size: String,
    keyslots_size: String,
}
