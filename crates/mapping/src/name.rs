//! What a mapping is called: the name that a person gives, and the UUID by which
//! cryptsetup knows its own.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use devicemapper::{DevId, DmName, DmUuidBuf};

use crate::{Error, ErrorKind};

/// Longest name: the kernel has 128 bytes with the zero at the end.
const LONGEST: usize = 127;
/// Longest UUID: as above, of 129.
const LONGEST_UUID: usize = 128;

/// A name that the device mapper, its tools and `/dev/mapper` all take as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(format!("a name has 1 to {LONGEST} characters"));
        }
        // All others are escaped by libdevmapper, which nobody would recognise.
        if !text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"#+-.:=@_".contains(&b))
        {
            return Err("a name has letters, digits and #+-.:=@_ (no folder)".to_owned());
        }
        if ["control", ".", ".."].contains(&text) {
            return Err(format!("/dev/mapper/{text} is something else already"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Name {
    /// `/dev/mapper/NAME`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/mapper/{}", self.0))
    }

    pub(crate) fn dm(&self) -> Result<&DmName, Error> {
        DmName::new(&self.0).map_err(|e| Error::new(ErrorKind::Argument, e.to_string()))
    }

    pub(crate) fn id(&self) -> Result<DevId<'_>, Error> {
        self.dm().map(DevId::Name)
    }
}

/// The format of the header, as cryptsetup writes it into UUIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// LUKS1.
    Luks1,
    /// LUKS2.
    Luks2,
    /// None: plain dm-crypt.
    Plain,
}

/// What the UUIDs of all of cryptsetup's mappings begin with.
pub(crate) const OURS: &str = "CRYPT-";

/// Of a header's UUID what a UUID can have: a blank in it would begin another word of
/// the table.
pub(crate) fn plain(header: &str) -> impl Iterator<Item = char> {
    header
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
}

/// The mapping's UUID as cryptsetup writes it: `CRYPT-LUKS2-<32 digits>-NAME`, or without
/// a header `CRYPT-PLAIN-NAME`, cut off where the kernel has no room for more.
pub fn uuid(format: Format, header: &str, name: &Name) -> String {
    let header: String = plain(header).filter(|c| *c != '-').collect();
    let mut text = match format {
        Format::Luks1 => format!("{OURS}LUKS1-{header}-{name}"),
        Format::Luks2 => format!("{OURS}LUKS2-{header}-{name}"),
        Format::Plain => format!("{OURS}PLAIN-{name}"),
    };
    text.truncate(LONGEST_UUID);
    text
}

pub(crate) fn dm_uuid(text: &str) -> Result<DmUuidBuf, Error> {
    DmUuidBuf::new(text.to_owned()).map_err(|_| {
        Error::new(
            ErrorKind::Argument,
            "the header's UUID has characters that no mapping can have",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_every_tool_shows_as_it_is() {
        for good in ["a", "secret-1_x.y:z", &"n".repeat(127)] {
            assert_eq!(good.parse::<Name>().unwrap().to_string(), *good);
        }
        for bad in ["", "a/b", "a b", "ü", "control", "..", &"n".repeat(128)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn uuids_are_cryptsetups() {
        let header = "2c2e6a3c-6f1d-4f6e-9d8b-7a54a52d1c11";
        let name = |text: &str| text.parse::<Name>().unwrap();
        assert_eq!(
            uuid(Format::Luks2, header, &name("v-1")),
            "CRYPT-LUKS2-2c2e6a3c6f1d4f6e9d8b7a54a52d1c11-v-1"
        );
        assert_eq!(uuid(Format::Plain, "", &name("v-1")), "CRYPT-PLAIN-v-1");
        let long = uuid(Format::Luks1, header, &name(&"n".repeat(127)));
        assert!(long.starts_with("CRYPT-LUKS1-2c2e6a3c6f1d4f6e9d8b7a54a52d1c11-nnn"));
        assert_eq!(long.len(), 128);
    }
}
