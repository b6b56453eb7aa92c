//! Protocols that offer an open volume: NBD, FUSE, vhost-user, ublk; and metrics of what they did. An export knows its
//! protocol and the volume's byte ranges, never ciphers or LUKS.

mod executor;
mod fuse;
pub mod metrics;
pub mod mountinfo;
pub mod mounts;
pub mod nbd;
mod request;
mod shutdown;
pub mod ublk;
mod users;
pub mod vhost_user;
mod writeback;
mod zeroes;

pub use shutdown::Shutdown;
pub use writeback::expect_writeback;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A mount point, loop device or socket is in use.
    Busy,
    /// No privilege for it; the message says which and what works without.
    Permission,
    /// The kernel lacks FUSE, loop devices or ublk.
    Unsupported,
    /// Nothing is mounted there.
    NotMounted,
    /// mount(8) refused the file system; the message has its reason.
    NotMountable,
    /// What was asked for cannot be: a mount point that is no directory, say.
    Argument,
    /// The volume failed.
    Volume(xtent_volume::ErrorKind),
    /// Any other I/O error.
    Io,
}

/// A failed export operation: what, where, why.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What to tell a person, with path and next step.
    pub message: String,
    /// The cause.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A system call that failed on behalf of `message`; the kind follows from
    /// the cause.
    pub(crate) fn io(message: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        use std::io::ErrorKind as Io;
        let source = source.into();
        let kind = match source.kind() {
            Io::AddrInUse | Io::ResourceBusy => ErrorKind::Busy,
            Io::PermissionDenied => ErrorKind::Permission,
            Io::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        Self {
            kind,
            message: message.into(),
            source: Some(source.into()),
        }
    }
}

/// The message alone. The cause is in [`std::error::Error::source`].
impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}

impl From<xtent_volume::Error> for Error {
    fn from(error: xtent_volume::Error) -> Self {
        Self {
            kind: ErrorKind::Volume(error.kind),
            message: error.message,
            source: error.source,
        }
    }
}
