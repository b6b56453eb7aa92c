//! Ciphertext behind an NBD server: [`Upstream`] is a store that is an NBD client.
//!
//! Each connection has one thread that receives; whoever submits an operation sends it.
//! Hundreds are under way at a time, and data is received straight into the
//! operation's memory; with TLS it is copied there once. Where TLS is wanted, nothing is said without
//! it and no server is served that is not verified, on connections that are made later neither.
//!
//! # Lost connections
//!
//! A lost connection is made again, and requests without an answer are sent again in the order in
//! which they were submitted. They fail when there was no connection for
//! [`Options::reconnect`]; after that, requests fail at once until one can be made,
//! which is tried when somebody asks for something, once a second at most.
//!
//! A server that lets requests wait and sends nothing for [`Options::silence`] counts as lost,
//! too: it may be stopped, its disk may, or its machine may be gone, which TCP itself finds out in 20 seconds where nothing is under way.
//!
//! A server that was restarted may have lost what it acknowledged and was not told to
//! flush. So a copy of that is kept, and written again before anything
//! else on a new connection. When the copies take half of [`Options::journal`], the store flushes
//! on its own, and when they take all of it, writes wait for that. A flush succeeds
//! only if every write that it covers has been acknowledged by a server that has not been lost
//! since, or was flushed. After a flush that the server failed, or a copy that it refused, every
//! later flush fails. Discards are not repeated: the range reads as anything. A server
//! without `NBD_CMD_FLUSH` promises nothing that could be kept: there, flushes succeed
//! and nothing is copied.
//!
//! Whoever knows what is on the disk says so ([`Upstream::identify`]). Then every new connection is
//! asked for that first, and nothing is written on one with another disk behind it: the store
//! fails for good, and says why. Without that, another export of the same size and flags is
//! taken for the same disk.
//!
//! All connections are given up with the first that is lost. The others get no new requests, and what is under way there is
//! answered first, for a third of [`Options::reconnect`] and 15 seconds at most. Where that was not answered, and on the lost one, the
//! server is told that no more comes, and it is waited for that it closes its end, as most servers do once they have carried out what they
//! had received, for half of what is left and 15 seconds at most. Only then is anything sent again; else a write
//! from before could undo a later one. What a server still does after that it may finish after the same request was
//! sent again: one that hangs for longer, one for which a connection broke while it was at work, and, on a connection that was
//! not answered in time, one that does not wait for what is under way when a client goes (qemu-nbd).
//!
//! # An export that grows
//!
//! A connection has the size of its beginning. So [`look_at_size`](xtent_store::Store::look_at_size)
//! makes one more, and asks on it for the size and for the disk. If the export has grown, new operations
//! wait until everything before them has been answered and what was acknowledged has been flushed; then
//! all connections are made anew, as if they were lost. Nothing is under way then that the server
//! could carry out late, and nothing unflushed that it could lose. A server that answers too late for that goes on
//! with the connections that there are.
//!
//! The connection of the look takes the place of the first where the server says that connections see
//! each other's writes. Elsewhere another one is made once the old ones are gone; requests wait for it no less than a look
//! may take, however short [`Options::reconnect`] is.
//!
//! # A server that lies
//!
//! Every byte of a read has to come once, from inside what was asked, and every answer has to be to a
//! request. A connection on which that is not so is cut and counts as lost. After three
//! times without a good answer requests fail and say what the server did.
//!
//! # Zeros
//!
//! `NBD_CMD_WRITE_ZEROES` is never sent: zeros of plaintext are not zeros of
//! ciphertext, so nobody above has use for them.
//!
//! # Memory
//!
//! What the operations' owners gave it, [`Options::journal`] (and one write more), 16 KiB for each
//! connection and with TLS half a MiB more, and some hundred bytes for each request. The calls on borrowed memory
//! copy what they are given.

mod connect;
mod connection;
mod identity;
mod journal;
mod lane;
mod look;
mod operation;
mod receive;
mod shared;
mod state;
mod store;
mod terms;
mod uri;
mod wake;
mod wire;

pub use identity::{Check, Identity};
pub use uri::{Uri, UriError};

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use xtent_nbd::client::Negotiated;
use xtent_nbd::constants::*;
use xtent_store::{Access, Act, Error, ErrorKind, Place};

use connect::{Addresses, connect};
use connection::Connection;
use identity::Expected;
use look::{Looker, stop_looking};
use shared::Shared;
use state::{Phase, State, Todo};
use terms::Terms;
use wake::Wake;

/// What requests wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What the server does, or did last, as a clause.
    pub why: String,
    /// When it counts as lost, or requests fail, unless the server says something.
    pub at_most: Duration,
}

/// How an [`Upstream`] deals with its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a lost connection may stay lost before requests fail.
    pub reconnect: Duration,
    /// How long a server may say nothing to requests under way, and take none, before its connection counts as
    /// lost. A slow disk's flush has to fit in.
    pub silence: Duration,
    /// Connections at most; more than one only if the server says that they
    /// see each other's writes (`NBD_FLAG_CAN_MULTI_CONN`).
    pub connections: usize,
    /// How long a look at the size may take; operations may have to wait for as long, for those that were
    /// before them.
    pub look: Duration,
    /// Bytes of acknowledged writes that are kept until they are flushed. A write that is larger is
    /// made durable at once instead.
    pub journal: usize,
}

impl Default for Options {
    /// 10 seconds, 60 of silence, 4 connections, 8 seconds for a look, 64 MiB.
    fn default() -> Self {
        Self {
            reconnect: Duration::from_secs(10),
            silence: Duration::from_secs(60),
            connections: 4,
            look: Duration::from_secs(8),
            journal: 64 << 20,
        }
    }
}

/// An export of an NBD server. Dropped, it says goodbye and what is under way fails.
pub struct Upstream {
    shared: Arc<Shared>,
    uri: Uri,
    threads: Vec<JoinHandle<()>>,
    /// Held while partial blocks are read, changed and written back.
    partial: Mutex<()>,
}

impl Upstream {
    /// Connects to the server. Hosts are looked up and certificates read here and never again: a
    /// connection that is made later takes a socket and nothing else of the system.
    ///
    /// # Errors
    /// Have the URI as their place, and a source that says what the server did:
    /// [`ErrorKind::NotFound`] if it has no such export, [`ErrorKind::ReadOnly`] if the export is
    /// read-only and `access` is not.
    pub fn open(uri: &Uri, access: Access, options: Options) -> Result<Self, Error> {
        let place = Place::Uri(uri.to_string().into());
        let system = |error: io::Error| Error::from_io(error, Act::Open, place.clone(), None);
        let addresses = Addresses::of(uri).map_err(system)?;
        let wake = Wake::new().map_err(system)?;
        let deadline = Instant::now() + lane::longest_try(options.reconnect);
        let (wire, found) =
            connect(&addresses, uri.export(), &wake, deadline).map_err(|error| {
                let (kind, source) = error.into_parts();
                Error {
                    source: Some(source),
                    ..Error::new(kind, Act::Open, place.clone(), None)
                }
            })?;
        let read_only = access == Access::ReadOnly;
        check(&found, read_only, &place)?;

        let lanes = match found.has(FLAG_CAN_MULTI_CONN) {
            true => options.connections.max(1),
            false => 1,
        };
        let mut wakes = vec![wake];
        while wakes.len() < lanes {
            wakes.push(Wake::new().map_err(system)?);
        }
        let terms = Arc::new(Terms::new(
            place.clone(),
            &found,
            read_only,
            options.journal,
        ));
        let connection = Connection::new(lane::next_id(), 0, found.form, wire);
        let mut state = State::new(Arc::clone(&terms), lanes);
        state.connected(Arc::clone(&connection), &mut Todo::default());
        let shared = Arc::new(Shared {
            terms,
            state: Mutex::new(state),
            wakes,
            addresses,
            looker: Looker::new(options.look).map_err(system)?,
            export: uri.export().to_owned(),
            reconnect: options.reconnect,
            silence: options.silence,
        });
        let mut upstream = Self {
            shared: Arc::clone(&shared),
            uri: uri.clone(),
            threads: Vec::with_capacity(lanes),
            partial: Mutex::new(()),
        };
        let first = move || {
            let _ending = Ending(&shared.wakes[0]);
            lane::first(&shared, connection);
        };
        upstream.threads.push(spawn(0, first).map_err(system)?);
        for number in 1..lanes {
            let shared = Arc::clone(&upstream.shared);
            let other = move || {
                let _ending = Ending(&shared.wakes[number]);
                lane::other(&shared, number);
            };
            upstream.threads.push(spawn(number, other).map_err(system)?);
        }
        Ok(upstream)
    }

    /// Runs `work` once in each of the store's threads and returns what came of it: for what a
    /// thread can only do to itself, such as giving up privileges. A thread that has ended gives
    /// nothing. The threads receive nothing meanwhile.
    ///
    /// This waits without a bound, for threads that do not: whatever the server does or leaves, a thread waits for it
    /// in `Wake::wait` alone, which does what it is sent, and its sockets never block. Between two waits it
    /// takes no more than what has been received, and one that ends, in whatever way, drops what it was sent.
    pub fn in_each_thread<T, F>(&self, work: F) -> Vec<T>
    where
        T: Send + 'static,
        F: Fn() -> T + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        let (sender, results) = std::sync::mpsc::channel();
        for wake in &self.shared.wakes {
            let (work, sender) = (Arc::clone(&work), sender.clone());
            wake.send(Box::new(move || {
                // There is a receiver until every sender has gone.
                let _ = sender.send(work());
            }));
        }
        drop(sender);
        results.iter().collect()
    }

    /// Has every [look at the size](xtent_store::Store::look_at_size) fail from now on, at once, those under way too: for whoever is
    /// about to close the store while others may look. They may hold it for a moment yet.
    pub fn stop_looking(&self) {
        stop_looking(&self.shared);
    }

    /// What requests under way wait for, if it is more than the next answer: a server that is lost, or
    /// has said nothing for a second.
    pub fn waiting(&self) -> Option<Waiting> {
        let state = lock(&self.shared.state);
        state.waiting(self.shared.patience(&state), self.shared.silence)
    }

    /// From now on every new connection is held against this before it is used. Call it once, for a
    /// range inside the store that nobody changes; a later call changes nothing.
    /// Connections that were made before are taken to be to the same disk.
    pub fn identify(&self, identity: Identity) {
        let (offset, len) = self.whole_blocks(identity.offset, identity.len);
        let skip = store::within(offset, identity.offset, identity.len);
        lock(&self.shared.state)
            .expected
            .get_or_insert_with(|| Arc::new(Expected::new(offset, len, skip, identity.check)));
    }

    /// Bytes at the export's end that are no whole block for its server, and not in the
    /// [size](xtent_store::Store::size).
    pub fn left_out(&self) -> u64 {
        self.shared.terms.left_out
    }

    /// Where it is.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }
}

/// Tells of a thread's end when dropped.
struct Ending<'a>(&'a Wake);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

fn spawn(lane: usize, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("upstream {lane}"))
        .spawn(run)
}

/// Whether the export is of use.
fn check(found: &Negotiated, read_only: bool, place: &Place) -> Result<(), Error> {
    if i64::try_from(found.size).is_err() {
        return Err(Error {
            source: Some(io::Error::other(
                "the server says that the export has 8 EiB or more",
            )),
            ..Error::new(ErrorKind::Io, Act::Open, place.clone(), None)
        });
    }
    if read_only {
        return Ok(());
    }
    if found.has(FLAG_READ_ONLY) {
        return Err(Error {
            source: Some(io::Error::other(
                "the server offers the export for reading only",
            )),
            ..Error::new(ErrorKind::ReadOnly, Act::Open, place.clone(), None)
        });
    }
    if !found.has(FLAG_SEND_FLUSH) {
        tracing::warn!(
            "the server of {} has no flush: when writes are durable is not known",
            place
        );
    }
    Ok(())
}

/// What to do about an error of [`Upstream::open`], where its cause says more than its kind.
pub fn advice(error: &Error) -> Option<&'static str> {
    connect::advice(error.source.as_ref()?)
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream")
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let mut todo = Todo::default();
        {
            let mut state = lock(&self.shared.state);
            for connection in state.connections.iter().flatten() {
                connection.say_goodbye();
            }
            let why = "the store was closed";
            state.lost(why.to_owned());
            state.fail_all(Phase::Closed(why.to_owned()), why, &mut todo);
        }
        self.shared.carry_out(todo);
        for wake in &self.shared.wakes {
            wake.close();
        }
        let this = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // One of them may have told the end of the operation that kept the store alive.
            if thread.thread().id() != this {
                // A panic there has been reported.
                let _ = thread.join();
            }
        }
    }
}

/// Locks; what a thread that panicked has left is consistent, since nothing in
/// between can.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
