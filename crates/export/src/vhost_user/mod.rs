//! A volume as the disk of a virtual machine: virtio-blk over vhost-user. Requests lie in memory
//! that the guest shares, and go from there to the cipher without a protocol in between.
//!
//! One front-end (QEMU, cloud-hypervisor, User Mode Linux) is served at a time. Each of the guest's
//! rings has a thread, which does at once what need not wait for a disk. Requests that are under way
//! when this process is killed are carried out by the next one, where the front-end keeps track of
//! them for it (`INFLIGHT_SHMFD`).
//!
//! The front-end is trusted to leave the files of its memory as long as they are: whoever maps a
//! file that is made shorter is killed by its next access. The guest is not trusted.

mod config;
mod dirty;
mod guest;
mod inflight;
mod message;
mod request;
mod ring;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod work;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use xtent_store::chain;
use xtent_volume::Volume;

use crate::Error;
use crate::executor::Executor;
use crate::nbd::{Listener, Shutdown};
use crate::request::{Carrier, Threads};
use request::ID_LENGTH;
use session::Session;
use work::Work;

/// How long a front-end may take for the rest of a message.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Most rings of a guest.
pub const MOST_QUEUES: u16 = 64;

/// Limits, and what the guest sees.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the guest knows the disk by (its serial number): 20 bytes of ASCII at most, the rest is
    /// cut off.
    pub id: String,
    /// Rings that a guest may have, at most [`MOST_QUEUES`].
    pub queues: u16,
    /// Threads for requests that must wait for a disk, at most.
    pub workers: usize,
    /// Bytes of requests that wait, at most.
    pub memory: usize,
}

impl Default for Options {
    /// No id, 64 queues, 8 workers, 64 MiB.
    fn default() -> Self {
        Self {
            id: String::new(),
            queues: MOST_QUEUES,
            workers: 8,
            memory: 64 << 20,
        }
    }
}

/// Tells a server that its volume has grown; clones tell the same one.
#[derive(Clone)]
pub struct Growth(Arc<OwnedFd>);

impl Growth {
    /// Nothing has grown yet.
    pub fn new() -> std::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(event)))
    }

    /// It may have grown: the virtual machine is told, if it has.
    pub fn tell(&self) {
        // It can only fail when it is told already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn take(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// Serves the front-ends that connect, one at a time, until `shutdown`. Requests under way are
/// finished then, and the volume flushed; the error is the flush's.
pub fn serve(
    listener: &Listener,
    volume: &Arc<Volume>,
    options: &Options,
    shutdown: &Shutdown,
    growth: &Growth,
) -> Result<(), Error> {
    listener
        .set_nonblocking()
        .map_err(|error| Error::io("cannot set up the listening socket", error))?;
    let executor = Executor::with_own_threads();
    executor
        .open(options.workers)
        .map_err(|error| Error::io("cannot start a worker thread", error))?;
    let mut id = [0; ID_LENGTH];
    for (to, from) in id.iter_mut().zip(options.id.bytes()) {
        *to = from;
    }
    let own = Threads::Executors;
    let work = Arc::new(Work {
        carrier: Carrier::new(volume, Arc::clone(&executor), options.memory, own),
        id,
    });
    let served = serve_all(listener, &work, options.queues, (shutdown, growth));
    executor.close();
    let flushed = match volume.is_read_only() {
        true => Ok(()),
        false => volume.flush().map_err(Error::from),
    };
    served.and(flushed)
}

fn serve_all(
    listener: &Listener,
    work: &Arc<Work>,
    queues: u16,
    (shutdown, growth): (&Shutdown, &Growth),
) -> Result<(), Error> {
    while let Some(next) = wait(listener, shutdown, growth)? {
        if next == Next::Growth {
            continue;
        }
        let socket = match listener.accept() {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => continue,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a virtual machine");
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        let stream = UnixStream::from(socket);
        tracing::info!("a virtual machine has connected");
        let mut session = Session::new(Arc::clone(work), queues.clamp(1, MOST_QUEUES));
        let reason = converse(&stream, &mut session, shutdown, growth);
        session.stop_all();
        drop(session);
        work.carrier.memory().trim();
        tracing::info!(reason, "the virtual machine is disconnected");
    }
    Ok(())
}

/// Answers a front-end until it leaves; why it did.
fn converse(
    stream: &UnixStream,
    session: &mut Session,
    shutdown: &Shutdown,
    growth: &Growth,
) -> String {
    let set_up = stream
        .set_write_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_nonblocking(false));
    if let Err(error) = set_up {
        return error.to_string();
    }
    loop {
        match wait(stream, shutdown, growth) {
            Ok(Some(Next::Input)) => {}
            Ok(Some(Next::Growth)) => {
                session.look_at_size();
                continue;
            }
            Ok(None) => return "the server ends".into(),
            Err(error) => return chain(&error).to_string(),
        }
        let heard = match message::receive(stream, PATIENCE) {
            Ok(None) => return "it has left".into(),
            Ok(Some(message)) => session.hear(message, stream),
            Err(error) => Err(error),
        };
        if let Err(error) = heard {
            return error.to_string();
        }
    }
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Input,
    Growth,
}

/// Waits until there is something to read, or the volume has grown; none when the server ends.
fn wait(from: &impl AsFd, shutdown: &Shutdown, growth: &Growth) -> Result<Option<Next>, Error> {
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(shutdown.event(), PollFlags::IN),
            PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(growth.0.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Error::io("cannot wait for a virtual machine", error)),
        }
        if shutdown.is_triggered() {
            return Ok(None);
        }
        if !fds[2].revents().is_empty() {
            growth.take();
            return Ok(Some(Next::Growth));
        }
        if !fds[1].revents().is_empty() {
            return Ok(Some(Next::Input));
        }
    }
}
