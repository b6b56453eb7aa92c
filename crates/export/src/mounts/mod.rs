//! Mounted volumes: the FUSE file, and a file system mounted from a loop device on it, or from a
//! block device of the kernel's ublk.
//!
//! The daemon of `xtent mount` calls, in this order: [`check()`] (before it asks
//! for a passphrase), [`Mount::new`] with the open volume, then reports that
//! it is ready, and stays in [`Mount::wait`]. A signal thread holds the
//! [`Stop`]. `xtent umount` calls [`umount()`], in another process.
//!
//! By ublk it is [`Reserved::waiting`], which finds what a killed daemon's mount waits for, or [`check()`];
//! then [`Reserved::new`], the making of the device, and [`Reserved::mount`].

mod check;
mod device;
mod file_system;
mod mount;
mod options;
mod record;
mod reserved;
mod stale;
mod state;
mod umount;
mod unused;

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::fuse::fail;
use crate::{Error, ErrorKind};

pub use crate::fuse::FILE_NAME;
pub use check::{check, may_mount};
pub use device::Started;
pub use file_system::Options;
pub use mount::{Growth, Mount, Served, Stop};
pub use options::refused_option;
pub use reserved::Reserved;
pub use umount::{UmountOptions, Unmounted, umount, umount_device};

/// A loop device that cannot be had, and what goes without.
fn no_loop_device(error: xtent_store::Error) -> Error {
    use xtent_store::ErrorKind as Store;
    let kind = match error.kind {
        Store::Permission => ErrorKind::Permission,
        Store::NotFound | Store::Unsupported => ErrorKind::Unsupported,
        Store::Busy => ErrorKind::Busy,
        _ => ErrorKind::Io,
    };
    Error {
        kind,
        message: "cannot get a loop device; --file-only goes without".into(),
        source: Some(error.into()),
    }
}

fn refuse(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error {
        kind,
        message: message.into(),
        source: None,
    }
}

/// The absolute path of a mount point, as `/proc/self/mountinfo` has it; also
/// of one whose FUSE daemon is dead, which nobody can look into.
fn resolve(dir: &Path) -> Result<PathBuf, Error> {
    let failed = |e: io::Error| {
        let message = format!("cannot find the directory {}", dir.display());
        fail(ErrorKind::Argument, message, e)
    };
    let dead = |e: &io::Error| Errno::from_io_error(e) == Some(Errno::NOTCONN);
    match dir.canonicalize() {
        Err(e) if dead(&e) => {
            let name = dir.file_name().ok_or_else(|| {
                refuse(
                    ErrorKind::Argument,
                    format!("{}: give the directory by its name", dir.display()),
                )
            })?;
            let parent = dir.parent().filter(|p| !p.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            Ok(parent.canonicalize().map_err(failed)?.join(name))
        }
        other => other.map_err(failed),
    }
}
