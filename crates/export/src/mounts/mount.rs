//! A served volume from its first check to its last flush.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use xtent_store::chain;
use xtent_volume::{DiscardPolicy, Volume};

use super::check::{absolute, check};
use super::device::Device;
use super::file_system::{self, FileSystem, Options, busy, mountinfo_failed};
use super::record::State;
use super::state::{Claim, StateDir};
use super::{FILE_NAME, resolve};
use crate::fuse::{Event, FuseMount, Holes, fail};
use crate::{Error, ErrorKind, mountinfo};

/// How long a forced stop waits for the file's last user.
const FORCED: Duration = Duration::from_secs(2);

/// What a [`Mount`] offers, for the message to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// The plaintext as one file: the file's path.
    File(PathBuf),
    /// A mounted file system.
    FileSystem {
        /// The folder it is mounted on.
        dir: PathBuf,
        /// The loop device under it.
        loop_device: PathBuf,
    },
    /// A mounted file system, by ublk.
    ByUblk {
        /// The folder it is mounted on.
        dir: PathBuf,
        /// The device under it.
        device: PathBuf,
    },
}

/// A served volume, and the mounted file system on it where that was asked for.
/// [`Mount::wait`] is the way to end; dropped
/// instead, it is unmounted, lazily where it is busy.
pub struct Mount {
    // Dropped in this order.
    pub(super) file_system: Option<FileSystem>,
    pub(super) under: Option<Under>,
    claim: Option<Claim>,
    state: State,
    pub(super) warnings: Vec<String>,
    events: Receiver<Event>,
    sender: Sender<Event>,
}

/// What a file system is mounted from, or the file that is offered alone.
pub(super) enum Under {
    Fuse {
        fuse: FuseMount,
        /// Number of the loop device on its file.
        loop_device: Option<u32>,
    },
    Ublk(Box<Device>),
}

impl Under {
    /// Whether what let go of it was its last user.
    fn is_unused(&self) -> bool {
        match self {
            Self::Fuse { fuse, .. } => fuse.openers() == 0,
            Self::Ublk(_) => true,
        }
    }

    /// Starts its end.
    fn end(&mut self) -> Result<(), Error> {
        match self {
            Self::Fuse { fuse, .. } => fuse
                .unmount_soon()
                .or_else(|_| fuse.unmount(true))
                .map_err(|e| fail(ErrorKind::Io, "cannot unmount FUSE", e)),
            Self::Ublk(device) => device.end(),
        }
    }

    /// Waits for its end, with the last flush.
    fn finish(self) -> Result<(), Error> {
        match self {
            Self::Fuse { fuse, .. } => fuse.finish(),
            Self::Ublk(device) => device.finish(),
        }
    }

    /// Takes it from its users.
    fn abandon(self) -> Result<(), Error> {
        match self {
            Self::Fuse { fuse, loop_device } => {
                if loop_device.is_some() {
                    let _ = fuse.unmount(true);
                }
                fuse.abandon()
            }
            Self::Ublk(device) => device.abandon(),
        }
    }
}

/// Asks a [`Mount`] to end. The first request is refused, with a warning in
/// the log, while files are in use; the second forces it.
#[derive(Clone)]
pub struct Stop(Sender<Event>);

impl Stop {
    /// Asks. Returns at once; may be called from any thread, any time. Not
    /// from a signal handler: catch signals in a thread.
    pub fn request(&self) {
        // The mount has ended already if nobody listens.
        let _ = self.0.send(Event::Stop);
    }
}

/// Tells the kernel that the volume of a [`Mount`] has grown.
pub struct Growth(Told);

enum Told {
    File {
        /// The plaintext.
        file: PathBuf,
        /// Number of the loop device on it.
        loop_device: Option<u32>,
    },
    Device(Box<crate::ublk::Growth>),
}

impl Growth {
    /// From now on the file, and the loop device on it, have the volume's size, or the kernel's device has, which is so
    /// many bytes. A file system there grows by its own tool (resize2fs, xfs_growfs).
    pub fn tell(&self, bytes: u64) -> Result<(), Error> {
        match &self.0 {
            Told::File { file, loop_device } => tell_file(file, *loop_device),
            Told::Device(growth) => growth.tell(bytes),
        }
    }
}

fn tell_file(file: &Path, loop_device: Option<u32>) -> Result<(), Error> {
    let refused = |e| {
        fail(
            ErrorKind::Io,
            "the kernel does not take the volume's new size",
            e,
        )
    };
    // Sizes are kept for a day unless somebody insists.
    let flags = AtFlags::STATX_FORCE_SYNC;
    match rustix::fs::statx(rustix::fs::CWD, file, flags, StatxFlags::SIZE) {
        Ok(_) => {}
        // The file has no name any more, though somebody may have it open.
        Err(Errno::NOENT | Errno::NOTCONN) => {
            return Err(Error {
                kind: ErrorKind::Busy,
                message: "the mount is ending, and takes no new size any more".to_owned(),
                source: None,
            });
        }
        Err(error) => return Err(refused(error.into())),
    }
    match loop_device {
        Some(number) => xtent_store::loopdev::take_size(number, file).map_err(refused),
        None => Ok(()),
    }
}

impl Mount {
    pub(super) fn of(
        claim: Option<Claim>,
        state: State,
        (sender, events): (Sender<Event>, Receiver<Event>),
    ) -> Self {
        Self {
            file_system: None,
            under: None,
            claim,
            state,
            warnings: Vec::new(),
            events,
            sender,
        }
    }

    /// Serves `volume` by FUSE, in threads of its own; on return it is usable. Calls
    /// [`check`] first. Call it in the process that will serve (after any
    /// fork). [`ErrorKind::NotMountable`] if mount(8) refuses what is on the volume.
    pub fn new(volume: Arc<Volume>, options: &Options) -> Result<Self, Error> {
        let mut warnings = check(options)?;
        let file_only = options.file_only;
        let dir = resolve(&options.dir)?;
        let state = State::new(dir, absolute(&options.device)?, file_only);
        let claim = StateDir::open()?.claim(&state)?;
        let fuse_dir = match file_only {
            true => Ok(state.dir.clone()),
            false => claim.make_fuse_dir(),
        };
        if !file_only && volume.discard_policy() == DiscardPolicy::Allow {
            warnings.push(
                "discards do not reach the disk through FUSE: loop devices cannot tell them \
                 from writes of zeros"
                    .into(),
            );
        }
        let mut mount = Self::of(Some(claim), state, channel());
        mount.warnings = warnings;
        // From here on, dropping `mount`, and `fuse` before it, undoes what was done.
        let holes = match file_only {
            true => Holes::Refused,
            false => Holes::Written,
        };
        let device = &mount.state.device;
        let fuse = FuseMount::new(volume, &fuse_dir?, device, holes, &mount.sender)?;
        let mut loop_device = None;
        if !file_only {
            let attached = file_system::attach(&fuse)?;
            let read_only = fuse.volume().is_read_only();
            let device = mountinfo::Device::of_loop(attached.number());
            let dir = &mount.state.dir;
            mount.file_system = Some(FileSystem::mount(device, read_only, dir, options)?);
            loop_device = Some(attached.number());
            // It is closed here: the mounted file system alone holds it.
        }
        mount.under = Some(Under::Fuse { fuse, loop_device });
        mount.is_ready()?;
        Ok(mount)
    }

    /// From now on others may unmount it.
    pub(super) fn is_ready(&mut self) -> Result<(), Error> {
        self.state.ready = true;
        match &self.claim {
            Some(claim) => claim.save(&self.state),
            None => Ok(()),
        }
    }

    /// What is offered, for the message to the user.
    pub fn served(&self) -> Served {
        match (&self.file_system, &self.under) {
            (Some(file_system), Some(Under::Ublk(_))) => Served::ByUblk {
                dir: file_system.dir.clone(),
                device: file_system.device.path.clone(),
            },
            (Some(file_system), _) => Served::FileSystem {
                dir: file_system.dir.clone(),
                loop_device: file_system.device.path.clone(),
            },
            (None, _) => Served::File(self.state.dir.join(FILE_NAME)),
        }
    }

    /// Whether a lookup of the folder ends in it: what a killed daemon has left may be mounted elsewhere only, or
    /// nowhere any more.
    pub fn is_there(&self) -> Result<bool, Error> {
        match &self.file_system {
            Some(file_system) => file_system.is_mounted().map_err(mountinfo_failed),
            None => Ok(true),
        }
    }

    /// What the user should know although it worked.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A handle for a signal thread.
    pub fn stop(&self) -> Stop {
        Stop(self.sender.clone())
    }

    /// A handle for whoever lets the volume grow; none for a device of ublk that keeps its size, as it does before
    /// Linux 6.16.
    pub fn growth(&self) -> Option<Growth> {
        match &self.under {
            Some(Under::Fuse { fuse, loop_device }) => Some(Growth(Told::File {
                file: fuse.file(),
                loop_device: *loop_device,
            })),
            Some(Under::Ublk(device)) => device
                .growth()
                .map(|growth| Growth(Told::Device(Box::new(growth)))),
            None => None,
        }
    }

    /// Serves until it is unmounted ([`umount`](fn@super::umount), umount(8),
    /// fusermount3(1)) or stopped, then undoes what is left and flushes the
    /// volume. An error means that data may not be durable.
    pub fn wait(mut self) -> Result<(), Error> {
        let result = match self.under.take() {
            Some(under) => self.serve(under),
            None => Ok(()),
        };
        // Nothing of it is mounted any more, except by force.
        self.file_system = None;
        if let Some(claim) = self.claim.take() {
            match &result {
                Ok(()) => claim.remove(),
                // For `umount`, which waits for this process.
                Err(e) => {
                    self.state.failure = Some(chain(e).to_string());
                    if let Err(e) = claim.save(&self.state) {
                        tracing::error!("{}", chain(&e));
                    }
                }
            }
        }
        result
    }

    fn serve(&self, mut under: Under) -> Result<(), Error> {
        let mut stops = 0;
        let mut give_up: Option<Instant> = None;
        loop {
            let event = match give_up {
                None => self.events.recv().ok(),
                Some(at) => self
                    .events
                    .recv_timeout(at.saturating_duration_since(Instant::now()))
                    .ok(),
            };
            match event {
                Some(Event::Ended) => return under.finish(),
                // The loop device has let go of the file, or nobody has a claim on the kernel's
                // device: the file system was unmounted, by whomever.
                Some(Event::Closed) if self.file_system.is_some() && under.is_unused() => {
                    if let Err(e) = under.end() {
                        tracing::error!("{}", chain(&e));
                    }
                }
                Some(Event::Closed) => {}
                Some(Event::Stop) => {
                    stops += 1;
                    let forced = stops > 1;
                    match self.take_down(&under, forced) {
                        Ok(()) if forced => give_up = Some(Instant::now() + FORCED),
                        Ok(()) => {}
                        Err(e) => {
                            tracing::warn!("not stopped: {}; a second signal forces it", chain(&e))
                        }
                    }
                }
                // Forced, and still in use.
                None => {
                    tracing::warn!(
                        "stopped while {} was in use: what its users had not synced is lost",
                        self.state.dir.display()
                    );
                    return under.abandon();
                }
            }
        }
    }

    /// Starts the end: what follows comes as events.
    fn take_down(&self, under: &Under, forced: bool) -> Result<(), Error> {
        match (&self.file_system, under) {
            (Some(file_system), _) => file_system.unmount(forced),
            (None, Under::Fuse { fuse, .. }) => {
                fuse.unmount(forced).map_err(|e| busy(e, &self.state.dir))
            }
            (None, Under::Ublk(_)) => Ok(()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // What waited for this process waits for the next one.
        if let Some(Under::Ublk(device)) = &self.under
            && device.is_taken_over()
        {
            return;
        }
        // After `wait` all three are gone.
        if let Some(file_system) = self.file_system.take()
            && let Err(e) = file_system
                .unmount(false)
                .or_else(|_| file_system.unmount(true))
        {
            tracing::error!("{}", chain(&e));
        }
        drop(self.under.take());
        if let Some(claim) = self.claim.take() {
            claim.remove();
        }
    }
}
