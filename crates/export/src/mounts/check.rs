//! What is found out before a volume is open.

use std::path::PathBuf;

use rustix::thread::CapabilitySet;
use xtent_store::Place;

use super::file_system::{Options, mountinfo_failed};
use super::state::{Found, StateDir};
use super::{refuse, resolve, stale};
use crate::fuse::fail;
use crate::{Error, ErrorKind, mountinfo};

/// Everything that can be found out before the volume is open: `dir` is a
/// directory and no mount point, and no other daemon serves it. Cleans up
/// after a killed daemon on the same `dir` or device; what it did comes back
/// as warnings for the user. One whose device [waits](super::Reserved::waiting) is not
/// cleaned up after: that is [`ErrorKind::Busy`].
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
                warnings.extend(stale::clean(&state, claim, false)?);
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

/// Whether this process may mount file systems (`CAP_SYS_ADMIN`). FUSE itself
/// takes no more than `fusermount3`.
pub fn may_mount() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

pub(super) fn absolute(device: &Place) -> Result<PathBuf, Error> {
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
