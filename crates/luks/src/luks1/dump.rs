//! A LUKS1 header for people and programs.

use std::fmt;

use serde::Serialize;

use super::header::{Header, SLOTS};
use crate::Kdf;
use crate::af::STRIPES;

/// Everything that a dump shows; no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dump {
    /// 1.
    pub version: u32,
    /// `aes`.
    pub cipher_name: String,
    /// `xts-plain64`.
    pub cipher_mode: String,
    /// The hash of the digest, the keyslots' key derivation and the splitter.
    pub hash: String,
    /// In sectors of 512 bytes.
    pub payload_offset: u32,
    /// Bits of volume key.
    pub key_bits: u32,
    /// Digest of the volume key, in hexadecimal.
    pub digest: String,
    /// Salt of the digest, in hexadecimal.
    pub digest_salt: String,
    /// Iterations of the digest.
    pub digest_iterations: u32,
    /// As text.
    pub uuid: String,
    /// Whether the UUID, or a keyslot that is not in use, is damaged.
    pub damaged: bool,
    /// Keyslots in use.
    pub keyslots: Vec<Keyslot>,
}

/// A keyslot in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Keyslot {
    /// 0 to 7.
    pub number: u32,
    /// Always PBKDF2.
    pub kdf: Kdf,
    /// In hexadecimal.
    pub salt: String,
    /// Where the key material is, in sectors of 512 bytes.
    pub offset: u32,
    /// 4000.
    pub stripes: u32,
}

impl Header {
    /// What a dump shows.
    pub(crate) fn dump(&self) -> Dump {
        let keyslots = (0_u32..)
            .zip(0..SLOTS)
            .map(|(number, index)| (number, self.slot(index)))
            .filter(|(_, slot)| slot.active)
            .map(|(number, slot)| Keyslot {
                number,
                kdf: Kdf::Pbkdf2 {
                    hash: self.hash.clone(),
                    iterations: slot.iterations,
                },
                salt: hex(&slot.salt),
                offset: slot.offset,
                stripes: STRIPES,
            })
            .collect();
        Dump {
            version: 1,
            cipher_name: self.cipher_name.clone(),
            cipher_mode: self.cipher_mode.clone(),
            hash: self.hash.clone(),
            payload_offset: self.payload_offset,
            key_bits: self.key_bytes * 8,
            digest: hex(&self.mk_digest),
            digest_salt: hex(&self.mk_salt),
            digest_iterations: self.mk_iterations,
            uuid: self.uuid.clone(),
            damaged: !self.damage().is_empty(),
            keyslots,
        }
    }
}

/// In the style of `cryptsetup luksDump`.
impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "LUKS header information\n")?;
        writeln!(f, "Version:       \t{}", self.version)?;
        writeln!(f, "Cipher name:   \t{}", self.cipher_name)?;
        writeln!(f, "Cipher mode:   \t{}", self.cipher_mode)?;
        writeln!(f, "Hash spec:     \t{}", self.hash)?;
        writeln!(f, "Payload offset:\t{}", self.payload_offset)?;
        writeln!(f, "MK bits:       \t{}", self.key_bits)?;
        writeln!(f, "MK digest:     \t{}", Spaced(&self.digest))?;
        let (first, second) = halves(&self.digest_salt);
        writeln!(f, "MK salt:       \t{}", Spaced(first))?;
        writeln!(f, "               \t{}", Spaced(second))?;
        writeln!(f, "MK iterations: \t{}", self.digest_iterations)?;
        writeln!(f, "UUID:          \t{}\n", self.uuid)?;
        let mut in_use = self.keyslots.iter().peekable();
        for number in 0..8 {
            let Some(slot) = in_use.next_if(|slot| slot.number == number) else {
                writeln!(f, "Key Slot {number}: DISABLED")?;
                continue;
            };
            writeln!(f, "Key Slot {number}: ENABLED")?;
            if let Kdf::Pbkdf2 { iterations, .. } = slot.kdf {
                writeln!(f, "\tIterations:         \t{iterations}")?;
            }
            let (first, second) = halves(&slot.salt);
            writeln!(f, "\tSalt:               \t{}", Spaced(first))?;
            writeln!(f, "\t                      \t{}", Spaced(second))?;
            writeln!(f, "\tKey material offset:\t{}", slot.offset)?;
            writeln!(f, "\tAF stripes:            \t{}", slot.stripes)?;
        }
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn halves(hex: &str) -> (&str, &str) {
    hex.split_at(hex.len() / 2)
}

/// Hexadecimal with a space after each byte, as cryptsetup prints it.
struct Spaced<'a>(&'a str);

impl fmt::Display for Spaced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, digit) in self.0.chars().enumerate() {
            write!(f, "{digit}")?;
            if index % 2 == 1 {
                write!(f, " ")?;
            }
        }
        Ok(())
    }
}
