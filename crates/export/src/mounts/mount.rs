//! A served volume from its first check to its last flush: FUSE, loop device,
//! file system.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::thread::CapabilitySet;
use xtent_store::Place;
use xtent_store::chain;
use xtent_volume::{DiscardPolicy, Volume};

use super::file_system::{FileSystem, Options, busy, mountinfo_failed};
use super::state::{Claim, Found, State, StateDir, VERSION};
use super::{FILE_NAME, refuse, resolve, stale};
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
}

/// A served volume: FUSE file, and where asked for the loop device and the
/// mounted file system on it. [`Mount::wait`] is the way to end; dropped
/// instead, it is unmounted, lazily where it is busy.
pub struct Mount {
    // Dropped in this order.
    file_system: Option<FileSystem>,
    fuse: Option<FuseMount>,
    claim: Option<Claim>,
    state: State,
    served: Served,
    warnings: Vec<String>,
    events: Receiver<Event>,
    sender: Sender<Event>,
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
#[derive(Clone, Debug)]
pub struct Growth {
    /// The plaintext.
    file: PathBuf,
    /// Number of the loop device on it.
    loop_device: Option<u32>,
}

impl Growth {
    /// From now on the file has the volume's size, and so has the loop device on
    /// it. A file system there grows by its own tool (resize2fs, xfs_growfs).
    pub fn tell(&self) -> io::Result<()> {
        // Sizes are kept for a day unless somebody insists.
        let flags = AtFlags::STATX_FORCE_SYNC;
        rustix::fs::statx(rustix::fs::CWD, &self.file, flags, StatxFlags::SIZE)?;
        match self.loop_device {
            Some(number) => xtent_store::loopdev::take_size(number, &self.file),
            None => Ok(()),
        }
    }
}

/// Everything that can be found out before the volume is open: `dir` is a
/// directory and no mount point, and no other daemon serves it. Cleans up
/// after a killed daemon on the same `dir` or device; what it did comes back
/// as warnings for the user.
///
/// Errors: [`ErrorKind::Argument`], [`ErrorKind::Busy`],
/// [`ErrorKind::Permission`] (also for a file system where [`may_mount`] says no),
/// [`ErrorKind::Io`] (the device cannot be found).
pub fn check(options: &Options) -> Result<Vec<String>, Error> {
    if !options.file_only && !may_mount() {
        return Err(refuse(
            ErrorKind::Permission,
            "mounting a file system requires root",
        ));
    }
    let dir = resolve(&options.dir)?;
    let device = absolute(&options.device)?;
    for path in [&dir, &device] {
        if path.to_str().is_none() {
            return Err(refuse(
                ErrorKind::Argument,
                format!("{}: the name is not UTF-8", path.display()),
            ));
        }
    }
    let states = StateDir::open()?;
    let mut warnings = Vec::new();
    for (state, found) in states.find(|s| s.dir == dir || s.device == device)? {
        match found {
            Found::Dead(claim) => {
                warnings.extend(stale::clean(&state, claim)?);
                warnings.extend(state.failure);
            }
            Found::Alive(_) if state.dir == dir => {
                return Err(refuse(
                    ErrorKind::Busy,
                    format!(
                        "{} is on {} already; `xtent umount` it first",
                        state.device.display(),
                        dir.display()
                    ),
                ));
            }
            // Whether a device may be served twice is its lock's affair.
            Found::Alive(_) => {}
        }
    }
    states.remove_empty(&dir);

    if let Some(entry) = mountinfo::at(&dir).map_err(mountinfo_failed)? {
        return Err(refuse(
            ErrorKind::Busy,
            format!(
                "{} is a mount point already, of {} ({})",
                dir.display(),
                entry.source.display(),
                entry.fstype
            ),
        ));
    }
    let metadata = std::fs::metadata(&dir)
        .map_err(|e| fail(ErrorKind::Argument, format!("{}", dir.display()), e))?;
    if !metadata.is_dir() {
        return Err(refuse(
            ErrorKind::Argument,
            format!("{} is not a directory", dir.display()),
        ));
    }
    if std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
        warnings.push(format!(
            "{} is not empty: what it holds is hidden until the volume is unmounted",
            dir.display()
        ));
    }
    Ok(warnings)
}

impl Mount {
    /// Serves `volume`, in threads of its own; on return it is usable. Calls
    /// [`check`] first. Call it in the process that will serve (after any
    /// fork). [`ErrorKind::NotMountable`] if mount(8) refuses what is on the volume.
    pub fn new(volume: Arc<Volume>, options: &Options) -> Result<Self, Error> {
        let mut warnings = check(options)?;
        let file_only = options.file_only;
        let state = State {
            version: VERSION,
            dir: resolve(&options.dir)?,
            device: absolute(&options.device)?,
            pid: std::process::id(),
            file_only,
            ready: false,
            failure: None,
        };
        let (sender, events) = channel();
        let claim = StateDir::open()?.claim(&state)?;
        let fuse_dir = if file_only {
            Ok(state.dir.clone())
        } else {
            claim.make_fuse_dir()
        };
        let file = state.dir.join(FILE_NAME);
        if !file_only && volume.discard_policy() == DiscardPolicy::Allow {
            warnings.push(
                "discards do not reach the disk through a mount: loop devices cannot tell them \
                 from writes of zeros"
                    .into(),
            );
        }
        let mut mount = Self {
            file_system: None,
            fuse: None,
            claim: Some(claim),
            state,
            served: Served::File(file),
            warnings,
            events,
            sender,
        };
        // From here on, dropping `mount` undoes what was done.
        let holes = if file_only {
            Holes::Refused
        } else {
            Holes::Written
        };
        let device = &mount.state.device;
        let fuse = FuseMount::new(volume, &fuse_dir?, device, holes, &mount.sender)?;
        let fuse = mount.fuse.insert(fuse);
        if !file_only {
            let file_system = FileSystem::mount(fuse, &mount.state.dir, options)?;
            mount.served = Served::FileSystem {
                dir: mount.state.dir.clone(),
                loop_device: PathBuf::from(format!("/dev/loop{}", file_system.number)),
            };
            mount.file_system = Some(file_system);
        }
        mount.state.ready = true;
        if let Some(claim) = &mount.claim {
            claim.save(&mount.state)?;
        }
        Ok(mount)
    }

    /// What is offered, for the message to the user.
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// What the user should know although it worked.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A handle for a signal thread.
    pub fn stop(&self) -> Stop {
        Stop(self.sender.clone())
    }

    /// A handle for whoever lets the volume grow; none once it has ended.
    pub fn growth(&self) -> Option<Growth> {
        Some(Growth {
            file: self.fuse.as_ref()?.file(),
            loop_device: self.file_system.as_ref().map(|it| it.number),
        })
    }

    /// Serves until it is unmounted ([`umount`](fn@super::umount), umount(8),
    /// fusermount3(1)) or stopped, then undoes what is left and flushes the
    /// volume. An error means that data may not be durable.
    pub fn wait(mut self) -> Result<(), Error> {
        let result = match self.fuse.take() {
            Some(fuse) => self.serve(fuse),
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

    fn serve(&self, fuse: FuseMount) -> Result<(), Error> {
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
                Some(Event::Ended) => return fuse.finish(),
                // The loop device has let go of the file: the file system was
                // unmounted, by whomever.
                Some(Event::Closed) if self.file_system.is_some() && fuse.openers() == 0 => {
                    if let Err(e) = fuse.unmount_soon().or_else(|_| fuse.unmount(true)) {
                        tracing::error!(error = %e, "cannot unmount FUSE");
                    }
                }
                Some(Event::Closed) => {}
                Some(Event::Stop) => {
                    stops += 1;
                    let forced = stops > 1;
                    match self.take_down(&fuse, forced) {
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
                    if self.file_system.is_some() {
                        let _ = fuse.unmount(true);
                    }
                    return fuse.abandon();
                }
            }
        }
    }

    /// Starts the end: what follows comes as events.
    fn take_down(&self, fuse: &FuseMount, forced: bool) -> Result<(), Error> {
        match &self.file_system {
            Some(file_system) => file_system.unmount(forced),
            None => fuse.unmount(forced).map_err(|e| busy(e, &self.state.dir)),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // After `wait` all three are gone.
        if let Some(file_system) = self.file_system.take()
            && let Err(e) = file_system
                .unmount(false)
                .or_else(|_| file_system.unmount(true))
        {
            tracing::error!("{}", chain(&e));
        }
        drop(self.fuse.take());
        if let Some(claim) = self.claim.take() {
            claim.remove();
        }
    }
}

/// Whether this process may mount file systems (`CAP_SYS_ADMIN`). FUSE itself
/// takes no more than `fusermount3`.
pub fn may_mount() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn absolute(device: &Place) -> Result<PathBuf, Error> {
    let device = match device {
        Place::Path(path) => path,
        Place::Uri(_) | Place::Image(_) => return Ok(device.name().to_owned()),
    };
    device.canonicalize().map_err(|e| {
        fail(
            ErrorKind::Io,
            format!("cannot find {}", device.display()),
            e,
        )
    })
}
