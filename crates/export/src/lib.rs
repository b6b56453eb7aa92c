//! Protocols that offer an open volume: NBD, FUSE. An export knows its
//! protocol and the volume's byte ranges, never ciphers or LUKS.

pub mod fuse;
pub mod nbd;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A mount point, loop device or socket is in use.
    Busy,
    /// No privilege for it; the message says which and what works without.
    Permission,
    /// The kernel lacks FUSE or loop devices.
    Unsupported,
    /// Nothing is mounted there.
    NotMounted,
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
