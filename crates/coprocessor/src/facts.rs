//! What an engine says about itself.

use sector_cipher::{Mode, SectorSize};

use crate::registers::{self as reg};
use crate::{Error, ErrorKind};

/// What an engine can do, as its registers have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// Version of the registers' layout: major, minor.
    pub version: (u16, u16),
    /// 1: ECB; 2: and XTS of one sector; 3: and runs.
    pub level: u8,
    /// Rings, 1 to 8.
    pub rings: usize,
    /// Key slots, 1 to 32.
    pub slots: usize,
    /// Bytes of a beat of the memory bus.
    pub bus_bytes: u32,
    /// Bits of an address on it.
    pub address_bits: u32,
    /// The most bytes of a request.
    pub request_bytes: u64,
    /// The most entries of a list.
    pub list_entries: u64,
    /// The most entries of a ring.
    pub ring_entries: usize,
    /// Bytes of the largest sector at level 2.
    pub xts_bytes: usize,
    /// Cycles that a microsecond has, for its timers.
    pub cycles_per_us: u32,
    /// A bit for each cipher, by its number in the registers.
    ciphers: u32,
    /// Bit 0: AES-128, bit 1: AES-256.
    key_bits: u32,
    /// Sector sizes of runs in XTS, from bit 0 for 512 bytes to bit 3 for 4096.
    xts_units: u32,
    /// Sector sizes of runs in the other ciphers.
    other_units: u32,
}

/// A field of a register.
fn field(register: u32, low: u32, bits: u32) -> u32 {
    register >> low & ((1 << bits) - 1)
}

impl Facts {
    /// Reads the identity and the capabilities by `read`, and checks that they make sense.
    pub(crate) fn read(mut read: impl FnMut(u32) -> Result<u32, Error>) -> Result<Self, Error> {
        let unknown = |message: String| Error::new(ErrorKind::Unknown, message);
        let id = read(reg::REG_ID)?;
        if id != reg::ID {
            return Err(unknown(format!(
                "there is no engine: its first register reads {id:#010x}, not {:#010x}",
                reg::ID
            )));
        }
        let version = read(reg::REG_VERSION)?;
        let major = version >> reg::VERSION_MAJOR_LOW;
        if major != u32::from(reg::MAJOR) {
            return Err(unknown(format!(
                "the engine's registers have version {major}, this driver knows {}",
                reg::MAJOR
            )));
        }
        let caps = [reg::REG_CAP0, reg::REG_CAP1, reg::REG_CAP2, reg::REG_CAP3].map(&mut read);
        let [cap0, cap1, cap2, cap3] = caps;
        let (cap0, cap1, cap2, cap3) = (cap0?, cap1?, cap2?, cap3?);
        let facts = Self {
            version: (low16(major), low16(version)),
            level: low8(field(cap0, reg::CAP0_LEVEL_LOW, reg::CAP0_LEVEL_BITS)),
            rings: field(cap0, reg::CAP0_RINGS_LOW, reg::CAP0_RINGS_BITS) as usize,
            slots: field(cap0, reg::CAP0_SLOTS_LOW, reg::CAP0_SLOTS_BITS) as usize,
            bus_bytes: field(cap0, reg::CAP0_BUS_BYTES_LOW, reg::CAP0_BUS_BYTES_BITS),
            address_bits: field(
                cap0,
                reg::CAP0_ADDRESS_BITS_LOW,
                reg::CAP0_ADDRESS_BITS_BITS,
            ),
            request_bytes: 1 << field(cap2, reg::CAP2_LOG2_BYTES_LOW, reg::CAP2_LOG2_BYTES_BITS),
            list_entries: 1
                << field(
                    cap2,
                    reg::CAP2_LOG2_ENTRIES_LOW,
                    reg::CAP2_LOG2_ENTRIES_BITS,
                ),
            ring_entries: 1 << field(cap2, reg::CAP2_LOG2_RING_LOW, reg::CAP2_LOG2_RING_BITS),
            xts_bytes: 16
                * field(cap2, reg::CAP2_XTS_BLOCKS_LOW, reg::CAP2_XTS_BLOCKS_BITS) as usize,
            cycles_per_us: field(
                cap3,
                reg::CAP3_CYCLES_PER_US_LOW,
                reg::CAP3_CYCLES_PER_US_BITS,
            ),
            ciphers: field(cap1, reg::CAP1_CIPHERS_LOW, reg::CAP1_CIPHERS_BITS),
            key_bits: field(cap1, reg::CAP1_KEY_BITS_LOW, reg::CAP1_KEY_BITS_BITS),
            xts_units: field(cap1, reg::CAP1_XTS_UNITS_LOW, reg::CAP1_XTS_UNITS_BITS),
            other_units: field(cap1, reg::CAP1_OTHER_UNITS_LOW, reg::CAP1_OTHER_UNITS_BITS),
        };
        match facts.nonsense() {
            None => Ok(facts),
            Some(what) => Err(unknown(format!(
                "the engine says of itself what cannot be: {what} (registers {cap0:#x}, {cap1:#x}, {cap2:#x}, {cap3:#x})"
            ))),
        }
    }

    /// What cannot be, if there is something.
    fn nonsense(&self) -> Option<&'static str> {
        let checks = [
            ((1..=3).contains(&self.level), "its level"),
            ((1..=8).contains(&self.rings), "how many rings it has"),
            ((1..=32).contains(&self.slots), "how many key slots it has"),
            (matches!(self.bus_bytes, 4 | 8 | 16), "its bus"),
            ((24..=64).contains(&self.address_bits), "its address bits"),
            (
                (12..=32).contains(&self.request_bytes.trailing_zeros()),
                "how long a request may be",
            ),
            (self.ciphers != 0, "its ciphers"),
            (self.key_bits != 0, "its key lengths"),
        ];
        checks
            .iter()
            .find(|(is_good, _)| !is_good)
            .map(|(_, what)| *what)
    }

    /// Whether it has a cipher, by its number in the registers.
    pub(crate) fn has(&self, cipher: u8) -> bool {
        self.ciphers >> cipher & 1 != 0
    }

    /// Whether it has AES of so many bits.
    pub(crate) fn has_aes(&self, bits: usize) -> bool {
        match bits {
            128 => self.key_bits & 1 != 0,
            256 => self.key_bits & 2 != 0,
            _ => false,
        }
    }

    /// Whether runs of a mode may have sectors of this size.
    pub fn takes_runs(&self, mode: Mode, size: SectorSize) -> bool {
        let Some(cipher) = cipher_of(mode) else {
            return false;
        };
        let units = if mode == Mode::AesXts {
            self.xts_units
        } else {
            self.other_units
        };
        self.level >= 3
            && self.has(cipher)
            && units >> (size.bytes() / 512).trailing_zeros() & 1 != 0
    }
}

/// The cipher of runs in a mode, by its number in the registers.
pub(crate) fn cipher_of(mode: Mode) -> Option<u8> {
    Some(match mode {
        Mode::AesXts => reg::CIPHER_XTS,
        Mode::FastBrw => reg::CIPHER_FAST_BRW,
        Mode::FastHorner => reg::CIPHER_FAST_HORNER,
        Mode::Hctr2 => reg::CIPHER_HCTR2,
        Mode::Eme2 => reg::CIPHER_EME2,
        Mode::Aez10 => reg::CIPHER_AEZ10,
        _ => return None,
    })
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is wanted")]
fn low16(value: u32) -> u16 {
    value as u16
}

#[allow(clippy::cast_possible_truncation, reason = "the low byte is wanted")]
fn low8(value: u32) -> u8 {
    value as u8
}

/// The device's counters, of one moment: cycles since it was opened, by what the oldest request under way was at, and
/// what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Cycles.
    pub total: u64,
    /// Of them: waiting for a descriptor or a list.
    pub fetch: u64,
    /// Of them: waiting for data.
    pub source: u64,
    /// Of them: the cipher at work.
    pub cipher: u64,
    /// Of them: writing data, or waiting to.
    pub destination: u64,
    /// Of them: writing a completion.
    pub completion: u64,
    /// Of them: nothing under way, and an interrupt not acknowledged.
    pub interrupt: u64,
    /// Of them: none of these.
    pub idle: u64,
    /// Requests completed.
    pub requests: u64,
    /// Of them: with an error.
    pub failed: u64,
    /// Sectors done (blocks, of ECB).
    pub units: u64,
    /// Bytes done.
    pub bytes: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Cycles in which an address to read from was not taken.
    pub read_waits: u64,
    /// Cycles in which an address or data to write was not taken.
    pub write_waits: u64,
}

impl Counters {
    /// Takes a snapshot by `write` and reads it by `read`.
    pub(crate) fn read(
        mut read: impl FnMut(u32) -> Result<u32, Error>,
        write: impl FnOnce(u32, u32) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        write(reg::REG_COUNTER_CTRL, 1 << reg::COUNTER_CTRL_SNAPSHOT_LOW)?;
        let mut counter = |register| -> Result<u64, Error> {
            let (low, high) = (read(register)?, read(register + 4)?);
            Ok(u64::from(high) << 32 | u64::from(low))
        };
        Ok(Self {
            total: counter(reg::REG_COUNTER_TOTAL)?,
            fetch: counter(reg::REG_COUNTER_FETCH)?,
            source: counter(reg::REG_COUNTER_SOURCE)?,
            cipher: counter(reg::REG_COUNTER_CIPHER)?,
            destination: counter(reg::REG_COUNTER_DESTINATION)?,
            completion: counter(reg::REG_COUNTER_COMPLETION)?,
            interrupt: counter(reg::REG_COUNTER_INTERRUPT)?,
            idle: counter(reg::REG_COUNTER_IDLE)?,
            requests: counter(reg::REG_COUNTER_REQUESTS)?,
            failed: counter(reg::REG_COUNTER_FAILED)?,
            units: counter(reg::REG_COUNTER_UNITS)?,
            bytes: counter(reg::REG_COUNTER_BYTES)?,
            interrupts: counter(reg::REG_COUNTER_INTERRUPTS)?,
            read_waits: counter(reg::REG_COUNTER_READ_WAITS)?,
            write_waits: counter(reg::REG_COUNTER_WRITE_WAITS)?,
        })
    }
}
