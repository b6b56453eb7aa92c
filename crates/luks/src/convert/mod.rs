//! LUKS1 to LUKS2 and back, in place. The data, its offset, the volume key,
//! the UUID and every passphrase stay; only header and keyslot areas change.
//!
//! # What is where
//!
//! | bytes | LUKS1 | LUKS2 |
//! |---|---|---|
//! | 0 to 512 | magic, version, keyslots 0 to 5, a part of 6 | magic, version, checksum |
//! | 512 to 1024 | the rest of 6, keyslot 7 | padding, under the checksum |
//! | 1024 to 4096 | nothing | padding, under the checksum |
//! | 4096 to 16384 | key material | JSON |
//! | 16384 to 32768 | key material | the second copy |
//! | 32768 up to the data | key material | key material |
//!
//! # No instant without a header
//!
//! **The flip is one sector.** A LUKS2 copy whose padding holds what LUKS1 has in
//! its second sector, and whose checksum covers that, is a valid copy: no reader
//! looks at the padding. So everything but the first sector can be the same in
//! both formats, and writing that sector, which a disk does whole or not at all,
//! makes one of the other.
//!
//! **Before it, key material leaves what the other format's header takes.** LUKS1's
//! keyslot 0 usually lies at byte 4096, where LUKS2 has its JSON. Material is copied
//! to a place that nothing uses, flushed, and then the header is told: in LUKS2 by an
//! ordinary update of both copies, in LUKS1 by the one sector that has the keyslot's
//! offset. That place is free room before the data or the area of an unused keyslot
//! whose entry is in the same sector, for the two areas then change hands in one write.
//! Then the place left is overwritten with random bytes.
//!
//! **After it,** material goes on, in the new format's ways and one keyslot at a time,
//! to where `cryptsetup convert` would have put it (28 KiB further on or back), so
//! that cryptsetup finds room to convert the volume back. A keyslot's number stays, but
//! it may have the area that another number would have had. Where seven or eight keyslots
//! fill the room, and there is nowhere to go between, they are left where they are: valid,
//! and converted back here, but cryptsetup does not, and seven leave no room for an eighth.
//!
//! A cut may leave a copy of a keyslot's (encrypted) material in a place that no header
//! names: it opens with the passphrase of that keyslot for whoever has its salt too, until
//! a new keyslot is put there. To be rid of it, restore the backup and convert again.
//!
//! # The exception
//!
//! LUKS1 with a key in use in each of keyslots 0 to 5, and no room before the data,
//! has no place to copy to (512-bit keys and data from 2 MiB on are such a layout).
//! There everything moves at once, as by cryptsetup. Before that the backup is on the
//! disk, and the version in the first sector becomes [`UNDER_WAY`], which no program
//! takes for a volume, and ours answers with what to do. From LUKS2 to LUKS1 there is
//! always another way.

use std::path::Path;

use xtent_store::Store;

use crate::luks2::model::Area;
use crate::{Device, Error, ErrorKind, Header, Version, luks1, luks2};

mod places;
mod to_luks1;
mod to_luks2;

#[cfg(test)]
mod tests;

/// What the version field says while everything moves at once.
pub(crate) const UNDER_WAY: u16 = 0xFFFF;

/// The error for a device whose version is [`UNDER_WAY`].
pub(crate) fn interrupted() -> Error {
    Error::corrupt(
        "a conversion to LUKS2 was interrupted and the keyslots are half way: put the backup \
         back that was made before it, `xtent header restore`, and convert again",
    )
}

/// Bytes of both LUKS2 header copies as a conversion makes them.
const LUKS2_HEADER: u64 = 32768;

/// Areas of LUKS2, and of any LUKS1 that can be converted, begin at multiples of this.
const ALIGNMENT: u64 = 4096;

/// A conversion that was found possible; made by [`Device::plan_conversion`].
#[derive(Debug)]
pub struct ConversionPlan {
    /// What the other format has no place for, as sentences: labels, priorities.
    pub warnings: Vec<String>,
    /// Whether a cut can leave neither format, so that there must be a backup.
    pub needs_backup: bool,
    to: Version,
    seen: Seen,
}

/// The header that a plan is about, in every bit.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Luks1(Box<luks1::Header>),
    /// Sequence number and text.
    Luks2(u64, String),
}

impl ConversionPlan {
    /// The format that there will be.
    pub fn to(&self) -> Version {
        self.to
    }
}

impl Device {
    /// Whether the volume can become one of format `to`, by `cryptsetup
    /// convert`'s rules. Nothing is written.
    ///
    /// # Errors
    /// As [`Device::read`]; [`ErrorKind::Options`] if it is one already;
    /// [`ErrorKind::Unsupported`] for what the other format cannot say, by name;
    /// [`ErrorKind::Full`] if there is no room before the data.
    pub fn plan_conversion(&self, to: Version) -> Result<ConversionPlan, Error> {
        let _lock = self.lock.shared()?;
        match (self.version()?, to) {
            (Version::Luks1, Version::Luks2) => {
                let header = luks1::read_locked(self)?;
                header.sound()?;
                let route = to_luks2::plan(&*self.store, &header)?;
                Ok(ConversionPlan {
                    warnings: Vec::new(),
                    needs_backup: route.needs_backup(),
                    to,
                    seen: Seen::Luks1(Box::new(header)),
                })
            }
            (Version::Luks2, Version::Luks1) => {
                let header = luks2::read_shared(self)?;
                let plan = to_luks1::plan(&header, self.store.size())?;
                Ok(ConversionPlan {
                    warnings: plan.warnings,
                    needs_backup: false,
                    to,
                    seen: Seen::Luks2(header.binary.seqid, header.text),
                })
            }
            (Version::Luks1, Version::Luks1) => Err(already("LUKS1")),
            (Version::Luks2, Version::Luks2) => Err(already("LUKS2")),
        }
    }

    /// Carries out a plan, after a backup of the present header to the new file
    /// `backup`. A cut leaves the old format or the new one, and every passphrase opens
    /// it, unless [`ConversionPlan::needs_backup`]. The caller has made sure that nobody
    /// uses the volume.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if the header is not the one that was planned for;
    /// [`ErrorKind::Refused`] without a backup where it takes one.
    pub fn convert(&self, plan: ConversionPlan, backup: Option<&Path>) -> Result<Header, Error> {
        let _lock = self.lock.exclusive()?;
        let now = self.plan_conversion(plan.to)?;
        if now.seen != plan.seen {
            return Err(Error::new(
                ErrorKind::Changed,
                "the header was changed by somebody else in the meantime; nothing was written, try again",
            ));
        }
        match backup {
            Some(path) => self.backup(path)?,
            None if now.needs_backup => {
                return Err(Error::new(
                    ErrorKind::Refused,
                    "there is no room to move one keyslot at a time, so an interruption would leave \
                     no usable header: a backup is needed for this conversion",
                ));
            }
            None => {}
        }
        match now.seen {
            Seen::Luks1(header) => to_luks2::carry_out(self, *header)?,
            Seen::Luks2(..) => to_luks1::carry_out(self)?,
        }
        self.read()
    }
}

fn already(name: &str) -> Error {
    Error::options(format!(
        "the volume is {name} already; there is nothing to do"
    ))
}

/// Copies key material, durably. The places do not overlap.
fn copy(store: &dyn Store, from: u64, to: u64, length: u64) -> Result<(), Error> {
    let area = Area {
        offset: from,
        size: length,
    };
    let length = usize::try_from(length).map_err(|_| Error::corrupt("a keyslot too large"))?;
    let material = luks2::write::read_area(store, area, length)?;
    store.write_at(&material, to)?;
    store.flush()?;
    Ok(())
}
