//! A folder for a mount by ublk, before there is one.

use std::sync::mpsc::channel;

use super::check::{absolute, check};
use super::device::{Device, Started};
use super::file_system::{FileSystem, Options, mountinfo_failed};
use super::mount::{Mount, Under};
use super::record::{State, Ublk};
use super::state::{Claim, Found, StateDir};
use super::{resolve, stale};
use crate::Error;
use crate::ublk::{Control, Info};

/// A folder that this process alone mounts on. Dropped, it is free again, or waits as it did.
pub struct Reserved {
    claim: Option<Claim>,
    state: State,
    warnings: Vec<String>,
    waiting: Option<Info>,
}

impl Reserved {
    /// For a device that is yet to be made.
    ///
    /// Errors: as of [`check`], which this calls.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let warnings = check(options)?;
        let state = State::new(resolve(&options.dir)?, absolute(&options.device)?, false);
        let claim = StateDir::open()?.claim(&state)?;
        Ok(Self {
            claim: Some(claim),
            state,
            warnings,
            waiting: None,
        })
    }

    /// What a daemon that was killed has left mounted there of this device, whose users wait for the next one.
    pub fn waiting(options: &Options, control: &mut Control) -> Result<Option<Self>, Error> {
        let dir = resolve(&options.dir)?;
        let device = absolute(&options.device)?;
        let wanted =
            |state: &State| state.dir == dir && state.device == device && state.ublk.is_some();
        for (mut state, found) in StateDir::open()?.find(wanted)? {
            let (Found::Dead(claim), Some(ublk)) = (found, &state.ublk) else {
                continue;
            };
            if let Some(info) = stale::waiting(control, ublk)? {
                // Until it has a server nobody is to unmount it: that would wait for this process.
                state.ready = false;
                state.pid = std::process::id();
                claim.save(&state)?;
                return Ok(Some(Self {
                    claim: Some(claim),
                    state,
                    warnings: Vec::new(),
                    waiting: Some(info),
                }));
            }
        }
        Ok(None)
    }

    /// The device that waits.
    pub fn info(&self) -> Option<&Info> {
        self.waiting.as_ref()
    }

    /// Notes the device that was made, before it is started: so another process can take it away.
    pub fn note(&mut self, info: &Info) -> Result<(), Error> {
        self.state.is_on(Ublk {
            number: info.number,
            identity: info.identity,
            device: None,
        });
        self.save()
    }

    fn save(&self) -> Result<(), Error> {
        match &self.claim {
            Some(claim) => claim.save(&self.state),
            None => Ok(()),
        }
    }

    /// Mounts the file system on the device, or goes on with the one that is mounted there.
    ///
    /// Errors: [`crate::ErrorKind::NotMountable`] if mount(8) refuses what is on the volume.
    pub fn mount(mut self, started: Started, options: &Options) -> Result<Mount, Error> {
        let (sender, events) = channel();
        let device = Device::new(started, &sender)?;
        let info = device.info();
        self.state.is_on(Ublk {
            number: info.number,
            identity: info.identity,
            device: Some(device.shown().clone()),
        });
        self.state.pid = std::process::id();
        self.state.failure = None;
        self.save()?;
        let (shown, dir) = (device.shown().clone(), self.state.dir.clone());
        let file_system = match device.is_taken_over() {
            true => FileSystem { dir, device: shown },
            false => FileSystem::mount(shown, device.is_read_only(), &dir, options)?,
        };
        if !file_system.is_mounted().map_err(mountinfo_failed)? {
            self.warnings.push(format!(
                "{} is not mounted on {} any more: the volume is closed when nobody uses it",
                self.state.device.display(),
                self.state.dir.display()
            ));
        }
        let claim = self.claim.take();
        let mut mount = Mount::of(claim, self.state.clone(), (sender, events));
        mount.warnings = std::mem::take(&mut self.warnings);
        mount.file_system = Some(file_system);
        mount.under = Some(Under::Ublk(Box::new(device)));
        if let Some(Under::Ublk(device)) = &mut mount.under {
            device.watch()?;
        }
        mount.is_ready()?;
        Ok(mount)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let (Some(claim), None) = (self.claim.take(), &self.waiting) {
            claim.remove();
        }
    }
}
