//! One module per command: its arguments, its manual and its steps.

pub(crate) mod attach;
pub(crate) mod bench;
#[cfg(feature = "device-mapper")]
pub(crate) mod close;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod convert;
#[cfg(feature = "device-mapper")]
pub(crate) mod crypttab;
pub(crate) mod decrypt;
pub(crate) mod encrypt;
pub(crate) mod format;
pub(crate) mod header;
pub(crate) mod help;
pub(crate) mod identify;
pub(crate) mod key;
pub(crate) mod man;
pub(crate) mod mount;
#[cfg(feature = "device-mapper")]
pub(crate) mod open;
pub(crate) mod resize;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod takeover;
pub(crate) mod token;
pub(crate) mod umount;
