//! Header backups in cryptsetup's format (the bytes from the start of the
//! device to the end of the keyslots), and restoring them.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use xtent_store::{Access, Act, FileStore, Store};

use crate::lock::METADATA;
use crate::{Device, Error, ErrorKind, Header, Version, luks1, luks2, version_of};

/// Backups are padded to whole pages.
const PAGE: usize = 4096;

/// A validated backup and what stands against restoring it. Refusals
/// (different data offset, key size or sector size on a device that has a LUKS header of the
/// same version) are errors of `plan_restore`; what only needs the user's yes
/// is in `warnings`.
#[derive(Debug)]
pub struct RestorePlan {
    /// What the user must agree to ("device has no LUKS header", "UUIDs differ", …).
    pub warnings: Vec<String>,
    /// Whether the backup is that of a detached header, and what it would replace is no such
    /// header: the data of its volume begins inside the area that a restore writes. On the device
    /// with the data, as opposed to the file or device that held the header, that destroys them.
    pub is_detached: bool,
    backup: Backup,
    /// Which header the warnings are about.
    seen: Option<Seen>,
}

enum Backup {
    /// The bytes and the UUID.
    Luks1(Vec<u8>, String),
    Luks2(Box<luks2::Plan>),
}

/// One state of one header.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    version: Version,
    uuid: String,
    /// LUKS2's sequence number.
    seqid: u64,
}

impl Device {
    /// Copies header and keyslot areas to a new file, mode 0400 (cryptsetup's
    /// format), durably. Of a LUKS2 header with one bad copy, the backup has
    /// two good ones.
    pub fn backup(&self, to: &Path) -> Result<(), Error> {
        let mut bytes = match version_of(&*self.store)? {
            Version::Luks1 => {
                let _lock = self.lock.shared()?;
                let size = luks1::read(self)?.header_size();
                let mut bytes = self.read_once(size)?.0;
                let header = luks1::Header::parse_backup(&bytes)?;
                self.expect(|| Header::luks1(header.clone()))?;
                header.clean_backup(&mut bytes);
                bytes
            }
            Version::Luks2 => {
                let _lock = self.lock.shared()?;
                let size = luks2::read_shared(self)?.size();
                let (header, bytes) = luks2::backup(&self.read_once(size)?)?;
                self.expect(|| Header::luks2(header))?;
                bytes
            }
        };
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        write_new(to, &bytes)
    }

    /// The first `size` bytes, in memory: storage may answer with another header the next time, and
    /// what is saved is what was validated and held against the pins.
    fn read_once(&self, size: u64) -> Result<Bytes, Error> {
        let mut bytes = vec![0; buffer_size(size)?];
        self.store.read_at(&mut bytes, 0)?;
        Ok(Bytes(bytes))
    }

    /// What a restore of `from` would do: see [`RestorePlan`]. The backup is
    /// read whole and validated as strictly as a header on a device.
    pub fn plan_restore(&self, from: &Path) -> Result<RestorePlan, Error> {
        let backup = read_backup(from)?;
        let _lock = self.lock.shared()?;
        let size = self.store.size();
        let (backup, seen, warnings, is_detached) =
            match version_of(&backup).map_err(in_the_backup)? {
                Version::Luks1 => {
                    let bytes = backup.0;
                    let header = luks1::Header::parse_backup(&bytes).map_err(in_the_backup)?;
                    let (present, mut warnings) = self.present_luks1()?;
                    compare_luks1(&header, present.as_ref(), size, &mut warnings)?;
                    let seen = present.as_ref().map(Seen::luks1);
                    let is_detached = |h: &luks1::Header| h.payload_offset() < h.header_size();
                    let is_detached =
                        is_detached(&header) && !present.as_ref().is_some_and(is_detached);
                    (
                        Backup::Luks1(bytes, header.uuid().to_owned()),
                        seen,
                        warnings,
                        is_detached,
                    )
                }
                Version::Luks2 => {
                    let (present, mut warnings) = self.present_luks2()?;
                    let (plan, more) = luks2::plan_restore(&backup, present.as_ref(), size)?;
                    warnings.extend(more);
                    let seen = present.as_ref().map(Seen::luks2);
                    let is_detached =
                        plan.is_detached() && !present.as_ref().is_some_and(luks2::is_detached);
                    (Backup::Luks2(Box::new(plan)), seen, warnings, is_detached)
                }
            };
        Ok(RestorePlan {
            warnings,
            is_detached,
            backup,
            seen,
        })
    }

    /// Carries out a plan, crash-safely as far as the format allows: for LUKS2
    /// at every instant the old keys or the backup's open the volume, if the
    /// keyslots area has room for both; else, and for LUKS1, a cut may leave
    /// neither, and the restore must be run again. The backup file stays as it is.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if the device's header is not the one that the
    /// plan was made for.
    pub fn restore(&self, plan: RestorePlan) -> Result<(), Error> {
        let _lock = self.lock.exclusive()?;
        match &plan.backup {
            Backup::Luks1(bytes, _) => {
                let (present, _) = self.present_luks1()?;
                if present.as_ref().map(Seen::luks1) != plan.seen {
                    return Err(changed());
                }
                luks1::restore(self, bytes)
            }
            Backup::Luks2(backup) => {
                let (present, _) = self.present_luks2()?;
                if present.as_ref().map(Seen::luks2) != plan.seen {
                    return Err(changed());
                }
                backup.restore(&*self.store, present)
            }
        }
    }

    /// The LUKS1 header that a restore would replace, or a warning in its place.
    fn present_luks1(&self) -> Result<(Option<luks1::Header>, Vec<String>), Error> {
        if version_of(&*self.store).is_ok_and(|version| version == Version::Luks1) {
            return match luks1::read(self) {
                Ok(header) => Ok((Some(header), Vec::new())),
                Err(error) => unusable(error),
            };
        }
        match luks2::read_present(&*self.store) {
            Ok(_) => Ok((
                None,
                vec![
                    "the device has a LUKS2 header, which the backup's LUKS1 header will replace: its data may be destroyed"
                        .into(),
                ],
            )),
            Err(error) => unusable(error),
        }
    }

    /// The LUKS2 header that a restore would replace, or a warning in its place.
    fn present_luks2(&self) -> Result<(Option<luks2::Header>, Vec<String>), Error> {
        match version_of(&*self.store) {
            Ok(Version::Luks1) => Ok((
                None,
                vec![
                    "the device has a LUKS1 header, which the backup's LUKS2 header will replace: its data may be destroyed"
                        .into(),
                ],
            )),
            Ok(Version::Luks2) => match luks2::read_present(&*self.store) {
                Ok(header) => Ok((Some(header), Vec::new())),
                Err(error) => unusable(error),
            },
            Err(error) => unusable(error),
        }
    }
}

/// The warning about a header that is no obstacle, because it is not usable.
fn unusable<T>(error: Error) -> Result<(Option<T>, Vec<String>), Error> {
    let warning = match error.kind {
        ErrorKind::Store(_) => return Err(error),
        ErrorKind::NotLuks => {
            "the device has no LUKS header: what is there will be overwritten".to_owned()
        }
        _ => format!(
            "the device's LUKS header is not usable and will be overwritten: {}",
            xtent_store::chain(&error)
        ),
    };
    Ok((None, vec![warning]))
}

fn in_the_backup(mut error: Error) -> Error {
    error.message = format!("the backup is not usable: {}", error.message);
    error
}

/// cryptsetup's rules for a LUKS1 backup.
fn compare_luks1(
    backup: &luks1::Header,
    present: Option<&luks1::Header>,
    device_size: u64,
    warnings: &mut Vec<String>,
) -> Result<(), Error> {
    if backup.header_size() > device_size {
        return Err(Error::new(
            ErrorKind::TooShort,
            format!(
                "the backup has {} bytes, the device only {device_size}",
                backup.header_size()
            ),
        ));
    }
    let Some(present) = present else {
        return Ok(());
    };
    for (what, there, here) in [
        (
            "data offset",
            present.payload_offset(),
            backup.payload_offset(),
        ),
        (
            "volume key's length in bytes",
            present.key_length() as u64,
            backup.key_length() as u64,
        ),
    ] {
        if there != here {
            return Err(Error::new(
                ErrorKind::Refused,
                format!("the {what} differs: {there} on the device, {here} in the backup"),
            ));
        }
    }
    warnings.push(
        "the device has a LUKS1 header: its keyslots will be replaced by those of the backup"
            .into(),
    );
    if present.uuid() != backup.uuid() {
        warnings.push(format!(
            "the UUIDs differ: {} on the device, {} in the backup",
            present.uuid(),
            backup.uuid()
        ));
    }
    Ok(())
}

/// Bytes of a buffer for a whole backup.
fn buffer_size(size: u64) -> Result<usize, Error> {
    usize::try_from(size)
        .ok()
        .filter(|_| size <= METADATA)
        .ok_or_else(|| {
            Error::corrupt(format!(
                "the header and its keyslots would have {size} bytes"
            ))
        })
}

impl Seen {
    fn luks1(header: &luks1::Header) -> Self {
        Self {
            version: Version::Luks1,
            uuid: header.uuid().to_owned(),
            seqid: 0,
        }
    }

    fn luks2(header: &luks2::Header) -> Self {
        Self {
            version: Version::Luks2,
            uuid: header.binary.uuid_text(),
            seqid: header.binary.seqid,
        }
    }
}

impl RestorePlan {
    /// Whether it replaces a usable header of the backup's version. Anything else that is
    /// there is overwritten.
    pub fn replaces_header(&self) -> bool {
        self.seen.is_some()
    }

    /// The UUID in the backup.
    pub fn uuid(&self) -> String {
        match &self.backup {
            Backup::Luks1(_, uuid) => uuid.clone(),
            Backup::Luks2(plan) => plan.uuid(),
        }
    }
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Luks1(..) => "LUKS1",
            Self::Luks2(_) => "LUKS2",
        })
    }
}

fn changed() -> Error {
    Error::new(
        ErrorKind::Changed,
        "the device's header was changed by somebody else in the meantime; try again",
    )
}

/// The backup file, in memory: nobody can change it after it was validated.
fn read_backup(from: &Path) -> Result<Bytes, Error> {
    let file = FileStore::open(from, Access::ReadOnly)?;
    let size = file.size().min(METADATA);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    file.read_at(&mut bytes, 0)?;
    Ok(Bytes(bytes))
}

/// Writes a file that nobody else can have had open, durably; removes it
/// again if that fails.
fn write_new(to: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |what: &str, error: std::io::Error| {
        let kind = match error.kind() {
            std::io::ErrorKind::AlreadyExists => xtent_store::ErrorKind::Busy,
            std::io::ErrorKind::NotFound => xtent_store::ErrorKind::NotFound,
            std::io::ErrorKind::PermissionDenied => xtent_store::ErrorKind::Permission,
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                xtent_store::ErrorKind::NoSpace
            }
            _ => xtent_store::ErrorKind::Io,
        };
        Error::new(
            ErrorKind::Store(kind),
            format!("cannot {what} the backup file {}", to.display()),
        )
        .caused_by(error)
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o400)
        .open(to)
        .map_err(|error| failed("make", error))?;
    let directory = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| sync_directory(directory));
    written.map_err(|error| {
        // The error of the write is the one to tell.
        let _ = std::fs::remove_file(to);
        failed("write", error)
    })
}

/// Makes a new name durable, where the file system has a way to.
fn sync_directory(directory: &Path) -> std::io::Result<()> {
    match File::open(directory)?.sync_all() {
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::InvalidInput | std::io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        result => result,
    }
}

/// Bytes in memory, to be read only.
struct Bytes(Vec<u8>);

impl Bytes {
    fn refused(kind: xtent_store::ErrorKind, act: Act) -> xtent_store::Error {
        xtent_store::Error::new(kind, act, Path::new("(backup)"), None)
    }
}

impl Store for Bytes {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn limits(&self) -> xtent_store::Limits {
        xtent_store::Limits {
            atomic: 512,
            discard: 512,
            block: 1,
        }
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), xtent_store::Error> {
        let there = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..start.checked_add(buf.len())?))
            .ok_or_else(|| Self::refused(xtent_store::ErrorKind::OutOfRange, Act::Read))?;
        buf.copy_from_slice(there);
        Ok(())
    }
    fn write_at(&self, _: &[u8], _: u64) -> Result<(), xtent_store::Error> {
        Err(Self::refused(xtent_store::ErrorKind::ReadOnly, Act::Write))
    }
    fn flush(&self) -> Result<(), xtent_store::Error> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), xtent_store::Error> {
        Err(Self::refused(
            xtent_store::ErrorKind::ReadOnly,
            Act::Discard,
        ))
    }
}
