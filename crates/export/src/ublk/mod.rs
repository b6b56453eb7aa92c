//! A volume as a block device of the kernel, `/dev/ublkbN`, by the driver `ublk_drv`: requests of
//! the kernel's come to a thread of this process, which has the device's one queue.
//!
//! The data passes through memory of this process: the driver copies what is written there before
//! it tells of the request, and what was read from there when it is told of the end. The kernel's
//! own pages are never what the cipher works on. Every version of the driver does that.
//!
//! A server that is gone, killed or ended, leaves the device: its requests wait for the next one
//! ([`Control::hand_over`]), and those that were under way are carried out once more. That does no
//! harm. Nobody was told of their end, so nobody relies on it, and the kernel still has their data. A
//! write puts the same data there again, over whatever part of it the last server had written; two
//! writes to the same sectors that are under way at a time have no order, as with any disk. Reads
//! change nothing, zeros and discards have the same result as often as they are carried out, and a
//! flush makes durable all that was answered before, by whichever server: files, block devices and images in
//! a cluster have that. A client of an NBD server's has not: what was answered and not flushed is in the
//! memory of that process, which sends it again to a server that was lost, and what the process has sent
//! last may arrive after the next one's. Whoever makes a device on such [says](Control::add) that it does
//! not wait.
//!
//! Only root makes devices. The kernel is trusted with the data, as with any file system's.

mod abi;
mod control;
mod queue;
mod ring;
mod work;

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use xtent_volume::Volume;

use crate::Error;
use crate::executor::Executor;
use crate::request::{Carrier, Threads};
use crate::shutdown::Shutdown;
use queue::{Descriptors, Prepared};

pub use control::{Control, Info, State};

/// Queues of a device. With more, a server that is killed while it takes the device over leaves some that
/// the driver has heard of and others that it has not, and the next one's attempt takes some kernels
/// (Linux 6.12) down. Of one, all is ready or nothing.
const QUEUES: u16 = 1;
/// Requests that a queue has at a time.
const DEPTH: u16 = 32;
/// Most bytes of a request that reads or writes: as many as the block layer has in one of scattered
/// pages. With all requests such, that is 16 MiB.
const LARGEST: u32 = 512 << 10;
/// Most bytes of a range that is discarded or zeroed: what is zeroed is written, and a server that
/// ends waits for it.
const LARGEST_RANGE: u64 = 64 << 20;
/// Threads for requests that must wait for a disk, at most.
const WORKERS: usize = 8;
/// Bytes of requests that wait for a store that completes later, at most, beside the queues' own.
const MEMORY: usize = 64 << 20;

/// Keeps the kernel from having this thread, and those that it starts from now on, wait for dirty pages in
/// allocations of memory: it is they who write them. Call it before the volume is opened, since stores have
/// threads too; [`Server::new`] does it for its own. It takes `CAP_SYS_RESOURCE`.
pub fn expect_writeback() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::info!(%error, "the kernel does not know that this process writes dirty pages");
    }
}

/// All that serving a device takes but the device: memory, and a ring.
pub struct Server {
    queue: Prepared,
    carrier: Arc<Carrier>,
}

impl Server {
    /// For a device that was made for the volume, or waits for it. Call it on the thread that calls
    /// [`Server::spawn`], before privileges are given up.
    pub fn new(info: &Info, volume: &Arc<Volume>, shutdown: &Shutdown) -> Result<Self, Error> {
        expect_writeback();
        let own = Threads::Executors;
        let carrier = Carrier::new(volume, Executor::with_own_threads(), MEMORY, own);
        let queue = Prepared::new(info.depth, info.is_encoded, &carrier, shutdown)
            .map_err(|error| Error::io("cannot prepare to serve a device", error))?;
        Ok(Self { queue, carrier })
    }

    /// Starts the threads, which wait for the device.
    pub fn spawn(self) -> Result<Ready, Error> {
        let Self { queue, carrier } = self;
        let failed = |error| Error::io("cannot start a thread for the device", error);
        carrier.executor().open(WORKERS).map_err(failed)?;
        let (give, given) = channel::<(File, Descriptors)>();
        let (tell, told) = channel();
        let thread = std::thread::Builder::new()
            .name("ublk".into())
            .spawn(move || match given.recv() {
                Ok((file, descriptors)) => queue.serve(file, descriptors, &tell),
                // There is no device.
                Err(_) => Ok(()),
            })
            .map_err(failed)?;
        Ok(Ready {
            give,
            told,
            serving: Serving { thread, carrier },
        })
    }
}

/// Threads that wait for the device that they are to serve.
pub struct Ready {
    give: Sender<(File, Descriptors)>,
    told: Receiver<std::io::Result<()>>,
    serving: Serving,
}

impl Ready {
    /// Has the device served, which was made or [handed over](Control::hand_over); returns once the
    /// driver can be told to [start](Control::start). Nothing here takes memory or threads.
    pub fn serve(self, info: &Info) -> Result<Serving, Error> {
        let path = format!("/dev/ublkc{}", info.number);
        let file = File::options().read(true).write(true).open(&path);
        let file = file.map_err(|error| Error::io(format!("cannot open {path}"), error))?;
        let descriptors = Descriptors::map(&file, info.depth)
            .map_err(|error| Error::io(format!("cannot map {path}"), error))?;
        // Where the thread has panicked, so does what it would say fail.
        let _ = self.give.send((file, descriptors));
        let gone = |_| Err(std::io::ErrorKind::Other.into());
        let told = self.told.recv().unwrap_or_else(gone);
        told.map_err(|error| Error::io("the driver does not take a server's word", error))?;
        Ok(self.serving)
    }
}

/// A device that is served.
pub struct Serving {
    thread: std::thread::JoinHandle<std::io::Result<()>>,
    carrier: Arc<Carrier>,
}

impl Serving {
    /// Waits until the device was stopped, or the server told to end; then flushes the volume. The
    /// error is the first of the queue's and the flush's.
    ///
    /// A server that ends finishes the requests that are under way and begins no other.
    pub fn wait(self) -> Result<(), Error> {
        let panicked = |_| Err(std::io::Error::other("its thread panicked"));
        let served = self.thread.join().unwrap_or_else(panicked);
        self.carrier.executor().close();
        let flushed = match self.carrier.volume().is_read_only() {
            true => Ok(()),
            false => self.carrier.volume().flush().map_err(Error::from),
        };
        served.map_err(|error| Error::io("the device cannot be served any more", error))?;
        flushed
    }
}
