//! A volume as a block device of the kernel, `/dev/ublkbN`, by the driver `ublk_drv`: requests of
//! the kernel's come to this process, one thread for each of the device's queues.
//!
//! The data passes through memory of this process: the driver copies what is written there before
//! it tells of the request, and what was read from there when it is told of the end. The kernel's
//! own pages are never what the cipher works on. Every version of the driver does that.
//!
//! A server that is gone, killed or ended, leaves the device: its requests wait for the next one
//! ([`Control::take_over`]), and those that were under way are carried out once more. That does no
//! harm. Nobody was told of their end, so nobody relies on it, and the kernel still has their data. A
//! write puts the same data there again, over whatever part of it the last server had written; two
//! writes to the same sectors that are under way at a time have no order, as with any disk. Reads
//! change nothing, zeros and discards have the same result as often as they are carried out, and a
//! flush makes durable all that was answered before, by whichever server: the store has that.
//!
//! Only root makes devices. The kernel is trusted with the data, as with any file system's.

mod abi;
mod control;
mod queue;
mod work;

use std::sync::Arc;

use xtent_store::Memory;
use xtent_volume::Volume;

use crate::Error;
use crate::executor::Executor;
use crate::nbd::Shutdown;
use queue::{Descriptors, Queue};
use work::Work;

pub use control::{Control, Info, State};

/// Most queues of a device.
const MOST_QUEUES: u16 = 4;
/// Requests that a queue has at a time.
const DEPTH: u16 = 32;
/// Most bytes of a request that reads or writes: as many as the block layer has in one of scattered
/// pages. With all queues at work on such, that is 64 MiB.
const LARGEST: u32 = 512 << 10;
/// Most bytes of a range that is discarded or zeroed: what is zeroed is written, and a server that
/// ends waits for it.
const LARGEST_RANGE: u64 = 64 << 20;
/// Threads for requests that must wait for a disk, at most.
const WORKERS: usize = 8;
/// Bytes of requests that wait for a store that completes later, at most, beside the queues' own.
const MEMORY: usize = 64 << 20;

/// A device that this process is about to serve: its files are open, and there is no thread yet.
pub struct Device {
    queues: Vec<Queue>,
    work: Arc<Work>,
}

impl Device {
    /// Of a device that was made for the volume or taken over with it. Call it on the thread that calls
    /// [`Device::serve`], before privileges are given up.
    pub fn open(info: &Info, volume: &Arc<Volume>, shutdown: &Shutdown) -> Result<Self, Error> {
        // Memory allocations of the threads must not wait for dirty pages that only they can write;
        // they inherit it from this one. It takes CAP_SYS_RESOURCE.
        if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
            tracing::info!(%error, "the kernel does not know that this process writes dirty pages");
        }
        let path = format!("/dev/ublkc{}", info.number);
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path);
        let file = Arc::new(file.map_err(|error| Error::io(format!("cannot open {path}"), error))?);
        let work = Arc::new(Work {
            volume: Arc::clone(volume),
            executor: Executor::with_own_threads(),
            memory: Memory::new(MEMORY),
            bulk: Memory::new(4 << 20),
        });
        let queues = (0..info.queues)
            .map(|number| {
                let descriptors = Descriptors::map(&file, number, info.depth)?;
                Queue::new(&file, descriptors, info.is_encoded, &work, shutdown)
            })
            .collect::<std::io::Result<_>>()
            .map_err(|error| Error::io(format!("cannot prepare to serve {path}"), error))?;
        Ok(Self { queues, work })
    }

    /// Starts the threads; returns once the driver can be told to [start](Control::start).
    pub fn serve(self) -> Result<Serving, Error> {
        let Self { queues, work } = self;
        let failed = |error| Error::io("cannot start a thread for the device", error);
        work.executor.open(WORKERS).map_err(failed)?;
        let mut threads = Vec::new();
        let (tell, told) = std::sync::mpsc::channel();
        for queue in queues {
            let tell = tell.clone();
            let thread = std::thread::Builder::new()
                .name("ublk".into())
                .spawn(move || queue.run(&tell))
                .map_err(failed)?;
            threads.push(thread);
        }
        drop(tell);
        let serving = Serving { threads, work };
        for _ in &serving.threads {
            // One that panicked says nothing.
            let result = told
                .recv()
                .unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
            result.map_err(|error| Error::io("the driver does not take a server's word", error))?;
        }
        Ok(serving)
    }
}

/// A device that is served.
pub struct Serving {
    threads: Vec<std::thread::JoinHandle<()>>,
    work: Arc<Work>,
}

impl Serving {
    /// Waits until the device was stopped, or the server told to end; then flushes the volume. The
    /// error is the flush's.
    ///
    /// A server that ends finishes the requests that are under way and begins no other.
    pub fn wait(self) -> Result<(), Error> {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the device panicked");
            }
        }
        self.work.executor.close();
        match self.work.volume.is_read_only() {
            true => Ok(()),
            false => self.work.volume.flush().map_err(Error::from),
        }
    }
}
