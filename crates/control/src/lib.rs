//! The control socket of a server: how volumes come and go while it runs.
//!
//! The server is in a sandbox and opens nothing. Whoever attaches a volume opens its device,
//! takes the locks, reads the header and derives the key, and hands over open files, key and
//! what the header says. The server checks all of it anew.
//!
//! A Unix socket that keeps the bounds of messages (`SOCK_SEQPACKET`). The client sends one
//! [`Request`], and after an attach the key, in a message of its own that is received into
//! secret memory. The server answers with [`Reply`]s, of which [`Reply::Done`] or
//! [`Reply::Failed`] is the last. Then the connection is over.

mod link;
mod message;
#[cfg(any(test, feature = "testing"))]
mod sample;

pub use link::{Link, Listener, Peer};
pub use message::{
    Attach, Discard, FixedSize, MOST_FILES, Reply, Request, Role, Served, Source, export_name,
};

#[cfg(any(test, feature = "testing"))]
pub use sample::sample;

/// Longest message.
pub const MAX_MESSAGE: usize = 64 << 10;
/// Longest key: of any cipher that there is, twice.
pub const MAX_KEY: usize = 256;

/// What a message or a connection was refused for.
#[derive(Debug)]
pub struct Error {
    /// What kind.
    pub kind: ErrorKind,
    /// What to tell.
    pub message: String,
    /// The cause.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The other side does not keep to the protocol.
    Protocol,
    /// The other side has gone.
    Closed,
    /// It took too long.
    TimedOut,
    /// The socket failed.
    Io,
}

impl Error {
    fn protocol(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Protocol,
            message: message.into(),
            source: None,
        }
    }

    fn io(message: &str, error: rustix::io::Errno) -> Self {
        let kind = match error {
            rustix::io::Errno::AGAIN => ErrorKind::TimedOut,
            rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => ErrorKind::Closed,
            _ => ErrorKind::Io,
        };
        Self {
            kind,
            message: message.to_owned(),
            source: Some(std::io::Error::from(error).into()),
        }
    }
}

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
