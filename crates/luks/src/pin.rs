//! Pins: what a header is to be, noted where the storage cannot change it.
//!
//! Whoever owns the storage can put back an old header, or write one of his own. A pin is a
//! digest of what must not change, as one word of text that says what it is of:
//!
//! ```text
//! xtent1:volume:sha256:HEX,uuid=...,cipher=aes-xts-plain64,sector=512,offset=16777216,size=dynamic,tweak=0
//! xtent1:metadata:sha256:HEX,uuid=...,seqid=3
//! ```
//!
//! What follows the first comma is for messages: it names what has changed. It may be left out,
//! and where it is there it has to be right too.
//!
//! A pin of the *volume* covers what decides how ciphertext becomes plaintext, and under which
//! key: it holds while passphrases, tokens and labels change, and through a conversion between
//! LUKS1 and LUKS2. Its digest is SHA-256 of these lines, each ended by a line feed:
//!
//! ```text
//! xtent1:volume
//! uuid=UUID
//! cipher=CIPHER             as dm-crypt names it
//! sector=BYTES
//! offset=BYTES              where the data begin
//! size=BYTES                or "dynamic"; LUKS1's always is
//! tweak=SECTORS             LUKS2's iv_tweak; 0 in LUKS1
//! digest=pbkdf2:HASH:ITERATIONS:SALT:DIGEST      the volume key's; salt and digest in hexadecimal
//! ```
//!
//! A pin of the *metadata* covers them all, so that no keyslot that was removed comes back
//! unnoticed; it changes with every change of a passphrase. Its digest is SHA-256 of the line
//! `xtent1:metadata` and of
//!
//! * LUKS1: the 592 bytes of the header;
//! * LUKS2: one copy, with zeros for what differs between the two copies: magic (bytes 0 to 5),
//!   salt (104 to 167), offset (256 to 263) and checksum (448 to 511), and for all after the JSON
//!   text.
//!
//! Neither covers the keyslots' areas: key material that was changed opens nothing.

use std::fmt;
use std::str::FromStr;

use sha2::Digest as _;

use crate::{Error, ErrorKind, Header};

/// What the text of every pin begins with.
const MAGIC: &str = "xtent1";
const HASH: &str = "sha256";
/// Longer than any pin.
const LONGEST: usize = 1024;

/// What a pin is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinScope {
    /// What decides how ciphertext becomes plaintext, and which key does.
    Volume,
    /// The metadata, all of it.
    Metadata,
}

impl PinScope {
    const ALL: [Self; 2] = [Self::Volume, Self::Metadata];

    fn name(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Metadata => "metadata",
        }
    }

    /// The fields that are shown beside the digest.
    fn shown(self) -> &'static [&'static str] {
        match self {
            Self::Volume => &["uuid", "cipher", "sector", "offset", "size", "tweak"],
            Self::Metadata => &["uuid", "seqid"],
        }
    }

    /// What nothing but the digest tells about.
    fn hidden(self) -> &'static str {
        match self {
            Self::Volume => "the volume key's digest",
            Self::Metadata => "the keyslots, or something else of the metadata",
        }
    }
}

/// A header's digest, and how to tell what has changed of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    scope: PinScope,
    digest: [u8; 32],
    /// Names, and values without commas and spaces.
    shown: Vec<(&'static str, String)>,
}

/// What a header is made of, as far as a pin of the volume covers it.
pub(crate) struct Covered {
    pub(crate) cipher: String,
    pub(crate) sector: u32,
    pub(crate) offset: u64,
    pub(crate) size: Option<u64>,
    pub(crate) tweak: u64,
    pub(crate) hash: String,
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) digest: Vec<u8>,
}

impl Pin {
    /// Of a volume.
    pub(crate) fn volume(uuid: &str, covered: &Covered) -> Result<Self, Error> {
        let shown = vec![
            ("uuid", uuid.to_owned()),
            ("cipher", covered.cipher.clone()),
            ("sector", covered.sector.to_string()),
            ("offset", covered.offset.to_string()),
            (
                "size",
                covered
                    .size
                    .map_or("dynamic".to_owned(), |size| size.to_string()),
            ),
            ("tweak", covered.tweak.to_string()),
        ];
        let digest = format!(
            "pbkdf2:{}:{}:{}:{}",
            covered.hash.to_ascii_lowercase(),
            covered.iterations,
            hex(&covered.salt),
            hex(&covered.digest)
        );
        let mut lines = format!("{MAGIC}:{}\n", PinScope::Volume.name());
        for (name, value) in shown.iter().chain([&("digest", digest)]) {
            lines += &format!("{name}={value}\n");
        }
        Self::new(PinScope::Volume, lines.as_bytes(), shown)
    }

    /// Of metadata, by the bytes that stand for them.
    pub(crate) fn metadata(uuid: &str, seqid: Option<u64>, bytes: &[u8]) -> Result<Self, Error> {
        let mut shown = vec![("uuid", uuid.to_owned())];
        shown.extend(seqid.map(|seqid| ("seqid", seqid.to_string())));
        let mut covered = format!("{MAGIC}:{}\n", PinScope::Metadata.name()).into_bytes();
        covered.extend_from_slice(bytes);
        Self::new(PinScope::Metadata, &covered, shown)
    }

    fn new(
        scope: PinScope,
        covered: &[u8],
        shown: Vec<(&'static str, String)>,
    ) -> Result<Self, Error> {
        if let Some((name, value)) = shown.iter().find(|(_, value)| !is_value(value)) {
            return Err(Error::unsupported(format!(
                "a header whose {name} is \"{}\" cannot be pinned",
                value.escape_debug()
            )));
        }
        Ok(Self {
            scope,
            digest: sha2::Sha256::digest(covered).into(),
            shown,
        })
    }

    /// What it is of.
    pub fn scope(&self) -> PinScope {
        self.scope
    }

    /// The text up to the first comma: enough to tell that something has changed, not what.
    pub fn short(&self) -> String {
        format!("{MAGIC}:{}:{HASH}:{}", self.scope.name(), hex(&self.digest))
    }

    /// Whether `found`, of the same scope, is what was pinned.
    fn check(&self, found: &Self) -> Result<(), Error> {
        let changed: Vec<String> = self
            .shown
            .iter()
            .filter_map(|(name, pinned)| {
                let found = found.shown.iter().find(|(other, _)| other == name);
                let found = found.map_or("none", |(_, value)| value.as_str());
                (found != pinned).then(|| format!("{name}: pinned {pinned}, found {found}"))
            })
            .collect();
        let what = match (&changed[..], self.digest == found.digest) {
            ([], true) => return Ok(()),
            ([], false) if self.shown.is_empty() => "the digest is another".to_owned(),
            ([], false) => format!("{} differs", self.scope.hidden()),
            (_, _) => changed.join("; "),
        };
        Err(Error {
            advice: Some(
                "Somebody has changed it since, or it is an older one that was put back. If \
                 the change was meant, pin what is there now: `xtent header pin`.",
            ),
            ..Error::new(
                ErrorKind::Unexpected,
                format!(
                    "the header is not the one that was pinned ({}): {what}",
                    self.scope.name()
                ),
            )
        })
    }
}

impl Header {
    /// The pin of this header, whichever of its copies it was read from.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what is no single encrypted segment, for a digest of an
    /// unknown type, and for a UUID or cipher's name that is no plain word.
    pub fn pin(&self, scope: PinScope) -> Result<Pin, Error> {
        match scope {
            PinScope::Volume => Pin::volume(self.uuid(), &self.covered()?),
            PinScope::Metadata => {
                let (seqid, bytes) = self.canonical()?;
                Pin::metadata(self.uuid(), seqid, &bytes)
            }
        }
    }

    /// Fails unless it is what each of the pins says.
    pub(crate) fn is_what(&self, pins: &[Pin]) -> Result<(), Error> {
        pins.iter()
            .try_for_each(|pin| pin.check(&self.pin(pin.scope)?))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())?;
        self.shown
            .iter()
            .try_for_each(|(name, value)| write!(f, ",{name}={value}"))
    }
}

impl FromStr for Pin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |what: &str| Error::options(format!("this is no pin of a header: {what}"));
        if text.len() > LONGEST {
            return Err(bad("it is too long"));
        }
        let mut parts = text.split(',');
        let first: Vec<&str> = parts.next().unwrap_or_default().split(':').collect();
        let [magic, scope, hash, digest] = first[..] else {
            return Err(bad("it has not the form xtent1:SCOPE:sha256:DIGEST"));
        };
        if magic != MAGIC {
            return Err(bad("it does not begin with xtent1"));
        }
        let scope = PinScope::ALL
            .into_iter()
            .find(|known| known.name() == scope)
            .ok_or_else(|| bad("it is neither of a volume nor of metadata"))?;
        if hash != HASH {
            return Err(bad("its hash is not sha256"));
        }
        let digest =
            unhex(digest).ok_or_else(|| bad("its digest has not 64 digits of 0-9, a-f"))?;
        let mut shown: Vec<(&'static str, String)> = Vec::new();
        for part in parts {
            let (name, value) = part
                .split_once('=')
                .filter(|(_, value)| is_value(value))
                .ok_or_else(|| bad("what follows a comma has to be NAME=VALUE"))?;
            let known = scope.shown().iter().find(|known| **known == name);
            let name = known.ok_or_else(|| bad("it names something that no such pin has"))?;
            if shown.iter().any(|(other, _)| other == name) {
                return Err(bad("it names something twice"));
            }
            shown.push((name, value.to_owned()));
        }
        Ok(Self {
            scope,
            digest,
            shown,
        })
    }
}

/// Whether a value can be told from what is around it, and shown.
fn is_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b',')
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
