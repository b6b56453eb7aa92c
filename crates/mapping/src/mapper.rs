//! Mappings made and removed, through `/dev/mapper/control`.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use devicemapper::{DM, DevId, DeviceInfo, DmError, DmFlags, DmOptions, DmUdevFlags};
use xtent_secret::SecretBytes;

use crate::error::{EBUSY, ENXIO, io_error};
use crate::keyring::LoadedKey;
use crate::load::load;
use crate::name::{OURS, dm_uuid};
use crate::{Error, ErrorKind, Name, Table, Target, node, told};

/// How long a removal waits where udev runs, which looks into a device as soon as
/// somebody who has written to it closes it. libdevmapper waits as long.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// The device mapper.
pub struct Mapper {
    dm: DM,
    control: File,
}

/// Which target to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// dm-xtent if it is loaded, else dm-crypt.
    Auto,
    /// This one.
    Only(Target),
}

/// A mapping to be made.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Its name.
    pub name: &'a Name,
    /// Its UUID, as [`uuid`](crate::uuid) makes it.
    pub uuid: &'a str,
    /// Who encrypts.
    pub target: Target,
    /// What it maps.
    pub table: &'a Table,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// A mapping that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// `/dev/mapper/NAME`.
    pub path: PathBuf,
    /// Device number.
    pub device: u64,
}

/// When a mapping goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It has gone.
    Now,
    /// When its last user goes.
    Deferred,
}

impl Mapper {
    /// Connects to the kernel's device mapper.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if there is none, [`ErrorKind::Permission`]
    /// without root.
    pub fn connect() -> Result<Self, Error> {
        const CONTROL: &str = "/dev/mapper/control";
        // The crate's own error keeps no errno.
        let control = File::open(CONTROL).map_err(told::no_device_mapper)?;
        let dm = DM::new().map_err(|e| told::no_device_mapper(io_error(&e)))?;
        let mapper = Self { dm, control };
        // Opened by somebody who may open the file but not make mappings.
        mapper
            .versions()
            .map_err(|e| told::no_device_mapper(io_error(&e)))?;
        Ok(mapper)
    }

    /// The target to take for `table`, and why.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if it is not loaded, or too old.
    pub fn choose(&self, choice: Choice, table: &Table) -> Result<(Target, String), Error> {
        let versions = self
            .versions()
            .map_err(|e| Error::refused("cannot ask the device mapper for its targets", &e))?;
        let version = |target: Target| {
            let found = versions.iter().find(|(name, ..)| name == target.name())?;
            Some((found.1, found.2))
        };
        let has_xtent = version(Target::Xtent).is_some();
        let (target, why) = match choice {
            Choice::Auto if has_xtent => (Target::Xtent, "it is loaded"),
            Choice::Auto => (Target::Crypt, "dm-xtent is not loaded"),
            Choice::Only(Target::Xtent) if !has_xtent => {
                return Err(
                    Error::new(ErrorKind::Unsupported, "dm-xtent is not loaded").advise(
                        "`modprobe dm-xtent`, or `insmod kernel/dm-xtent.ko`, loads it; \
                         without --target dm-crypt does it.",
                    ),
                );
            }
            Choice::Only(target) => (target, "it was asked for"),
        };
        // dm-crypt may be loaded only when the first table wants it.
        if target == Target::Crypt
            && let Some((major, minor)) = version(target)
            && let Some(missing) = table.missing_in((major, minor))
        {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("dm-crypt {major}.{minor} of this kernel does not know {missing}"),
            )
            .advise("`xtent serve` and `xtent mount` need nothing of the kernel's."));
        }
        Ok((target, why.to_owned()))
    }

    /// Fails with [`ErrorKind::Exists`] if there is a mapping of that name.
    pub fn refuse_taken(&self, name: &Name) -> Result<(), Error> {
        match self.find(name)? {
            Some(_) => Err(told::taken(name)),
            None => Ok(()),
        }
    }

    /// Makes a mapping. `stop` is asked before it becomes one that others see;
    /// whatever fails, nothing is left of it, nor of the key outside the target.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`], [`ErrorKind::Busy`] if the device below is in use,
    /// [`ErrorKind::Unsupported`] if the kernel lacks target, cipher or keyring,
    /// [`ErrorKind::Interrupted`].
    pub fn open(
        &self,
        wanted: &Wanted<'_>,
        key: &SecretBytes,
        stop: impl Fn() -> bool,
    ) -> Result<Opened, Error> {
        let Wanted {
            name,
            target,
            table,
            ..
        } = *wanted;
        let access = if wanted.read_only {
            DmFlags::DM_READONLY
        } else {
            DmFlags::empty()
        };
        let id = name.id()?;
        let uuid = dm_uuid(wanted.uuid)?;
        let options = DmOptions::default().set_flags(access);
        let made = self
            .dm
            .device_create(name.dm()?, Some(&uuid), options)
            .map_err(|e| told::not_created(name, &e))?;
        let mut half = HalfMade {
            mapper: self,
            name,
            device: number_of(&made),
            armed: true,
        };
        {
            let key_name = table.key_name();
            let _loaded = match &key_name {
                Some(key_name) => Some(LoadedKey::new(key_name, key)?),
                None => None,
            };
            // In this thread, whose keyring the target is going to search.
            load(&self.control, name, target, table, key, wanted.read_only)?
                .map_err(|e| told::not_loaded(target, table, e, || self.has(target)))?;
        }
        if stop() {
            return Err(Error::new(
                ErrorKind::Interrupted,
                format!("interrupted; {name} was not opened"),
            ));
        }
        // Without the flag for "suspend" it resumes, and so activates the table.
        let active = self
            .dm
            .device_suspend(&id, told_to_udev(DmFlags::empty()))
            .map_err(|e| Error::refused(format!("{name} cannot be activated"), &e))?;
        let device = number_of(&active);
        let path = name.path();
        node::provide(&path, device).map_err(|e| {
            Error::new(ErrorKind::Io, format!("cannot make {}", path.display())).because(e)
        })?;
        half.armed = false;
        Ok(Opened { path, device })
    }

    /// Removes a mapping of a volume; with `deferred` one in use goes when its last
    /// user does. `stop` is asked while udev may be that user.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Foreign`] for mappings of
    /// something else, [`ErrorKind::Busy`].
    pub fn close(
        &self,
        name: &Name,
        deferred: bool,
        stop: impl Fn() -> bool,
    ) -> Result<Closed, Error> {
        let Some(info) = self.find(name)? else {
            return Err(told::no_such(name));
        };
        self.refuse_foreign(name, &info)?;
        let flags = if deferred {
            DmFlags::DM_DEFERRED_REMOVE
        } else {
            DmFlags::empty()
        };
        // By the UUID that was looked at: the name may be another's by now.
        let id = match info.uuid() {
            Some(uuid) => DevId::Uuid(uuid),
            None => name.id()?,
        };
        let device = number_of(&info);
        self.remove(&id, flags, stop)
            .map_err(|e| told::not_removed(name, info.open_count(), &e))?;
        if self
            .find(name)?
            .is_some_and(|now| number_of(&now) == device)
        {
            return Ok(Closed::Deferred);
        }
        node::remove(&name.path(), device).map_err(|e| {
            let path = name.path();
            Error::new(ErrorKind::Io, format!("cannot remove {}", path.display())).because(e)
        })?;
        Ok(Closed::Now)
    }

    /// Removes a mapping, again and again while it may be udev that has it open.
    fn remove(
        &self,
        id: &DevId<'_>,
        flags: DmFlags,
        stop: impl Fn() -> bool,
    ) -> Result<(), DmError> {
        let start = Instant::now();
        loop {
            let Err(error) = self.dm.device_remove(id, told_to_udev(flags)) else {
                return Ok(());
            };
            let is_busy = io_error(&error).raw_os_error() == Some(EBUSY);
            if !is_busy || !node::has_udev() || start.elapsed() > PATIENCE || stop() {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub(crate) fn dm(&self) -> &DM {
        &self.dm
    }

    pub(crate) fn control(&self) -> &File {
        &self.control
    }

    pub(crate) fn refuse_foreign(&self, name: &Name, info: &DeviceInfo) -> Result<(), Error> {
        let ours = info
            .uuid()
            .is_some_and(|uuid| uuid.to_string().starts_with(OURS));
        if !ours {
            return Err(Error::new(
                ErrorKind::Foreign,
                format!("{name} is no mapping of an encrypted volume"),
            )
            .advise(format!(
                "`dmsetup info {name}` tells what it is; `dmsetup remove {name}` removes it."
            )));
        }
        // Not the table, which might hold a key: only the targets' names.
        let (_, targets) = self
            .dm
            .table_status(
                &name.id()?,
                DmOptions::default().set_flags(DmFlags::DM_NOFLUSH),
            )
            .map_err(|e| Error::refused(format!("cannot look at {name}"), &e))?;
        let known = [Target::Crypt.name(), Target::Xtent.name()];
        let is_other = targets
            .iter()
            .any(|(_, _, target, _)| !known.contains(&target.as_str()));
        // Of a volume with integrity protection, which has a mapping below it.
        let below: Option<Name> = format!("{name}_dif").parse().ok();
        let has_below = match below {
            Some(below) => self.find(&below)?.is_some(),
            None => false,
        };
        if is_other || has_below {
            let what = match is_other {
                true => "has another target than dm-crypt's and dm-xtent's",
                false => "is more than one mapping of an encrypted volume",
            };
            return Err(Error::new(ErrorKind::Foreign, format!("{name} {what}"))
                .advise(format!("`cryptsetup close {name}` knows how to close it.")));
        }
        Ok(())
    }

    pub(crate) fn find(&self, name: &Name) -> Result<Option<DeviceInfo>, Error> {
        match self.dm.device_info(&name.id()?) {
            Ok(info) => Ok(Some(info)),
            Err(e) if io_error(&e).raw_os_error() == Some(ENXIO) => Ok(None),
            Err(e) => Err(Error::refused(format!("cannot look for {name}"), &e)),
        }
    }

    fn has(&self, target: Target) -> bool {
        self.versions()
            .is_ok_and(|all| all.iter().any(|(name, ..)| name == target.name()))
    }

    /// Name, major, minor and patch level of the targets that are loaded.
    fn versions(&self) -> Result<Vec<(String, u32, u32, u32)>, DmError> {
        self.dm.list_versions()
    }
}

/// A mapping on its way; removed if dropped before it has arrived.
struct HalfMade<'a> {
    mapper: &'a Mapper,
    name: &'a Name,
    device: u64,
    armed: bool,
}

impl Drop for HalfMade<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let removed = self
            .name
            .id()
            .map(|id| self.mapper.remove(&id, DmFlags::empty(), || false));
        if let Ok(Err(error)) = removed {
            let error = io_error(&error);
            tracing::error!(%error, "`dmsetup remove {}` has to be done by hand", self.name);
        }
        // Where there is none it has not been made.
        let _ = node::remove(&self.name.path(), self.device);
    }
}

/// For what udev sees. That it alone makes nodes, as cryptsetup says of its mappings.
pub(crate) fn told_to_udev(flags: DmFlags) -> DmOptions {
    DmOptions::default()
        .set_flags(flags)
        .set_udev_flags(DmUdevFlags::DM_UDEV_DISABLE_LIBRARY_FALLBACK)
}

pub(crate) fn number_of(info: &DeviceInfo) -> u64 {
    let device = info.device();
    rustix::fs::makedev(device.major, device.minor)
}
