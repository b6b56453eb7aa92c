//! The control socket of a server, from both sides: `control/PID.sock` in the runtime folder of
//! the user who started it.

mod adopt;
mod ask;
mod serve;

use std::path::{Path, PathBuf};

pub(crate) use ask::{Server, told_of};
pub(crate) use serve::{Control, Rules, StandbyControl};

use crate::failure::{Exit, Failure};

/// The folder of servers' sockets.
fn folder(runtime: &Path) -> PathBuf {
    runtime.join("control")
}

/// The folder of the sockets of mounts and block devices, which take no volumes: nobody is to mistake one for a
/// server.
fn folder_of_mounts(runtime: &Path) -> PathBuf {
    runtime.join("control-mounts")
}

/// The socket of a process in a folder.
fn socket(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}.sock"))
}

impl From<xtent_control::Error> for Failure {
    fn from(error: xtent_control::Error) -> Self {
        let failure = Self::new(Exit::Device, error.message);
        match error.source {
            Some(source) => failure.because(source),
            None => failure,
        }
    }
}
