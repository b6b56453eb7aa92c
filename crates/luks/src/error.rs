//! The crate's one error type.

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
    /// No free keyslot, or no room for one.
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
