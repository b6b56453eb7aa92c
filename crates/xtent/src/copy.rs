//! Moves a whole image in large pieces, several at a time, with a progress
//! bar for people and a clean end on Ctrl-C.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{signals, size::show_size};

/// Bytes moved at a time by one thread.
const PIECE: usize = 2 << 20;
/// Threads at most: enough to overlap disk and cipher.
const THREADS: usize = 4;
/// Nobody needs a bar for what is over before it is read.
const BAR_AFTER: Duration = Duration::from_secs(2);

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

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C ends a copy after the pieces under way, so that the
/// message can say how far it came.
pub(crate) fn catch_interruptions() -> Result<()> {
    signals::hold()?;
    signals::on_ending(|_| INTERRUPTED.store(true, Ordering::Relaxed))
}

/// Calls `read` then `write` for every piece of `size` bytes, from several
/// threads, in no particular order, and `finish` (flushes) at the end.
/// `unfinished` says what a failure leaves behind.
pub(crate) fn copy(
    size: u64,
    output: &Output,
    unfinished: &str,
    read: impl Fn(&mut [u8], u64) -> Result<()> + Sync,
    write: impl Fn(&mut [u8], u64) -> Result<()> + Sync,
    finish: impl FnOnce() -> Result<()>,
) -> Result<Moved> {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let failure: Mutex<Option<Failure>> = Mutex::new(None);
    let failed = AtomicBool::new(false);
    let bar = Bar::new(size, output);

    let threads = std::thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(THREADS);
    let work = || {
        let mut buf = Vec::new();
        if buf.try_reserve_exact(PIECE).is_err() {
            return Err(Failure::new(
                crate::failure::Exit::Memory,
                "no memory for a copy buffer",
            ));
        }
        buf.resize(PIECE, 0);
        while !failed.load(Ordering::Relaxed) && !INTERRUPTED.load(Ordering::Relaxed) {
            let offset = next.fetch_add(PIECE as u64, Ordering::Relaxed);
            if offset >= size {
                break;
            }
            let piece = usize::try_from(size - offset).unwrap_or(PIECE).min(PIECE);
            let piece = &mut buf[..piece];
            read(piece, offset)?;
            write(piece, offset)?;
            done.fetch_add(piece.len() as u64, Ordering::Relaxed);
            bar.show(started, done.load(Ordering::Relaxed));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                if let Err(e) = work() {
                    failed.store(true, Ordering::Relaxed);
                    let mut first = failure
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    first.get_or_insert(e);
                }
            });
        }
    });
    bar.clear();

    let copied = done.load(Ordering::Relaxed);
    let so_far = || {
        format!(
            "{unfinished} {} of {} were copied.",
            show_size(copied),
            show_size(size)
        )
    };
    let first = failure
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(e) = first {
        let advice = match &e.advice {
            Some(more) => format!("{}\n{more}", so_far()),
            None => so_far(),
        };
        return Err(e.advise(advice));
    }
    if copied < size {
        return Err(Failure::parameters("interrupted").advise(so_far()));
    }
    finish()?;
    Ok(Moved {
        bytes: copied,
        elapsed: started.elapsed(),
    })
}

/// The progress bar; shows itself late or never.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new(size: u64, output: &Output) -> Self {
        if !output.has_viewer() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(Some(size), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template(
            "{wide_bar} {percent:>3}%  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left",
        );
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self(Some(bar))
    }

    fn show(&self, started: Instant, done: u64) {
        let Some(bar) = &self.0 else { return };
        if bar.is_hidden() && started.elapsed() >= BAR_AFTER {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.set_position(done);
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
