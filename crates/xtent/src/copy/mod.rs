//! Moves a whole image in large pieces, several at a time, with a progress
//! bar for people and a clean end on Ctrl-C.

mod progress;
mod streams;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::failure::{Exit, Failure, Result};
use crate::size::show_size;
pub(crate) use progress::Progress;
pub(crate) use streams::{from_stream, to_stream};

/// Bytes moved at a time by one thread.
const PIECE: usize = 2 << 20;
/// Threads at most: enough to overlap disk and cipher.
const THREADS: usize = 4;

/// How a copy went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
}

impl Moved {
    /// Decimal megabytes per second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// `10 GiB in 8.1 s (1325 MB/s)`
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} in {:.1} s ({:.0} MB/s)",
            show_size(self.bytes),
            self.elapsed.as_secs_f64(),
            self.rate()
        )
    }
}

/// Runs a copy and what makes it durable; a failure of either says how far it
/// came.
pub(crate) fn run(
    progress: &Progress,
    copy: impl FnOnce() -> Result<()>,
    finish: impl FnOnce() -> Result<()>,
) -> Result<Moved> {
    let result = copy().and_then(|()| finish());
    progress.end();
    match result {
        Ok(()) => Ok(Moved {
            bytes: progress.done(),
            elapsed: progress.elapsed(),
        }),
        Err(failure) => Err(progress.explain(failure)),
    }
}

/// Calls `transfer` for every piece of `size` bytes, with a buffer as long as
/// the piece and its offset, from several threads, in no particular order.
pub(crate) fn in_pieces(
    progress: &Progress,
    size: u64,
    transfer: impl Fn(&mut [u8], u64) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicU64::new(0);
    let failure: Mutex<Option<Failure>> = Mutex::new(None);
    let failed = AtomicBool::new(false);

    let work = || {
        let mut buf = buffer()?;
        while !failed.load(Ordering::Relaxed) && !progress.is_interrupted() {
            let offset = next.fetch_add(PIECE as u64, Ordering::Relaxed);
            if offset >= size {
                break;
            }
            let piece = usize::try_from(size - offset).unwrap_or(PIECE).min(PIECE);
            let piece = &mut buf[..piece];
            transfer(piece, offset)?;
            progress.advance(piece.len());
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                if let Err(e) = work() {
                    failed.store(true, Ordering::Relaxed);
                    let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(e);
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(failure) => Err(failure),
        None => match progress.interruption() {
            Some(signal) if progress.done() < size => Err(Failure::interrupted(signal)),
            _ => Ok(()),
        },
    }
}

fn threads() -> usize {
    std::thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(THREADS)
}

/// Room for one piece.
fn buffer() -> Result<Vec<u8>> {
    let mut buf = Vec::new();
    buf.try_reserve_exact(PIECE)
        .map_err(|_| Failure::new(Exit::Memory, "no memory for a copy buffer"))?;
    buf.resize(PIECE, 0);
    Ok(buf)
}
