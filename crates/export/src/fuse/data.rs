//! What the file's requests come to: where failures are noted, and the way to a store that
//! completes later, which takes no thread for each request.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use xtent_store::chain;
use xtent_store::{Memory, block_on};
use xtent_volume::{Error, Volume};

use crate::executor::{Executor, Kind};

/// Threads for requests whose store completes later: they decrypt, encrypt and answer.
pub(super) const WORKERS: usize = 2;

/// Bytes of such requests under way.
const MEMORY: usize = 64 << 20;

/// What the file system shares with those who manage its mount.
#[derive(Default)]
pub(super) struct Shared {
    /// How many have the file open.
    pub(super) openers: AtomicUsize,
    /// statfs(2) fails. A loop device that is attached meanwhile offers
    /// neither discards nor "write zeroes".
    pub(super) statfs_fails: AtomicBool,
    /// Writes that failed. Who wrote may never hear of it: the kernel writes later
    /// what came through its cache or a file system.
    pub(super) lost: Mutex<Lost>,
}

/// Writes that failed.
#[derive(Default)]
pub(super) struct Lost {
    pub(super) count: u64,
    pub(super) first: Option<Error>,
}

impl Shared {
    /// Takes note of a failed write.
    pub(super) fn lose(&self, what: &str, range: &Range<u64>, error: Error) -> Errno {
        let errno = failed(what, range, &error);
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.count += 1;
        lost.first.get_or_insert(error);
        errno
    }
}

/// Logs a failed request; its errno.
pub(super) fn failed(what: &str, range: &Range<u64>, error: &Error) -> Errno {
    tracing::error!(
        offset = range.start,
        length = range.end - range.start,
        "{what} failed: {}",
        chain(error)
    );
    Errno::from_i32(error.errno().raw_os_error())
}

/// Requests that leave their thread while the store is at work.
#[derive(Clone)]
pub(super) struct Later {
    volume: Arc<Volume>,
    shared: Arc<Shared>,
    memory: Arc<Memory>,
    executor: Arc<Executor>,
}

impl Later {
    /// For a volume whose store completes later; [`None`] for others.
    pub(super) fn new(volume: &Arc<Volume>, shared: &Arc<Shared>) -> Option<Self> {
        volume.completes_later().then(|| Self {
            volume: Arc::clone(volume),
            shared: Arc::clone(shared),
            memory: Memory::new(MEMORY),
            executor: Executor::new(WORKERS),
        })
    }

    /// What its requests are carried out by.
    pub(super) fn executor(&self) -> &Executor {
        &self.executor
    }

    pub(super) fn read(&self, range: Range<u64>, len: usize, reply: ReplyData) {
        let Self { volume, memory, .. } = self.clone();
        self.executor.spawn(0, Kind::Prompt, async move {
            let hull = volume.hull(range.start, len);
            let Some(buffer) = memory.wait_for(hull.len).await else {
                tracing::error!(length = len, "no memory for a read");
                return reply.error(Errno::ENOMEM);
            };
            match volume.read_async(buffer, range.start, len).await {
                Ok(buffer) => reply.data(&buffer[hull.skip..hull.skip + len]),
                Err(e) => reply.error(failed("read", &range, &e)),
            }
        });
    }

    /// Waits for memory to copy `data` to, and no longer.
    pub(super) fn write(
        &self,
        range: Range<u64>,
        data: &[u8],
        durable: bool,
        written: u32,
        reply: ReplyWrite,
    ) {
        let (volume, shared) = (Arc::clone(&self.volume), Arc::clone(&self.shared));
        let hull = volume.hull(range.start, data.len());
        let Some(mut buffer) = block_on(self.memory.wait_for(hull.len)) else {
            tracing::error!(length = data.len(), "no memory for a write");
            return reply.error(Errno::ENOMEM);
        };
        buffer[hull.skip..hull.skip + data.len()].copy_from_slice(data);
        let len = data.len();
        self.executor.spawn(0, Kind::Prompt, async move {
            let result = volume.write_async(buffer, range.start, len, durable).await;
            match result {
                Ok(()) => reply.written(written),
                Err(e) => reply.error(shared.lose("write", &range, e)),
            }
        });
    }

    pub(super) fn flush(&self, reply: ReplyEmpty) {
        let volume = Arc::clone(&self.volume);
        self.executor.spawn(0, Kind::Prompt, async move {
            match volume.flush_async().await {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(failed("flush", &(0..0), &e)),
            }
        });
    }

    pub(super) fn write_zeroes(&self, range: Range<u64>, reply: ReplyEmpty) {
        let Self {
            volume,
            shared,
            memory,
            ..
        } = self.clone();
        self.executor.spawn(0, Kind::Bulk, async move {
            let len = range.end - range.start;
            let written = volume.write_zeroes_async(&memory, range.start, len, false);
            match written.await {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(shared.lose("write zeroes", &range, e)),
            }
        });
    }
}
