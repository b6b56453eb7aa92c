//! The binary header that opens each of the two copies, and the checksum over
//! a whole copy (LUKS2 on-disk format, section 2.1).
//!
//! A copy is 4096 bytes of binary header and a JSON area. The primary copy
//! lies at byte 0, the secondary one right behind it, at the size of a copy.

use sha2::Digest as _;

use crate::Error;

/// Bytes of binary header in front of the JSON area.
pub(crate) const BINARY_SIZE: usize = 4096;

/// The sizes that a copy may have, which are also the places where a
/// secondary copy may lie.
pub(crate) const COPY_SIZES: [u64; 9] = [
    0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000,
];

/// Bytes of a label or subsystem, with the final NUL.
pub(crate) const LABEL_SIZE: usize = 48;
const UUID_SIZE: usize = 40;

const VERSION: std::ops::Range<usize> = 6..8;
const SIZE: std::ops::Range<usize> = 8..16;
const SEQID: std::ops::Range<usize> = 16..24;
const LABEL: std::ops::Range<usize> = 24..72;
const CHECKSUM_NAME: std::ops::Range<usize> = 72..104;
const SALT: std::ops::Range<usize> = 104..168;
const UUID: std::ops::Range<usize> = 168..208;
const SUBSYSTEM: std::ops::Range<usize> = 208..256;
const OFFSET: std::ops::Range<usize> = 256..264;
const CHECKSUM: std::ops::Range<usize> = 448..512;

/// One of the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// At byte 0.
    Primary,
    /// Behind the primary.
    Secondary,
}

impl Which {
    /// The first six bytes.
    pub(crate) fn magic(self) -> &'static [u8; 6] {
        match self {
            Self::Primary => b"LUKS\xba\xbe",
            Self::Secondary => b"SKUL\xba\xbe",
        }
    }

    /// The other copy.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Primary => Self::Secondary,
            Self::Secondary => Self::Primary,
        }
    }

    /// For messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
        }
    }
}

/// Hash of the checksum over a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// What cryptsetup writes.
    Sha256,
    /// Allowed by the format.
    Sha1,
    /// Allowed by the format.
    Sha512,
}

impl Checksum {
    const ALL: [Self; 3] = [Self::Sha256, Self::Sha1, Self::Sha512];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha1 => "sha1",
            Self::Sha512 => "sha512",
        }
    }

    fn of(self, copy: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => sha2::Sha256::digest(copy).to_vec(),
            Self::Sha1 => sha1::Sha1::digest(copy).to_vec(),
            Self::Sha512 => sha2::Sha512::digest(copy).to_vec(),
        }
    }
}

/// What both binary headers say alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    /// Bytes of one copy: binary header and JSON area.
    pub(crate) size: u64,
    /// Counts the updates; the copy with the higher one is the newer.
    pub(crate) seqid: u64,
    /// As stored, so that it survives an update whatever its bytes are.
    pub(crate) label: [u8; LABEL_SIZE],
    /// As stored.
    pub(crate) subsystem: [u8; LABEL_SIZE],
    /// As stored.
    pub(crate) uuid: [u8; UUID_SIZE],
    /// Hash of the checksum.
    pub(crate) checksum: Checksum,
}

impl Binary {
    /// Parses the binary header found at `offset`; says nothing about the
    /// checksum yet, which needs the whole copy.
    pub(crate) fn parse(block: &[u8], which: Which, offset: u64) -> Result<Self, Error> {
        let name = which.name();
        let Some(block) = block.first_chunk::<BINARY_SIZE>() else {
            return Err(Error::corrupt(format!(
                "the {name} LUKS2 header is cut short"
            )));
        };
        if block[..6] != which.magic()[..] {
            return Err(Error::new(
                crate::ErrorKind::NotLuks,
                format!("no {name} LUKS2 header at byte {offset}"),
            ));
        }
        let version = u16::from_be_bytes(field(block, VERSION));
        if version != 2 {
            return Err(Error::unsupported(format!(
                "the {name} LUKS header has version {version}; known are 1 and 2"
            )));
        }
        let stored_offset = u64::from_be_bytes(field(block, OFFSET));
        if stored_offset != offset {
            return Err(Error::corrupt(format!(
                "the {name} LUKS2 header at byte {offset} says that it belongs at byte {stored_offset}"
            )));
        }
        let size = u64::from_be_bytes(field(block, SIZE));
        if !COPY_SIZES.contains(&size) {
            return Err(Error::corrupt(format!(
                "the {name} LUKS2 header has the impossible size of {size} bytes"
            )));
        }
        if which == Which::Secondary && offset != size {
            return Err(Error::corrupt(format!(
                "the secondary LUKS2 header at byte {offset} has a size of {size} bytes"
            )));
        }
        let checksum_name = until_nul(&block[CHECKSUM_NAME]);
        let checksum = Checksum::ALL
            .into_iter()
            .find(|known| known.name().as_bytes() == checksum_name)
            .ok_or_else(|| {
                Error::unsupported(format!(
                    "the {name} LUKS2 header has a checksum of type \"{}\"; known are sha256, sha1 and sha512",
                    checksum_name.escape_ascii()
                ))
            })?;
        Ok(Self {
            size,
            seqid: u64::from_be_bytes(field(block, SEQID)),
            label: terminated(field(block, LABEL)),
            subsystem: terminated(field(block, SUBSYSTEM)),
            uuid: terminated(field(block, UUID)),
            checksum,
        })
    }

    /// Whether the checksum in `copy`, a whole copy, is right.
    pub(crate) fn checksum_matches(&self, copy: &[u8]) -> bool {
        let Some(stored) = copy.get(CHECKSUM) else {
            return false;
        };
        let mut blank = copy.to_vec();
        blank[CHECKSUM].fill(0);
        let sum = self.checksum.of(&blank);
        stored.starts_with(&sum)
    }

    /// Builds a whole copy, with a salt of its own.
    pub(crate) fn encode(&self, which: Which, json: &str) -> Result<Vec<u8>, Error> {
        let mut copy = self.lay_out(which, json)?;
        xtent_secret::fill_random(&mut copy[SALT])?;
        self.seal(&mut copy);
        Ok(copy)
    }

    /// What both copies have alike, at its place in a copy: see [`crate::Pin`].
    pub(crate) fn canonical(&self, json: &str) -> Result<Vec<u8>, Error> {
        let mut copy = self.lay_out(Which::Primary, json)?;
        copy[..6].fill(0);
        Ok(copy)
    }

    /// A whole copy without salt and checksum.
    fn lay_out(&self, which: Which, json: &str) -> Result<Vec<u8>, Error> {
        // A copy has at most 4 MiB.
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        if json.len() >= size - BINARY_SIZE {
            return Err(Error::new(
                crate::ErrorKind::Full,
                format!(
                    "the LUKS2 metadata would have {} bytes, its area takes {}; remove a keyslot or a token",
                    json.len(),
                    size - BINARY_SIZE - 1
                ),
            ));
        }
        let mut copy = vec![0; size];
        copy[..6].copy_from_slice(which.magic());
        copy[VERSION].copy_from_slice(&2_u16.to_be_bytes());
        copy[SIZE].copy_from_slice(&self.size.to_be_bytes());
        copy[SEQID].copy_from_slice(&self.seqid.to_be_bytes());
        copy[LABEL].copy_from_slice(&self.label);
        let name = self.checksum.name().as_bytes();
        copy[CHECKSUM_NAME][..name.len()].copy_from_slice(name);
        copy[UUID].copy_from_slice(&self.uuid);
        copy[SUBSYSTEM].copy_from_slice(&self.subsystem);
        let offset = match which {
            Which::Primary => 0,
            Which::Secondary => self.size,
        };
        copy[OFFSET].copy_from_slice(&offset.to_be_bytes());
        copy[BINARY_SIZE..][..json.len()].copy_from_slice(json.as_bytes());
        Ok(copy)
    }

    /// Makes the checksum in `copy`, a whole copy, right.
    pub(crate) fn seal(&self, copy: &mut [u8]) {
        copy[CHECKSUM].fill(0);
        let sum = self.checksum.of(copy);
        copy[CHECKSUM][..sum.len()].copy_from_slice(&sum);
    }

    /// The UUID as text.
    pub(crate) fn uuid_text(&self) -> String {
        String::from_utf8_lossy(until_nul(&self.uuid)).into_owned()
    }

    /// The label as text.
    pub(crate) fn label_text(&self) -> String {
        String::from_utf8_lossy(until_nul(&self.label)).into_owned()
    }

    /// The subsystem as text.
    pub(crate) fn subsystem_text(&self) -> String {
        String::from_utf8_lossy(until_nul(&self.subsystem)).into_owned()
    }
}

/// A label or UUID as stored: NUL padded. `None` if it does not fit.
pub(crate) fn padded<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() >= N || text.contains('\0') {
        return None;
    }
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Some(bytes)
}

/// The bytes of a field; `range` lies inside and has `N` bytes.
fn field<const N: usize>(block: &[u8; BINARY_SIZE], range: std::ops::Range<usize>) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&block[range]);
    bytes
}

/// Readers take the last byte as NUL, whatever is stored.
fn terminated<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    bytes[N - 1] = 0;
    bytes
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn binary() -> Binary {
        Binary {
            size: 0x4000,
            seqid: 7,
            label: padded("label").unwrap(),
            subsystem: padded("").unwrap(),
            uuid: padded("22b51bd9-f269-4cc7-94f2-dd5abdc517e9").unwrap(),
            checksum: Checksum::Sha256,
        }
    }

    #[test]
    fn what_is_encoded_parses_again() {
        for checksum in Checksum::ALL {
            for which in [Which::Primary, Which::Secondary] {
                let written = Binary {
                    checksum,
                    ..binary()
                };
                let copy = written.encode(which, "{}").unwrap();
                let offset = if which == Which::Primary { 0 } else { 0x4000 };
                let read = Binary::parse(&copy, which, offset).unwrap();
                assert_eq!(read, written);
                assert!(read.checksum_matches(&copy));
                assert_eq!(read.label_text(), "label");
            }
        }
    }

    #[test]
    fn the_checksum_covers_every_byte() {
        let copy = binary().encode(Which::Primary, "{\"a\":1}").unwrap();
        for at in (0..copy.len()).filter(|at| *at < 600 || at % 61 == 0) {
            let mut bad = copy.clone();
            bad[at] ^= 1;
            let outcome = Binary::parse(&bad, Which::Primary, 0);
            // The checksum itself has 32 of the 64 bytes of its field.
            let ignored = CHECKSUM.contains(&at) && at >= CHECKSUM.start + 32;
            assert_eq!(
                outcome.is_ok_and(|binary| binary.checksum_matches(&bad)),
                ignored,
                "byte {at}"
            );
        }
    }

    #[test]
    fn fields_are_checked() {
        let good = binary().encode(Which::Secondary, "{}").unwrap();
        let kind = |range: std::ops::Range<usize>, value: &[u8], offset| {
            let mut bad = good.clone();
            bad[range][..value.len()].copy_from_slice(value);
            Binary::parse(&bad, Which::Secondary, offset)
                .unwrap_err()
                .kind
        };
        assert_eq!(kind(0..6, b"LUKS\xba\xbe", 0x4000), ErrorKind::NotLuks);
        assert_eq!(kind(VERSION, &[0, 3], 0x4000), ErrorKind::Unsupported);
        assert_eq!(
            kind(SIZE, &0x5000_u64.to_be_bytes(), 0x4000),
            ErrorKind::Corrupt
        );
        assert_eq!(
            kind(SIZE, &0x8000_u64.to_be_bytes(), 0x4000),
            ErrorKind::Corrupt
        );
        assert_eq!(
            kind(OFFSET, &0_u64.to_be_bytes(), 0x4000),
            ErrorKind::Corrupt
        );
        assert_eq!(kind(0..0, b"", 0x8000), ErrorKind::Corrupt);
        assert_eq!(
            kind(CHECKSUM_NAME, b"crc32c\0", 0x4000),
            ErrorKind::Unsupported
        );
        assert_eq!(
            Binary::parse(&good[..4095], Which::Secondary, 0x4000)
                .unwrap_err()
                .kind,
            ErrorKind::Corrupt
        );
    }

    #[test]
    fn json_must_leave_room_for_its_nul() {
        let room = 0x4000 - BINARY_SIZE;
        assert!(
            binary()
                .encode(Which::Primary, &" ".repeat(room - 1))
                .is_ok()
        );
        let error = binary()
            .encode(Which::Primary, &" ".repeat(room))
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Full);
    }

    #[test]
    fn labels_that_do_not_fit_are_refused() {
        assert!(padded::<48>(&"x".repeat(47)).is_some());
        assert!(padded::<48>(&"x".repeat(48)).is_none());
        assert!(padded::<48>("a\0b").is_none());
    }
}
