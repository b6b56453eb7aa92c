//! Typed views of the JSON metadata (LUKS2 on-disk format, section 3). Only
//! what an operation needs is parsed; everything else stays in the document.
//! Whether the parts fit each other is the business of `validate`.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde_json::{Map, Value};

use crate::kdf::{Argon2Cost, Kdf};
use crate::{Error, Priority};

/// Keyslots, and tokens, that a header may have.
pub(crate) const MAX_OBJECTS: u32 = 32;

/// Bytes of salt in every keyslot and digest.
pub(crate) const SALT_SIZE: usize = 32;

/// The whole metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metadata {
    pub(crate) keyslots: BTreeMap<u32, Keyslot>,
    pub(crate) segments: BTreeMap<u32, Segment>,
    pub(crate) digests: BTreeMap<u32, Digest>,
    pub(crate) tokens: BTreeMap<u32, Token>,
    pub(crate) config: Config,
}

/// A range of bytes from the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Area {
    /// First byte behind; validated not to overflow.
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(self.size)
    }
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keyslot {
    /// `luks2`, `reencrypt`, or a type that nobody here knows.
    pub(crate) kind: String,
    /// Bytes of the key inside.
    pub(crate) key_size: u32,
    pub(crate) priority: Priority,
    pub(crate) area: Area,
    /// The rest, for type `luks2`.
    pub(crate) luks2: Option<Luks2Keyslot>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Luks2Keyslot {
    pub(crate) encryption: String,
    /// Bytes of the key that encrypts the area.
    pub(crate) area_key_size: u32,
    pub(crate) kdf: SlotKdf,
    pub(crate) af_hash: String,
    pub(crate) stripes: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SlotKdf {
    Known {
        kdf: Kdf,
        salt: Vec<u8>,
    },
    /// A type that nobody here knows.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    /// `crypt`, `linear`, or a type that nobody here knows.
    pub(crate) kind: String,
    pub(crate) offset: u64,
    /// `None` is "dynamic": up to the end of the device.
    pub(crate) size: Option<u64>,
    pub(crate) flags: Vec<String>,
    /// The rest, for type `crypt`.
    pub(crate) crypt: Option<Crypt>,
}

impl Segment {
    /// Whether it is one of reencryption's notes, not part of the volume.
    pub(crate) fn is_backup(&self) -> bool {
        self.flags.iter().any(|flag| flag.starts_with("backup-"))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Crypt {
    pub(crate) encryption: String,
    pub(crate) sector_size: u32,
    pub(crate) iv_tweak: u64,
    /// Type of the integrity protection, where there is one.
    pub(crate) integrity: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Digest {
    pub(crate) kind: String,
    pub(crate) keyslots: Vec<u32>,
    pub(crate) segments: Vec<u32>,
    /// The rest, for type `pbkdf2`.
    pub(crate) pbkdf2: Option<Pbkdf2Digest>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pbkdf2Digest {
    pub(crate) hash: String,
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) digest: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: String,
    pub(crate) keyslots: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    pub(crate) json_size: u64,
    pub(crate) keyslots_size: u64,
    pub(crate) flags: Vec<String>,
    /// The mandatory requirements.
    pub(crate) requirements: Vec<String>,
}

impl Metadata {
    /// Parses every part that is understood.
    pub(crate) fn parse(document: &Value) -> Result<Self, Error> {
        let root = At {
            value: document,
            place: String::new(),
        };
        Ok(Self {
            keyslots: root.member("keyslots")?.numbered(Keyslot::parse)?,
            segments: root.member("segments")?.numbered(Segment::parse)?,
            digests: root.member("digests")?.numbered(Digest::parse)?,
            tokens: root.member("tokens")?.numbered(Token::parse)?,
            config: Config::parse(&root.member("config")?)?,
        })
    }
}

impl Keyslot {
    fn parse(at: &At<'_>) -> Result<Self, Error> {
        let kind = at.member("type")?.text()?.to_owned();
        let area = at.member("area")?;
        let area_kind = area.member("type")?.text()?;
        let priority = match at.optional("priority") {
            None => Priority::Normal,
            Some(priority) => match priority.count()? {
                0 => Priority::Ignore,
                1 => Priority::Normal,
                2 => Priority::Prefer,
                _ => return Err(priority.bad("is not 0, 1 or 2")),
            },
        };
        let luks2 = (kind == "luks2")
            .then(|| {
                if area_kind != "raw" {
                    return Err(area.unknown("type", area_kind));
                }
                Luks2Keyslot::parse(at, &area)
            })
            .transpose()?;
        Ok(Self {
            key_size: at.member("key_size")?.count()?,
            priority,
            area: Area {
                offset: area.member("offset")?.number()?,
                size: area.member("size")?.number()?,
            },
            luks2,
            kind,
        })
    }
}

impl Luks2Keyslot {
    fn parse(at: &At<'_>, area: &At<'_>) -> Result<Self, Error> {
        let af = at.member("af")?;
        let af_kind = af.member("type")?.text()?;
        if af_kind != "luks1" {
            return Err(af.unknown("type", af_kind));
        }
        Ok(Self {
            encryption: area.member("encryption")?.text()?.to_owned(),
            area_key_size: area.member("key_size")?.positive()?,
            kdf: SlotKdf::parse(&at.member("kdf")?)?,
            af_hash: af.member("hash")?.text()?.to_owned(),
            stripes: af.member("stripes")?.positive()?,
        })
    }
}

impl SlotKdf {
    fn parse(at: &At<'_>) -> Result<Self, Error> {
        let argon2 = || {
            Ok::<_, Error>(Argon2Cost {
                time: at.member("time")?.positive()?,
                memory: at.member("memory")?.positive()?,
                cpus: at.member("cpus")?.positive()?,
            })
        };
        let kdf = match at.member("type")?.text()? {
            "pbkdf2" => Kdf::Pbkdf2 {
                hash: at.member("hash")?.text()?.to_owned(),
                iterations: at.member("iterations")?.positive()?,
            },
            "argon2i" => Kdf::Argon2i(argon2()?),
            "argon2id" => Kdf::Argon2id(argon2()?),
            unknown => return Ok(Self::Unknown(unknown.to_owned())),
        };
        Ok(Self::Known {
            kdf,
            salt: at.member("salt")?.salt()?,
        })
    }
}

impl Segment {
    fn parse(at: &At<'_>) -> Result<Self, Error> {
        let kind = at.member("type")?.text()?.to_owned();
        let size = at.member("size")?;
        let size = match size.text()? {
            "dynamic" => None,
            _ => Some(size.number()?),
        };
        let flags = match at.optional("flags") {
            None => Vec::new(),
            Some(flags) => flags.texts()?,
        };
        let crypt = (kind == "crypt").then(|| Crypt::parse(at)).transpose()?;
        Ok(Self {
            kind,
            offset: at.member("offset")?.number()?,
            size,
            flags,
            crypt,
        })
    }
}

impl Crypt {
    fn parse(at: &At<'_>) -> Result<Self, Error> {
        let integrity = at
            .optional("integrity")
            .map(|integrity| {
                integrity.member("journal_encryption")?.text()?;
                integrity.member("journal_integrity")?.text()?;
                Ok::<_, Error>(integrity.member("type")?.text()?.to_owned())
            })
            .transpose()?;
        Ok(Self {
            encryption: at.member("encryption")?.text()?.to_owned(),
            sector_size: at.member("sector_size")?.positive()?,
            iv_tweak: at.member("iv_tweak")?.number()?,
            integrity,
        })
    }
}

impl Digest {
    fn parse(at: &At<'_>) -> Result<Self, Error> {
        let kind = at.member("type")?.text()?.to_owned();
        let pbkdf2 = (kind == "pbkdf2")
            .then(|| {
                Ok::<_, Error>(Pbkdf2Digest {
                    hash: at.member("hash")?.text()?.to_owned(),
                    iterations: at.member("iterations")?.positive()?,
                    salt: at.member("salt")?.salt()?,
                    digest: at.member("digest")?.base64()?,
                })
            })
            .transpose()?;
        if let Some(pbkdf2) = &pbkdf2
            && !(20..=64).contains(&pbkdf2.digest.len())
        {
            return Err(at.member("digest")?.bad("has not 20 to 64 bytes"));
        }
        Ok(Self {
            kind,
            keyslots: at.member("keyslots")?.references()?,
            segments: at.member("segments")?.references()?,
            pbkdf2,
        })
    }
}

impl Token {
    /// One that is in no metadata yet.
    pub(crate) fn parse_alone(value: &Value) -> Result<Self, Error> {
        let place = String::new();
        Self::parse(&At { value, place })
    }

    fn parse(at: &At<'_>) -> Result<Self, Error> {
        Ok(Self {
            kind: at.member("type")?.text()?.to_owned(),
            keyslots: at.member("keyslots")?.references()?,
        })
    }
}

impl Config {
    fn parse(at: &At<'_>) -> Result<Self, Error> {
        let flags = match at.optional("flags") {
            None => Vec::new(),
            Some(flags) => flags.texts()?,
        };
        let requirements = match at.optional("requirements") {
            None => Vec::new(),
            Some(requirements) => {
                requirements.members()?;
                match requirements.optional("mandatory") {
                    None => Vec::new(),
                    Some(mandatory) => mandatory.texts()?,
                }
            }
        };
        Ok(Self {
            json_size: at.member("json_size")?.number()?,
            keyslots_size: at.member("keyslots_size")?.number()?,
            flags,
            requirements,
        })
    }
}

/// A value and where it is, for messages.
struct At<'a> {
    value: &'a Value,
    place: String,
}

impl<'a> At<'a> {
    fn bad(&self, what: &str) -> Error {
        let place = if self.place.is_empty() {
            "the document"
        } else {
            &self.place
        };
        Error::corrupt(format!("LUKS2 metadata: {place} {what}"))
    }

    fn unknown(&self, member: &str, value: &str) -> Error {
        Error::unsupported(format!(
            "LUKS2 metadata: {}.{member} is \"{}\", which is not known",
            self.place,
            value.escape_debug()
        ))
    }

    fn inner(&self, name: &str, value: &'a Value) -> At<'a> {
        let name = name.escape_debug();
        let place = if self.place.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.place)
        };
        At { value, place }
    }

    fn members(&self) -> Result<&'a Map<String, Value>, Error> {
        self.value
            .as_object()
            .ok_or_else(|| self.bad("is not an object"))
    }

    fn member(&self, name: &str) -> Result<At<'a>, Error> {
        match self.members()?.get(name) {
            Some(value) => Ok(self.inner(name, value)),
            None => Err(self.bad(&format!("has no \"{name}\""))),
        }
    }

    fn optional(&self, name: &str) -> Option<At<'a>> {
        let value = self.value.get(name)?;
        Some(self.inner(name, value))
    }

    /// The members of an object whose names are numbers.
    fn numbered<T>(
        &self,
        parse: impl Fn(&At<'_>) -> Result<T, Error>,
    ) -> Result<BTreeMap<u32, T>, Error> {
        let mut all = BTreeMap::new();
        for (name, value) in self.members()? {
            let at = self.inner(name, value);
            let id = id(name).ok_or_else(|| at.bad("is not numbered from 0 to 31"))?;
            all.insert(id, parse(&at)?);
        }
        Ok(all)
    }

    /// A string with something in it.
    fn text(&self) -> Result<&'a str, Error> {
        match self.value.as_str() {
            Some("") => Err(self.bad("is empty")),
            Some(text) => Ok(text),
            None => Err(self.bad("is not a string")),
        }
    }

    fn items(&self) -> Result<&'a [Value], Error> {
        match self.value.as_array() {
            Some(items) => Ok(items),
            None => Err(self.bad("is not an array")),
        }
    }

    fn texts(&self) -> Result<Vec<String>, Error> {
        self.items()?
            .iter()
            .map(|item| match item.as_str() {
                Some(text) => Ok(text.to_owned()),
                None => Err(self.bad("holds something that is not a string")),
            })
            .collect()
    }

    /// An array of names of numbered objects, each once: what is done for one of them is not to be
    /// done a million times.
    fn references(&self) -> Result<Vec<u32>, Error> {
        let mut references = Vec::new();
        for text in self.texts()? {
            let id = id(&text)
                .ok_or_else(|| self.bad("holds something that is not a number from 0 to 31"))?;
            if !references.contains(&id) {
                references.push(id);
            }
        }
        Ok(references)
    }

    /// An unsigned 32-bit number, as a number.
    fn count(&self) -> Result<u32, Error> {
        self.value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| self.bad("is not a number from 0 to 4294967295"))
    }

    fn positive(&self) -> Result<u32, Error> {
        match self.count()? {
            0 => Err(self.bad("is zero")),
            count => Ok(count),
        }
    }

    /// An unsigned 64-bit number, as decimal digits in a string.
    fn number(&self) -> Result<u64, Error> {
        let text = self.text()?;
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten()
            .ok_or_else(|| self.bad("is not a string of digits below 2^64"))
    }

    fn base64(&self) -> Result<Vec<u8>, Error> {
        base64::engine::general_purpose::STANDARD
            .decode(self.text()?)
            .map_err(|error| self.bad("is not base64").caused_by(error))
    }

    fn salt(&self) -> Result<Vec<u8>, Error> {
        let salt = self.base64()?;
        if salt.len() != SALT_SIZE {
            return Err(self.bad("has not 32 bytes"));
        }
        Ok(salt)
    }
}

/// The number that names an object: decimal, in its one canonical form.
fn id(text: &str) -> Option<u32> {
    let id: u32 = text.parse().ok()?;
    (id < MAX_OBJECTS && id.to_string() == text).then_some(id)
}
