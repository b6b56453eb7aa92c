//! LUKS headers taken apart and put together again, wrong on purpose.

use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::scratch::{read_range, write_range};

/// Name, offset and length of each field of LUKS1's header.
pub const LUKS1_FIELDS: &[(&str, usize, usize)] = &[
    ("magic", 0, 6),
    ("version", 6, 2),
    ("cipher-name", 8, 32),
    ("cipher-mode", 40, 32),
    ("hash-spec", 72, 32),
    ("payload-offset", 104, 4),
    ("key-bytes", 108, 4),
    ("mk-digest", 112, 20),
    ("mk-digest-salt", 132, 32),
    ("mk-digest-iter", 164, 4),
    ("uuid", 168, 40),
    ("slot0-active", 208, 4),
    ("slot0-iterations", 212, 4),
    ("slot0-salt", 216, 32),
    ("slot0-key-material-offset", 248, 4),
    ("slot0-stripes", 252, 4),
    ("slot7-active", 544, 4),
    ("slot7-iterations", 548, 4),
    ("slot7-salt", 552, 32),
    ("slot7-key-material-offset", 584, 4),
    ("slot7-stripes", 588, 4),
];

/// Name, offset and length of each field of LUKS2's binary header.
pub const LUKS2_FIELDS: &[(&str, usize, usize)] = &[
    ("magic", 0, 6),
    ("version", 6, 2),
    ("hdr_size", 8, 8),
    ("seqid", 16, 8),
    ("label", 24, 48),
    ("csum_alg", 72, 32),
    ("salt", 104, 64),
    ("uuid", 168, 40),
    ("subsystem", 208, 48),
    ("hdr_offset", 256, 8),
    ("padding", 264, 184),
    // Of SHA-256; the field has room for 64 bytes.
    ("csum", 448, 32),
    ("padding4096", 512, 3584),
    ("json", 4096, 12288),
];

/// Ways to spoil a field.
pub fn spoil(field: &[u8]) -> Vec<Vec<u8>> {
    let with = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = field.to_vec();
        change(&mut bytes);
        bytes
    };
    let last = field.len() - 1;
    let mut ways = vec![
        with(&|b| b.fill(0)),
        with(&|b| b.fill(0xff)),
        with(&|b| b.fill(b'%')),
        with(&|b| b[0] ^= 1),
        with(&|b| b[0] ^= 0x80),
        with(&|b| b[last] = b[last].wrapping_add(1)),
        with(&|b| b[last] = b[last].wrapping_sub(1)),
        with(&|b| {
            b.fill(0);
            b[last] = 1;
        }),
    ];
    ways.retain(|way| way != field);
    ways.dedup();
    ways
}

/// Length of one copy of a default LUKS2 header.
pub const COPY: usize = 16384;

/// A copy of a LUKS2 header, binary part and JSON area.
#[derive(Clone)]
pub struct Luks2Copy {
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Luks2Copy {
    /// The first or second copy in an image.
    pub fn read(image: &Path, second: bool) -> Self {
        let offset = if second { COPY as u64 } else { 0 };
        Self {
            bytes: read_range(image, offset, COPY),
        }
    }

    /// Writes it back.
    pub fn write(&self, image: &Path, second: bool) {
        write_range(image, if second { COPY as u64 } else { 0 }, &self.bytes);
    }

    /// The JSON area up to its first zero byte.
    pub fn json(&self) -> Value {
        let area = &self.bytes[4096..];
        let end = area.iter().position(|b| *b == 0).unwrap_or(area.len());
        serde_json::from_slice(&area[..end]).unwrap()
    }

    /// Replaces the JSON area's contents; no checksum yet.
    pub fn set_json(&mut self, text: &[u8]) {
        let area = &mut self.bytes[4096..];
        let len = text.len().min(area.len());
        area.fill(0);
        area[..len].copy_from_slice(&text[..len]);
    }

    /// Makes the checksum right again.
    pub fn sign(&mut self) {
        self.bytes[448..512].fill(0);
        let digest = Sha256::digest(&self.bytes);
        self.bytes[448..480].copy_from_slice(&digest);
    }
}

/// Puts JSON, rightly signed, into both copies of an image.
pub fn set_json(image: &Path, text: &[u8]) {
    for second in [false, true] {
        let mut copy = Luks2Copy::read(image, second);
        copy.set_json(text);
        copy.sign();
        copy.write(image, second);
    }
}

/// Changes the JSON of both copies of an image.
pub fn edit_json(image: &Path, change: impl FnOnce(&mut Value)) {
    let mut json = Luks2Copy::read(image, false).json();
    change(&mut json);
    set_json(image, json.to_string().as_bytes());
}
