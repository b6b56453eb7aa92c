//! A mapping whose key is taken away, and given back: suspended first, so that whoever reads or writes waits,
//! as with `cryptsetup luksSuspend`. Both targets take the same messages.

use std::io;

use devicemapper::{DevId, DeviceInfo, DmFlags, DmOptions};
use xtent_secret::SecretBytes;

use crate::error::io_error;
use crate::keyring::LoadedKey;
use crate::layout::{Layout, layout};
use crate::load::{Found, active, tell};
use crate::mapper::{number_of, told_to_udev};
use crate::name::dm_uuid;
use crate::{Error, ErrorKind, Mapper, Name, told};

/// A mapping as it was found.
pub struct Seen {
    name: Name,
    uuid: String,
    device: u64,
    found: Found,
    layout: Layout,
    shows_key: bool,
    is_suspended: bool,
}

impl Seen {
    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Its UUID, by which cryptsetup knows its own.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Its device number.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// What its table says.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether whoever reads or writes waits.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended
    }
}

impl Mapper {
    /// Looks at the mapping `name`, suspended or not.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Foreign`] for mappings of something else, or of several parts;
    /// [`ErrorKind::Busy`] if a table waits to take the place of the one that is in use.
    pub fn look(&self, name: &Name) -> Result<Seen, Error> {
        let Some(info) = self.find(name)? else {
            return Err(told::no_such(name));
        };
        self.refuse_foreign(name, &info).map_err(|e| match e.kind {
            ErrorKind::Foreign => e.advise(told::see_foreign(name)),
            _ => e,
        })?;
        // Another target would come with it, and another key.
        if info.flags().contains(DmFlags::DM_INACTIVE_PRESENT) {
            return Err(told::has_two_tables(name));
        }
        let foreign = || told::not_to_suspend(name);
        let found = active(self.control(), name)?.ok_or_else(foreign)?;
        let (layout, shows_key) = layout(found.target, &found.line).ok_or_else(foreign)?;
        Ok(Seen {
            name: name.clone(),
            uuid: info.uuid().map(ToString::to_string).unwrap_or_default(),
            device: number_of(&info),
            found,
            layout,
            shows_key,
            is_suspended: is_suspended(&info),
        })
    }

    /// As [`Mapper::look`], of one that is suspended.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if it is not.
    pub fn suspended(&self, name: &Name) -> Result<Seen, Error> {
        let seen = self.look(name)?;
        match seen.is_suspended {
            true => Ok(seen),
            false => Err(told::runs(name)),
        }
    }

    /// Suspends the mapping, with a file system on it frozen and all that is under way brought to its end, and has
    /// the target wipe its key. One that is suspended already, with its key still there, loses that.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if that was done before, or the mapping is not what it was; the kernel's refusal: then
    /// the mapping runs as before, or the error says that it does not.
    pub fn suspend(&self, seen: &Seen) -> Result<(), Error> {
        let name = &seen.name;
        let uuid = dm_uuid(&seen.uuid)?;
        // The name may be another's by now.
        let id = DevId::Uuid(&uuid);
        self.refuse_other(seen)?;
        if seen.is_suspended {
            tell(self.control(), name, WIPE)?
                .map_err(|e| told::not_wiped(name, e, "suspended as before, and may have it"))?;
            return match seen.shows_key {
                true => Ok(()),
                false => Err(told::suspended_before(name)),
            };
        }
        let how = DmOptions::default().set_flags(DmFlags::DM_SUSPEND);
        self.dm()
            .device_suspend(&id, how)
            .map_err(|e| told::not_suspended(name, &e))?;
        // What has got the name meanwhile keeps its key: it was not meant.
        let wipe = || {
            self.refuse_other(seen)?;
            tell(self.control(), name, WIPE)
        };
        wiped_or_resumed(name, wipe, || self.resume_as_it_is(&id))
    }

    /// Gives a suspended mapping its key and resumes it. `key` is what the mapping had: a wrong one cannot be
    /// told from it here. `header_uuid` is part of the key's name in the keyring, where it is for this moment.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if it is not suspended, or the key is no key of that mapping;
    /// [`ErrorKind::Busy`] if the mapping is not what it was; the kernel's refusal. The mapping
    /// stays suspended then, and has no key, or the error says that it has.
    pub fn resume(&self, seen: &Seen, header_uuid: &str, key: &SecretBytes) -> Result<(), Error> {
        let name = &seen.name;
        let uuid = dm_uuid(&seen.uuid)?;
        // The name may be another's by now.
        let id = DevId::Uuid(&uuid);
        // Another command may have resumed it, after which its table has the name of a key, too.
        if !self.refuse_other_mapping(seen)?.is_suspended {
            return Err(told::runs(name));
        }
        self.refuse_other(seen)?;
        if seen.layout.key_length.is_some_and(|it| it != key.len()) {
            return Err(Error::new(
                ErrorKind::Argument,
                format!("the mapping {name} has a key of another length"),
            ));
        }
        let key_name = crate::table::key_name(header_uuid);
        let message = format!("key set :{}:logon:{key_name}", key.len());
        {
            let _loaded = LoadedKey::new(&key_name, key)?;
            // In this thread, whose keyring the target is going to search.
            tell(self.control(), name, &message)?.map_err(|e| told::no_key(name, e))?;
        }
        let wipe = || tell(self.control(), name, WIPE);
        resumed_or_wiped(name, || self.resume_as_it_is(&id), wipe)
    }

    fn resume_as_it_is(&self, id: &DevId<'_>) -> io::Result<()> {
        let how = told_to_udev(DmFlags::empty());
        let resumed = self.dm().device_suspend(id, how);
        resumed.map(|_| ()).map_err(|e| io_error(&e))
    }

    /// Fails unless the mapping is the one that was looked at, with the same table.
    fn refuse_other(&self, seen: &Seen) -> Result<(), Error> {
        match self.refuse_other_mapping(seen)?.found == seen.found {
            true => Ok(()),
            false => Err(told::changed(&seen.name)),
        }
    }

    /// Fails unless the mapping is the one that was looked at. Gives what it is now.
    fn refuse_other_mapping(&self, seen: &Seen) -> Result<Seen, Error> {
        let now = self.look(&seen.name)?;
        match now.device == seen.device && now.uuid == seen.uuid {
            true => Ok(now),
            false => Err(told::changed(&seen.name)),
        }
    }
}

/// Has the target of a mapping that has just been suspended wipe its key. Where it does not, nobody is to wait.
fn wiped_or_resumed(
    name: &Name,
    wipe: impl FnOnce() -> Result<io::Result<()>, Error>,
    resume: impl FnOnce() -> io::Result<()>,
) -> Result<(), Error> {
    let kept = match wipe() {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => Ok(error),
        Err(error) => Err(error),
    };
    let is_stuck = resume().is_err();
    let state = match is_stuck {
        false => "in use as before",
        true => "suspended, may have it still, and waits for it",
    };
    let error = kept.map_or_else(|error| error, |cause| told::not_wiped(name, cause, state));
    Err(match is_stuck {
        false => error,
        true => error.advise(told::give_key(name)),
    })
}

/// Resumes a mapping that has just got its key. Where that fails, it is not to keep it.
fn resumed_or_wiped(
    name: &Name,
    resume: impl FnOnce() -> io::Result<()>,
    wipe: impl FnOnce() -> Result<io::Result<()>, Error>,
) -> Result<(), Error> {
    let Err(error) = resume() else {
        return Ok(());
    };
    Err(match wipe() {
        Ok(Ok(())) => told::stays(name, error),
        _ => told::not_wiped(name, error, "suspended, and may have it"),
    })
}

/// What both targets take while they are suspended.
const WIPE: &str = "key wipe";

fn is_suspended(info: &DeviceInfo) -> bool {
    info.flags().contains(DmFlags::DM_SUSPEND)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn refused(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn who_keeps_the_key_goes_on() {
        let name: Name = "v".parse().unwrap();
        let never = || panic!("its key is wiped");
        wiped_or_resumed(&name, || Ok(Ok(())), never).unwrap();
        let resumed = Cell::new(0);
        let resume = || {
            resumed.set(resumed.get() + 1);
            Ok(())
        };
        let error = wiped_or_resumed(&name, || Ok(Err(refused(22))), resume).unwrap_err();
        assert_eq!(resumed.get(), 1);
        assert!(error.message.contains("could not be wiped"), "{error}");
        assert!(error.message.contains("in use as before"), "{error}");
        assert_eq!(error.source.unwrap().raw_os_error(), Some(22));
        // What has the name by now is another's.
        let changed = || Err(Error::new(ErrorKind::Busy, "changed"));
        let error = wiped_or_resumed(&name, changed, resume).unwrap_err();
        assert_eq!((error.kind, resumed.get()), (ErrorKind::Busy, 2));
        // Neither has its key any more, nor runs.
        let stuck = || Err(refused(11));
        let error = wiped_or_resumed(&name, || Ok(Err(refused(5))), stuck).unwrap_err();
        assert!(error.message.contains("suspended"), "{error}");
        assert!(error.advice.unwrap().contains("xtent resume v"));
    }

    #[test]
    fn what_does_not_resume_has_no_key() {
        let name: Name = "v".parse().unwrap();
        resumed_or_wiped(&name, || Ok(()), || panic!("it runs")).unwrap();
        let wiped = Cell::new(false);
        let wipe = || {
            wiped.set(true);
            Ok(Ok(()))
        };
        let error = resumed_or_wiped(&name, || Err(refused(11)), wipe).unwrap_err();
        assert!(wiped.get());
        assert!(error.message.contains("wiped again"), "{error}");
        let not = || Ok(Err(refused(22)));
        let error = resumed_or_wiped(&name, || Err(refused(11)), not).unwrap_err();
        assert!(error.message.contains("may have it"), "{error}");
    }
}
