//! A parsed header of either version, and what it tells.

use std::fmt;

use serde::Serialize;

use crate::pin::Covered;
use crate::{Error, Kdf, Segment, Token, Version, luks1, luks2};

/// Parsed metadata.
#[derive(Clone, Debug)]
pub struct Header {
    inner: Inner,
    uuid: String,
}

#[derive(Clone, Debug)]
enum Inner {
    Luks1(Box<luks1::Header>),
    Luks2(Box<luks2::Header>),
}

/// In which order keyslots are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Only when it is named.
    Ignore,
    /// After the preferred ones.
    Normal,
    /// First.
    Prefer,
}

/// A keyslot in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyslotInfo {
    /// Its number.
    pub keyslot: u32,
    /// `luks1`, `luks2`, or a type that this crate does not know.
    pub kind: String,
    /// In which order it is tried.
    pub priority: Priority,
    /// Key derivation, if it is known.
    pub kdf: Option<Kdf>,
    /// Bytes of key inside.
    pub key_length: u32,
    /// Whether a passphrase for it can open the volume.
    pub opens_volume: bool,
}

impl Header {
    pub(crate) fn luks1(header: luks1::Header) -> Self {
        Self {
            uuid: header.uuid().to_owned(),
            inner: Inner::Luks1(Box::new(header)),
        }
    }

    pub(crate) fn luks2(header: luks2::Header) -> Self {
        Self {
            uuid: header.binary.uuid_text(),
            inner: Inner::Luks2(Box::new(header)),
        }
    }

    /// LUKS1 or LUKS2.
    pub fn version(&self) -> Version {
        match &self.inner {
            Inner::Luks1(_) => Version::Luks1,
            Inner::Luks2(_) => Version::Luks2,
        }
    }

    /// The UUID as text.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The label; LUKS2 only.
    pub fn label(&self) -> Option<String> {
        match &self.inner {
            Inner::Luks1(_) => None,
            Inner::Luks2(header) => {
                Some(header.binary.label_text()).filter(|label| !label.is_empty())
            }
        }
    }

    /// The subsystem; LUKS2 only.
    pub fn subsystem(&self) -> Option<String> {
        match &self.inner {
            Inner::Luks1(_) => None,
            Inner::Luks2(header) => {
                Some(header.binary.subsystem_text()).filter(|subsystem| !subsystem.is_empty())
            }
        }
    }

    /// Keyslots in use, ascending.
    pub fn keyslots(&self) -> Vec<u32> {
        match &self.inner {
            Inner::Luks1(header) => header.keyslots(),
            Inner::Luks2(header) => header.keyslots(),
        }
    }

    /// The same with what is known about them.
    pub fn keyslot_info(&self) -> Vec<KeyslotInfo> {
        match &self.inner {
            Inner::Luks1(header) => luks1_keyslots(header),
            Inner::Luks2(header) => header.keyslot_info(),
        }
    }

    /// Bytes of volume key; `None` for an erased LUKS2 header, where no
    /// keyslot tells.
    pub fn key_length(&self) -> Option<usize> {
        match &self.inner {
            Inner::Luks1(header) => Some(header.key_length()),
            Inner::Luks2(header) => header.key_length(),
        }
    }

    /// Whether the LUKS2 persistent flag `allow-discards` is set.
    pub fn allows_discards(&self) -> bool {
        self.persistent_flags()
            .iter()
            .any(|flag| flag == "allow-discards")
    }

    /// LUKS2's persistent flags, by their names in the metadata: `allow-discards`,
    /// `no-read-workqueue`, … and whatever else is there.
    pub fn persistent_flags(&self) -> &[String] {
        match &self.inner {
            Inner::Luks1(_) => &[],
            Inner::Luks2(header) => header.persistent_flags(),
        }
    }

    /// Tokens, ascending; none on LUKS1.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt), which a header that
    /// was read does not have.
    pub fn tokens(&self) -> Result<Vec<Token>, Error> {
        match &self.inner {
            Inner::Luks1(_) => Ok(Vec::new()),
            Inner::Luks2(header) => header.tokens(),
        }
    }

    /// Whether one LUKS2 copy was bad or stale and the other was used.
    pub fn is_recovered(&self) -> bool {
        match &self.inner {
            Inner::Luks1(_) => false,
            Inner::Luks2(header) => header.is_recovered(),
        }
    }

    /// What is damaged of a LUKS1 header that can be used all the same, in
    /// words: its UUID, or a keyslot that is not in use. Nothing is written to it
    /// but by [`Device::repair`](crate::Device::repair).
    pub fn damage(&self) -> Vec<String> {
        match &self.inner {
            Inner::Luks1(header) => header.damage(),
            Inner::Luks2(_) => Vec::new(),
        }
    }

    /// Whether the data must be on another device: the segment begins where,
    /// on the same device, the header and its keyslots are. Using it there
    /// would destroy them.
    pub fn is_detached(&self) -> bool {
        match &self.inner {
            Inner::Luks1(header) => self.data_offset() < header.header_size(),
            Inner::Luks2(header) => self.data_offset() < header.size(),
        }
    }

    /// First byte of the data, on the device with the header or, where
    /// [`Header::is_detached`], on another.
    pub fn data_offset(&self) -> u64 {
        match &self.inner {
            Inner::Luks1(header) => header.payload_offset(),
            Inner::Luks2(header) => header.metadata.data_offset().unwrap_or(0),
        }
    }

    /// Bytes of the volume, if the header fixes them; else it ends with its device. Of a volume of
    /// several segments nothing is said.
    pub fn fixed_size(&self) -> Option<u64> {
        match &self.inner {
            Inner::Luks1(_) => None,
            Inner::Luks2(header) => header.crypt().ok()?.0.size,
        }
    }

    /// The data segment on a device of `data_size` bytes. A segment of dynamic
    /// size ends with the last whole sector. Where [`Header::is_detached`], that
    /// must not be the device with the header. Errors: image
    /// shorter than the segment, unfinished reencryption, unknown
    /// requirements (by name), more than one segment, integrity protection,
    /// a cipher that is not supported.
    pub fn segment(&self, data_size: u64) -> Result<Segment, Error> {
        match &self.inner {
            Inner::Luks1(header) => header.segment(data_size),
            Inner::Luks2(header) => header.segment(data_size),
        }
    }

    /// Both copies of the LUKS2 metadata, written anew without any key material behind
    /// them: what a library for tokens may see of a volume. Salts, digests and the tokens
    /// are in it; they open nothing by themselves. `None` for LUKS1.
    ///
    /// # Errors
    /// [`ErrorKind`](crate::ErrorKind) as for any metadata that cannot be written.
    pub fn without_key_material(&self) -> Result<Option<Vec<u8>>, Error> {
        match &self.inner {
            Inner::Luks1(_) => Ok(None),
            Inner::Luks2(header) => header.without_key_material().map(Some),
        }
    }

    /// The tokens by which the volume may be opened, in the order in which they are to be
    /// tried: by the best priority of their keyslots, then by number. Their keyslots are
    /// those that can hold the volume key, best first; of priority "ignore" only if `token`
    /// or `keyslot` names one.
    ///
    /// # Errors
    /// As [`Header::tokens`].
    pub fn openers(&self, token: Option<u32>, keyslot: Option<u32>) -> Result<Vec<Token>, Error> {
        match &self.inner {
            Inner::Luks1(_) => Ok(Vec::new()),
            Inner::Luks2(header) => header.opening_tokens(token, keyslot),
        }
    }

    /// What a pin of the volume covers.
    pub(crate) fn covered(&self) -> Result<Covered, Error> {
        match &self.inner {
            Inner::Luks1(header) => Ok(header.covered()),
            Inner::Luks2(header) => header.covered(),
        }
    }

    /// LUKS2's count of updates, and the bytes that a pin of the metadata covers.
    pub(crate) fn canonical(&self) -> Result<(Option<u64>, Vec<u8>), Error> {
        match &self.inner {
            Inner::Luks1(header) => Ok((None, header.structure().to_vec())),
            Inner::Luks2(header) => Ok((
                Some(header.binary.seqid),
                header.binary.canonical(&header.text)?,
            )),
        }
    }

    /// Everything that a dump shows; no secrets. `Display` prints it in the
    /// style of `luksDump`, `serde` makes JSON.
    pub fn dump(&self) -> Dump {
        match &self.inner {
            Inner::Luks1(header) => Dump::Luks1(Box::new(header.dump())),
            Inner::Luks2(header) => Dump::Luks2(Box::new(header.dump())),
        }
    }
}

fn luks1_keyslots(header: &luks1::Header) -> Vec<KeyslotInfo> {
    let dump = header.dump();
    dump.keyslots
        .iter()
        .map(|slot| KeyslotInfo {
            keyslot: slot.number,
            kind: "luks1".to_owned(),
            priority: Priority::Normal,
            kdf: Some(slot.kdf.clone()),
            key_length: dump.key_bits / 8,
            opens_volume: true,
        })
        .collect()
}

/// A header for people (`Display`, in the style of `luksDump`) and programs
/// (`Serialize`). No secrets: salts and digests do not help to find a key.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Dump {
    /// LUKS1.
    Luks1(Box<luks1::Dump>),
    /// LUKS2.
    Luks2(Box<luks2::Dump>),
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Luks1(dump) => dump.fmt(f),
            Self::Luks2(dump) => dump.fmt(f),
        }
    }
}
