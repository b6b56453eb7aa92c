//! Undoing a mount from another process, whether its daemon lives or not.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

use xtent_store::chain;

use super::file_system::{FileSystem, busy, mountinfo_failed};
use super::record::{self, State};
use super::stale::{attached, clean, lost};
use super::state::{self, Claim, Found, StateDir};
use super::{refuse, resolve};
use crate::fuse::{connection, fail};
use crate::mountinfo::Device;
use crate::{Error, ErrorKind, mountinfo, users};

/// How long the loop device may stay attached after the last visible unmount.
const DETACH: Duration = Duration::from_secs(10);

/// How [`umount`] behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct UmountOptions {
    /// Detach a busy file system now; the volume is closed when its last user
    /// is gone (`umount --lazy`).
    pub lazy: bool,
    /// Give up a mount that waits for its next daemon (`umount --force`).
    pub force: bool,
}

/// What [`umount`] has undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmounted {
    /// Where it was mounted.
    pub dir: PathBuf,
    /// The encrypted device or image, where it is known.
    pub device: Option<PathBuf>,
    /// Whether the volume is closed: not yet where somebody still uses what was
    /// detached, and not known where there is no state.
    pub is_closed: bool,
    /// What the user should know although it worked.
    pub warnings: Vec<String>,
}

/// Undoes [`Mount::new`](super::Mount::new) from another process, from any
/// state, and waits for the daemon's last flush. Cleans up after a killed
/// daemon; of one whose file system waits for the next daemon with [`UmountOptions::force`] only. `place` is the folder it is mounted on, or the device or image.
///
/// Errors: [`ErrorKind::NotMounted`]; [`ErrorKind::Busy`], with the names of
/// those who use it; [`ErrorKind::Argument`] for a device that is mounted in several
/// places; [`ErrorKind::Io`] if the daemon's last flush failed.
pub fn umount(place: &Path, options: UmountOptions) -> Result<Unmounted, Error> {
    let place = resolve(place)?;
    match only(&place, |s| s.dir == place || s.device == place)? {
        Some(found) => undo(found, options),
        None => without_state(&place, options),
    }
}

/// The same for a device that is no file, such as an export of a server; `is_same` says whether a mount's
/// device is the one that is named.
///
/// Errors: as of [`umount`].
pub fn umount_device(
    name: &Path,
    is_same: impl Fn(&Path) -> bool,
    options: UmountOptions,
) -> Result<Unmounted, Error> {
    match only(name, |state| is_same(&state.device))? {
        Some(found) => undo(found, options),
        None => Err(not_mounted(name)),
    }
}

/// The one mount that is wanted, if there is one.
fn only(place: &Path, wanted: impl Fn(&State) -> bool) -> Result<Option<(State, Found)>, Error> {
    let mut found = StateDir::open()?.find(wanted)?;
    if found.len() > 1 {
        let dirs: Vec<_> = found
            .iter()
            .map(|(state, _)| state.dir.display().to_string())
            .collect();
        return Err(refuse(
            ErrorKind::Argument,
            format!(
                "{} is mounted on {}: give one of these folders",
                place.display(),
                dirs.join(" and ")
            ),
        ));
    }
    Ok(found.pop())
}

fn undo((state, found): (State, Found), options: UmountOptions) -> Result<Unmounted, Error> {
    let (is_closed, warnings) = match found {
        Found::Alive(path) => {
            let warnings = with_daemon(&state, &path, options)?;
            (warnings.is_empty(), warnings)
        }
        Found::Dead(claim) => (true, end(&state, claim, options.force)?),
    };
    Ok(Unmounted {
        dir: state.dir,
        device: Some(state.device),
        is_closed,
        warnings,
    })
}

/// Cleans up after a daemon that is gone, and reports its last words.
fn end(state: &State, claim: Claim, force: bool) -> Result<Vec<String>, Error> {
    let warnings = clean(state, claim, force)?;
    match &state.failure {
        Some(failure) => Err(refuse(ErrorKind::Io, failure.clone())),
        None => Ok(warnings),
    }
}

/// What a file system of the mount with directory `path` may be on.
fn devices(state: &State, path: &Path) -> Result<Vec<Device>, Error> {
    match &state.ublk {
        Some(ublk) => Ok(ublk.device.iter().cloned().collect()),
        None => {
            let loops = attached(&state::fuse_dir(path))?;
            Ok(loops.into_iter().map(Device::of_loop).collect())
        }
    }
}

/// The file system that is mounted.
fn file_system(state: &State, path: &Path) -> Result<Option<FileSystem>, Error> {
    for device in devices(state, path)? {
        let file_system = FileSystem {
            dir: state.dir.clone(),
            device,
        };
        if file_system.is_mounted().map_err(mountinfo_failed)? {
            return Ok(Some(file_system));
        }
    }
    Ok(None)
}

fn with_daemon(state: &State, path: &Path, options: UmountOptions) -> Result<Vec<String>, Error> {
    if !state.ready {
        return Err(refuse(
            ErrorKind::Busy,
            format!(
                "{} is being mounted just now; try again when that is done",
                state.dir.display()
            ),
        ));
    }
    let mut warnings = Vec::new();
    let lazily = |e: Error, warnings: &mut Vec<String>| {
        if e.kind != ErrorKind::Busy || !options.lazy {
            return Err(e);
        }
        warnings.push(format!(
            "{}: the volume is closed when they are done",
            chain(&e)
        ));
        Ok(())
    };
    if state.file_only {
        if connection::is_mounted(&state.dir, &state.device).map_err(mountinfo_failed)?
            && let Err(e) = connection::unmount(&state.dir, false)
        {
            lazily(busy(e, &state.dir), &mut warnings)?;
            connection::unmount(&state.dir, true).map_err(|e| busy(e, &state.dir))?;
        }
    } else if let Some(file_system) = file_system(state, path)?
        && let Err(e) = file_system.unmount(false)
    {
        lazily(e, &mut warnings)?;
        file_system.unmount(true)?;
    }
    // In lazy mode those who are busy may take any time.
    if warnings.is_empty() {
        wait_for_daemon(state, path)?;
    }
    Ok(warnings)
}

/// Waits until the daemon has flushed and is gone. Its lock says so; its
/// process number only saves asking too often.
fn wait_for_daemon(state: &State, path: &Path) -> Result<(), Error> {
    let failed = |e| {
        fail(
            ErrorKind::Io,
            format!("cannot look at the state in {}", path.display()),
            e,
        )
    };
    let started = Instant::now();
    let process = Pid::from_raw(i32::try_from(state.pid).unwrap_or(0))
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    loop {
        match state::status(path.to_owned()).map_err(failed)? {
            None => {
                exited(state, process.as_ref());
                return Ok(());
            }
            Some(Found::Dead(claim)) => {
                exited(state, process.as_ref());
                return match record::read(path) {
                    Some(state) if state.failure.is_none() => {
                        // It would have said that it ended.
                        end(&state, claim, false)?;
                        Err(refuse(ErrorKind::Io, lost(&state)))
                    }
                    Some(state) => end(&state, claim, false).map(drop),
                    None => {
                        claim.remove();
                        Ok(())
                    }
                };
            }
            Some(Found::Alive(_)) => {}
        }
        if started.elapsed() > DETACH
            && !state.file_only
            && let Some(device) = devices(state, path)?.first()
        {
            let users = users::of(&device.path);
            return Err(refuse(
                ErrorKind::Busy,
                format!(
                    "{} is unmounted here, but {} under it is still in use{}{}; \
                     the volume stays open until that ends",
                    state.dir.display(),
                    device.path.display(),
                    if users.is_empty() {
                        ", perhaps mounted elsewhere"
                    } else {
                        " by "
                    },
                    users
                ),
            ));
        }
        pause(process.as_ref());
    }
}

/// Waits a little for a daemon that is done to end, and so to let go of the
/// device: then it can be mounted again at once.
fn exited(state: &State, process: Option<&OwnedFd>) {
    if let Some(process) = process
        && state.pid != std::process::id()
    {
        let timeout = Timespec {
            tv_sec: 5,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
    }
}

/// Until the process ends, and no longer than it takes to notice that it is
/// not the one.
fn pause(process: Option<&OwnedFd>) {
    let timeout = |nanoseconds| Timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    };
    match process {
        Some(process) => {
            let mut fds = [PollFd::new(process, PollFlags::IN)];
            let ended = rustix::event::poll(&mut fds, Some(&timeout(100_000_000)));
            if ended != Ok(0) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        None => std::thread::sleep(Duration::from_millis(50)),
    }
}

/// There is no state: removed by hand, or somebody else's.
fn without_state(dir: &Path, options: UmountOptions) -> Result<Unmounted, Error> {
    let entry = mountinfo::at(dir).map_err(mountinfo_failed)?;
    if let Some(entry) = entry.filter(|e| e.fstype == connection::FSTYPE) {
        // The daemon, if any, ends by itself.
        connection::unmount(dir, options.lazy).map_err(|e| busy(e, dir))?;
        return Ok(Unmounted {
            dir: dir.to_owned(),
            device: Some(entry.source.into()),
            is_closed: false,
            warnings: vec![format!(
                "no state of the mount on {} was found; unmounted it without waiting for its daemon",
                dir.display()
            )],
        });
    }
    Err(not_mounted(dir))
}

fn not_mounted(place: &Path) -> Error {
    let hint = if rustix::process::geteuid().is_root() {
        ""
    } else {
        " by this user; if it was root, run this as root"
    };
    refuse(
        ErrorKind::NotMounted,
        format!("{}: nothing that xtent mounted{hint}", place.display()),
    )
}
