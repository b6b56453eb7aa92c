//! The LUKS1 partition header (LUKS1 On-Disk Format Specification 1.2.3,
//! section 2.1): one structure of 592 bytes at the start of the device, all
//! numbers big endian.
//!
//! It lies in the first two sectors. Every keyslot entry is within one of
//! them, except that of keyslot 6: its flag, its iterations and a quarter of
//! its salt are in the first sector, the rest in the second. Each keyslot's
//! flag is within one sector, so that activating one is a single sector write.

use std::ops::Range;

use super::damage::{Damage, SlotDamage};
use crate::af::STRIPES;
use crate::{Error, ErrorKind};

/// Bytes per sector, the unit of every offset in the header.
pub(crate) const SECTOR: u64 = 512;
/// The same, as a length in memory.
pub(crate) const SECTOR_LENGTH: usize = 512;
/// Bytes that the header's two sectors have; what follows its 592 bytes is
/// padding.
pub(crate) const HEADER: usize = 1024;
/// Keyslots.
pub(crate) const SLOTS: usize = 8;
/// Bytes of salt, for the digest and for each keyslot.
pub(crate) const SALT: usize = 32;
/// Bytes of the volume key's digest.
pub(crate) const DIGEST: usize = 20;

/// Far behind any header whose data is elsewhere: eight of the longest keys.
const MOST_AREAS: u64 = 1 << 28;

const MAGIC: &[u8; 6] = b"LUKS\xba\xbe";
const ENABLED: u32 = 0x00AC_71F3;
const DISABLED: u32 = 0x0000_DEAD;
/// Far above any cipher's key; bounds what a hostile header can make us read.
const LONGEST_KEY: u32 = 4096;

// Where the fields are.
const VERSION: usize = 6;
const CIPHER_NAME: Range<usize> = 8..40;
const CIPHER_MODE: Range<usize> = 40..72;
const HASH: Range<usize> = 72..104;
const PAYLOAD_OFFSET: usize = 104;
const KEY_BYTES: usize = 108;
const MK_DIGEST: Range<usize> = 112..132;
const MK_SALT: Range<usize> = 132..164;
const MK_ITERATIONS: usize = 164;
const UUID: Range<usize> = 168..208;
const KEYSLOTS: usize = 208;
const KEYSLOT: usize = 48;
// Within a keyslot entry.
const SLOT_FLAG: usize = 0;
const SLOT_ITERATIONS: usize = 4;
const SLOT_SALT: Range<usize> = 8..40;
const SLOT_OFFSET: usize = 40;
const SLOT_STRIPES: usize = 44;

/// A parsed and validated header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Both sectors as they are on disk, kept in step with the keyslots below.
    sectors: [u8; HEADER],
    pub(crate) cipher_name: String,
    pub(crate) cipher_mode: String,
    pub(crate) hash: String,
    /// In sectors; 0 on a detached header.
    pub(crate) payload_offset: u32,
    pub(crate) key_bytes: u32,
    pub(crate) mk_digest: [u8; DIGEST],
    pub(crate) mk_salt: [u8; SALT],
    pub(crate) mk_iterations: u32,
    pub(crate) uuid: String,
    slots: [Slot; SLOTS],
    damage: Damage,
}

/// A keyslot's entry in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) active: bool,
    pub(crate) iterations: u32,
    pub(crate) salt: [u8; SALT],
    /// Where its area begins, in sectors.
    pub(crate) offset: u32,
}

/// What a new header is made of.
pub(crate) struct Fields {
    pub(crate) cipher_name: String,
    pub(crate) cipher_mode: String,
    pub(crate) hash: String,
    pub(crate) payload_offset: u32,
    pub(crate) key_bytes: u32,
    pub(crate) mk_digest: [u8; DIGEST],
    pub(crate) mk_salt: [u8; SALT],
    pub(crate) mk_iterations: u32,
    pub(crate) uuid: String,
    pub(crate) slots: [Slot; SLOTS],
}

impl Header {
    /// Parses the first two sectors of a device. Whatever is outside the
    /// specification is an error, unless no key depends on it: see
    /// [`Header::damage`]. An unknown cipher or hash is none here, but when it is
    /// needed.
    pub(crate) fn parse(sectors: &[u8; HEADER]) -> Result<Self, Error> {
        if sectors[..MAGIC.len()] != *MAGIC {
            return Err(Error::new(ErrorKind::NotLuks, "no LUKS header here"));
        }
        let version = u16::from_be_bytes(array(sectors, VERSION));
        if version != 1 {
            return Err(Error::unsupported(format!(
                "LUKS version {version}; this is a parser of version 1"
            )));
        }
        let mut slots = [Slot::EMPTY; SLOTS];
        let mut damage = Damage::default();
        for (number, slot) in slots.iter_mut().enumerate() {
            (*slot, damage.slots[number]) = parse_slot(sectors, number)?;
        }
        let uuid = text(sectors, UUID, "UUID").unwrap_or_else(|_| {
            damage.uuid = true;
            legible(&sectors[UUID])
        });
        let mut header = Self {
            sectors: *sectors,
            cipher_name: text(sectors, CIPHER_NAME, "cipher name")?,
            cipher_mode: text(sectors, CIPHER_MODE, "cipher mode")?,
            hash: text(sectors, HASH, "hash")?,
            payload_offset: number(sectors, PAYLOAD_OFFSET),
            key_bytes: number(sectors, KEY_BYTES),
            mk_digest: array(sectors, MK_DIGEST.start),
            mk_salt: array(sectors, MK_SALT.start),
            mk_iterations: number(sectors, MK_ITERATIONS),
            uuid,
            slots,
            damage,
        };
        header.validate()?;
        Ok(header)
    }

    /// A new header.
    pub(crate) fn make(fields: Fields) -> Result<Self, Error> {
        let mut sectors = [0; HEADER];
        sectors[..MAGIC.len()].copy_from_slice(MAGIC);
        sectors[VERSION..VERSION + 2].copy_from_slice(&1_u16.to_be_bytes());
        for (range, text, what) in [
            (CIPHER_NAME, &fields.cipher_name, "cipher name"),
            (CIPHER_MODE, &fields.cipher_mode, "cipher mode"),
            (HASH, &fields.hash, "hash"),
            (UUID, &fields.uuid, "UUID"),
        ] {
            if text.is_empty() || text.len() >= range.len() {
                return Err(Error::options(format!(
                    "'{text}' does not fit LUKS1's field for the {what}"
                )));
            }
            sectors[range.start..range.start + text.len()].copy_from_slice(text.as_bytes());
        }
        put(&mut sectors, PAYLOAD_OFFSET, fields.payload_offset);
        put(&mut sectors, KEY_BYTES, fields.key_bytes);
        sectors[MK_DIGEST].copy_from_slice(&fields.mk_digest);
        sectors[MK_SALT].copy_from_slice(&fields.mk_salt);
        put(&mut sectors, MK_ITERATIONS, fields.mk_iterations);
        for (number, slot) in fields.slots.iter().enumerate() {
            write_slot(&mut sectors, number, slot);
        }
        // What we write, we must be able to read.
        Self::parse(&sectors)
    }

    /// The rules that hold between fields.
    fn validate(&mut self) -> Result<(), Error> {
        let corrupt = |what: String| Err(Error::corrupt(format!("damaged LUKS1 header: {what}")));
        if !(1..=LONGEST_KEY).contains(&self.key_bytes) {
            return corrupt(format!("a volume key of {} bytes", self.key_bytes));
        }
        if self.mk_iterations == 0 {
            return corrupt("no iterations for the volume key's digest".into());
        }
        // Keyslots in use first: where one that is not clashes with one that
        // is, the latter's place is the one that counts.
        let mut order: [usize; SLOTS] = std::array::from_fn(|number| number);
        order.sort_by_key(|&number| !self.slots[number].active);
        let mut placed: Vec<usize> = Vec::new();
        let mut clash = None;
        for number in order {
            match self.clash(number, &placed) {
                None => placed.push(number),
                Some(what) if self.slots[number].active => return corrupt(what),
                Some(_) if self.damage.slots[number].is_some() => {
                    self.damage.slots[number] = Some(SlotDamage::Area);
                }
                // Where it always is: then what it clashes with is wrong, the
                // start of the data or the size of the key.
                Some(what) if self.is_in_usual_place(number) => return corrupt(what),
                // One may be damaged. Two more likely mean that the key's size is.
                Some(what) => match clash.replace(what) {
                    None => self.damage.slots[number] = Some(SlotDamage::Area),
                    Some(first) => return corrupt(first),
                },
            }
        }
        Ok(())
    }

    /// What a keyslot's area overlaps, if anything.
    fn clash(&self, number: usize, placed: &[usize]) -> Option<String> {
        let area = self.area(number);
        if area.start < HEADER as u64 {
            return Some(format!("keyslot {number}'s area overlaps the header"));
        }
        let overlaps = |other: &Range<u64>| area.start < other.end && other.start < area.end;
        if let Some(other) = placed.iter().find(|other| overlaps(&self.area(**other))) {
            return Some(format!(
                "keyslot {number}'s area overlaps that of keyslot {other}"
            ));
        }
        let payload = u64::from(self.payload_offset) * SECTOR;
        if payload != 0 && payload < area.end {
            return Some(format!(
                "the data begins at byte {payload}, inside the keyslot areas, of which keyslot \
                 {number}'s ends at {}",
                area.end
            ));
        }
        let slot = &self.slots[number];
        if !slot.active && payload == 0 && area.end > MOST_AREAS {
            return Some(format!("keyslot {number}'s area ends at {}", area.end));
        }
        None
    }

    /// Whether a keyslot's area is where cryptsetup puts it.
    pub(super) fn is_in_usual_place(&self, number: usize) -> bool {
        self.usual_offset(number) == Some(self.slots[number].offset)
    }

    /// Where cryptsetup, since its 1.0, puts a keyslot's area, in sectors.
    pub(super) fn usual_offset(&self, number: usize) -> Option<u32> {
        usual_offset(self.key_bytes, number)
    }

    /// What is damaged and no key depends on.
    pub(super) fn damaged_parts(&self) -> &Damage {
        &self.damage
    }

    /// The keyslots whose areas are known.
    fn placed(&self) -> impl Iterator<Item = usize> {
        (0..SLOTS)
            .filter(|number| !self.damage.slots[*number].is_some_and(SlotDamage::is_about_area))
    }

    /// First byte of the first keyslot area.
    pub(super) fn first_area(&self) -> u64 {
        self.placed()
            .map(|number| self.area(number).start)
            .fold(self.header_size(), u64::min)
    }

    /// Both sectors, to write them.
    pub(crate) fn sectors(&self) -> &[u8; HEADER] {
        &self.sectors
    }

    pub(crate) fn slot(&self, number: usize) -> &Slot {
        &self.slots[number]
    }

    /// Replaces a keyslot's entry, here only.
    pub(crate) fn set_slot(&mut self, number: usize, slot: Slot) {
        self.slots[number] = slot;
        self.damage.slots[number] = None;
        write_slot(&mut self.sectors, number, &slot);
    }

    /// Replaces the UUID, here only.
    pub(super) fn set_uuid(&mut self, uuid: &str) -> Result<(), Error> {
        if uuid.is_empty() || uuid.len() >= UUID.len() {
            return Err(Error::options("the UUID does not fit LUKS1's field"));
        }
        self.sectors[UUID].fill(0);
        self.sectors[UUID.start..UUID.start + uuid.len()].copy_from_slice(uuid.as_bytes());
        uuid.clone_into(&mut self.uuid);
        self.damage.uuid = false;
        Ok(())
    }

    /// The structure on the disk, without its padding.
    pub(crate) fn structure(&self) -> &[u8] {
        &self.sectors[..KEYSLOTS + SLOTS * KEYSLOT]
    }

    /// The bytes on the device that a keyslot's key material takes, whole sectors.
    pub(crate) fn area(&self, number: usize) -> Range<u64> {
        let start = u64::from(self.slots[number].offset) * SECTOR;
        start..start + area_length(self.key_bytes)
    }

    /// Whether `other` is the same header apart from its keyslots' contents:
    /// the volume key of one is that of the other.
    pub(crate) fn same_volume(&self, other: &Self) -> bool {
        let rest = |header: &Self| {
            let mut sectors = header.sectors;
            for number in 0..SLOTS {
                let entry = KEYSLOTS + number * KEYSLOT;
                sectors[entry..entry + SLOT_OFFSET].fill(0);
            }
            sectors[..KEYSLOTS + SLOTS * KEYSLOT].to_vec()
        };
        rest(self) == rest(other)
    }

    /// dm-crypt's name of the cipher. Old headers have it in whatever case the
    /// user typed.
    pub(crate) fn encryption(&self) -> String {
        format!("{}-{}", self.cipher_name, self.cipher_mode).to_ascii_lowercase()
    }

    /// The UUID as text.
    pub(crate) fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Bytes of volume key.
    pub(crate) fn key_length(&self) -> usize {
        self.key_bytes as usize
    }

    /// First byte of data on the data device; 0 on a detached header.
    pub(crate) fn payload_offset(&self) -> u64 {
        u64::from(self.payload_offset) * SECTOR
    }

    /// Keyslots in use, ascending.
    pub(crate) fn keyslots(&self) -> Vec<u32> {
        (0_u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.active)
            .map(|(number, _)| number)
            .collect()
    }

    /// Bytes from the start of the device to the end of the last keyslot
    /// area: what a header backup holds.
    pub(crate) fn header_size(&self) -> u64 {
        self.placed()
            .map(|number| self.area(number).end)
            .fold(HEADER as u64, u64::max)
    }
}

fn usual_offset(key_bytes: u32, number: usize) -> Option<u32> {
    const ALIGNMENT: u64 = 4096;
    let step = area_length(key_bytes).next_multiple_of(ALIGNMENT);
    u32::try_from((ALIGNMENT + step * number as u64) / SECTOR).ok()
}

/// Bytes of one keyslot's area: the split key in whole sectors.
pub(crate) fn area_length(key_bytes: u32) -> u64 {
    (u64::from(key_bytes) * u64::from(STRIPES)).next_multiple_of(SECTOR)
}

/// The sectors (0, 1 or both) that a keyslot's entry lies in.
pub(crate) fn sectors_of_slot(number: usize) -> std::ops::RangeInclusive<usize> {
    let entry = KEYSLOTS + number * KEYSLOT;
    entry / SECTOR_LENGTH..=(entry + KEYSLOT - 1) / SECTOR_LENGTH
}

/// The sector that a keyslot's flag lies in.
pub(crate) fn sector_of_flag(number: usize) -> usize {
    (KEYSLOTS + number * KEYSLOT + SLOT_FLAG) / SECTOR_LENGTH
}

/// The sector that a keyslot's offset lies in.
pub(crate) fn sector_of_offset(number: usize) -> usize {
    (KEYSLOTS + number * KEYSLOT + SLOT_OFFSET) / SECTOR_LENGTH
}

impl Slot {
    const EMPTY: Self = Self {
        active: false,
        iterations: 0,
        salt: [0; SALT],
        offset: 0,
    };

    /// An unused slot whose area is at `offset`.
    pub(crate) fn empty(offset: u32) -> Self {
        Self {
            offset,
            ..Self::EMPTY
        }
    }
}

fn parse_slot(sectors: &[u8; HEADER], slot: usize) -> Result<(Slot, Option<SlotDamage>), Error> {
    let entry = KEYSLOTS + slot * KEYSLOT;
    let iterations = number(sectors, entry + SLOT_ITERATIONS);
    let salt: [u8; SALT] = array(sectors, entry + SLOT_SALT.start);
    let offset = number(sectors, entry + SLOT_OFFSET);
    let stripes = number(sectors, entry + SLOT_STRIPES);
    // A keyslot loses both when it is disabled.
    let had_key = iterations != 0 && salt != [0; SALT];
    let is_placed = || usual_offset(number(sectors, KEY_BYTES), slot) == Some(offset);
    let (active, damage) = match number(sectors, entry + SLOT_FLAG) {
        ENABLED if iterations == 0 => (false, Some(SlotDamage::Empty)),
        ENABLED if stripes != STRIPES => {
            return Err(Error::corrupt(format!(
                "damaged LUKS1 header: keyslot {slot} has {stripes} stripes, not {STRIPES}"
            )));
        }
        ENABLED => (true, None),
        DISABLED if stripes != STRIPES => (false, Some(SlotDamage::Stripes(stripes))),
        DISABLED => (false, None),
        flag if stripes == STRIPES => (had_key, Some(SlotDamage::Flag(flag))),
        // One that is all noise would not have its area in its place.
        flag if had_key && is_placed() => (true, Some(SlotDamage::Both { flag, stripes })),
        _ => (false, Some(SlotDamage::Stripes(stripes))),
    };
    let slot = Slot {
        active,
        iterations,
        salt,
        offset,
    };
    Ok((slot, damage))
}

fn write_slot(sectors: &mut [u8; HEADER], number: usize, slot: &Slot) {
    let entry = KEYSLOTS + number * KEYSLOT;
    let flag = if slot.active { ENABLED } else { DISABLED };
    put(sectors, entry + SLOT_FLAG, flag);
    put(sectors, entry + SLOT_ITERATIONS, slot.iterations);
    sectors[entry + SLOT_SALT.start..entry + SLOT_SALT.end].copy_from_slice(&slot.salt);
    put(sectors, entry + SLOT_OFFSET, slot.offset);
    put(sectors, entry + SLOT_STRIPES, STRIPES);
}

fn array<const N: usize>(sectors: &[u8; HEADER], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&sectors[at..at + N]);
    bytes
}

fn number(sectors: &[u8; HEADER], at: usize) -> u32 {
    u32::from_be_bytes(array(sectors, at))
}

fn put(sectors: &mut [u8; HEADER], at: usize, value: u32) {
    sectors[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// What can be read of a damaged text.
fn legible(field: &[u8]) -> String {
    field
        .iter()
        .take_while(|&&byte| byte != 0)
        .map(|&byte| {
            if byte.is_ascii_graphic() {
                char::from(byte)
            } else {
                '?'
            }
        })
        .collect()
}

/// A string field: printable ASCII that ends with a zero byte inside the field.
fn text(sectors: &[u8; HEADER], field: Range<usize>, what: &str) -> Result<String, Error> {
    let bytes = &sectors[field];
    let end = bytes.iter().position(|&byte| byte == 0);
    match end.map(|end| &bytes[..end]) {
        Some(bytes) if !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic) => {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
        _ => Err(Error::corrupt(format!(
            "damaged LUKS1 header: the {what} is no text that ends within its field"
        ))),
    }
}
