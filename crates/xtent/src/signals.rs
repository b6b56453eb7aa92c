//! Orderly ends: SIGINT and SIGTERM ask a long-running command to finish.

use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::failure::{Failure, Result};
use crate::output::complain;

/// Signals that ask for an end.
fn endings() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

/// Holds the ending signals back from this thread and every thread it starts
/// from now on. Call it before any thread exists.
pub(crate) fn hold() -> Result<()> {
    endings()
        .thread_block()
        .map_err(|e| Failure::system("cannot hold signals back", e))
}

/// Turns a write beyond the file size limit (`ulimit -f`) into an error, where the
/// system would end the process. Programs that this one starts have it as usual:
/// they start with no signal held back. Call it before any thread exists.
pub(crate) fn file_size_limit_is_an_error() -> Result<()> {
    let limit: SigSet = [Signal::SIGXFSZ].into_iter().collect();
    limit
        .thread_block()
        .map_err(|e| Failure::system("cannot hold signals back", e))
}

/// All signals, held back from this thread until the process ends: for a few steps
/// that none may part. Where a stop would count, too, since what waits for a
/// semaphore does not go on after it.
pub(crate) struct Held(SignalFd);

impl Held {
    /// Call it when no other thread exists that could take a signal.
    pub(crate) fn all() -> Result<Self> {
        let failed = |e| Failure::system("cannot hold signals back", e);
        SigSet::all().thread_block().map_err(failed)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        SignalFd::with_flags(&endings(), flags)
            .map(Self)
            .map_err(failed)
    }

    /// Whether SIGINT or SIGTERM has come since it was last asked.
    pub(crate) fn ended(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }
}

/// Signals this soon after the first one are the same wish: a terminal, a
/// supervisor and `timeout` may each pass on theirs.
const SAME_WISH: Duration = Duration::from_secs(1);

/// Starts a thread that calls `first` on the first ending signal. Another one,
/// a second or more later, ends the process at once, with the exit code of a
/// program that the signal has killed. Needs [`hold`] before.
pub(crate) fn on_ending(first: impl Fn(Signal) + Send + 'static) -> Result<()> {
    let mut seen: Option<Instant> = None;
    spawn(move |signal| match seen {
        None => {
            seen = Some(Instant::now());
            first(signal);
        }
        Some(when) if when.elapsed() < SAME_WISH => {}
        Some(_) => {
            complain("xtent: second signal: ending at once, without waiting for the disk");
            std::process::exit(128 + signal as i32);
        }
    })
}

fn spawn(mut each: impl FnMut(Signal) + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let signals = endings();
            while let Ok(signal) = signals.wait() {
                each(signal);
            }
        })
        .map(drop)
        .map_err(|e| Failure::system("cannot start the signal thread", e))
}

/// As [`on_ending`], calling `each` on every ending signal: for what decides
/// itself when to use force.
pub(crate) fn on_ending_repeated(each: impl Fn() + Send + 'static) -> Result<()> {
    spawn(move |_| each())
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn a_held_signal_waits_to_be_asked_for() {
        // Of this thread, which ends with the test.
        let held = Held::all().unwrap();
        raise(Signal::SIGHUP).unwrap();
        assert!(!held.ended());
        raise(Signal::SIGTERM).unwrap();
        assert!(held.ended());
        assert!(!held.ended());
    }
}
