//! The crate's one error type, and from the kernel's errors to kinds.

use std::fmt;
use std::io;

use devicemapper::DmError;
use devicemapper::errors::Error as Core;

/// What went wrong, for exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name or option that cannot be.
    Argument,
    /// The caller is not root, which this requires.
    Permission,
    /// There is a mapping of that name.
    Exists,
    /// There is no mapping of that name.
    NotFound,
    /// The mapping, or the device below it, is in use.
    Busy,
    /// The mapping is none of an encrypted volume.
    Foreign,
    /// The kernel has no device mapper, target, cipher or keyring for it.
    Unsupported,
    /// Told to stop before the mapping was complete; nothing is left of it.
    Interrupted,
    /// Anything else that the kernel refused.
    Io,
}

/// A failed operation of the device mapper: what, and what to do.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What to tell a person.
    pub message: String,
    /// What to do about it.
    pub advice: Option<String>,
    /// The cause.
    pub source: Option<io::Error>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            advice: None,
            source: None,
        }
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    pub(crate) fn because(mut self, source: io::Error) -> Self {
        self.source = Some(source);
        self
    }

    /// An operation that the kernel refused for a reason that it shares with many.
    pub(crate) fn refused(message: impl Into<String>, error: &DmError) -> Self {
        Self::refused_for(message, io_error(error))
    }

    /// The same, by the system's error.
    pub(crate) fn refused_for(message: impl Into<String>, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::PermissionDenied => ErrorKind::Permission,
            io::ErrorKind::ResourceBusy => ErrorKind::Busy,
            io::ErrorKind::AlreadyExists => ErrorKind::Exists,
            _ if source.raw_os_error() == Some(ENXIO) => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        Self::new(kind, message).because(source)
    }
}

/// What the device mapper says of a name that it does not know.
pub(crate) const ENXIO: i32 = 6;
/// The error of something that is in use, and of a name that is taken.
pub(crate) const EBUSY: i32 = 16;

/// The system's error in one of the crate's, whose texts are not for people.
pub(crate) fn io_error(error: &DmError) -> io::Error {
    match error {
        DmError::Core(Core::Ioctl(_, _, _, errno)) => io::Error::from_raw_os_error(**errno as i32),
        other => io::Error::other(other.to_string()),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}
