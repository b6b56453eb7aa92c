//! The volume as one file through FUSE, and from there a loop device and a
//! mounted file system.
//!
//! The daemon of `xtent mount` calls, in this order: [`check`] (before it asks
//! for a passphrase), [`Mount::new`] with the open volume, then reports that
//! it is ready, and stays in [`Mount::wait`]. A signal thread holds the
//! [`Stop`]. `xtent umount` calls [`umount`], in another process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use xtent_volume::Volume;

use crate::Error;

/// Name of the one file in the FUSE directory.
pub const FILE_NAME: &str = "volume";

/// What to mount where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The encrypted device or image: names the mount in `/proc/mounts` and
    /// finds what a killed daemon left behind. Never opened here.
    pub device: PathBuf,
    /// Where the user wants the file system; with `file_only` the FUSE
    /// directory itself.
    pub dir: PathBuf,
    /// Serve [`FILE_NAME`] in `dir` and nothing else.
    pub file_only: bool,
    /// `mount -t`; found out by `mount` if absent.
    pub fstype: Option<String>,
    /// `mount -o`, passed through.
    pub mount_options: Option<String>,
}

/// What a [`Mount`] offers, for the message to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// The plaintext as one file: the file's path.
    File(PathBuf),
    /// A mounted file system.
    FileSystem {
        /// Where.
        dir: PathBuf,
        /// The loop device under it.
        loop_device: PathBuf,
    },
}

/// A served volume: FUSE file, and where asked for the loop device and the
/// mounted file system on it. Dropping it undoes everything, forcibly if it
/// must; [`Mount::wait`] is the way to end well.
pub struct Mount {
    _todo: (),
}

/// Everything that can be found out before the volume is open: `dir` is a
/// directory and no mount point, FUSE (and loop) are there, no other daemon
/// serves `dir`. Cleans up after a killed daemon on the same `dir` or device;
/// what it did comes back as warnings for the user.
pub fn check(_options: &Options) -> Result<Vec<String>, Error> {
    todo!()
}

impl Mount {
    /// Serves `volume`, in threads of its own; on return it is usable. Calls
    /// [`check`] first. Call it in the process that will serve (after any
    /// fork). Without privilege for loop devices it serves the file only, and
    /// [`Mount::warnings`] says so.
    pub fn new(_volume: Arc<Volume>, _options: &Options) -> Result<Self, Error> {
        todo!()
    }
    /// What is offered, for the message to the user.
    pub fn served(&self) -> &Served {
        todo!()
    }
    /// What the user should know although it worked.
    pub fn warnings(&self) -> &[String] {
        todo!()
    }
    /// A handle for a signal thread.
    pub fn stop(&self) -> Stop {
        todo!()
    }
    /// Serves until it is unmounted ([`umount`], `umount`, `fusermount3 -u`)
    /// or stopped, then undoes what is left and flushes the volume. An error
    /// means that data may not be durable.
    pub fn wait(self) -> Result<(), Error> {
        todo!()
    }
}

/// Asks a [`Mount`] to end. The first request is refused, with a warning in
/// the log, while files are in use; the second forces it.
#[derive(Clone)]
pub struct Stop {
    _todo: (),
}

impl Stop {
    /// Asks. Returns at once; may be called from any thread, any time.
    pub fn request(&self) {
        todo!()
    }
}

/// How [`umount`] behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct UmountOptions {
    /// Detach a busy file system now; the volume is closed when its last user
    /// is gone (`umount --lazy`).
    pub lazy: bool,
}

/// Undoes [`Mount::new`] from another process, from any state, and waits for
/// the daemon's last flush. Cleans up after a killed daemon. Returns warnings
/// for the user.
///
/// Errors: [`crate::ErrorKind::NotMounted`]; [`crate::ErrorKind::Busy`], with
/// the names of those who use it; [`crate::ErrorKind::Volume`] if the daemon's
/// last flush failed.
pub fn umount(_dir: &Path, _options: UmountOptions) -> Result<Vec<String>, Error> {
    todo!()
}
