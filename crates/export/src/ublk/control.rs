//! Devices of the driver: made, started, looked at, taken over, taken away.
//! `Documentation/block/ublk.rst`.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::num::NonZero;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use xtent_volume::Volume;

use super::abi::{self, Command, ControlCommand, DeviceInfo, Params};
use super::params::{length_of_params, params};
use super::ring::restrict;
use super::{DEPTH, LARGEST, MOST_QUEUES, QUEUES};
use crate::{Error, ErrorKind};

const PATH: &str = "/dev/ublk-control";

/// The driver, for one who may make devices: root.
///
/// The ring beneath takes commands to this driver and nothing else, so it may be used in a sandbox.
pub struct Control {
    /// It has the driver's file.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    is_encoded: bool,
    /// Of the driver; none of those before Linux 6.5.
    features: u64,
    /// Of devices that are made.
    queues: u16,
    /// Whose privileges commands have, where not those of who gives them.
    personality: u16,
    told: Box<Told>,
}

/// What commands point to. It lies where it lies, so that the kernel may have it as long as it likes.
#[derive(Default)]
struct Told {
    info: DeviceInfo,
    params: Params,
    features: u64,
}

/// What of it a command points to.
#[derive(Clone, Copy)]
enum With {
    Nothing,
    Info,
    Params,
    Features,
}

/// With whose privileges commands are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Privileges {
    OfWhoAsks,
    /// Of the thread that has made the ring.
    Kept,
}

/// What becomes of a device's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nobody serves it, and nobody can: it was never started, or has been stopped.
    Dead,
    /// It has a server; one that was killed just now, perhaps.
    Live,
    /// They wait for the next server.
    Waits,
}

/// A device, as the driver has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// N of `/dev/ublkbN`.
    pub number: u32,
    /// What becomes of its requests.
    pub state: State,
    /// The server's process, where it was started and has not been stopped.
    pub pid: Option<u32>,
    /// What whoever made it has it known by.
    pub identity: u64,
    /// Its queues, of which each has a thread of the server's.
    pub queues: u16,
    pub(super) depth: u16,
    pub(super) max_io_bytes: u32,
    /// How commands are numbered.
    pub(super) is_encoded: bool,
}

impl Control {
    /// Errors: [`ErrorKind::Unsupported`] where the kernel has no such driver, or no io_uring;
    /// [`ErrorKind::Permission`].
    pub fn open() -> Result<Self, Error> {
        Self::make(Privileges::OfWhoAsks)
    }

    /// The same for whoever is to give commands when this thread has no privileges any more.
    pub(super) fn with_kept_privileges() -> Result<Self, Error> {
        Self::make(Privileges::Kept)
    }

    fn make(privileges: Privileges) -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).open(PATH);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error {
                kind: ErrorKind::Unsupported,
                message: format!(
                    "{PATH} is not there: `modprobe ublk_drv` as root loads the driver, where the \
                     kernel (Linux 6.1 or newer) was built with it (CONFIG_BLK_DEV_UBLK)"
                ),
                source: Some(error.into()),
            },
            _ => Error::io(
                format!("cannot open {PATH}: devices are made by root only"),
                error,
            ),
        })?;
        let (ring, personality) = make_ring(&file, privileges).map_err(|error| Error {
            kind: ErrorKind::Unsupported,
            message: "the driver is spoken to by io_uring, which cannot be used: see \
                      /proc/sys/kernel/io_uring_disabled"
                .into(),
            source: Some(error.into()),
        })?;
        let mut control = Self {
            ring,
            is_encoded: true,
            features: 0,
            queues: default_queues(),
            personality,
            told: Box::default(),
        };
        // Older drivers do not know the question, and may not know the form.
        control.is_encoded = control
            .command(abi::GET_FEATURES, 0, 0, With::Features)
            .is_ok();
        if control.is_encoded {
            control.features = control.told.features;
        }
        Ok(control)
    }

    /// Gives the devices that are made from now on so many queues: [`MOST_QUEUES`] at most, and no more than
    /// there are processors, which the driver sees to.
    pub fn set_queues(&mut self, queues: u16) {
        self.queues = queues.clamp(1, MOST_QUEUES);
    }

    /// The device of a number, if there is one.
    pub fn info(&mut self, number: u32) -> Result<Option<Info>, Error> {
        match self.command(abi::GET_DEV_INFO, number, 0, With::Info) {
            Ok(()) => Ok(Some(self.told_info())),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => Err(failed("look at", number, error)),
        }
    }

    /// Makes a device for the volume, which has to be served and then started. `identity` is kept with it.
    /// With `waits` its requests wait for the next server when one is gone; else they fail then.
    pub fn add(&mut self, volume: &Volume, identity: u64, waits: bool) -> Result<Info, Error> {
        self.told.info = DeviceInfo {
            queues: self.queues,
            depth: DEPTH,
            max_io_bytes: LARGEST,
            number: u32::MAX,
            flags: match waits {
                true => abi::F_USER_RECOVERY | abi::F_USER_RECOVERY_REISSUE,
                false => 0,
            } | self.features & abi::F_UPDATE_SIZE,
            own: identity,
            ..DeviceInfo::default()
        };
        let wanted = self.told.info.flags;
        self.command(abi::ADD_DEV, u32::MAX, 0, With::Info)
            .map_err(|error| match error {
                Errno::PERM | Errno::ACCESS => Error::io("devices are made by root only", error),
                _ => Error::io("cannot make a ublk device", error),
            })?;
        let made = self.told_info();
        let set = if self.told.info.flags & wanted != wanted {
            // Linux 6.0.
            Err(Error {
                kind: ErrorKind::Unsupported,
                message: "this kernel's ublk devices do not wait for their next server: \
                          that takes Linux 6.1 or newer"
                    .into(),
                source: None,
            })
        } else {
            self.told.params = params(volume);
            self.command(abi::SET_PARAMS, made.number, 0, With::Params)
                .map_err(|error| failed("set up", made.number, error))
        };
        set.inspect_err(|_| {
            let _ = self.delete(made.number);
        })?;
        Ok(made)
    }

    /// What the block layer was told of a device.
    pub(super) fn params_of(&mut self, number: u32) -> Result<Params, Error> {
        self.told.params = Params {
            length: length_of_params(),
            ..Params::default()
        };
        self.command(abi::GET_PARAMS, number, 0, With::Params)
            .map_err(|error| failed("look at", number, error))?;
        Ok(self.told.params)
    }

    /// Whether the driver has a feature.
    pub(super) fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Gives a device that was started another size.
    pub(super) fn update_size(&mut self, number: u32, sectors: u64) -> Result<(), Errno> {
        self.command(abi::UPDATE_SIZE, number, sectors, With::Nothing)
    }

    /// Has the driver hand a device that [waits](State::Waits) over to this process, which has to serve
    /// it and then start it. Between the two nothing may fail: the driver hands a device over whose last
    /// server it had heard of, and knows none from here on until the next has asked for requests.
    ///
    /// Errors: [`ErrorKind::Busy`] while its last server is not all gone. Another error, or that one for
    /// ever, is a device whose last server never came so far. It cannot be had any more: the driver may
    /// still hold on to the memory of that process.
    pub fn hand_over(&mut self, number: u32) -> Result<(), Error> {
        self.command(abi::START_USER_RECOVERY, number, 0, With::Nothing)
            .map_err(|error| failed("take over", number, error))
    }

    /// Starts a device that this process serves, made or taken over: `/dev/ublkbN` is there then.
    pub fn start(&mut self, number: u32, was_taken_over: bool) -> Result<(), Error> {
        let command = match was_taken_over {
            true => abi::END_USER_RECOVERY,
            false => abi::START_DEV,
        };
        let pid = std::process::id().into();
        self.command(command, number, pid, With::Nothing)
            .map_err(|error| failed("start", number, error))
    }

    /// Takes `/dev/ublkbN` away, whoever uses it: what they ask for from now on fails. Its server
    /// ends.
    pub fn stop(&mut self, number: u32) -> Result<(), Error> {
        self.command(abi::STOP_DEV, number, 0, With::Nothing)
            .map_err(|error| failed("stop", number, error))
    }

    /// Takes the device away. It waits for all who have it open, its server included.
    pub fn delete(&mut self, number: u32) -> Result<(), Error> {
        match self.command(abi::DEL_DEV, number, 0, With::Nothing) {
            Ok(()) | Err(Errno::NODEV) => Ok(()),
            Err(error) => Err(failed("remove", number, error)),
        }
    }

    /// What the driver has said last of a device.
    fn told_info(&self) -> Info {
        let info = &self.told.info;
        Info {
            number: info.number,
            state: match info.state {
                abi::STATE_LIVE => State::Live,
                abi::STATE_QUIESCED => State::Waits,
                _ => State::Dead,
            },
            pid: u32::try_from(info.pid).ok().filter(|pid| *pid > 0),
            identity: info.own,
            queues: info.queues,
            depth: info.depth,
            max_io_bytes: info.max_io_bytes,
            is_encoded: self.is_encoded,
        }
    }

    /// Has the driver carry out a command, with what it reads or writes.
    fn command(
        &mut self,
        command: Command,
        device: u32,
        data: u64,
        with: With,
    ) -> Result<(), Errno> {
        let Told {
            info,
            params,
            features,
        } = &mut *self.told;
        let (address, length) = match with {
            With::Nothing => (0, 0),
            With::Info => (std::ptr::from_mut(info) as u64, size_of::<DeviceInfo>()),
            With::Params => (std::ptr::from_mut(params) as u64, size_of::<Params>()),
            With::Features => (std::ptr::from_mut(features) as u64, size_of::<u64>()),
        };
        let words = ControlCommand {
            device,
            queue: u16::MAX,
            length: u16::try_from(length).map_err(|_| Errno::INVAL)?,
            address,
            data,
            ..ControlCommand::default()
        };
        let entry = opcode::UringCmd80::new(types::Fixed(0), command.code(self.is_encoded))
            .cmd(words.bytes())
            .build()
            .personality(self.personality);
        // SAFETY: what the command points to is in a box of `self`, which this borrows exclusively,
        // and is looked at only after the answer is there. It is plain data of that length, and any
        // bytes are a value of it. The ring keeps the file.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| Errno::BUSY)?;
        loop {
            let waited = self.ring.submit_and_wait(1);
            if let Some(answer) = self.ring.completion().next() {
                return match answer.result() {
                    code @ ..0 => Err(Errno::from_raw_os_error(-code)),
                    _ => Ok(()),
                };
            }
            match waited.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
    }
}

/// A ring for commands with 80 bytes of their own to this file, and nothing else; and whose privileges it keeps.
fn make_ring(
    file: &File,
    privileges: Privileges,
) -> io::Result<(IoUring<squeue::Entry128, cqueue::Entry>, u16)> {
    let mut ring: IoUring<squeue::Entry128, cqueue::Entry> =
        IoUring::builder().dontfork().setup_r_disabled().build(4)?;
    ring.submitter().register_files(&[file.as_raw_fd()])?;
    let personality = match privileges {
        Privileges::OfWhoAsks => 0,
        Privileges::Kept => ring.submitter().register_personality()?,
    };
    restrict(&mut ring, &[opcode::UringCmd80::CODE], true)?;
    Ok((ring, personality))
}

fn default_queues() -> u16 {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    u16::try_from(processors).unwrap_or(QUEUES).min(QUEUES)
}

pub(super) fn failed(what: &str, number: u32, error: Errno) -> Error {
    Error::io(format!("cannot {what} the ublk device {number}"), error)
}
