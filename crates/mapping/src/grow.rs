//! A mapping that becomes larger: the kernel gets the table that it has once more, with another length.
//! Whatever else the table says, whoever has made it, stays as it is.

use devicemapper::{DevId, DeviceInfo, DmFlags};
use xtent_secret::SecretBytes;

use crate::error::io_error;
use crate::keyring::LoadedKey;
use crate::load::{Found, Loaded, active, key_of, load_line};
use crate::mapper::{number_of, told_to_udev};
use crate::{Error, ErrorKind, Mapper, Name, told};

/// The table of a mapping of an encrypted volume.
pub struct Active {
    name: Name,
    uuid: String,
    device: u64,
    found: Found,
    key: KeyAt,
    offset: u64,
    read_only: bool,
}

/// Where the key is that the table names.
enum KeyAt {
    Line,
    Keyring { name: String, bytes: usize },
}

impl Active {
    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Bytes of the mapping.
    pub fn length(&self) -> u64 {
        self.found.sectors * 512
    }

    /// First byte of the ciphertext on the device below.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The UUID of the mapping.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The key that is in the table; none if the table names one of a keyring, which nobody can read.
    ///
    /// # Errors
    /// [`ErrorKind::Foreign`] if it cannot be a key; that there is no memory for it.
    pub fn key(&self) -> Result<Option<SecretBytes>, Error> {
        let KeyAt::Line = self.key else {
            return Ok(None);
        };
        let word = self.found.line.split(|&byte| byte == b' ').nth(1);
        let key = key_of(word.unwrap_or_default())?;
        key.map(Some).ok_or_else(|| told::not_to_grow(&self.name))
    }
}

impl Mapper {
    /// The table of the mapping `name`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Foreign`] for mappings of something else, of several parts, or
    /// with a key that is neither in the table nor of the type `logon`; [`ErrorKind::Busy`] if it is suspended.
    pub fn active(&self, name: &Name) -> Result<Active, Error> {
        let Some(info) = self.find(name)? else {
            return Err(told::no_such(name));
        };
        self.refuse_foreign(name, &info)?;
        refuse_suspended(name, &info)?;
        let understood = active(self.control(), name)?.and_then(|found| {
            let (key, offset) = understood(&found.line)?;
            Some(Active {
                name: name.clone(),
                device: number_of(&info),
                uuid: info.uuid().map(ToString::to_string).unwrap_or_default(),
                found,
                key,
                offset,
                read_only: info.flags().contains(DmFlags::DM_READONLY),
            })
        });
        understood.ok_or_else(|| told::not_to_grow(name))
    }

    /// Has the mapping be `length` bytes long; `key` is the volume's, whether or not the table [has
    /// it](Active::key). What is under way ends before, and what comes meanwhile waits; a file system on it is
    /// frozen for that moment. If it fails the mapping is what it was.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the key is another one; [`ErrorKind::Busy`] if the mapping is not what it was
    /// any more, or is suspended; the kernel's refusal.
    pub fn grow(&self, active: &Active, length: u64, key: &SecretBytes) -> Result<(), Error> {
        let name = &active.name;
        let id = name.id()?;
        self.refuse_changed(active)?;
        {
            let _loaded = match &active.key {
                KeyAt::Line => None,
                KeyAt::Keyring { name, bytes } if key.len() == *bytes => {
                    Some(LoadedKey::new(name, key)?)
                }
                KeyAt::Keyring { .. } => {
                    return Err(Error::new(
                        ErrorKind::Argument,
                        format!("the mapping {name} has a key of another length"),
                    ));
                }
            };
            let loaded = Loaded {
                target: active.found.target,
                sectors: length / 512,
                line: &[&active.found.line],
            };
            load_line(self.control(), name, &loaded, active.read_only)?.map_err(|e| {
                Error::refused_for(format!("{name} cannot have {length} bytes"), e)
                    .advise("The kernel's log (`dmesg`) says why.")
            })?;
        }
        // Others than this program know of no turns.
        if let Err(error) = self.refuse_changed(active) {
            self.clear(name, &id);
            return Err(error);
        }
        // One that has another table suspends, takes it and resumes.
        let resume = || {
            let how = told_to_udev(DmFlags::empty());
            self.dm().device_suspend(&id, how).map(|_| ())
        };
        let Err(error) = resume() else {
            return Ok(());
        };
        self.clear(name, &id);
        // The kernel leaves it suspended.
        Err(match resume() {
            Ok(()) => Error::refused(
                format!("{name} keeps its size: the kernel refuses {length} bytes"),
                &error,
            )
            .advise("The kernel's log (`dmesg`) says why."),
            Err(left) => Error::refused(
                format!("{name} has its old size, and is suspended: all who use it wait"),
                &left,
            )
            .advise(format!("`dmsetup resume {name}` lets them go on.")),
        })
    }

    /// Fails unless the mapping is the one that it was, with the same table.
    fn refuse_changed(&self, seen: &Active) -> Result<(), Error> {
        let now = self.active(&seen.name)?;
        let is_the_same = now.device == seen.device
            && now.uuid == seen.uuid
            && now.read_only == seen.read_only
            && now.found == seen.found;
        match is_the_same {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::Busy,
                format!("{} has changed meanwhile", seen.name),
            )
            .advise("Give the command again.")),
        }
    }

    /// Takes the table away that would be taken when the mapping is next resumed.
    fn clear(&self, name: &Name, id: &DevId<'_>) {
        if let Err(error) = self.dm().table_clear(id) {
            let error = io_error(&error);
            tracing::warn!(%error, "`dmsetup clear {name}` has to be done by hand");
        }
    }
}

/// A suspended mapping may have lost its key, and would get another one with its table; or its storage is
/// about to be copied.
fn refuse_suspended(name: &Name, info: &DeviceInfo) -> Result<(), Error> {
    match info.flags().contains(DmFlags::DM_SUSPEND) {
        true => Err(told::suspended(name)),
        false => Ok(()),
    }
}

/// Where the key is, and the first byte on the device, by a line of dm-crypt: cipher, key, IV offset, device,
/// first 512-byte unit, and options.
fn understood(line: &[u8]) -> Option<(KeyAt, u64)> {
    let mut words = line.split(|&byte| byte == b' ');
    let key = words.nth(1)?;
    let offset = std::str::from_utf8(words.nth(2)?).ok()?;
    let offset = offset.parse::<u64>().ok()?.checked_mul(512)?;
    let key = match key.strip_prefix(b":") {
        None => KeyAt::Line,
        Some(place) => {
            let (bytes, name) = std::str::from_utf8(place).ok()?.split_once(":logon:")?;
            KeyAt::Keyring {
                name: name.to_owned(),
                bytes: bytes.parse().ok()?,
            }
        }
    };
    Some((key, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_its_key_is() {
        let of = |line: &str| {
            understood(line.as_bytes()).map(|(key, offset)| match key {
                KeyAt::Line => (None, offset),
                KeyAt::Keyring { name, bytes } => (Some((name, bytes)), offset),
            })
        };
        let rest = "0 98:32 32768 1 allow_discards";
        assert_eq!(
            of(&format!(
                "aes-xts-plain64 :64:logon:cryptsetup:1-2-d0 {rest}"
            )),
            Some((Some(("cryptsetup:1-2-d0".to_owned(), 64)), 16 << 20))
        );
        assert_eq!(of("aes-xts-plain64 00ff 0 98:32 8"), Some((None, 4096)));
        for line in [
            "",
            "aes-xts-plain64",
            "aes-xts-plain64 00ff 0 98:32",
            "aes-xts-plain64 00ff 0 98:32 x",
            "aes-xts-plain64 00ff 0 98:32 18446744073709551615",
            "aes-xts-plain64 :64:user:name 0 98:32 8",
            "aes-xts-plain64 :x:logon:name 0 98:32 8",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
