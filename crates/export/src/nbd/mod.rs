//! The NBD server: fixed newstyle, structured replies, multi-conn, deep
//! pipelining.

pub mod proto;

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
}

/// Where to listen.
pub enum Listener {
    /// A Unix socket.
    Unix(std::os::unix::net::UnixListener),
    /// A TCP socket; the caller has made sure it is on loopback or insisted.
    Tcp(std::net::TcpListener),
}

/// Limits of the server.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Connections at a time; more are closed at once.
    pub connections: usize,
    /// Threads for requests that must wait for a disk.
    pub workers: usize,
    /// Bytes of request payload in flight over all connections, at most.
    pub memory: usize,
}

/// Asks a running server to stop: no new connections, requests in flight are
/// finished, volumes flushed. Safe to trigger from a signal thread.
#[derive(Clone)]
pub struct Shutdown {
    _todo: (),
}

impl Shutdown {
    /// Not yet triggered.
    pub fn new() -> std::io::Result<Self> {
        todo!()
    }
    /// Triggers; idempotent.
    pub fn trigger(&self) {
        todo!()
    }
}

/// Serves until `shutdown`; returns after the flush, with its error if it failed.
pub fn serve(
    _listeners: Vec<Listener>,
    _exports: Vec<Export>,
    _options: Options,
    _shutdown: &Shutdown,
) -> Result<(), crate::Error> {
    todo!()
}
