//! The crate's one error type.

use std::error::Error as StdError;
use std::fmt;

/// What went wrong, for whoever decides what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An address that is none.
    Address,
    /// The way to the device cannot be opened: no such socket, group or driver, or not allowed.
    Open,
    /// There is a device, but it is none that this driver knows.
    Unknown,
    /// The engine cannot do that; a CPU can.
    Unsupported,
    /// All key slots are taken; a CPU has no such bound.
    Slots,
    /// The caller's arguments make no run of sectors.
    Request,
    /// Not enough memory, or none that a device can share.
    Memory,
    /// The engine reported that it could not carry out a request.
    Failed,
    /// The engine is out of service: every request from now on ends so.
    Dead,
}

/// Why something could not be done. The message never has keys or data in it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn by(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            source: Some(source.into()),
            ..Self::new(kind, message)
        }
    }

    /// What kind it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to do about it, where that can be said.
    pub fn advice(&self) -> Option<&'static str> {
        Some(match self.kind {
            ErrorKind::Address => {
                "an engine's address is vfio-user:PATH, of a socket, or vfio:0000:03:00.0, of a PCI device"
            }
            ErrorKind::Unsupported | ErrorKind::Slots => "leave this volume to the CPU",
            ErrorKind::Dead => "look after the device, and open the volume again",
            _ => return None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_deref()?;
        Some(source)
    }
}
