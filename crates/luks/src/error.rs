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
    /// The header is not the one that was pinned.
    Unexpected,
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
    /// What to do about it, where the message does not say.
    pub advice: Option<&'static str>,
    /// The cause below, where there is one.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error without a cause below it.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            advice: None,
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

/// The message alone. The cause is in [`std::error::Error::source`].
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

/// The store's error as it is: its message, its advice and its cause.
impl From<xtent_store::Error> for Error {
    fn from(error: xtent_store::Error) -> Self {
        let message = error.to_string();
        Self {
            advice: Some(error.advice()),
            source: error.source.map(Into::into),
            ..Self::new(ErrorKind::Store(error.kind), message)
        }
    }
}

impl From<xtent_secret::Error> for Error {
    fn from(error: xtent_secret::Error) -> Self {
        Self::new(ErrorKind::NoMemory, error.to_string()).caused_by(error.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_error_keeps_kind_message_advice_and_cause() {
        let store = || xtent_store::Error {
            source: Some(std::io::Error::from_raw_os_error(28)),
            ..xtent_store::Error::new(
                xtent_store::ErrorKind::NoSpace,
                xtent_store::Act::Write,
                std::path::Path::new("disk.img"),
                Some(4096),
            )
        };
        let error = Error::from(store());
        assert_eq!(
            error.kind,
            ErrorKind::Store(xtent_store::ErrorKind::NoSpace)
        );
        assert_eq!(error.to_string(), store().to_string());
        assert_eq!(error.advice, Some(store().advice()));
        assert_eq!(
            xtent_store::chain(&error).to_string(),
            "write of disk.img at byte 4096 failed: No space left on device (os error 28)"
        );
    }
}
