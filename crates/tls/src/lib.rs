//! TLS without I/O: certificates and keys from a folder of files, the handshake, and a [`Channel`]
//! that turns bytes into records and back. It knows rustls and files; what is said inside, and the
//! sockets, are its callers' affair.
//!
//! TLS 1.3 alone, with certificates on the server's side always and on the client's where the server
//! asks for them. Verification cannot be turned off. There are no pre-shared keys: rustls has
//! none. Sessions are not resumed, so that each connection is checked against the
//! certificates anew.
//!
//! # Secrets
//!
//! A private key is read into [`xtent_secret`] memory. The copies that rustls and ring make of it are on
//! the heap: not locked and not wiped by ring, out of reach of a core dump only because the process as
//! a whole has none (`xtent_secret::harden_process`). The same is true of the keys of a
//! connection, which live as long as it.

mod certificate;
mod channel;
mod config;
mod error;
mod files;
mod handshake;
mod records;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use certificate::Peer;
pub use channel::Channel;
pub use config::{Client, Server};
pub use error::{Error, ErrorKind};
pub use handshake::{Handshake, Next};

/// Bytes of memory that a channel takes at most, beside what its handshake
/// took and gave back.
pub const FOOTPRINT: usize = records::INCOMING + channel::OUTGOING + 4 * records::MAX_RECORD;
