//! The NBD server: fixed newstyle, structured replies, multi-conn, deep
//! pipelining.
//!
//! Each connection has a thread that receives many requests at a time and
//! serves at once what need not wait for a disk. The rest are jobs, futures that a few
//! threads of the export carry out for all its connections in turn, and are answered out of
//! order. Over a store that completes later a job holds no thread while it waits. No thread
//! ever waits for a client but the client's own, and no client for more than a bounded amount
//! of another one's work. Clients of another export wait for nothing of this one's.
//!
//! Payload in memory is bounded by [`Options::memory`]: every connection owns
//! [`Options::memory_per_connection`] bytes, and what remains is shared by the jobs of the
//! exports that have clients, in equal parts of 4 MiB at least. Where that is used up, a
//! connection serves its requests one after the other in its own memory and reads no further
//! ones meanwhile. Zeros on their way and reading ahead have 4 MiB more for each export, and a
//! write that covers sectors in part over a store that completes later two sectors more. The
//! kernel's socket buffers are not counted.

mod activation;
mod connection;
mod errno;
mod exports;
mod input;
mod job;
mod link;
mod listen;
mod peer;
mod port;
mod server;
mod shutdown;
#[cfg(test)]
mod tests;
mod tls;

pub use activation::activated_listeners;
pub use exports::{Exports, Listing};
pub use listen::{Address, Listener, SocketFile, bind_tcp, bind_unix};
pub use server::serve;
pub use tls::Tls;
/// The protocol itself.
pub use xtent_nbd as proto;

use std::sync::Arc;
use xtent_volume::Volume;

/// A volume under a name.
pub struct Export {
    /// The name clients ask for; empty is the default export.
    pub name: String,
    /// Free text for `NBD_OPT_LIST` and `NBD_INFO_DESCRIPTION`.
    pub description: String,
    /// The volume.
    pub volume: Arc<Volume>,
    /// Clients that may open it, by a name in a certificate that was verified
    /// ([`xtent_tls::Peer::names`]); everybody if empty.
    pub allowed: Vec<String>,
}

/// Limits of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections at a time; more are closed at once. Fewer are accepted
    /// where half of `memory` does not suffice for that many.
    pub connections: usize,
    /// Threads of each export for requests that must wait for a disk, at most; they are there
    /// while it has clients.
    pub workers: usize,
    /// Bytes of request payload in flight over all connections, at most.
    pub memory: usize,
    /// Stop when the last client that had chosen an export has gone.
    pub exit_with_last: bool,
    /// TLS; none without.
    pub tls: Option<Tls>,
}

impl Default for Options {
    /// 64 connections, 8 workers, 128 MiB.
    fn default() -> Self {
        Self {
            connections: 64,
            workers: 8,
            memory: 128 << 20,
            exit_with_last: false,
            tls: None,
        }
    }
}

impl Options {
    /// Bytes that every connection owns, with TLS or without.
    pub const fn memory_per_connection(tls: bool) -> usize {
        connection::footprint(tls)
    }
}
