//! The kernel's block device under a mounted file system, which this process serves.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{major, minor};
use xtent_store::chain;

use super::{refuse, unused};
use crate::fuse::{Event, fail};
use crate::ublk::{Control, Growth, Info, Serving, State};
use crate::{Error, ErrorKind, mountinfo};

/// How long those who have opened a stopped device are waited for. The driver goes on waiting without this process.
const LET_GO: Duration = Duration::from_secs(5);

/// A device of the kernel's ublk that this process serves.
pub struct Started {
    /// The driver.
    pub control: Control,
    /// The device, which was started.
    pub info: Info,
    /// Its server.
    pub serving: Serving,
    /// Whether it had waited for this server; else it was made for it.
    pub is_taken_over: bool,
    /// Whether it waits for the next server when this one is gone.
    pub waits: bool,
    /// Whether nothing is written to it.
    pub is_read_only: bool,
    /// Who has the device of a number open without a claim, for people.
    pub users: fn(u32) -> Vec<String>,
}

/// Such a device under a mount. Dropped, it is gone again if it was made for this mount, else it waits.
pub(super) struct Device {
    /// Until it is taken away.
    control: Option<Control>,
    info: Info,
    is_taken_over: bool,
    waits: bool,
    is_read_only: bool,
    is_stopped: bool,
    shown: mountinfo::Device,
    users: fn(u32) -> Vec<String>,
    events: Sender<Event>,
    serving: Option<JoinHandle<Result<(), Error>>>,
    watching: Option<JoinHandle<Option<unused::Claim>>>,
    /// What was written past the file system and did not reach the volume.
    lost: Option<io::Error>,
}

impl Device {
    pub(super) fn new(started: Started, events: &Sender<Event>) -> Result<Self, Error> {
        let (serving, ended) = (started.serving, events.clone());
        let serving = std::thread::Builder::new()
            .name("ublk-end".into())
            .spawn(move || {
                let result = serving.wait();
                let _ = ended.send(Event::Ended);
                result
            });
        let path = PathBuf::from(format!("/dev/ublkb{}", started.info.number));
        let mut device = Self {
            control: Some(started.control),
            info: started.info,
            is_taken_over: started.is_taken_over,
            waits: started.waits,
            is_read_only: started.is_read_only,
            is_stopped: false,
            shown: mountinfo::Device {
                path,
                id: String::new(),
            },
            users: started.users,
            events: events.clone(),
            serving: None,
            watching: None,
            lost: None,
        };
        let failed = |e| fail(ErrorKind::Io, "cannot start a thread for the device", e);
        device.serving = Some(serving.map_err(failed)?);
        let path = &device.shown.path;
        let failed = |e| fail(ErrorKind::Io, format!("cannot find {}", path.display()), e);
        let metadata = path.metadata().map_err(failed)?;
        if !metadata.file_type().is_block_device() {
            let message = format!("{} is not the kernel's device", path.display());
            return Err(refuse(ErrorKind::Unsupported, message));
        }
        let number = metadata.rdev();
        device.shown.id = format!("{}:{}", major(number), minor(number));
        Ok(device)
    }

    /// As mounts show it.
    pub(super) fn shown(&self) -> &mountinfo::Device {
        &self.shown
    }

    pub(super) fn info(&self) -> &Info {
        &self.info
    }

    /// What has it grow, where the kernel lets it.
    pub(super) fn growth(&self) -> Option<Growth> {
        let growth = self.control.as_ref()?.growth(self.info.number);
        growth
            .inspect_err(
                |error| tracing::warn!(error = %chain(error), "the device will keep its size"),
            )
            .ok()
            .flatten()
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    pub(super) fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// Has [`Event::Closed`] come when nobody uses it any more.
    pub(super) fn watch(&mut self) -> Result<(), Error> {
        let (shown, users) = (self.shown.clone(), self.users);
        let (number, events) = (self.info.number, self.events.clone());
        let watching = std::thread::Builder::new()
            .name("ublk-users".into())
            .spawn(move || {
                let claim = unused::wait(&shown, || users(number).is_empty());
                // Where the device is gone, so is its server, which says so.
                if claim.is_some() {
                    let _ = events.send(Event::Closed);
                }
                claim
            });
        let failed = |e| fail(ErrorKind::Io, "cannot start a thread for the device", e);
        self.watching = Some(watching.map_err(failed)?);
        Ok(())
    }

    /// Stops it, since nobody uses it any more; its server ends.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        let claim = self.watching.take().and_then(|it| it.join().ok()).flatten();
        // Until it is stopped nobody else gets it.
        let _claimed: Option<File> = claim.map(|claim| {
            self.lost = claim.flushed.err();
            claim.file
        });
        self.stop()
    }

    /// Whoever uses it sees errors from now on.
    fn stop(&mut self) -> Result<(), Error> {
        match &mut self.control {
            Some(control) if !self.is_stopped => {
                control.stop(self.info.number)?;
                self.is_stopped = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits until its server has flushed the volume and ended, and takes it away. A server that ends
    /// without that it was stopped leaves it to the next one, if it can have one.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.wait_for_server()
    }

    /// Takes it away from its users. What they have been told is flushed is on the disk.
    pub(super) fn abandon(mut self) -> Result<(), Error> {
        self.stop()?;
        self.wait_for_server()
    }

    fn wait_for_server(&mut self) -> Result<(), Error> {
        let panicked = |_| Err(refuse(ErrorKind::Io, "serving the device panicked"));
        let served = match self.serving.take() {
            Some(serving) => serving.join().unwrap_or_else(panicked),
            None => Ok(()),
        };
        if !self.is_stopped {
            let number = self.info.number;
            let found = match &mut self.control {
                Some(control) => control.info(number)?,
                None => None,
            };
            // Numbers are given again.
            let found = found.filter(|info| info.identity == self.info.identity);
            let is_there = found.is_some_and(|info| info.state != State::Dead);
            if is_there && self.waits {
                // It is neither stopped nor taken away.
                self.control = None;
                return Err(Error {
                    kind: ErrorKind::Io,
                    message: format!(
                        "the server of {} has ended: who uses it waits for the next one",
                        self.shown.path.display()
                    ),
                    source: served.err().map(Into::into),
                });
            }
            self.stop()?;
        }
        self.delete();
        served?;
        match self.lost.take() {
            None => Ok(()),
            Some(error) => Err(fail(
                ErrorKind::Io,
                format!("{} could not be flushed", self.shown.path.display()),
                error,
            )),
        }
    }

    fn delete(&mut self) {
        let Some(control) = self.control.take() else {
            return;
        };
        let path = self.shown.path.display();
        match delete(control, self.info.number) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("{path} is still open: it goes when its users end"),
            Err(error) => tracing::warn!("{path} is left behind: {}", chain(&error)),
        }
    }
}

/// Takes a stopped device away; false if somebody has it open, with whom it goes.
pub(super) fn delete(mut control: Control, number: u32) -> Result<bool, Error> {
    let (tell, told) = channel();
    let deleting = std::thread::Builder::new().spawn(move || {
        // Nobody waits for it any more, perhaps.
        let _ = tell.send(control.delete(number));
    });
    deleting.map_err(|e| fail(ErrorKind::Io, "cannot start a thread for the device", e))?;
    match told.recv_timeout(LET_GO) {
        Ok(deleted) => deleted.map(|()| true),
        Err(_) => Ok(false),
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_taken_over || self.control.is_none() {
            return;
        }
        let ended = self.stop().and_then(|()| self.wait_for_server());
        if let Err(error) = ended {
            tracing::error!("{}", chain(&error));
        }
    }
}
