//! The table line of dm-crypt, which dm-xtent takes too.

use std::fmt::Write;

use crate::name::plain;

/// Who encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `crypt`: the kernel's dm-crypt.
    Crypt,
    /// `xtent`: dm-xtent.
    Xtent,
}

impl Target {
    /// By which the device mapper knows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crypt => "crypt",
            Self::Xtent => "xtent",
        }
    }

    /// By which people know it.
    pub fn module(self) -> &'static str {
        match self {
            Self::Crypt => "dm-crypt",
            Self::Xtent => "dm-xtent",
        }
    }
}

/// What a table says beside cipher and place. All flags are off in a volume that
/// asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Discards reach the device.
    pub allow_discards: bool,
    /// Encrypt on the CPU that has submitted the request.
    pub same_cpu_crypt: bool,
    /// Writes go on from the thread that has encrypted them.
    pub submit_from_crypt_cpus: bool,
    /// Decrypt without a work queue.
    pub no_read_workqueue: bool,
    /// Encrypt without a work queue.
    pub no_write_workqueue: bool,
    /// Work queues run before others.
    pub high_priority: bool,
}

impl Options {
    /// With what either of them asks for.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            allow_discards: self.allow_discards || other.allow_discards,
            same_cpu_crypt: self.same_cpu_crypt || other.same_cpu_crypt,
            submit_from_crypt_cpus: self.submit_from_crypt_cpus || other.submit_from_crypt_cpus,
            no_read_workqueue: self.no_read_workqueue || other.no_read_workqueue,
            no_write_workqueue: self.no_write_workqueue || other.no_write_workqueue,
            high_priority: self.high_priority || other.high_priority,
        }
    }

    /// Each with its word in a table, and the version of dm-crypt that has it,
    /// in cryptsetup's order.
    fn words(self) -> impl Iterator<Item = (&'static str, (u32, u32))> {
        [
            (self.allow_discards, "allow_discards", (1, 11)),
            (self.same_cpu_crypt, "same_cpu_crypt", (1, 14)),
            (
                self.submit_from_crypt_cpus,
                "submit_from_crypt_cpus",
                (1, 14),
            ),
            (self.no_read_workqueue, "no_read_workqueue", (1, 22)),
            (self.no_write_workqueue, "no_write_workqueue", (1, 22)),
            (self.high_priority, "high_priority", (1, 26)),
        ]
        .into_iter()
        .filter(|(set, ..)| *set)
        .map(|(_, word, since)| (word, since))
    }
}

/// Where the target finds the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the keyring, as cryptsetup has it for LUKS2: no table shows it.
    Keyring {
        /// What it is called there follows from it.
        header_uuid: String,
    },
    /// In the table itself, as cryptsetup has it for volumes without a header: root can
    /// have it shown.
    Line,
}

/// One segment of ciphertext as a table with one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// dm-crypt's cipher name.
    pub cipher: String,
    /// Where the key is.
    pub key: Place,
    /// Added to every sector number, in 512-byte units.
    pub iv_offset: u64,
    /// Number of the device with the ciphertext.
    pub device: u64,
    /// First byte on it; a multiple of 512.
    pub offset: u64,
    /// Bytes; a multiple of the sector size.
    pub length: u64,
    /// Bytes per sector.
    pub sector_size: u32,
    /// Whether sector numbers count sectors of that size, and not of 512 bytes.
    pub iv_large_sectors: bool,
    /// The rest.
    pub options: Options,
}

impl Table {
    /// In units of 512 bytes.
    pub fn sectors(&self) -> u64 {
        self.length / 512
    }

    /// What the key is called in the keyring: cryptsetup's name for the first
    /// digest's key of a LUKS2 volume. `None` if it is not there.
    pub fn key_name(&self) -> Option<String> {
        match &self.key {
            Place::Keyring { header_uuid } => Some(key_name(header_uuid)),
            Place::Line => None,
        }
    }

    /// Everything after the target's name: what stands before the key, and after it.
    pub(crate) fn around_key(&self) -> (String, String) {
        let (major, minor) = (
            rustix::fs::major(self.device),
            rustix::fs::minor(self.device),
        );
        let before = format!("{} ", self.cipher);
        let mut after = format!(" {} {major}:{minor} {}", self.iv_offset, self.offset / 512);
        let mut options: Vec<String> = self
            .options
            .words()
            .map(|(word, _)| word.to_owned())
            .collect();
        if self.sector_size != 512 {
            options.push(format!("sector_size:{}", self.sector_size));
            if self.iv_large_sectors {
                options.push("iv_large_sectors".to_owned());
            }
        }
        if !options.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(after, " {} {}", options.len(), options.join(" "));
        }
        (before, after)
    }

    /// What in it a dm-crypt of this version does not have.
    pub(crate) fn missing_in(&self, version: (u32, u32)) -> Option<&'static str> {
        let keyring = self.key_name().map(|_| ("keys in the keyring", (1, 15)));
        let sectors = (self.sector_size != 512).then_some(("sectors larger than 512", (1, 17)));
        self.options
            .words()
            .chain(keyring)
            .chain(sectors)
            .find(|(_, since)| version < *since)
            .map(|(what, _)| what)
    }
}

/// What the key of a volume is called in the keyring.
pub(crate) fn key_name(header_uuid: &str) -> String {
    format!("cryptsetup:{}-d0", plain(header_uuid).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            cipher: "aes-xts-plain64".to_owned(),
            key: Place::Keyring {
                header_uuid: "2c2e6a3c-6f1d-4f6e-9d8b-7a54a52d1c11".to_owned(),
            },
            iv_offset: 0,
            device: rustix::fs::makedev(98, 32),
            offset: 16 << 20,
            length: 1 << 20,
            sector_size: 512,
            iv_large_sectors: false,
            options: Options::default(),
        }
    }

    #[test]
    fn a_plain_volume_has_no_options() {
        let (before, after) = table().around_key();
        assert_eq!((&*before, &*after), ("aes-xts-plain64 ", " 0 98:32 32768"));
        assert_eq!(table().sectors(), 2048);
    }

    #[test]
    fn options_come_in_cryptsetups_order() {
        let all = Options {
            allow_discards: true,
            same_cpu_crypt: true,
            submit_from_crypt_cpus: true,
            no_read_workqueue: true,
            no_write_workqueue: true,
            high_priority: true,
        };
        let table = Table {
            sector_size: 4096,
            iv_large_sectors: true,
            iv_offset: 8,
            options: Options::default().or(all),
            ..table()
        };
        assert_eq!(
            table.around_key().1,
            " 8 98:32 32768 8 allow_discards same_cpu_crypt submit_from_crypt_cpus \
             no_read_workqueue no_write_workqueue high_priority sector_size:4096 iv_large_sectors"
        );
    }

    #[test]
    fn a_header_cannot_add_words() {
        let hostile = Table {
            key: Place::Keyring {
                header_uuid: "2c 0 8:0 0 1 allow_discards\n".to_owned(),
            },
            ..table()
        };
        let name = hostile.key_name().unwrap();
        assert!(!name.contains(char::is_whitespace), "{name}");
    }

    #[test]
    fn old_kernels_lack_what_came_later() {
        assert_eq!(table().missing_in((1, 24)), None);
        assert_eq!(table().missing_in((1, 14)), Some("keys in the keyring"));
        let large = Table {
            sector_size: 4096,
            ..table()
        };
        assert_eq!(large.missing_in((1, 16)), Some("sectors larger than 512"));
        let headerless = Table {
            key: Place::Line,
            ..table()
        };
        assert_eq!(headerless.missing_in((1, 14)), None);
        let mut quick = table();
        quick.options.no_read_workqueue = true;
        assert_eq!(quick.missing_in((1, 21)), Some("no_read_workqueue"));
    }
}
