//! How far a copy has come, for people as a bar and for programs as lines of
//! JSON.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::Signal;

use crate::failure::{Failure, Result};
use crate::output::{Output, complain};
use crate::signals;
use crate::size::show_size;

/// Nobody needs a bar for what is over before it is read.
const BAR_AFTER: Duration = Duration::from_secs(2);
/// Milliseconds between two lines of JSON.
const JSON_EVERY: u64 = 500;

/// How far a copy has come. Clones are the same progress.
#[derive(Clone)]
pub(crate) struct Progress(Arc<State>);

struct State {
    started: Instant,
    /// Bytes that there are to copy, if that is known.
    total: Option<u64>,
    done: AtomicU64,
    bar: Option<ProgressBar>,
    json: bool,
    /// Milliseconds from the start to the last line of JSON.
    last_line: AtomicU64,
    /// The signal that asked for the end; 0 for none.
    interrupted: AtomicI32,
    /// Whether the copy has ended, so that a signal changes nothing any more.
    ended: Mutex<bool>,
    /// What a failure leaves behind, as a sentence.
    unfinished: String,
}

impl Progress {
    /// The start of a copy. `json` asks for lines of JSON; `unfinished` says
    /// what a failure leaves behind.
    pub(crate) fn start(
        total: Option<u64>,
        json: bool,
        output: &Output,
        unfinished: impl Into<String>,
    ) -> Self {
        Self(Arc::new(State {
            started: Instant::now(),
            total,
            done: AtomicU64::new(0),
            bar: (!json && output.has_viewer()).then(|| bar(total)),
            json,
            last_line: AtomicU64::new(0),
            interrupted: AtomicI32::new(0),
            ended: Mutex::new(false),
            unfinished: unfinished.into(),
        }))
    }

    /// From here on Ctrl-C (SIGTERM, SIGHUP) ends the copy after the pieces under way, so that
    /// the message can say how far it came. Call it before any thread exists.
    pub(crate) fn stop_on_signals(&self) -> Result<()> {
        let state = self.clone();
        signals::hold()?;
        signals::on_ending(move |signal| {
            let number = signal as i32;
            state.0.interrupted.store(number, Ordering::Relaxed);
        })
    }

    /// From here on Ctrl-C ends the process at once, with that message: a
    /// piece under way may be waiting for another program for ever. Call it
    /// before any thread exists.
    pub(crate) fn exit_on_signals(&self, output: Output) -> Result<()> {
        let state = self.clone();
        signals::hold()?;
        signals::on_ending(move |signal| {
            // Held until the process is gone: nothing else is said.
            let ended = state.ended();
            if *ended {
                return;
            }
            state.clear();
            let failure = state.explain(Failure::interrupted(signal));
            crate::show(&failure, output.json);
            std::process::exit(failure.exit as i32);
        })
    }

    /// The signal that asked for the end.
    pub(super) fn interruption(&self) -> Option<Signal> {
        match self.0.interrupted.load(Ordering::Relaxed) {
            0 => None,
            number => Signal::try_from(number).ok(),
        }
    }

    /// Whether a signal asked for the end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interruption().is_some()
    }

    /// Counts bytes that were copied.
    pub(crate) fn advance(&self, bytes: usize) {
        let state = &*self.0;
        let done = state.done.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if let Some(bar) = &state.bar {
            if bar.is_hidden() && state.started.elapsed() >= BAR_AFTER {
                bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            bar.set_position(done);
        }
        if state.json {
            let now = u64::try_from(state.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            let last = state.last_line.load(Ordering::Relaxed);
            let is_due = now.saturating_sub(last) >= JSON_EVERY;
            // Of several threads one writes the line.
            if is_due
                && state
                    .last_line
                    .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                self.line();
            }
        }
    }

    /// Bytes copied so far.
    pub(crate) fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.started.elapsed()
    }

    /// The end, good or bad: no bar is left, and signals act no more.
    pub(crate) fn end(&self) {
        *self.ended() = true;
        self.clear();
        if self.0.json {
            self.line();
        }
    }

    /// The failure, with what it leaves behind and how much was copied.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        let done = show_size(self.done());
        let so_far = match self.0.total {
            Some(total) => format!(
                "{} {done} of {} were copied.",
                self.0.unfinished,
                show_size(total)
            ),
            None => format!("{} {done} were copied.", self.0.unfinished),
        };
        let advice = match &failure.advice {
            Some(more) => format!("{so_far}\n{more}"),
            None => so_far,
        };
        failure.advise(advice)
    }

    fn ended(&self) -> MutexGuard<'_, bool> {
        self.0.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self) {
        let line = serde_json::json!({
            "bytes": self.done(),
            "total": self.0.total,
            "seconds": self.elapsed().as_secs_f64(),
        });
        complain(&line.to_string());
    }

    fn clear(&self) {
        if let Some(bar) = &self.0.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let template = match total {
        Some(_) => {
            "{wide_bar} {percent:>3}%  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left"
        }
        None => "{spinner} {binary_bytes}  {binary_bytes_per_sec}  {elapsed}",
    };
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
