//! The volume as one file through FUSE.

pub(crate) mod connection;
mod data;
mod file;
mod session;

use std::io;
use std::path::PathBuf;
use std::process::Command;

use crate::{Error, ErrorKind};

pub(crate) use file::Holes;
pub(crate) use session::{Event, FuseMount};

/// Name of the one file in the FUSE directory.
pub const FILE_NAME: &str = "volume";

pub(crate) fn fail(kind: ErrorKind, message: impl Into<String>, cause: io::Error) -> Error {
    Error {
        kind,
        message: message.into(),
        source: Some(cause.into()),
    }
}

/// A program of the system, also where `PATH` lacks the administrator's folders.
pub(crate) fn tool(name: &str) -> Command {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&folders)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_absolute() && path.is_file())
        .unwrap_or_else(|| PathBuf::from(name));
    Command::new(program)
}
