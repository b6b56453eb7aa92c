//! The crate's one error type.

use std::fmt;

/// What went wrong; the command line turns it into cryptsetup's exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No LUKS magic at all.
    NotLuks,
    /// LUKS, but damaged beyond use, or hostile.
    Corrupt,
    /// Valid, but uses something this crate does not have; the message names it.
    Unsupported,
    /// No keyslot opens with this passphrase.
    WrongPassphrase,
    /// The keyslot asked for is empty or in use.
    Keyslot,
    /// Every keyslot that opens the volume has priority "ignore", and none was
    /// named; the message names them.
    OnlyNamed,
    /// The token asked for does not exist or is in use.
    Token,
    /// No free keyslot or token, or no room for one.
    Full,
    /// Would remove the last key.
    LastKeyslot,
    /// Argon2 wants more memory than is free; the message names the MiB.
    NoMemory,
    /// Key derivation would take longer than allowed; the message names the estimate.
    TooCostly,
    /// The device or file is shorter than the header says.
    TooShort,
    /// The options contradict each other or the format.
    Options,
    /// The metadata changed under the operation; try again.
    Changed,
    /// Somebody else holds the metadata lock.
    Busy,
    /// Restoring this backup here is refused.
    Refused,
    /// The store failed.
    Store(xtent_store::ErrorKind),
}

/// A failed operation: what, where, why, and what to do.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What to tell a person, with the place (field, keyslot, offset) and the next step.
    pub message: String,
    /// The cause below, where there is one.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error without a cause below it.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// Adds the cause.
    pub(crate) fn caused_by(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.source = Some(source.into());
        self
    }

    /// [`ErrorKind::Corrupt`].
    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// [`ErrorKind::Unsupported`].
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// [`ErrorKind::Options`].
    pub(crate) fn options(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Options, message)
    }
}

/// The message alone: it already says what the cause means. The cause itself
/// is in [`std::error::Error::source`].
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn std::error::Error + 'static))
    }
}

impl From<xtent_store::Error> for Error {
    fn from(error: xtent_store::Error) -> Self {
        use std::fmt::Write as _;

        let mut message = format!("cannot {} {}", error.operation, error.place);
        // Writing to a string cannot fail.
        if let Some(offset) = error.offset {
            let _ = write!(message, " at byte {offset}");
        }
        match &error.source {
            Some(source) => {
                let _ = write!(message, ": {source}");
            }
            None => {
                let _ = write!(message, ": {:?}", error.kind);
            }
        }
        let new = Self::new(ErrorKind::Store(error.kind), message);
        match error.source {
            Some(source) => new.caused_by(source),
            None => new,
        }
    }
}

impl From<xtent_secret::Error> for Error {
    fn from(error: xtent_secret::Error) -> Self {
        Self::new(ErrorKind::NoMemory, error.to_string()).caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn a_store_error_keeps_kind_place_and_cause() {
        let error = Error::from(xtent_store::Error {
            kind: xtent_store::ErrorKind::NoSpace,
            operation: "write",
            place: std::path::Path::new("disk.img").into(),
            offset: Some(4096),
            source: Some(std::io::Error::from_raw_os_error(28)),
        });
        assert_eq!(
            error.kind,
            ErrorKind::Store(xtent_store::ErrorKind::NoSpace)
        );
        assert!(
            error
                .to_string()
                .starts_with("cannot write disk.img at byte 4096: No space")
        );
        assert!(error.source().is_some());
    }
}
