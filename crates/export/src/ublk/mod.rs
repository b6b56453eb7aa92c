//! A volume as a block device of the kernel, `/dev/ublkbN`, by the driver `ublk_drv`: requests of
//! the kernel's come to threads of this process, of which each has one of the device's queues.
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
//! Nor does the device of a volume that somebody else has been given meanwhile: its requests fail, and it is to be
//! [stopped](Stopper) at once, since what its users would write later knows nothing of what the other has written.
//!
//! Only root makes devices. The kernel is trusted with the data, as with any file system's.

mod abi;
mod control;
mod growth;
mod params;
mod queue;
mod ring;
mod stopper;
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
pub use growth::Growth;
pub use stopper::Stopper;

/// Queues of a device where it is not said, at most: one for each processor. What the cipher does at once it
/// does on the queue's thread, so that is how many requests of a page cache are served at a time.
const QUEUES: u16 = 4;
/// Most queues that a device can be given: each takes memory for its requests.
pub const MOST_QUEUES: u16 = 16;
/// Requests that a queue has at a time.
const DEPTH: u16 = 32;
/// Most bytes of a request that reads or writes: as many as the block layer has in one of scattered
/// pages. With all requests such, that is 16 MiB for each queue.
const LARGEST: u32 = 512 << 10;
/// Most bytes of a range that is discarded or zeroed: what is zeroed is written, and a server that
/// ends waits for it.
const LARGEST_RANGE: u64 = 64 << 20;
/// Threads for requests that must wait for a disk, at most.
const WORKERS: usize = 8;
/// Bytes of requests that wait for a store that completes later, at most, beside the queues' own.
const MEMORY: usize = 64 << 20;

/// All that serving a device takes but the device: memory, and rings.
pub struct Server {
    queues: Vec<Prepared>,
    carrier: Arc<Carrier>,
}

impl Server {
    /// For a device that was made for the volume, or waits for it. Call it on the thread that calls
    /// [`Server::spawn`], before privileges are given up.
    pub fn new(info: &Info, volume: &Arc<Volume>, shutdown: &Shutdown) -> Result<Self, Error> {
        crate::expect_writeback();
        let own = Threads::Executors;
        let carrier = Carrier::new(volume, Executor::with_own_threads(), MEMORY, own);
        let queues = (0..info.queues)
            .map(|number| Prepared::new(number, info.depth, info.is_encoded, &carrier, shutdown))
            .collect::<std::io::Result<_>>()
            .map_err(|error| Error::io("cannot prepare to serve a device", error))?;
        Ok(Self { queues, carrier })
    }

    /// Starts the threads, which wait for the device.
    pub fn spawn(self) -> Result<Ready, Error> {
        let Self { queues, carrier } = self;
        let failed = |error| Error::io("cannot start a thread for the device", error);
        carrier.executor().open(WORKERS).map_err(failed)?;
        let threads = queues
            .into_iter()
            .enumerate()
            .map(|(number, queue)| Waiting::spawn(number, queue))
            .collect::<std::io::Result<_>>()
            .map_err(failed)?;
        Ok(Ready { threads, carrier })
    }
}

/// The thread of a queue, which waits for the device.
struct Waiting {
    give: Sender<(Arc<File>, Descriptors)>,
    told: Receiver<std::io::Result<()>>,
    thread: Thread,
}

type Thread = std::thread::JoinHandle<std::io::Result<()>>;

impl Waiting {
    fn spawn(number: usize, queue: Prepared) -> std::io::Result<Self> {
        let (give, given) = channel::<(Arc<File>, Descriptors)>();
        let (tell, told) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("ublk{number}"))
            .spawn(move || match given.recv() {
                Ok((file, descriptors)) => queue.serve(file, descriptors, &tell),
                // There is no device.
                Err(_) => Ok(()),
            })?;
        Ok(Self { give, told, thread })
    }
}

/// Threads that wait for the device that they are to serve.
pub struct Ready {
    threads: Vec<Waiting>,
    carrier: Arc<Carrier>,
}

impl Ready {
    /// Has the device served, which was made or [handed over](Control::hand_over); returns once the
    /// driver can be told to [start](Control::start). Nothing here takes memory or threads, and the driver
    /// hears nothing before all that can fail here has not.
    ///
    /// A process that is killed meanwhile may leave a device of which the driver has heard of some queues
    /// and not of others. Some kernels (Linux 6.1, 6.12) do not survive that such a device is handed over
    /// again: note that this has begun where the next one looks.
    pub fn serve(self, info: &Info) -> Result<Serving, Error> {
        let path = format!("/dev/ublkc{}", info.number);
        let file = File::options().read(true).write(true).open(&path);
        let file = file.map_err(|error| Error::io(format!("cannot open {path}"), error))?;
        let file = Arc::new(file);
        let mapped: Vec<_> = (0..info.queues)
            .map(|queue| Descriptors::map(&file, queue, info.depth))
            .collect::<std::io::Result<_>>()
            .map_err(|error| Error::io(format!("cannot map {path}"), error))?;
        for (waiting, descriptors) in self.threads.iter().zip(mapped) {
            // Where the thread has panicked, so does what it would say fail.
            let _ = waiting.give.send((Arc::clone(&file), descriptors));
        }
        let gone = |_| Err(std::io::ErrorKind::Other.into());
        for waiting in &self.threads {
            let told = waiting.told.recv().unwrap_or_else(gone);
            told.map_err(|error| Error::io("the driver does not take a server's word", error))?;
        }
        Ok(Serving {
            threads: self.threads.into_iter().map(|it| it.thread).collect(),
            carrier: self.carrier,
        })
    }
}

/// A device that is served.
pub struct Serving {
    threads: Vec<Thread>,
    carrier: Arc<Carrier>,
}

impl Serving {
    /// Waits until the device was stopped, or the server told to end; then flushes the volume. The
    /// error is the first of the queues' and the flush's.
    ///
    /// A server that ends finishes the requests that are under way and begins no other.
    pub fn wait(self) -> Result<(), Error> {
        let panicked = |_| Err(std::io::Error::other("its thread panicked"));
        let ended: Vec<_> = self
            .threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect();
        let served: std::io::Result<()> = ended.into_iter().collect();
        self.carrier.executor().close();
        let flushed = match self.carrier.volume().is_read_only() {
            true => Ok(()),
            false => self.carrier.volume().flush().map_err(Error::from),
        };
        served.map_err(|error| Error::io("the device cannot be served any more", error))?;
        flushed
    }
}
