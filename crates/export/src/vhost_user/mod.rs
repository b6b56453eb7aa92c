//! A volume as the disk of a virtual machine: virtio-blk over vhost-user. Requests lie in memory
//! that the guest shares, and go from there to the cipher without a protocol in between.
//!
//! Two front-ends (QEMU, cloud-hypervisor, User Mode Linux) can be connected, so that a guest can
//! move from one to the other; the rings of one are served at a time. Each of the guest's rings has a thread, which does at once what need not wait for a disk. Requests that are under way
//! when this process is killed are carried out by the next one, where the front-end keeps track of
//! them for it (`INFLIGHT_SHMFD`).
//!
//! The front-end is trusted to leave the files of its memory as long as they are: whoever maps a
//! file that is made shorter is killed by its next access. The guest is not trusted.

mod config;
mod dirty;
mod front_ends;
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

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use xtent_volume::Volume;

use crate::Error;
use crate::Shutdown;
use crate::executor::Executor;
use crate::nbd::Listener;
use crate::request::{Carrier, Threads};
use front_ends::FrontEnds;
use request::ID_LENGTH;
use work::Work;

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
    /// Whether what is under way when this process is killed may be carried out by the next one. Not where what this one has
    /// asked for may be done after that (a server's export), or nothing says that the next one has the same volume.
    pub is_resumed: bool,
}

impl Default for Options {
    /// No id, 64 queues, 8 workers, 64 MiB, requests that the next server carries out.
    fn default() -> Self {
        Self {
            id: String::new(),
            queues: MOST_QUEUES,
            workers: 8,
            memory: 64 << 20,
            is_resumed: true,
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

/// Serves the front-ends that connect until `shutdown`, the rings of one at a time. Requests under way are
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
        is_resumed: options.is_resumed,
    });
    let queues = options.queues.clamp(1, MOST_QUEUES);
    let served = FrontEnds::new(listener, &work, queues).serve(shutdown, growth);
    executor.close();
    let flushed = match volume.is_read_only() {
        true => Ok(()),
        false => volume.flush().map_err(Error::from),
    };
    served.and(flushed)
}
