//! The crate's one error type, and its errno.

use std::fmt;

use rustix::io::Errno;

/// What an error came of.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration contradicts itself or the store (too short, odd
    /// offset, wrong key length).
    Config,
    /// The range lies outside the volume.
    OutOfRange,
    /// A write to a read-only volume.
    ReadOnly,
    /// No memory for a buffer or a key.
    NoMemory,
    /// The store failed.
    Store(xtent_store::ErrorKind),
    /// The cipher engine failed, or does not do what the CPU does.
    Engine,
}

/// A failed request: what, where, why. `Display` is the message alone; the store's or the
/// engine's error is in [`std::error::Error::source`].
#[derive(Debug)]
pub struct Error {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// Byte offset in the volume, where there is one.
    pub offset: Option<u64>,
    /// What to tell a person.
    pub message: String,
    /// The store's or the engine's error, where it was that.
    pub source: Option<Cause>,
}

impl Error {
    /// The errno that protocols report for it.
    ///
    /// The client's own mistakes are EINVAL and EROFS. Of the store's troubles
    /// only those that a client can act upon are told apart; an image that
    /// became too short, for example, is EIO.
    pub fn errno(&self) -> Errno {
        use xtent_store::ErrorKind as Store;
        match self.kind {
            ErrorKind::Config | ErrorKind::OutOfRange => Errno::INVAL,
            ErrorKind::ReadOnly => Errno::ROFS,
            ErrorKind::NoMemory => Errno::NOMEM,
            ErrorKind::Store(
                kind @ (Store::NoSpace
                | Store::ReadOnly
                | Store::Permission
                | Store::Unsupported
                | Store::Fenced),
            ) => kind.errno(),
            ErrorKind::Store(_) | ErrorKind::Engine => Errno::IO,
        }
    }

    pub(crate) fn config(message: String) -> Self {
        Self {
            kind: ErrorKind::Config,
            offset: None,
            message,
            source: None,
        }
    }

    pub(crate) fn no_memory(what: &str) -> Self {
        Self {
            kind: ErrorKind::NoMemory,
            offset: None,
            message: format!("no memory for {what}; free some or raise the limit"),
            source: None,
        }
    }

    pub(crate) fn out_of_range(offset: u64, len: u64, size: u64) -> Self {
        Self {
            kind: ErrorKind::OutOfRange,
            offset: Some(offset),
            message: format!(
                "{len} bytes from byte {offset} on are not inside the volume, which has {size} bytes"
            ),
            source: None,
        }
    }

    pub(crate) fn read_only(offset: u64) -> Self {
        Self {
            kind: ErrorKind::ReadOnly,
            offset: Some(offset),
            message: "the volume is open for reading only".into(),
            source: None,
        }
    }

    pub(crate) fn store(source: xtent_store::Error, offset: Option<u64>) -> Self {
        Self {
            kind: ErrorKind::Store(source.kind),
            offset,
            message: match offset {
                Some(offset) => format!("request at byte {offset} of the volume failed"),
                None => "request to the volume failed".into(),
            },
            source: Some(source.into()),
        }
    }

    pub(crate) fn engine(source: Cause, offset: Option<u64>) -> Self {
        Self {
            kind: ErrorKind::Engine,
            offset,
            message: match offset {
                Some(offset) => {
                    format!("the cipher engine failed a request at byte {offset} of the volume")
                }
                None => "the cipher engine failed a sample of sectors".into(),
            },
            source: Some(source),
        }
    }

    pub(crate) fn engine_differs() -> Self {
        Self {
            kind: ErrorKind::Engine,
            offset: None,
            message: "the cipher engine does not do what the CPU does with the same key: it would \
                      damage data, and is not used"
                .into(),
            source: None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
