//! What a header says, for people (in the style of `luksDump`) and programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::model::{SlotKdf, Token};
use super::read::Header;
use crate::{Kdf, Priority};

/// Everything in a LUKS2 header that a dump shows.
#[derive(Clone, Debug, Serialize)]
pub struct Dump {
    /// 2.
    pub version: u32,
    /// Number of the update.
    pub epoch: u64,
    /// Bytes of each copy of the header.
    pub metadata_size: u64,
    /// Bytes of keyslots area.
    pub keyslots_size: u64,
    /// UUID.
    pub uuid: String,
    /// Label, if there is one.
    pub label: Option<String>,
    /// Subsystem, if there is one.
    pub subsystem: Option<String>,
    /// Whether one copy was bad or stale.
    pub recovered: bool,
    /// Persistent flags.
    pub flags: Vec<String>,
    /// Mandatory requirements.
    pub requirements: Vec<String>,
    /// Data segments by number.
    pub segments: BTreeMap<u32, SegmentDump>,
    /// Keyslots by number.
    pub keyslots: BTreeMap<u32, KeyslotDump>,
    /// Tokens by number.
    pub tokens: BTreeMap<u32, TokenDump>,
    /// Digests by number.
    pub digests: BTreeMap<u32, DigestDump>,
}

/// A data segment.
#[derive(Clone, Debug, Serialize)]
pub struct SegmentDump {
    /// `crypt` or another type.
    #[serde(rename = "type")]
    pub kind: String,
    /// First byte.
    pub offset: u64,
    /// Bytes; none if dynamic.
    pub size: Option<u64>,
    /// dm-crypt's cipher name.
    pub encryption: Option<String>,
    /// Bytes per sector.
    pub sector_size: Option<u32>,
    /// Added to sector numbers.
    pub iv_tweak: Option<u64>,
    /// Type of integrity protection.
    pub integrity: Option<String>,
    /// Flags of reencryption.
    pub flags: Vec<String>,
}

/// A keyslot.
#[derive(Clone, Debug, Serialize)]
pub struct KeyslotDump {
    /// `luks2` or another type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Bytes of key inside.
    pub key_size: u32,
    /// Order of tries.
    pub priority: Priority,
    /// Whether its key is not that of a data segment.
    pub unbound: bool,
    /// First byte of the area.
    pub area_offset: u64,
    /// Bytes of the area.
    pub area_size: u64,
    /// What is known of a keyslot of type `luks2`.
    #[serde(flatten)]
    pub luks2: Option<Luks2KeyslotDump>,
    /// Digest that the key has.
    pub digest: Option<u32>,
}

/// The rest of a keyslot of type `luks2`.
#[derive(Clone, Debug, Serialize)]
pub struct Luks2KeyslotDump {
    /// Cipher of the area.
    pub encryption: String,
    /// Bytes of its key.
    pub area_key_size: u32,
    /// Key derivation.
    pub kdf: KdfDump,
    /// Salt in hexadecimal.
    pub salt: Option<String>,
    /// Stripes of the anti-forensic splitter.
    pub af_stripes: u32,
    /// Its hash.
    pub af_hash: String,
}

/// A key derivation.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum KdfDump {
    /// One that this crate has.
    Known(Kdf),
    /// Another one.
    Unknown {
        /// Its name.
        #[serde(rename = "type")]
        kind: String,
    },
}

/// A token.
#[derive(Clone, Debug, Serialize)]
pub struct TokenDump {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Keyslots that it unlocks.
    pub keyslots: Vec<u32>,
}

/// A digest.
#[derive(Clone, Debug, Serialize)]
pub struct DigestDump {
    /// `pbkdf2` or another type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Keyslots whose key it is of.
    pub keyslots: Vec<u32>,
    /// Segments that are encrypted with that key.
    pub segments: Vec<u32>,
    /// Hash.
    pub hash: Option<String>,
    /// Iterations.
    pub iterations: Option<u32>,
    /// Salt in hexadecimal.
    pub salt: Option<String>,
    /// The digest in hexadecimal.
    pub digest: Option<String>,
}

impl Header {
    /// See [`crate::Header::dump`].
    pub(crate) fn dump(&self) -> Dump {
        let metadata = &self.metadata;
        Dump {
            version: 2,
            epoch: self.binary.seqid,
            metadata_size: self.binary.size,
            keyslots_size: metadata.config.keyslots_size,
            uuid: self.binary.uuid_text(),
            label: Some(self.binary.label_text()).filter(|text| !text.is_empty()),
            subsystem: Some(self.binary.subsystem_text()).filter(|text| !text.is_empty()),
            recovered: self.is_recovered(),
            flags: metadata.config.flags.clone(),
            requirements: metadata.config.requirements.clone(),
            segments: self.dump_segments(),
            keyslots: self.dump_keyslots(),
            tokens: metadata
                .tokens
                .iter()
                .map(|(id, Token { kind, keyslots })| {
                    let token = TokenDump {
                        kind: kind.clone(),
                        keyslots: keyslots.clone(),
                    };
                    (*id, token)
                })
                .collect(),
            digests: self.dump_digests(),
        }
    }

    fn dump_segments(&self) -> BTreeMap<u32, SegmentDump> {
        let dump = |segment: &super::model::Segment| {
            let crypt = segment.crypt.as_ref();
            SegmentDump {
                kind: segment.kind.clone(),
                offset: segment.offset,
                size: segment.size,
                encryption: crypt.map(|crypt| crypt.encryption.clone()),
                sector_size: crypt.map(|crypt| crypt.sector_size),
                iv_tweak: crypt.map(|crypt| crypt.iv_tweak),
                integrity: crypt.and_then(|crypt| crypt.integrity.clone()),
                flags: segment.flags.clone(),
            }
        };
        let segments = self.metadata.segments.iter();
        segments.map(|(id, segment)| (*id, dump(segment))).collect()
    }

    fn dump_keyslots(&self) -> BTreeMap<u32, KeyslotDump> {
        let mut all = BTreeMap::new();
        for (id, slot) in &self.metadata.keyslots {
            let digest = self.metadata.digests_of_keyslot(*id).next();
            let unbound =
                digest.is_none_or(|digest| self.metadata.digests[&digest].segments.is_empty());
            let keyslot = KeyslotDump {
                kind: slot.kind.clone(),
                key_size: slot.key_size,
                priority: slot.priority,
                unbound,
                area_offset: slot.area.offset,
                area_size: slot.area.size,
                luks2: slot.luks2.as_ref().map(|luks2| {
                    let (kdf, salt) = dump_kdf(&luks2.kdf);
                    Luks2KeyslotDump {
                        encryption: luks2.encryption.clone(),
                        area_key_size: luks2.area_key_size,
                        kdf,
                        salt,
                        af_stripes: luks2.stripes,
                        af_hash: luks2.af_hash.clone(),
                    }
                }),
                digest,
            };
            all.insert(*id, keyslot);
        }
        all
    }

    fn dump_digests(&self) -> BTreeMap<u32, DigestDump> {
        let dump = |digest: &super::model::Digest| {
            let pbkdf2 = digest.pbkdf2.as_ref();
            DigestDump {
                kind: digest.kind.clone(),
                keyslots: digest.keyslots.clone(),
                segments: digest.segments.clone(),
                hash: pbkdf2.map(|pbkdf2| pbkdf2.hash.clone()),
                iterations: pbkdf2.map(|pbkdf2| pbkdf2.iterations),
                salt: pbkdf2.map(|pbkdf2| hex(&pbkdf2.salt)),
                digest: pbkdf2.map(|pbkdf2| hex(&pbkdf2.digest)),
            }
        };
        let digests = self.metadata.digests.iter();
        digests.map(|(id, digest)| (*id, dump(digest))).collect()
    }
}

/// The derivation, and its salt in hexadecimal.
fn dump_kdf(kdf: &SlotKdf) -> (KdfDump, Option<String>) {
    match kdf {
        SlotKdf::Known { kdf, salt } => (KdfDump::Known(kdf.clone()), Some(hex(salt))),
        SlotKdf::Unknown(name) => (KdfDump::Unknown { kind: name.clone() }, None),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In the style of `cryptsetup luksDump`.
impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &str, none: &'static str| {
            if text.is_empty() {
                none.to_owned()
            } else {
                plain(text)
            }
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        writeln!(f, "LUKS header information")?;
        writeln!(f, "Version:       \t{}", self.version)?;
        writeln!(f, "Epoch:         \t{}", self.epoch)?;
        writeln!(f, "Metadata area: \t{} [bytes]", self.metadata_size)?;
        writeln!(f, "Keyslots area: \t{} [bytes]", self.keyslots_size)?;
        writeln!(f, "UUID:          \t{}", or(&self.uuid, "(no UUID)"))?;
        writeln!(
            f,
            "Label:         \t{}",
            or(&text(&self.label), "(no label)")
        )?;
        writeln!(
            f,
            "Subsystem:     \t{}",
            or(&text(&self.subsystem), "(no subsystem)")
        )?;
        let list = |items: &[String]| items.iter().map(|item| plain(item) + " ").collect();
        let flags: String = list(&self.flags);
        writeln!(f, "Flags:       \t{}", or(&flags, "(no flags)"))?;
        if !self.requirements.is_empty() {
            let requirements: String = list(&self.requirements);
            writeln!(f, "Requirements:\t{requirements}")?;
        }
        if self.recovered {
            writeln!(
                f,
                "Recovered:   \tone of the two header copies is bad or stale"
            )?;
        }
        writeln!(f, "\nData segments:")?;
        for (id, segment) in &self.segments {
            segment.print(f, *id)?;
        }
        writeln!(f, "Keyslots:")?;
        for (id, keyslot) in &self.keyslots {
            keyslot.print(f, *id)?;
        }
        writeln!(f, "Tokens:")?;
        for (id, token) in &self.tokens {
            writeln!(f, "  {id}: {}", plain(&token.kind))?;
            for keyslot in &token.keyslots {
                writeln!(f, "\tKeyslot:    {keyslot}")?;
            }
        }
        writeln!(f, "Digests:")?;
        for (id, digest) in &self.digests {
            digest.print(f, *id)?;
        }
        Ok(())
    }
}

impl SegmentDump {
    fn print(&self, f: &mut fmt::Formatter<'_>, id: u32) -> fmt::Result {
        writeln!(f, "  {id}: {}", plain(&self.kind))?;
        writeln!(f, "\toffset: {} [bytes]", self.offset)?;
        match self.size {
            None => writeln!(f, "\tlength: (whole device)")?,
            Some(size) => writeln!(f, "\tlength: {size} [bytes]")?,
        }
        if let Some(encryption) = &self.encryption {
            writeln!(f, "\tcipher: {}", plain(encryption))?;
        }
        if let Some(sector_size) = self.sector_size {
            writeln!(f, "\tsector: {sector_size} [bytes]")?;
        }
        if let Some(integrity) = &self.integrity {
            writeln!(f, "\tintegrity: {}", plain(integrity))?;
        }
        if !self.flags.is_empty() {
            writeln!(f, "\tflags : {}", plain(&self.flags.join(", ")))?;
        }
        writeln!(f)
    }
}

impl KeyslotDump {
    fn print(&self, f: &mut fmt::Formatter<'_>, id: u32) -> fmt::Result {
        let unbound = if self.unbound { " (unbound)" } else { "" };
        writeln!(f, "  {id}: {}{unbound}", plain(&self.kind))?;
        writeln!(f, "\tKey:        {} bits", u64::from(self.key_size) * 8)?;
        let priority = match self.priority {
            Priority::Ignore => "ignored",
            Priority::Normal => "normal",
            Priority::Prefer => "preferred",
        };
        writeln!(f, "\tPriority:   {priority}")?;
        if let Some(luks2) = &self.luks2 {
            luks2.print(f)?;
        }
        writeln!(f, "\tArea offset:{} [bytes]", self.area_offset)?;
        writeln!(f, "\tArea length:{} [bytes]", self.area_size)?;
        if let Some(digest) = self.digest {
            writeln!(f, "\tDigest ID:  {digest}")?;
        }
        Ok(())
    }
}

impl Luks2KeyslotDump {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tCipher:     {}", plain(&self.encryption))?;
        writeln!(
            f,
            "\tCipher key: {} bits",
            u64::from(self.area_key_size) * 8
        )?;
        self.kdf.print(f)?;
        if let Some(salt) = &self.salt {
            print_bytes(f, "Salt:  ", salt)?;
        }
        writeln!(f, "\tAF stripes: {}", self.af_stripes)?;
        writeln!(f, "\tAF hash:    {}", plain(&self.af_hash))
    }
}

impl KdfDump {
    fn print(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, cost) = match self {
            Self::Known(Kdf::Pbkdf2 { hash, iterations }) => {
                writeln!(f, "\tPBKDF:      pbkdf2")?;
                writeln!(f, "\tHash:       {}", plain(hash))?;
                return writeln!(f, "\tIterations: {iterations}");
            }
            Self::Known(Kdf::Argon2i(cost)) => ("argon2i", cost),
            Self::Known(Kdf::Argon2id(cost)) => ("argon2id", cost),
            Self::Unknown { kind } => return writeln!(f, "\tPBKDF:      {}", plain(kind)),
        };
        writeln!(f, "\tPBKDF:      {name}")?;
        writeln!(f, "\tTime cost:  {}", cost.time)?;
        writeln!(f, "\tMemory:     {}", cost.memory)?;
        writeln!(f, "\tThreads:    {}", cost.cpus)
    }
}

impl DigestDump {
    fn print(&self, f: &mut fmt::Formatter<'_>, id: u32) -> fmt::Result {
        writeln!(f, "  {id}: {}", plain(&self.kind))?;
        if let Some(hash) = &self.hash {
            writeln!(f, "\tHash:       {}", plain(hash))?;
        }
        if let Some(iterations) = self.iterations {
            writeln!(f, "\tIterations: {iterations}")?;
        }
        if let Some(salt) = &self.salt {
            print_bytes(f, "Salt:  ", salt)?;
        }
        if let Some(digest) = &self.digest {
            print_bytes(f, "Digest:", digest)?;
        }
        Ok(())
    }
}

/// Hexadecimal digits in pairs, sixteen to a line.
fn print_bytes(f: &mut fmt::Formatter<'_>, name: &str, hex: &str) -> fmt::Result {
    for (number, line) in hex.as_bytes().chunks(32).enumerate() {
        if number == 0 {
            write!(f, "\t{name}     ")?;
        } else {
            write!(f, "\t            ")?;
        }
        for pair in line.chunks(2) {
            write!(f, "{} ", String::from_utf8_lossy(pair))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// Text from a header, safe for a terminal.
fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|char| {
            let shown = if char.is_control() { None } else { Some(char) };
            let escaped = if char.is_control() {
                Some(char.escape_default())
            } else {
                None
            };
            shown.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect()
}
