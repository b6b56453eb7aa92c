//! Accepting connections, and stopping.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::connection::{self, Shared};
use super::link::Link;
use super::peer::Client;
use super::port::Timeouts;
use super::{Exports, Listener, Options};
use crate::Shutdown;
use crate::{Error, ErrorKind};

/// What is asked of the kernel for a Unix socket's buffers, in bytes: a few
/// large requests per context switch.
const UNIX_BUFFER: usize = 1 << 20;
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Serves until `shutdown`; returns after the flush, with its error if it failed.
///
/// Stopping: nothing more is accepted; requests that had arrived are finished
/// and answered; a client that does not take its answers, or does not complete
/// the request it is sending, is given a few seconds, and so is the writing of
/// zeros, which one small message can ask gigabytes of; what is left of them
/// fails. Then all volumes are flushed. [`Exports`] can come and go meanwhile.
pub fn serve(
    listeners: Vec<Listener>,
    exports: &Exports,
    options: Options,
    shutdown: &Shutdown,
) -> Result<(), Error> {
    serve_with(listeners, exports, options, shutdown, Timeouts::DEFAULT)
}

pub(super) fn serve_with(
    listeners: Vec<Listener>,
    exports: &Exports,
    options: Options,
    shutdown: &Shutdown,
    timeouts: Timeouts,
) -> Result<(), Error> {
    let per_connection = connection::footprint(options.tls.is_some());
    if options.memory < per_connection {
        return Err(Error {
            kind: ErrorKind::Argument,
            message: format!(
                "the memory limit is too small for one connection; at least {per_connection} bytes are needed"
            ),
            source: None,
        });
    }
    let connections = (options.memory / 2 / per_connection).clamp(1, options.connections.max(1));
    for listener in &listeners {
        listener
            .set_nonblocking()
            .map_err(|error| Error::io("cannot set up the listening socket", error))?;
    }
    exports.set_memory(options.memory - connections * per_connection);
    let shared = Shared {
        exports: exports.clone(),
        workers: options.workers.max(1),
        tls: options.tls,
        shutdown: shutdown.clone(),
        timeouts,
    };
    let server = Server {
        shared: &shared,
        limit: connections,
        exit_with_last: options.exit_with_last,
        links: Mutex::default(),
    };
    let accepted = thread::scope(|scope| {
        let accepted = server.accept_all(scope, &listeners);
        // Whatever ended it, nobody is left behind: connections wait with
        // an eye on the shutdown only.
        shutdown.trigger();
        exports.stop_changing();
        drop(listeners);
        server.wake_all();
        accepted
    });
    let flushed = exports.close();
    accepted.and(flushed)
}

struct Server<'a> {
    shared: &'a Shared,
    limit: usize,
    exit_with_last: bool,
    links: Mutex<HashMap<u64, Arc<Link>>>,
}

impl Server<'_> {
    fn links(&self) -> MutexGuard<'_, HashMap<u64, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        for link in self.links().values() {
            link.wake();
        }
    }

    fn accept_all<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        listeners: &[Listener],
    ) -> Result<(), Error> {
        let mut next_id = 0_u64;
        let mut pause = None;
        while !self.shared.shutdown.is_triggered() {
            let mut fds = vec![PollFd::from_borrowed_fd(
                self.shared.shutdown.event(),
                PollFlags::IN,
            )];
            if pause.is_none() {
                fds.extend(
                    listeners
                        .iter()
                        .map(|it| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN)),
                );
            }
            match poll(&mut fds, pause.take().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Error::io("cannot wait for connections", error)),
            }
            let ready: Vec<bool> = fds
                .iter()
                .skip(1)
                .map(|fd| !fd.revents().is_empty())
                .collect();
            for (listener, _) in listeners.iter().zip(ready).filter(|(_, ready)| *ready) {
                match listener.accept() {
                    Ok(socket) => {
                        self.start(scope, next_id, socket);
                        next_id += 1;
                    }
                    Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        pause = Timespec::try_from(ACCEPT_PAUSE).ok();
                    }
                }
            }
        }
        Ok(())
    }

    fn start<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        id: u64,
        socket: OwnedFd,
    ) {
        if self.links().len() >= self.limit {
            tracing::warn!(
                limit = self.limit,
                client = id,
                peer = %Client::new(id, &socket).peer,
                "too many connections; one more is refused"
            );
            return;
        }
        tune(&socket);
        let link = match Link::new(id, socket) {
            Ok(link) => Arc::new(link),
            Err(error) => {
                tracing::warn!(%error, "cannot set up a connection");
                return;
            }
        };
        self.links().insert(id, Arc::clone(&link));
        let spawned = thread::Builder::new()
            .name(format!("nbd-{id}"))
            .spawn_scoped(scope, move || {
                let _listed = Listed { server: self, id };
                // A panic that got to the scope would end the server, and
                // without its last flush.
                let serve = AssertUnwindSafe(|| connection::serve(self.shared, &link));
                if catch_unwind(serve).is_err() {
                    link.break_off();
                    tracing::error!(
                        client = id,
                        peer = %link.client.peer,
                        "serving a connection panicked; it is closed"
                    );
                }
            });
        if let Err(error) = spawned {
            self.links().remove(&id);
            tracing::warn!(%error, "cannot start a thread for a connection");
        }
    }
}

/// Takes a connection off the list, even if its thread panics.
struct Listed<'a> {
    server: &'a Server<'a>,
    id: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let mut links = self.server.links();
        let has_session = |link: &Link| link.has_session.load(Ordering::Relaxed);
        let had_session = links
            .remove(&self.id)
            .is_some_and(|link| has_session(&link));
        let was_last = had_session && !links.values().any(|link| has_session(link));
        if was_last && self.server.exit_with_last {
            tracing::info!("the last client has gone");
            self.server.shared.shutdown.trigger();
        }
    }
}

/// Replies leave at once, dead peers are noticed, and large requests pass in
/// few steps. Best effort: a connection works without.
fn tune(socket: &OwnedFd) {
    let fd = socket.as_fd();
    if sockopt::socket_domain(fd) == Ok(rustix::net::AddressFamily::UNIX) {
        for size in [
            sockopt::set_socket_send_buffer_size,
            sockopt::set_socket_recv_buffer_size,
        ] {
            let _ = size(fd, UNIX_BUFFER);
        }
    } else {
        let _ = sockopt::set_tcp_nodelay(fd, true);
        let _ = sockopt::set_socket_keepalive(fd, true);
    }
}
